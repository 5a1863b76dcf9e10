"""Mapping files under the lens: each file they name, and whether the sub-contexts get along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from softmesh.fabric.finding import Finding, Severity, errors_of
from softmesh.lint.bindings import lint_bindings
from softmesh.lint.descriptors import lint_descriptor
from softmesh.lint.file_report import FileReport, Setting, file_report, from_here, refusal_of
from softmesh.lint.visible_devices import check_shared_devices, devices_of
from softmesh.processes.binding import RankBindings
from softmesh.processes.rank_bindings import read
from softmesh.processes.subcontexts import (
    DESCRIPTORS,
    RANK_BINDINGS,
    Mapped,
    environment_conflicts,
    merged,
    read_mapping,
)
from softmesh.systems.machine import Machine

_KINDS = {RANK_BINDINGS: "rank bindings mapping", DESCRIPTORS: "mesh graph descriptor mapping"}


def lint_bindings_mapping(path: Path, setting: Setting) -> FileReport:
    mapped = read_mapping(path, RANK_BINDINGS, beside=True)
    reports = {id: lint_bindings(from_here(file), setting) for id, file in mapped.files.items()}
    apart = errors_of(mapped.findings) or any(report.is_refused for report in reports.values())
    together = [] if apart else _together(mapped, setting.machine)
    return _report(mapped, RANK_BINDINGS, reports, together)


def lint_descriptor_mapping(path: Path, setting: Setting) -> FileReport:
    mapped = read_mapping(path, DESCRIPTORS, beside=True)
    reports = {id: lint_descriptor(from_here(file), setting).report for id, file in mapped.files.items()}
    return _report(mapped, DESCRIPTORS, reports, [])


def _report(
    mapped: Mapped, key: str, reports: Mapping[int, FileReport], together: list[Finding]
) -> FileReport:
    refused = [
        _refused(id, report, mapped.lines.get(id)) for id, report in reports.items() if report.is_refused
    ]
    verdict = "valid"
    if errors_of(mapped.findings):
        verdict = "invalid"
    elif refused or together:
        verdict = "valid; not so the files it names" if refused else "its sub-contexts disagree"
    return file_report(mapped.file, _KINDS[key], verdict, [*mapped.findings, *refused, *together])


def _refused(id: int, report: FileReport, line: int | None) -> Finding:
    message = f"sub-context {id} is refused ({report.verdict}): {refusal_of(report)}"
    return Finding("bindings/sub-context", Severity.ERROR, message, f"softmesh lint {report.file}", line=line)


def _together(mapped: Mapped, machine: Machine | None) -> list[Finding]:
    overlays = [bindings for file in mapped.files.values() if (bindings := read(file, beside=True).bindings)]
    return [*environment_conflicts(mapped, overlays), *_shared(mapped, overlays, machine)]


def _shared(mapped: Mapped, overlays: list[RankBindings], machine: Machine | None) -> list[Finding]:
    if machine is None:
        return []
    bindings = [binding for binding in merged(mapped.file, overlays).bindings if devices_of(binding)]
    here = [replace(one, lines={"": mapped.lines.get(one.subcontext_id or 0, 1)}) for one in bindings]
    return check_shared_devices(here, machine)
