"""Relaxed versions of a matching task, each without one of its requirements, and what to report when one fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from softmesh.fabric.matching.position_rules import corner_pins
from softmesh.fabric.matching.solver import Task
from softmesh.fabric.mesh_graph import LogicalMesh

AXES = ("rows (N-S)", "columns (E-W)")
MOST_SHAPES = 24


@dataclass(frozen=True)
class Relaxed:
    """`detail` is empty where the broken requirement tells it better, `nearest` where what is found then does."""

    task: Task
    requirement: str
    nearest: str
    detail: str = ""
    line: int | None = None


def fully_up(task: Task) -> Iterator[Relaxed]:
    """With everything working that is known to be down."""
    machine = task.machine
    if machine.down_links or machine.down_chips:
        chips = ", ".join(f"chip {asic.id}" for asic in machine.down_chips)
        links = ", ".join(f"link {link}" for link in machine.down_links[:3])
        if machine.down_chips:
            detail, requirement = f"Failed to find mapping: {chips} is down", "chips"
        else:
            detail, requirement = "", "links"
        nearest = f"With {chips or links} up it fits{_fewer_would_do(task)}."
        yield Relaxed(replace(task, machine=machine.restored()), requirement, nearest, detail)


def _fewer_would_do(task: Task) -> str:
    strict = [mesh for mesh in task.graph.meshes if mesh.strict and mesh.channels > 1]
    return "; policy: RELAXED accepts fewer channels" if strict else ""


def fewer_links(task: Task) -> Iterator[Relaxed]:
    asked = max((mesh.channels for mesh in task.graph.meshes if mesh.strict), default=1)
    most = max((len(links) for near in task.machine.neighbours.values() for links in near.values()), default=0)
    for count in range(min(asked - 1, most), 0, -1):
        meshes = tuple(replace(mesh, channels=min(mesh.channels, count)) for mesh in task.graph.meshes)
        nearest = f"With channels count {count} it fits; with policy: RELAXED it fits as it is, with a warning."
        yield Relaxed(task.asking(meshes=meshes), "links", nearest)


def without_pinnings(task: Task) -> Iterator[Relaxed]:
    pinnings = task.graph.pinnings
    for line in dict.fromkeys(pinning.line for pinning in pinnings):
        kept = tuple(pinning for pinning in pinnings if pinning.line != line)
        place = f"at line {line}" if line is not None else "of the graph"
        nearest = f"With the pinning {place} removed it fits."
        yield Relaxed(task.asking(pinnings=kept), "pinning", nearest, line=line)
    if pinnings:
        yield Relaxed(task.asking(pinnings=()), "pinning", "Without pinnings it fits.")


def without_corners(task: Task) -> Iterator[Relaxed]:
    if any(corner_pins(task.graph, mesh, task.machine) for mesh in task.graph.meshes):
        nearest = "The chips would fit, but not with the mesh's corners on asic 1 of the four trays."
        yield Relaxed(replace(task, with_corners=False), "corners", nearest)


def free_hosts(task: Task) -> Iterator[Relaxed]:
    """What is nearest depends on the hosts that are found then."""
    if task.hosts:
        yield Relaxed(replace(task, hosts={}), "hosts", nearest="")


def other_host_grids(task: Task) -> Iterator[Relaxed]:
    """Only for one mesh: with several, every one would have a grid to choose."""
    if len(task.graph.meshes) > 1 or len(task.machine.hosts) == 1:
        return
    mesh = task.graph.meshes[0]
    for hosts in _host_grids(mesh):
        nearest = f"With host_topology dims: [ {hosts[0]}, {hosts[1]} ] it fits."
        other = task.asking(meshes=(replace(mesh, hosts=hosts),))
        yield Relaxed(replace(other, hosts={}), "hosts", nearest)


def _host_grids(mesh: LogicalMesh) -> list[tuple[int, int]]:
    grids = [
        (rows, columns)
        for rows in range(1, mesh.shape[0] + 1)
        for columns in range(1, mesh.shape[1] + 1)
        if mesh.shape[0] % rows == 0 and mesh.shape[1] % columns == 0 and (rows, columns) != mesh.hosts
    ]
    return sorted(grids, key=lambda grid: (grid[0] * grid[1], grid))[:MOST_SHAPES]


def without_rings(task: Task) -> Iterator[Relaxed]:
    for open_axes in ((1,), (0,), (0, 1)):
        closed = [mesh for mesh in task.graph.meshes if all(mesh.wraps(axis) for axis in open_axes)]
        if not closed:
            continue
        names = " and ".join(AXES[axis] for axis in open_axes)
        length = " and ".join(str(closed[0].shape[axis]) for axis in open_axes)
        detail = (
            f"Failed to find mapping: mesh {closed[0].id} declares RING for its {names}, and {task.machine.name} "
            f"has no wrap links that close rings of {length} chips"
        )
        nearest = f"Declare LINE for the {names} and it fits, or use a machine with torus cabling."
        yield Relaxed(_opened(task, open_axes), "ring", nearest, detail, closed[0].line)


def _opened(task: Task, axes: tuple[int, ...] = (0, 1)) -> Task:
    meshes = task.graph.meshes
    rings = ([ring and axis not in axes for axis, ring in enumerate(mesh.rings)] for mesh in meshes)
    return task.asking(meshes=tuple(replace(mesh, rings=(y, x)) for mesh, (y, x) in zip(meshes, rings, strict=True)))


def without_several(task: Task) -> Iterator[Relaxed]:
    """One requirement more left out each time, for graphs that break several."""
    left_out = []
    for name, ease in (("links", _with_any_links), ("ring", _opened), ("pinning", _unpinned)):
        easier = ease(task)
        if easier != task:
            task = easier
            left_out.append(name)
            if len(left_out) > 1:
                nearest = f"It fits only without several requirements: {', '.join(left_out)}."
                yield Relaxed(task, left_out[0], nearest, line=task.graph.meshes[0].line)


def _with_any_links(task: Task) -> Task:
    return task.asking(meshes=tuple(replace(mesh, strict=False) for mesh in task.graph.meshes))


def _unpinned(task: Task) -> Task:
    return replace(task.asking(pinnings=()), with_corners=False)


def smaller_shapes(task: Task) -> Iterator[Relaxed]:
    """Parts of the only mesh, the largest first. Host grid, pinnings and rings that no longer apply are left out."""
    mesh = task.graph.meshes[0]
    most = min(mesh.size - 1, len(task.machine.asics))
    possible = [
        (rows, columns)
        for rows in range(1, min(mesh.shape[0], most) + 1)
        for columns in range(1, min(mesh.shape[1], most // rows) + 1)
    ]
    possible.sort(key=lambda shape: (shape[0] * shape[1], min(shape)), reverse=True)
    for shape in possible[:MOST_SHAPES]:
        smaller = replace(mesh, shape=shape, rings=(False, False), hosts=(1, 1))
        part = replace(task.asking(meshes=(smaller,), pinnings=()), hosts={}, with_corners=False)
        yield Relaxed(part, "shape", f"The largest part of it that fits is {shape[0]}x{shape[1]}.")
