"""Checks rank bindings against the mesh graph: every process has its place, every place its process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.input_files.text_files import Finding, Severity
from softmesh.processes.bindings.rank_bindings import RankBinding

_MOST_NAMED = 12
_TOO_MANY = "take ranks out, or give the mesh a larger host_topology"


def mesh_graph_findings(bindings: Sequence[RankBinding], graph: MeshGraph, line: int | None = None) -> list[Finding]:
    """Check the bindings of one job; `line` is where their list begins.

    The first kind of fault hides the others, which follow from it: the mesh of a rank with a wrong id is unclaimed.
    """
    meshes = {mesh.id: mesh for mesh in graph.meshes}
    placed = [binding for binding in bindings if binding.mesh_id in meshes]
    of_mesh = {id: [binding for binding in placed if binding.mesh_id == id] for id in meshes}
    kinds = (
        [*_unknown_meshes(bindings, meshes), *_unknown_host_ranks(placed, meshes)],
        [
            *_claimed_twice(placed, meshes),
            *(one for id, ranks in of_mesh.items() for one in _too_many(meshes[id], ranks)),
        ],
        list(_unclaimed(meshes, of_mesh, line)),
    )
    return next(filter(None, kinds), [])


def _error(rule: str, message: str, fix: str, line: int | None) -> Finding:
    return Finding(f"bindings/{rule}", Severity.ERROR, message, fix, line=line)


def _unknown_meshes(bindings: Sequence[RankBinding], meshes: Mapping[int, LogicalMesh]) -> Iterator[Finding]:
    for binding in bindings:
        if binding.mesh_id not in meshes:
            message = (
                f"Invalid TT_MESH_ID: Local mesh binding mesh_id {binding.mesh_id} not found in mesh graph "
                f"descriptor (rank {binding.rank})"
            )
            fix = f"the descriptor has the mesh ids {listed(sorted(meshes))}"
            yield _error("unknown-mesh", message, fix, binding.line_of("mesh_id"))


def _unknown_host_ranks(placed: Sequence[RankBinding], meshes: Mapping[int, LogicalMesh]) -> Iterator[Finding]:
    for binding in placed:
        count = meshes[binding.mesh_id].host_count
        if binding.mesh_host_rank is not None and binding.mesh_host_rank >= count:
            message = (
                f"Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank {binding.mesh_host_rank} not found in "
                f"mesh graph descriptor (rank {binding.rank})"
            )
            fix = f"mesh {binding.mesh_id} has the host ranks {listed(list(range(count)))}"
            yield _error("unknown-host-rank", message, fix, binding.line_of("mesh_host_rank"))


def _claimed_twice(placed: Sequence[RankBinding], meshes: Mapping[int, LogicalMesh]) -> Iterator[Finding]:
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
            if sum(other.mesh_id == binding.mesh_id for other in placed) > meshes[binding.mesh_id].host_count:
                fix = _TOO_MANY
            yield _error("claimed-twice", message, fix, binding.line_of("mesh_host_rank"))


def _too_many(mesh: LogicalMesh, ranks: Sequence[RankBinding]) -> Iterator[Finding]:
    """There is no place for them."""
    if len(ranks) > mesh.host_count:
        message = (
            f"{len(ranks)} ranks are bound to mesh {mesh.id}, whose host_topology {_grid(mesh)} has room for "
            f"{mesh.host_count}"
        )
        yield _error("too-many-ranks", message, _TOO_MANY, ranks[mesh.host_count].line_of("mesh_id"))


def _unclaimed(
    meshes: Mapping[int, LogicalMesh], of_mesh: Mapping[int, Sequence[RankBinding]], line: int | None
) -> Iterator[Finding]:
    """Too few processes wait for ever at the first barrier."""
    if idle := [id for id, ranks in of_mesh.items() if not ranks]:
        message = f"mesh {listed(idle)} of the descriptor has no rank: the others would wait for it for ever"
        fix = "bind a rank to each mesh, or take the mesh out of the descriptor"
        yield _error("unclaimed", message, fix, line)
    for id, ranks in of_mesh.items():
        mesh = meshes[id]
        if 0 < len(ranks) < mesh.host_count:
            message = (
                f"mesh {id} has {mesh.host_count} host ranks (host_topology {_grid(mesh)}), {len(ranks)} of them "
                f"claimed{_missing(mesh, ranks)}: the others would wait for the rest for ever"
            )
            yield _error("unclaimed", message, "bind a rank to each host rank", line)


def _grid(mesh: LogicalMesh) -> str:
    return f"{mesh.hosts[0]}x{mesh.hosts[1]}"


def _missing(mesh: LogicalMesh, ranks: Sequence[RankBinding]) -> str:
    claimed = [binding.mesh_host_rank for binding in ranks]
    if None in claimed:
        return ""
    return f", missing {listed([rank for rank in range(mesh.host_count) if rank not in claimed])}"


def listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    return shown + (", ..." if len(numbers) > _MOST_NAMED else "")
