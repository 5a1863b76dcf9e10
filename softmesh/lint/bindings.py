"""Rank bindings under the lens: the file itself, and whether it agrees with its mesh graph descriptor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from softmesh.fabric.finding import Finding, Severity, errors_of
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.lint.descriptors import lint_descriptor
from softmesh.lint.file_report import FileReport, Setting, file_report, from_here, refusal_of
from softmesh.lint.visible_devices import check_visible_devices
from softmesh.processes.agreement import disagreements, listed
from softmesh.processes.binding import RankBinding, RankBindings
from softmesh.processes.rank_bindings import read

KIND = "rank bindings"


def lint_bindings(path: Path, setting: Setting) -> FileReport:
    result = read(path, beside=True)
    findings = list(result.findings)
    if result.bindings is None or result.bindings.descriptor is None:
        return file_report(str(path), KIND, "invalid", findings)
    bindings = result.bindings
    descriptor = lint_descriptor(from_here(result.bindings.descriptor), setting)
    verdict = _verdict(bindings)
    if descriptor.report.is_refused:
        findings.append(_refused_descriptor(bindings, descriptor.report))
        verdict = f"its mesh graph descriptor: {descriptor.report.verdict}"
    findings += _host_ranks_left_open(bindings)
    if descriptor.graph is not None:
        differing = check_against_graph(bindings, descriptor.graph, setting)
        findings += differing
        if errors_of(differing):
            verdict = "disagrees with its mesh graph descriptor"
    return file_report(str(path), KIND, verdict, findings)


def _verdict(bindings: RankBindings) -> str:
    return "valid; host ranks left unset" if _without_host_rank(bindings) else "valid"


def _refused_descriptor(bindings: RankBindings, report: FileReport) -> Finding:
    message = f"its mesh graph descriptor is refused ({report.verdict}): {refusal_of(report)}"
    line = bindings.line_of("mesh_graph_desc_path")
    return Finding("bindings/descriptor", Severity.ERROR, message, f"softmesh lint {report.file}", line=line)


def _without_host_rank(bindings: RankBindings) -> list[RankBinding]:
    return [binding for binding in bindings.bindings if binding.mesh_host_rank is None]


def _host_ranks_left_open(bindings: RankBindings) -> list[Finding]:
    left_open = _without_host_rank(bindings)
    if not left_open:
        return []
    ranks = listed([binding.rank for binding in left_open])
    message = f"host ranks left unset (rank {ranks}): the solver assigns them"
    return [Finding("bindings/host-rank-unset", Severity.NOTE, message, line=left_open[0].line_of())]


def check_against_graph(bindings: RankBindings, graph: MeshGraph, setting: Setting) -> list[Finding]:
    """Every process has its place in the graph, every place its process, and sees enough chips for it."""
    meshes = {mesh.id: mesh for mesh in graph.meshes}
    placed = [
        replace(binding, env_overrides={**bindings.global_env, **binding.env_overrides})
        for binding in bindings.bindings
        if binding.mesh_id in meshes
    ]
    return [
        *disagreements(bindings.bindings, graph, bindings.line_of("rank_bindings")),
        *check_visible_devices(placed, meshes, setting.machine),
    ]
