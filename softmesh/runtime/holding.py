"""Which processes hold a mesh, or a rectangle of one: this one alone, some together, or others only."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from softmesh.errors import NotModelled
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.blocks import Block
from softmesh.placement.distribution import Extents
from softmesh.processes.rank_grid import RankGrid
from softmesh.runtime.lockstep_check import watch


@dataclass(frozen=True)
class Holding:
    """`ranks` and `block` are there where several processes hold the mesh, and this one a part of it."""

    ranks: RankGrid | None = None
    block: Block | None = None
    is_remote: bool = False  # others hold all of it

    def is_local(self, place: Sequence[int]) -> bool:
        """Whether the device at this place of the mesh is this process's own."""
        return not self.is_remote and (self.block is None or self.block.contains(place))


HERE = Holding()
ELSEWHERE = Holding(is_remote=True)


def together(ranks: RankGrid, shape: Sequence[int]) -> Holding:
    return Holding(ranks, Block(tuple(shape), ranks.hosts, ranks.at))


def part(whole: Holding, start: Sequence[int], shape: Sequence[int]) -> Holding:
    """How the rectangle of this shape at `start` is held. The processes that hold it meet, where they are several."""
    block, ranks = whole.block, whole.ranks
    if block is None or ranks is None:
        return whole
    spans = [_span(first, n, extent) for first, n, extent in zip(start, shape, block.shape, strict=True)]
    hosts = tuple(map(len, spans))
    is_mine = all(at in span for at, span in zip(ranks.at, spans, strict=True))
    if math.prod(hosts) > 1:
        _check_even(block, start, shape, hosts)
    if not is_mine:
        return ELSEWHERE
    return HERE if math.prod(hosts) == 1 else together(_grid_of(ranks, spans, hosts), shape)


def _span(first: int, n: int, extent: int) -> range:
    """The processes along one axis that have some of the devices `first` to `first + n - 1`."""
    return range(first // extent, (first + n - 1) // extent + 1)


def _check_even(block: Block, start: Sequence[int], shape: Sequence[int], hosts: Extents) -> None:
    for axis, (first, n, extent) in enumerate(zip(start, shape, block.shape, strict=True)):
        portion = min(extent - first % extent, n)
        if portion * hosts[axis] != n or (hosts[axis] > 2 and portion != extent):
            raise NotModelled(
                f"Submesh {MeshShape(shape)} at {MeshCoordinate(start)} takes unequal parts of what the processes of "
                f"{MeshShape(block.mesh)} hold, {MeshShape(block.shape)} each: along axis {axis} it has devices "
                f"{first} to {first + n - 1}. Let it begin and end at multiples of {extent}, or lie within one part."
            )


_PARTS: weakref.WeakKeyDictionary[RankGrid, dict[tuple[range, ...], RankGrid]] = weakref.WeakKeyDictionary()


def _grid_of(ranks: RankGrid, spans: Sequence[range], hosts: Extents) -> RankGrid:
    """The processes of these spans as a grid of their own; the same ones meet only once."""
    if hosts == ranks.hosts:
        return ranks
    known = _PARTS.setdefault(ranks, {})
    if tuple(spans) not in known:
        members = [_number(place, ranks.hosts) for place in product(*spans)]
        known[tuple(spans)] = grid = RankGrid(ranks.context.create_sub_context(members), hosts)
        watch(grid)
    return known[tuple(spans)]


def _number(place: Sequence[int], extents: Extents) -> int:
    number = 0
    for i, n in zip(place, extents, strict=True):
        number = number * n + i
    return number
