"""Collectives of a mesh that several processes hold, with the work dealt out among them.

Each process writes its pieces once, into memory that all of them see (or sends them). A gathering is then there
already, laid out as one process would have it. Of a sum each process adds up some of the columns, over the pieces of
all devices in their order, so that every column gets the bits it would get in one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import torch

from softmesh.collectives.expressions import Gathering, Scattering, Summing, before, dealt
from softmesh.collectives.groups import Group
from softmesh.collectives.sums import adds_in_order, part_adder
from softmesh.placement.blocks import Block
from softmesh.placement.distribution import distribution
from softmesh.processes.exchange import Assembly, Deal, Fill, RankGroup, Whole
from softmesh.processes.rank_grid import RankGrid

Compute = Callable[[torch.Tensor], torch.Tensor]
# Below this, adding everything up oneself is quicker than waiting once more for the others.
_FEWEST_BYTES = 1 << 15
_COLUMNS_AT_ONCE = 1 << 16


class Fellows:
    """The processes that a collective needs: those along `axes`, which `block` is one of."""

    def __init__(self, op: str, block: Block, ranks: RankGrid, group: RankGroup, axes: tuple[int, ...]) -> None:
        self.op, self.block, self.ranks, self.group, self.axes = op, block, ranks, group, axes

    @property
    def count(self) -> int:
        return self.group.context.size

    def check(self, data: torch.Tensor) -> None:
        self.ranks.check(self.op, data, self.group)

    def fingerprint(self, data: torch.Tensor) -> tuple[object, ...]:
        """What all of them must agree on."""
        axes = self.axes[0] if len(self.axes) == 1 else self.axes
        return (self.op, tuple(data.shape), str(data.dtype), axes)

    def wide(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of all their blocks side by side."""
        return tuple(n * self.block.hosts[axis] if axis in self.axes else n for axis, n in enumerate(shape))


def is_dealt_out(compute: object) -> bool:
    """Whether it is a collective that is known here."""
    return isinstance(compute, Summing | Scattering) or (
        isinstance(compute, Gathering) and not compute.backwards
    )


def dealt_out(compute: object, fellows: Fellows, data: torch.Tensor, is_whole: bool) -> Compute | None:
    """The collective for data like this; None where each process must compute it from the blocks of all.

    `is_whole`: along every axis that processes share, they hold pieces of their own.
    """
    if not data.numel():
        return None
    if isinstance(compute, Gathering):
        return _gathered(compute, fellows, data)
    if not data.is_cpu:  # a GPU adds in its own way
        return None
    if isinstance(compute, Summing):
        return _summed(compute, fellows, data) or _added_by_each(compute, fellows, data)
    if isinstance(compute, Scattering) and is_whole:
        return _scattered(compute, fellows, data)
    return None


def _added_by_each(summing: Summing, fellows: Fellows, data: torch.Tensor) -> Compute:
    """Every process reads the blocks of all."""
    whole = fellows.ranks.side_by_side(tuple(data.shape), data.dtype, fellows.axes)
    assembly = Assembly(fellows.group, fellows.op, fellows.fingerprint(data), whole)

    def total(data: torch.Tensor) -> torch.Tensor:
        fellows.check(data)
        found = summing(assembly.open(lambda place: place.copy_(data)))
        assembly.close()
        return found

    return total


def _gathered(gathering: Gathering, fellows: Fellows, data: torch.Tensor) -> Compute:
    group, at = gathering.group, gathering.group.lead + gathering.dim
    order = before(group, at, data.ndim)
    own = list(data.shape)
    for axis in group.axes:
        own[axis] = group.dist.grid[axis] // (fellows.block.hosts[axis] if axis in fellows.axes else 1)
    result = list(own)
    for axis in group.axes:
        result[axis] = 1
    result[at] *= group.size
    whole = fellows.ranks.side_by_side(tuple(own), data.dtype, fellows.axes)
    turned = Whole(
        tuple(whole.shape[axis] for axis in order),
        data.dtype,
        lambda memory, rank: whole.place(memory.permute(_back(order)), rank).permute(order),
        tuple(result),
    )
    assembly = Assembly(fellows.group, fellows.op, fellows.fingerprint(data), turned)
    is_spread, is_turned = tuple(own) != tuple(data.shape), order != sorted(order)

    def gather(data: torch.Tensor) -> torch.Tensor:
        pieces = data.expand(own) if is_spread else data
        if is_turned:
            pieces = pieces.permute(order)
        fellows.check(data)
        assembly.open(lambda place: place.copy_(pieces))
        found = assembly.keep()
        return found if data.is_cpu else found.to(data.device)

    return gather


def _back(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _summed(summing: Summing, fellows: Fellows, data: torch.Tensor) -> Compute | None:
    """Each process adds up some of the columns, and all read the sums."""
    lead, count = summing.group.lead, fellows.count
    columns = math.prod(data.shape[lead:])
    if columns % count or data.nbytes < _FEWEST_BYTES:
        return None
    add = _sums_of_columns(summing, fellows, data, columns // count)
    if add is None:
        return None
    left = [1 if axis in summing.distinct else n for axis, n in enumerate(data.shape[:lead])]
    parts = Whole(
        (*left, count, columns // count),
        data.dtype,
        lambda whole, rank: whole.select(lead, rank),
        (*left, *data.shape[lead:]),
    )
    assembly = Assembly(fellows.group, fellows.op, fellows.fingerprint(data), parts)
    cut = (*data.shape[:lead], count, columns // count)
    dims = [lead, *range(lead), lead + 1]

    def total(data: torch.Tensor) -> torch.Tensor:
        fellows.check(data)
        finish = add(data.reshape(cut).permute(dims))
        assembly.open(finish)
        return assembly.keep()

    return total


def _sums_of_columns(
    summing: Summing, fellows: Fellows, data: torch.Tensor, columns: int
) -> Callable[[torch.Tensor], Fill] | None:
    """From this process's block, cut into columns for each process, to what writes the sums of its own."""
    lead = summing.group.lead
    wide = fellows.wide(data.shape)[:lead]
    whole, part = (*wide, math.prod(data.shape[lead:])), (*wide, columns)
    if adds_in_order(whole, data.dtype, summing.distinct):
        return _added_in_order(summing, fellows, data, columns)
    add = part_adder(whole, part, data.dtype, summing.distinct)
    if add is None:
        return None
    own = (fellows.count, *data.shape[:lead], columns)
    rows = fellows.ranks.side_by_side(own, data.dtype, fellows.axes, first=1)
    deal = Deal(fellows.group, fellows.op, fellows.fingerprint(data), rows)
    alike = summing.alike

    def begin(pieces: torch.Tensor) -> Fill:
        stack = deal.open(lambda place: _like(place, pieces).copy_(pieces))

        def finish(place: torch.Tensor) -> None:
            add(stack, place)
            deal.close()
            if alike != 1:
                place *= alike

        return finish

    return begin


def _added_in_order(
    summing: Summing, fellows: Fellows, data: torch.Tensor, columns: int
) -> Callable[[torch.Tensor], Fill]:
    """One device's piece after the other; a process's own are read where they are."""
    lead, me, count = summing.group.lead, fellows.group.context.rank, fellows.count
    own = tuple(data.shape[:lead])
    sources = _sources(summing, fellows, own)
    theirs = [(rank, index) for rank, index in sources if rank != me]
    whole = Whole((count, count, *own, columns), data.dtype, lambda whole, rank: whole.select(1, rank))
    deal = Deal(
        fellows.group,
        fellows.op,
        fellows.fingerprint(data),
        whole,
        lambda row: [_device(row[rank], index) for rank, index in theirs],
    )
    others = [dest for dest in ((0, me), (me + 1, count)) if dest[0] < dest[1]]
    # 0 and -0 add up to 0, -0 and -0 to -0: as a sum begins with 0, one of its terms must not be -0.
    put: Callable[..., object] = _put_without_minus_zero if data.dtype.is_floating_point else torch.Tensor.copy_
    alike = summing.alike

    def begin(pieces: torch.Tensor) -> Fill:
        def fill(place: torch.Tensor) -> None:
            for first, last in others:
                put(_like(place[first:last], pieces), pieces[first:last])

        deal.open(fill)
        coming = iter(deal.pieces)
        mine = pieces[me].reshape(*own, columns)
        rows = [_device(mine, index) if rank == me else next(coming) for rank, index in sources]

        def finish(place: torch.Tensor) -> None:
            _add_up(rows, place)
            deal.close()
            if alike != 1:
                place *= alike

        return finish

    return begin


def _like(place: torch.Tensor, pieces: torch.Tensor) -> torch.Tensor:
    """The columns of a place under the dims that they have in the pieces."""
    return place if place.ndim == pieces.ndim else place.view(*place.shape[:-1], *pieces.shape[place.ndim - 1 :])


def _put_without_minus_zero(place: torch.Tensor, values: torch.Tensor) -> None:
    torch.add(values, 0.0, out=place)


def _sources(
    summing: Summing, fellows: Fellows, own: tuple[int, ...]
) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """Of each member of the group, in order: the process that holds it, and where along each axis of its block."""
    ranks = {place: rank for rank, place in enumerate(fellows.ranks.places(fellows.axes))}
    found = []
    for member in product(*(range(fellows.wide(own)[axis]) for axis in summing.distinct)):
        at = dict(zip(summing.distinct, member, strict=True))
        place = tuple(at[axis] // own[axis] if axis in fellows.axes else 0 for axis in range(len(own)))
        found.append((ranks[place], tuple((axis, i % own[axis]) for axis, i in at.items())))
    return found


def _device(block: torch.Tensor, index: tuple[tuple[int, int], ...]) -> torch.Tensor:
    for axis, at in index:
        if block.shape[axis] > 1:
            block = block.narrow(axis, at, 1)
    return block


def _add_up(rows: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Two pieces at once; of more, as many columns at a time as the caches hold."""
    step = out.shape[-1] if len(rows) == 2 else _COLUMNS_AT_ONCE
    for first in range(0, out.shape[-1], step):
        n = min(step, out.shape[-1] - first)
        parts = rows if n == out.shape[-1] else [row.narrow(-1, first, n) for row in rows]
        total = out if n == out.shape[-1] else out.narrow(-1, first, n)
        torch.add(parts[0], parts[1], out=total)
        for part in parts[2:]:
            total += part


def _scattered(scattering: Scattering, fellows: Fellows, data: torch.Tensor) -> Compute | None:
    """Each process adds up what its own devices get."""
    group, block = scattering.group, fellows.block
    lead, at = group.lead, group.lead + scattering.dim
    hosts = [block.hosts[axis] if axis in fellows.axes else 1 for axis in group.axes]
    own = [n // h for n, h in zip(group.extents, hosts, strict=True)]
    chunk = data.shape[at] // group.size
    kept = [*data.shape[lead:at], math.prod(own) * chunk, *data.shape[at + 1 :]]
    columns = math.prod(kept)
    add = _sums_of_columns(scattering.total, fellows, data, columns)
    if add is None:
        return None
    pairs = [n for pair in zip(hosts, own, strict=True) for n in pair]
    cut = (*data.shape[:at], *pairs, chunk, *data.shape[at + 1 :])
    first = [at + 2 * i for i in range(len(hosts))]  # dims that count processes
    order = [*first, *(i for i in range(len(cut)) if i not in first)]
    rows = (fellows.count, *(cut[i] for i in order[len(first) :]))
    left = [1 if axis in scattering.total.distinct else n for axis, n in enumerate(data.shape[:lead])]
    here = _group_here(group, block, fellows.axes)

    def scatter(data: torch.Tensor) -> torch.Tensor:
        fellows.check(data)
        finish = add(data.reshape(cut).permute(order).reshape(rows))
        found = data.new_empty((*left, columns))
        finish(found)
        return dealt(found.view(*left, *kept), here, scattering.dim)

    return scatter


def _group_here(group: Group, block: Block, axes: Sequence[int]) -> Group:
    """The members that this process holds."""
    grid = tuple(n // block.hosts[axis] if axis in axes else n for axis, n in enumerate(group.dist.grid))
    return replace(group, dist=distribution(grid, grid, group.dist.placements))
