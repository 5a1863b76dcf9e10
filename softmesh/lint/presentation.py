"""Reports as text and as JSON. Colours come only where a terminal shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from softmesh.bounded_file import FileError, read_text
from softmesh.fabric.finding import Finding, Severity
from softmesh.lint.file_report import FileReport

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_LONGEST_SOURCE = 120


def as_json(reports: Sequence[FileReport]) -> str:
    document = {"files": [report.as_json() for report in reports], "summary": _counts(reports)}
    return json.dumps(document, indent=2, ensure_ascii=False)


def print_text(reports: Sequence[FileReport], console: Console) -> None:
    for report in reports:
        for line in _report_lines(report):
            console.print(line, soft_wrap=True)
        console.print()
    console.print(Text(summary(reports)), soft_wrap=True)


def summary(reports: Sequence[FileReport]) -> str:
    """`2 files: 1 error, 3 warnings`"""
    counts = _counts(reports)
    found = [_plural(counts[kind], kind[:-1]) for kind in ("errors", "warnings", "notes") if counts[kind]]
    return f"{_plural(counts['files'], 'file')}: {', '.join(found) or 'nothing to mend'}"


def _counts(reports: Sequence[FileReport]) -> dict[str, int]:
    of = {f"{severity.value}s": sum(report.count(severity) for report in reports) for severity in Severity}
    return {"files": len(reports), **of}


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _report_lines(report: FileReport) -> Iterator[Text]:
    yield Text.assemble(
        (report.file, "bold"), f" ({report.kind}): ", (report.verdict, _verdict_style(report))
    )
    sources: dict[str, list[str]] = {}
    for finding in report.findings:
        yield from _finding_lines(finding, sources)


def _verdict_style(report: FileReport) -> str:
    return "bold red" if report.is_refused else "green"


def _finding_lines(finding: Finding, sources: dict[str, list[str]]) -> Iterator[Text]:
    place = finding.place
    first, *rest = finding.message.splitlines() or [""]
    severity = (finding.severity.value, _STYLES[finding.severity])
    rule = (f" [{finding.rule}]", "dim")
    yield Text.assemble(f"{place}: ", severity, f": {first}", rule if not rest else "")
    for i, line in enumerate(rest, start=1):
        yield Text.assemble(f"    {line}", rule if i == len(rest) else "")
    if finding.line is not None and (source := _source_line(finding.file, finding.line, sources)):
        yield Text(f"    {finding.line:>4} | {source}", style="dim")
    if finding.fix:
        yield Text(f"    fix: {finding.fix}")


def _source_line(file: str, line: int, sources: dict[str, list[str]]) -> str:
    if file not in sources:
        try:
            sources[file] = read_text(Path(file)).splitlines()
        except FileError:
            sources[file] = []
    lines = sources[file]
    return lines[line - 1].rstrip()[:_LONGEST_SOURCE] if 0 < line <= len(lines) else ""
