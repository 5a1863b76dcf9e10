"""What the pinnings of a mesh mean: groups of logical chips, each held to a list of positions.

All groups of a mesh hold together. Only where two groups contradict each other, holding one chip to different
places, are they alternatives for different parts of the machine: then the groups whose positions occur among
the chips the mesh is given hold, the others are idle, and at least one must hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations

from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph

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
