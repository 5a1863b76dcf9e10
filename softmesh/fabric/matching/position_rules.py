"""Rules about positions (tray, location): the pinnings of a descriptor, and Galaxy's corner rule.

A pinning is a group of logical chips, each held to a list of positions. All groups of a mesh hold together. Only
where two groups contradict each other, holding one chip to different places, are they alternatives for different
parts of the machine: then the groups whose positions occur among the chips the mesh is given hold, the others are
idle, and at least one must hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations

from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.systems.machine import Machine

Position = tuple[int, int]
MOST_GROUPS_TO_COMBINE = 6


@dataclass(frozen=True)
class PinGroup:
    chips: tuple[int, ...]
    positions: frozenset[Position]
    line: int | None


@dataclass(frozen=True)
class PinChoice:
    """Some groups hold, and the mesh keeps off the positions of the idle ones."""

    holding: tuple[PinGroup, ...]
    idle: tuple[PinGroup, ...] = ()


def pin_groups(graph: MeshGraph, mesh: LogicalMesh, existing: Collection[Position]) -> list[PinGroup]:
    """Positions that no chip has are left out, and so is a group that has no others."""
    groups = []
    for pinning in graph.pinnings:
        mine = (node.chip for node in pinning.nodes if node.mesh == mesh.id)
        chips = tuple(chip for chip in mine if chip < mesh.size)
        positions = frozenset(pinning.positions).intersection(existing)
        if chips and positions:
            groups.append(PinGroup(chips, positions, pinning.line))
    return groups


def contradict(groups: Collection[PinGroup]) -> bool:
    left: dict[int, frozenset[Position]] = {}
    for group in groups:
        for chip in group.chips:
            left[chip] = left.get(chip, group.positions) & group.positions
    return not all(left.values())


def choices(groups: list[PinGroup]) -> Iterator[PinChoice]:
    """The ways in which the groups can hold together, as many at once as possible first."""
    if not contradict(groups):
        yield PinChoice(tuple(groups))
        return
    numbers = range(min(len(groups), MOST_GROUPS_TO_COMBINE))
    for size in reversed(numbers):
        for chosen in combinations(numbers, size):
            holding = tuple(groups[number] for number in chosen)
            if holding and not contradict(holding):
                rest = [number for number in range(len(groups)) if number not in chosen]
                yield PinChoice(holding, tuple(groups[number] for number in rest))


# Galaxy's corner rule: whole Galaxies are laid with their corners on the first chip of each tray.


CHIPS_OF_A_GALAXY = 32
FIRST_OF_EACH_TRAY: tuple[Position, ...] = ((1, 1), (2, 1), (3, 1), (4, 1))


def corner_pins(graph: MeshGraph, mesh: LogicalMesh, machine: Machine) -> dict[int, tuple[Position, ...]]:
    """Logical chip -> positions it is held to. Empty where the rule does not apply."""
    if not follows_corner_rule(mesh, machine):
        return {}
    last_row, last_column = mesh.shape[0] - 1, mesh.shape[1] - 1
    corners = [mesh.chip_at(row, column) for row in (0, last_row) for column in (0, last_column)]
    pins = dict.fromkeys(corners, FIRST_OF_EACH_TRAY)
    if len(graph.meshes) == 1 and mesh.host_count == 1:  # one process
        pins[0] = FIRST_OF_EACH_TRAY[:1]
    return pins


def follows_corner_rule(mesh: LogicalMesh, machine: Machine) -> bool:
    positions = {asic.position for asic in machine.asics.values()}
    return (
        machine.cluster_type.is_galaxy
        and min(mesh.shape) > 1
        and mesh.size % CHIPS_OF_A_GALAXY == 0
        and positions.issuperset(FIRST_OF_EACH_TRAY)
    )
