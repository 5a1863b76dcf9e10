"""The report on one linted file, and the context (machine, fabric) it was linted under."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from softmesh.hardware import FabricConfig
from softmesh.input_files.text_files import Finding, Severity, errors_of
from softmesh.systems.machine import Machine


@dataclass(frozen=True)
class LintContext:
    """What the files are held against. Without a machine nothing is said about hardware."""

    machine: Machine | None = None
    fabric: FabricConfig | None = None
    runtime: bool = True


@dataclass(frozen=True)
class FileReport:
    """`verdict` is the answer in a few words, such as `valid` or `parses; runtime rejects`."""

    file: str
    kind: str
    verdict: str
    findings: tuple[Finding, ...]

    @property
    def is_refused(self) -> bool:
        return bool(errors_of(self.findings))

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "findings": [finding.as_json() for finding in self.findings]}


def file_report(file: str, kind: str, verdict: str, findings: Iterable[Finding]) -> FileReport:
    """Findings in the order of their lines, each with its file."""
    placed = [finding if finding.file else replace(finding, file=file) for finding in findings]
    return FileReport(file, kind, verdict, tuple(sorted(placed, key=lambda one: (one.file != file, one.line or 0))))


def relative_to_cwd(path: Path) -> Path:
    """Relative to the current directory where it lies below it: what a user would type."""
    here = Path(os.getcwd())
    return path.relative_to(here) if path.is_relative_to(here) else path


def refusal_of(report: FileReport) -> str:
    """The first error of a report and how many more there are, on one line."""
    first, *others = errors_of(report.findings)
    place = report.file if first.line is None else f"{report.file}:{first.line}"
    more = f" (and {len(others)} more)" if others else ""
    return f"{place}: {' '.join(first.message.split())}{more}"
