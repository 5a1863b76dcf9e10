"""`softmesh lint`: checks descriptors, bindings and the fabric chosen for them against a machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from softmesh.errors import SoftmeshError
from softmesh.input_files.text_files import FileError, Finding, Severity, read_text
from softmesh.lint.file_report import FileReport
from softmesh.lint.linter import lint as lint_files
from softmesh.terminal_text import console, echo, printable

# Reports as text and as JSON. Colours come only where a terminal shows them.


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
    return f"{_plural(counts['files'], 'file')}: {', '.join(found) or 'no problems found'}"


def _counts(reports: Sequence[FileReport]) -> dict[str, int]:
    of = {f"{severity.value}s": sum(report.count(severity) for report in reports) for severity in Severity}
    return {"files": len(reports), **of}


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _report_lines(report: FileReport) -> Iterator[Text]:
    style = "bold red" if report.is_refused else "green"
    yield Text.assemble((printable(report.file), "bold"), f" ({report.kind}): ", (report.verdict, style))
    sources: dict[str, list[str]] = {}
    for finding in report.findings:
        yield from _finding_lines(finding, sources)


def _finding_lines(finding: Finding, sources: dict[str, list[str]]) -> Iterator[Text]:
    place = printable(finding.place)
    first, *rest = printable(finding.message).splitlines() or [""]
    severity = (finding.severity.value, _STYLES[finding.severity])
    rule = (f" [{finding.rule}]", "dim")
    yield Text.assemble(f"{place}: ", severity, f": {first}", rule if not rest else "")
    for i, line in enumerate(rest, start=1):
        yield Text.assemble(f"    {line}", rule if i == len(rest) else "")
    if finding.line is not None and (source := _source_line(finding.file, finding.line, sources)):
        yield Text(f"    {finding.line:>4} | {printable(source)}", style="dim")
    if finding.fix:
        yield Text(f"    fix: {printable(finding.fix)}")


def _source_line(file: str, line: int, sources: dict[str, list[str]]) -> str:
    if file not in sources:
        try:
            sources[file] = read_text(Path(file)).splitlines()
        except FileError:
            sources[file] = []
    lines = sources[file]
    return lines[line - 1].rstrip()[:_LONGEST_SOURCE] if 0 < line <= len(lines) else ""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--system", metavar="S", help="The machine they should fit: T3000, torus:8x4, a cluster descriptor.")
@click.option("--down", multiple=True, metavar="SPEC", help="What is broken in it: chip:5, link:3-7, link:3/8.")
@click.option("--fabric", metavar="CONFIG", help="The fabric they are for: FABRIC_1D_RING, FABRIC_2D, ...")
@click.option(
    "--runtime/--no-runtime",
    default=True,
    help="Check the runtime's rules as well, or only the syntax.",
)
@click.option("--json", "wants_json", is_flag=True, help="One JSON document instead of text.")
def lint(
    files: tuple[str, ...],
    system: str | None,
    down: tuple[str, ...],
    fabric: str | None,
    runtime: bool,
    wants_json: bool,
) -> None:
    """Check mesh graph descriptors, rank bindings, cluster descriptors and the trays of a Galaxy.

    Exit code 0: no errors; 1: errors found; 2: wrong usage.

    \b
    Examples:
      softmesh lint mgd.textproto --system T3000 --fabric FABRIC_2D
      softmesh lint rank_bindings.yaml --json
    """
    try:
        reports = lint_files(files, system, down, fabric, runtime)
    except SoftmeshError as error:
        raise click.UsageError(str(error)) from None
    if wants_json:
        echo(as_json(reports))
    else:
        print_text(reports, console(highlight=False))
    sys.exit(1 if any(report.is_refused for report in reports) else 0)
