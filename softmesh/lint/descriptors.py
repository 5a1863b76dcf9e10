"""Mesh graph descriptors under the lens: the format, the fabric asked for, the machine they should fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from softmesh.fabric.descriptors.reading import check
from softmesh.fabric.finding import Finding, Severity, errors_of
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.hardware import ClusterType
from softmesh.lint.fabric_choice import check_fabric_choice
from softmesh.lint.file_report import FileReport, Setting, file_report
from softmesh.lint.hardware import WITHOUT_BRING_UP, check_bring_up, check_fit

KIND = "mesh graph descriptor"
PARSES_ONLY = "parses; runtime rejects"
_REFUSED_LATER = {"mgd/mixed-connections"}


@dataclass(frozen=True)
class DescriptorLint:
    """The report, and the graph as far as the file describes one (also where the runtime refuses it)."""

    report: FileReport
    graph: MeshGraph | None


def lint_descriptor(path: Path, setting: Setting) -> DescriptorLint:
    checked = check(path, runtime=setting.runtime)
    findings = _as_the_runtime_sees(checked.findings) if setting.runtime else list(checked.findings)
    if errors_of(findings) or checked.graph is None:
        return _refused(path, setting, findings)
    verdict = "valid"
    for question in _questions(checked.graph, setting):
        findings += question.findings
        if errors_of(question.findings):
            verdict = question.if_not
            break
        verdict = question.if_so
    return DescriptorLint(file_report(str(path), KIND, verdict, findings), checked.graph)


def _as_the_runtime_sees(findings: Iterable[Finding]) -> list[Finding]:
    """The control plane refuses what the format only frowns upon."""
    return [
        replace(finding, severity=Severity.ERROR) if finding.rule in _REFUSED_LATER else finding
        for finding in findings
    ]


def _refused(path: Path, setting: Setting, findings: Iterable[Finding]) -> DescriptorLint:
    """Tell a file that is wrong from one that only the runtime does not take."""
    parsed = check(path, runtime=False)
    only_parses = setting.runtime and not errors_of(parsed.findings)
    verdict = PARSES_ONLY if only_parses else "invalid"
    return DescriptorLint(file_report(str(path), KIND, verdict, findings), parsed.graph)


class _Question(NamedTuple):
    """With the verdict for either answer; after a no the next ones make no sense."""

    if_so: str
    if_not: str
    findings: list[Finding]


def _questions(graph: MeshGraph, setting: Setting) -> Iterator[_Question]:
    """From the file outwards."""
    machine, fabric = setting.machine, setting.fabric
    if fabric is not None:
        cluster_type = machine.cluster_type if machine else ClusterType.CUSTOM
        choice = check_fabric_choice(graph, fabric, cluster_type)
        yield _Question("valid", f"valid; not for {fabric.name}", choice)
    if machine is not None:
        name = machine.name
        fit = check_fit(graph, machine, fabric)
        yield _Question(f"valid; fits {name}", f"valid; does not fit {name}", fit.findings)
        if fit.match is not None and fabric not in (None, *WITHOUT_BRING_UP):
            yield _Question(
                f"valid; comes up as {fabric.name} on {name}",
                f"valid; {fabric.name} does not come up on {name}",
                check_bring_up(fit.match, fabric),
            )
