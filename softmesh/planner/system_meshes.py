"""The meshes that a system offers: shapes and places, and how their devices are joined under a fabric.

Nothing is opened for it: neither the system nor the fabric of the process that asks changes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from softmesh.cost.link_costs import Line
from softmesh.cost.mesh_lines import lines_of
from softmesh.errors import ArgumentError, MeshError, NotModelled, SoftmeshError
from softmesh.fabric.machine_system import MachineSystem
from softmesh.fabric.mesh_binding import Binding
from softmesh.fabric.settings import FabricSettings
from softmesh.hardware import FabricConfig
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.planner.goal import Opening
from softmesh.runtime.device import MeshDevice
from softmesh.systems.chip import Chip
from softmesh.systems.machine import Machine
from softmesh.systems.machine_restriction import with_down
from softmesh.systems.named_systems import load

_USUAL = (FabricConfig.FABRIC_1D, FabricConfig.FABRIC_1D_RING)
_TAKEN = re.compile(r"(\d+)x(\d+)(?:@(\d+),(\d+))?")


@dataclass(frozen=True)
class SystemMesh:
    """A mesh that can be opened. `lines` tell how the devices along each axis are joined."""

    opening: Opening
    chip: Chip
    lines: tuple[Line, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.opening.shape


def meshes_of(
    name: str,
    *,
    fabric: FabricConfig | None = None,
    down: Sequence[str] = (),
    taken: Sequence[str] = (),
    asked: Sequence[tuple[int, ...]] = (),
) -> tuple[SystemMesh, ...]:
    """Those that no other one could stand for, the largest first, under this fabric or any that is in use.

    A mesh stands for another that has a part of its devices along each axis: they need not all do something of their
    own. Shapes that are `asked` for are offered as they are. `taken` are submeshes that others use: "2x4@0,0", a shape
    and where it begins.
    """
    machine = with_down(load(name), list(down)) if down else load(name)
    found: dict[tuple[object, ...], SystemMesh] = {}
    errors: list[SoftmeshError] = []
    for config in (fabric,) if fabric is not None else _USUAL:
        try:
            for mesh in _under(machine, name, config, tuple(down), taken, asked):
                found.setdefault((mesh.shape in asked and mesh.shape, *_kind_of(mesh)), mesh)
        except SoftmeshError as error:
            errors.append(error)
    if not found:
        raise MeshError(f"softmesh.plan: {name} offers no mesh: {errors[0] if errors else 'all of it is taken'}")
    every = sorted(found.values(), key=lambda mesh: (-_size(mesh), not any(line.is_ring for line in mesh.lines)))
    most = _size(every[0])
    usual = [
        mesh
        for mesh in every
        if _size(mesh) == most or all(n & (n - 1) == 0 for n in mesh.shape) or mesh.shape in asked
    ]
    return tuple(
        mesh
        for at, mesh in enumerate(usual)
        if not any(_stands_for(o, mesh) and (mesh.shape not in asked or o.shape == mesh.shape) for o in usual[:at])
    )


def _size(mesh: SystemMesh) -> int:
    return MeshShape(*mesh.shape).mesh_size()


def _kind_of(mesh: SystemMesh) -> tuple[object, ...]:
    """Alike are meshes whose axes are joined alike, in whatever order."""
    return tuple(sorted((line.devices, line.links, line.is_ring) for line in mesh.lines))


def _stands_for(one: SystemMesh, other: SystemMesh) -> bool:
    """Whether in some order each axis of `other` is a part of one of `one`, and joined no better."""
    return any(
        all(
            a.devices % b.devices == 0 and (b.devices == 1 or (a.links >= b.links and a.is_ring >= b.is_ring))
            for a, b in zip(lines, other.lines, strict=True)
        )
        for lines in permutations(one.lines)
    )


def _under(
    machine: Machine,
    name: str,
    config: FabricConfig,
    down: tuple[str, ...],
    taken: Sequence[str],
    asked: Sequence[tuple[int, ...]],
) -> Iterator[SystemMesh]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system = MachineSystem(machine, Binding(), FabricSettings(config))
        if len(system.device_ids()) > 1:
            system.bring_up()
        whole = tuple(system.shape)
        in_use = _ids_of(system, taken)
        offered = _shapes(whole, len(system.device_ids()) - len(in_use))
        for shape in dict.fromkeys([*offered, *asked]):
            found = _place(system, shape, in_use)
            if found is None:
                continue
            offset, ids = found
            mesh = MeshDevice(MeshShape(*shape), ids, system)
            try:
                lines = lines_of(mesh)
            finally:
                mesh.close()
            opening = Opening(name, config, shape, down, offset if any(offset) else None)
            yield SystemMesh(opening, system.chip, lines)


def _shapes(whole: tuple[int, ...], free: int) -> Iterator[tuple[int, ...]]:
    """The largest first: the mesh of the system, its rectangles, and lines through it."""
    if sum(n > 1 for n in whole) > 1:
        yield whole
    rectangles = product(*(range(1, n + 1) for n in whole))
    sizes = {shape for shape in rectangles if MeshShape(*shape).mesh_size() <= free}
    sizes |= {(1, n) for n in range(1, free + 1)}
    for shape in sorted(sizes, key=lambda one: (-MeshShape(*one).mesh_size(), one)):
        if len(shape) == len(whole):
            yield shape


def _place(system: MachineSystem, shape: tuple[int, ...], in_use: set[int]) -> tuple[tuple[int, ...], list[int]] | None:
    """Where it can be opened: at the first offset that leaves the devices of others alone."""
    starts = product(*(range(n) for n in system.shape)) if in_use else [(0,) * len(tuple(system.shape))]
    for start in starts:
        try:
            return start, system.choose_devices(MeshShape(*shape), MeshCoordinate(list(start)), in_use)
        except (MeshError, NotModelled):
            continue
    return None


def _ids_of(system: MachineSystem, taken: Sequence[str]) -> set[int]:
    found: set[int] = set()
    for text in taken:
        match = _TAKEN.fullmatch(text.strip())
        if match is None:
            raise ArgumentError(f"A submesh that is taken is written as 2x4 or 2x4@0,4 (shape@offset), got {text!r}.")
        rows, columns, *start = (int(n or 0) for n in match.groups())
        shape, offset = MeshShape(rows, columns), MeshCoordinate(start)
        try:
            found |= set(system.choose_devices(shape, offset, ()))
        except SoftmeshError as error:
            raise ArgumentError(f"The submesh {text} that is said to be taken is not there: {error}") from error
    return found
