"""Rank bindings under the lens: the file itself, and whether it agrees with its mesh graph descriptor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from softmesh.fabric.finding import Finding, Severity, errors_of
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.lint.descriptors import lint_descriptor
from softmesh.lint.file_report import FileReport, Setting, file_report, from_here, refusal_of
from softmesh.lint.visible_devices import check_visible_devices
from softmesh.processes.binding import RankBinding, RankBindings
from softmesh.processes.rank_bindings import read

KIND = "rank bindings"
_MOST_NAMED = 12


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
        disagreements = check_against_graph(bindings, descriptor.graph, setting)
        findings += disagreements
        if errors_of(disagreements):
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
    ranks = _listed([binding.rank for binding in left_open])
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
        *_unknown_meshes(bindings, meshes),
        *_unknown_host_ranks(placed, meshes),
        *_claimed_twice(placed),
        *_wrong_numbers(bindings, placed, meshes),
        *check_visible_devices(placed, meshes, setting.machine),
    ]


def _unknown_meshes(bindings: RankBindings, meshes: dict[int, LogicalMesh]) -> Iterator[Finding]:
    for binding in bindings.bindings:
        if binding.mesh_id not in meshes:
            message = (
                f"Invalid TT_MESH_ID: Local mesh binding mesh_id {binding.mesh_id} not found in mesh graph "
                f"descriptor (rank {binding.rank})"
            )
            fix = f"the descriptor has the mesh ids {_listed(sorted(meshes))}"
            yield Finding(
                "bindings/unknown-mesh", Severity.ERROR, message, fix, line=binding.line_of("mesh_id")
            )


def _unknown_host_ranks(placed: Sequence[RankBinding], meshes: dict[int, LogicalMesh]) -> Iterator[Finding]:
    for binding in placed:
        count = meshes[binding.mesh_id].host_count
        if binding.mesh_host_rank is not None and binding.mesh_host_rank >= count:
            message = (
                f"Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank {binding.mesh_host_rank} not found in "
                f"mesh graph descriptor (rank {binding.rank})"
            )
            fix = f"mesh {binding.mesh_id} has the host ranks {_listed(list(range(count)))}"
            line = binding.line_of("mesh_host_rank")
            yield Finding("bindings/unknown-host-rank", Severity.ERROR, message, fix, line=line)


def _claimed_twice(placed: Sequence[RankBinding]) -> Iterator[Finding]:
    owners: dict[tuple[int, int], int] = {}
    for binding in placed:
        if binding.mesh_host_rank is None:
            continue
        owner = owners.setdefault((binding.mesh_id, binding.mesh_host_rank), binding.rank)
        if owner != binding.rank:
            message = (
                f"rank {binding.rank} claims host rank {binding.mesh_host_rank} of mesh {binding.mesh_id}, "
                f"which rank {owner} has already"
            )
            fix = "give each process of a mesh a mesh_host_rank of its own"
            line = binding.line_of("mesh_host_rank")
            yield Finding("bindings/claimed-twice", Severity.ERROR, message, fix, line=line)


def _wrong_numbers(
    bindings: RankBindings, placed: Sequence[RankBinding], meshes: dict[int, LogicalMesh]
) -> Iterator[Finding]:
    """Too few processes wait for ever at the first barrier; for too many there is no place."""
    line = bindings.line_of("rank_bindings")
    of_mesh = {id: [binding for binding in placed if binding.mesh_id == id] for id in meshes}
    if idle := [id for id, ranks in of_mesh.items() if not ranks]:
        message = f"mesh {_listed(idle)} of the descriptor has no rank: the others would wait for it for ever"
        fix = "bind a rank to each mesh, or take the mesh out of the descriptor"
        yield Finding("bindings/unclaimed", Severity.ERROR, message, fix, line=line)
    for id, ranks in of_mesh.items():
        yield from _wrong_number(meshes[id], ranks, line)


def _wrong_number(mesh: LogicalMesh, ranks: Sequence[RankBinding], line: int | None) -> Iterator[Finding]:
    grid = f"{mesh.hosts[0]}x{mesh.hosts[1]}"
    if len(ranks) > mesh.host_count:
        message = (
            f"{len(ranks)} ranks are bound to mesh {mesh.id}, whose host_topology {grid} has room for "
            f"{mesh.host_count}"
        )
        fix = "take ranks out, or give the mesh a larger host_topology"
        extra = ranks[mesh.host_count].line_of("mesh_id")
        yield Finding("bindings/too-many-ranks", Severity.ERROR, message, fix, line=extra)
    elif ranks and len(ranks) < mesh.host_count:
        message = (
            f"mesh {mesh.id} has {mesh.host_count} host ranks (host_topology {grid}), {len(ranks)} of them "
            f"claimed{_missing(mesh, ranks)}: the others would wait for the rest for ever"
        )
        yield Finding(
            "bindings/unclaimed", Severity.ERROR, message, "bind a rank to each host rank", line=line
        )


def _missing(mesh: LogicalMesh, ranks: Sequence[RankBinding]) -> str:
    claimed = [binding.mesh_host_rank for binding in ranks]
    if None in claimed:
        return ""
    return f", missing {_listed([rank for rank in range(mesh.host_count) if rank not in claimed])}"


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    return shown + (", ..." if len(numbers) > _MOST_NAMED else "")
