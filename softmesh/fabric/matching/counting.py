"""Refusals that need no search: what the machine does not have at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from softmesh.errors import did_you_mean
from softmesh.fabric.match import MatchError
from softmesh.fabric.matching.pin_groups import pin_groups
from softmesh.fabric.matching.requirements import unpinned_text
from softmesh.fabric.matching.solving import Task
from softmesh.fabric.mesh_graph import LogicalMesh


def refusals(task: Task) -> Iterator[MatchError]:
    if not task.graph.meshes:
        yield MatchError("meshes", "The graph has no mesh")
    yield from _architecture(task)
    yield from _chip_count(task)
    yield from _hosts(task)
    for mesh in task.graph.meshes:
        yield from _host_size(task, mesh)
        yield from _pinnings(task, mesh)


def _architecture(task: Task) -> Iterator[MatchError]:
    wanted, have = task.graph.arch, task.machine.chip.arch
    if wanted != have:
        yield MatchError(
            "architecture",
            f"The descriptor is for {wanted.name}, {task.machine.name} has {have.name} chips",
            f"Declare arch: {have.name}, or use a machine with {wanted.name} chips.",
            task.graph.meshes[0].line,
        )


def _chip_count(task: Task) -> Iterator[MatchError]:
    wanted, have = task.graph.size, len(task.machine.asics)
    if wanted > have:
        down = [asic.id for asic in task.machine.down_chips]
        yield MatchError(
            "chip count",
            "Cannot map target graph to global graph: target graph is larger with "
            f"{wanted} nodes, but global graph only has {have} nodes"
            + (f" (down: chips {', '.join(map(str, down))})" if down else ""),
            _meshes_within(task, have),
        )


def _meshes_within(task: Task, chips: int) -> str:
    meshes = sorted(task.graph.meshes, key=lambda mesh: mesh.size)
    count = sum(total <= chips for total in accumulate(mesh.size for mesh in meshes))
    if not count:
        rows, columns = meshes[0].shape
        return f"A {rows}x{columns} mesh needs {meshes[0].size} chips, {task.machine.name} has {chips}."
    held = count if meshes[0].size == meshes[-1].size else f"the {count} smallest"
    return f"{chips} chips hold {held} of the {len(meshes)} meshes."


def _hosts(task: Task) -> Iterator[MatchError]:
    for (mesh, rank), host in task.hosts.items():
        if host not in task.machine.hosts:
            yield MatchError(
                "hosts",
                f"Host consistency violated: mesh {mesh} host rank {rank} is bound to {host!r}, which is no host "
                f"of {task.machine.name} ({', '.join(task.machine.hosts[:8])})",
                did_you_mean(host, task.machine.hosts).strip(),
            )


def _host_size(task: Task, mesh: LogicalMesh) -> Iterator[MatchError]:
    rows, columns = mesh.host_block
    largest = max(len(task.machine.chips_of(host)) for host in task.machine.hosts)
    if rows * columns > largest:
        yield MatchError(
            "hosts",
            f"Failed to set same-rank groups constraint for mesh {mesh.id}: each of its {mesh.host_count} host "
            f"rank(s) owns {rows}x{columns} chips, the largest host of {task.machine.name} has {largest}",
            f"Declare host_topology so that a host owns at most {largest} chips.",
            mesh.line,
        )


def _pinnings(task: Task, mesh: LogicalMesh) -> Iterator[MatchError]:
    mine = [pin for pin in task.graph.pinnings if any(node.mesh == mesh.id for node in pin.nodes)]
    existing = {asic.position for asic in task.machine.asics.values()}
    groups = pin_groups(task.graph, mesh, existing)
    if mine and not groups:
        positions = sorted(existing)
        yield MatchError(
            "pinning",
            unpinned_text(mesh.id),
            f"Positions of {task.machine.name} go from tray {positions[0][0]} asic {positions[0][1]} to tray "
            f"{positions[-1][0]} asic {positions[-1][1]}.",
            mine[0].line,
        )
    for group in groups:
        places = sum(asic.position in group.positions for asic in task.machine.asics.values())
        if len(set(group.chips)) > places:
            yield MatchError(
                "pinning",
                f"{len(set(group.chips))} chips of mesh {mesh.id} are pinned to {places} positions",
                "List as many positions as chips.",
                group.line,
            )
