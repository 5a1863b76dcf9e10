"""Sums over the devices of several processes, partitioned by columns: each process adds up some of them.

Every column is added up over the pieces of all devices in their order, as one process would do it, and so gets the
same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from softmesh.collectives.sum_kernels import adds_in_order, part_adder
from softmesh.collectives.torch_expressions import AllReduce
from softmesh.placement.process_blocks import Block
from softmesh.processes.exchange import AllGatherExchange, AllToAllExchange, ExchangeLayout, RankGroup
from softmesh.processes.rank_grid import RankGrid

# Writes the sums of this process's columns. Before, it was given what each process is to add up of this one's block.
Finish = Callable[[torch.Tensor], object]
Begin = Callable[[Sequence[torch.Tensor]], Finish]
# Where in a block the piece of a device is: (axis, index) for each axis of the group
Index = tuple[tuple[int, int], ...]
_ZERO = torch.zeros(())  # as a tensor: torch would make one of a number, at each call
_FEW = 4  # pieces that are added up one after the other as quickly as all at once
_COLUMNS_AT_ONCE = 1 << 16  # stay in the caches while piece after piece is added


@dataclass(frozen=True)
class PeerRanks:
    """The processes that a collective needs: those along `axes`, of which this one has `block`."""

    op: str
    block: Block
    ranks: RankGrid
    group: RankGroup
    axes: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.group.context.size

    def joined_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of all their blocks side by side."""
        return tuple(n * self.block.hosts[axis] if axis in self.axes else n for axis, n in enumerate(shape))


def sums_of_columns(
    all_reduce: AllReduce, peers: PeerRanks, data: torch.Tensor, columns: tuple[int, ...]
) -> Begin | None:
    """For a block like `data`, of which each process adds up so many columns; None where bits might differ."""
    lead = all_reduce.group.lead
    wide = peers.joined_shape(data.shape[:lead])
    whole, part = (*wide, math.prod(data.shape[lead:])), (*wide, math.prod(columns))
    if adds_in_order(whole, data.dtype, all_reduce.distinct):
        return _one_by_one(all_reduce, peers, data, columns)
    add = part_adder(whole, part, data.dtype, all_reduce.distinct)
    rounds_too_early = not all_reduce.counts_exactly and data.dtype is not torch.float32
    if add is None or rounds_too_early:
        return None
    own = tuple(data.shape[:lead])
    rows = peers.ranks.side_by_side((peers.count, *own, part[-1]), data.dtype, peers.axes, first=1)
    deal = AllToAllExchange(
        peers.group,
        peers.op,
        peers.ranks.described(data, peers.axes),
        rows,
        lambda place: [row.view(*own, *columns) for row in place.unbind(0)],
    )

    def begin(pieces: Sequence[torch.Tensor]) -> Finish:
        def fill(places: Sequence[torch.Tensor]) -> None:
            for place, piece in zip(places, pieces, strict=True):
                place.copy_(piece)

        stack = deal.open(fill).found

        def finish(place: torch.Tensor) -> None:
            add(stack, place)
            deal.close()
            _count_alike(all_reduce, place)

        return finish

    return begin


def _one_by_one(all_reduce: AllReduce, peers: PeerRanks, data: torch.Tensor, columns: tuple[int, ...]) -> Begin:
    """One device's piece after the other; a process's own pieces are read where they are."""
    own, me, count = tuple(data.shape[: all_reduce.group.lead]), peers.group.context.rank, peers.count
    devices = _devices(all_reduce, peers, own)
    others = [rank for rank in range(count) if rank != me]
    width = math.prod(columns)
    deal = AllToAllExchange(
        peers.group,
        peers.op,
        peers.ranks.described(data, peers.axes),
        ExchangeLayout((count, count, *own, width), data.dtype, lambda whole, rank: whole.select(1, rank)),
        lambda place: [place[rank].view(*own, *columns) for rank in others],
        lambda found: _pieces_of_others(found, devices, me),
    )
    put = _put_without_minus_zero if data.dtype.is_floating_point else torch.Tensor.copy_

    def begin(pieces: Sequence[torch.Tensor]) -> Finish:
        def fill(places: Sequence[torch.Tensor]) -> None:
            for place, rank in zip(places, others, strict=True):
                put(place, pieces[rank])

        theirs = deal.open(fill).pieces
        mine = pieces[me] if len(columns) == 1 else pieces[me].reshape(*own, width)
        terms = _in_order(devices, me, mine, theirs)

        def finish(place: torch.Tensor) -> None:
            _add_up(terms, place)
            terms.clear()
            deal.close()
            _count_alike(all_reduce, place)

        return finish

    return begin


def all_columns(all_reduce: AllReduce, peers: PeerRanks, data: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Every process adds up all columns: for small sums, where waiting once more would cost more than adding."""
    lead, me = all_reduce.group.lead, peers.group.context.rank
    own, wide = tuple(data.shape[:lead]), peers.joined_shape(data.shape)
    devices = _devices(all_reduce, peers, own)
    told = (peers.group, peers.op, peers.ranks.described(data, peers.axes))
    if len(devices) > _FEW or not adds_in_order(wide, data.dtype, all_reduce.distinct):
        together = AllGatherExchange(*told, peers.ranks.side_by_side(tuple(data.shape), data.dtype, peers.axes))

        def total(data: torch.Tensor) -> torch.Tensor:
            found = all_reduce(together.open(lambda places: places[0].copy_(data)).found)
            together.close()
            return found

        return total
    blocks = ExchangeLayout((peers.count, *data.shape), data.dtype, lambda whole, rank: whole.select(0, rank))
    assembly = AllGatherExchange(*told, blocks, pieces=lambda found: _pieces_of_others(found, devices, me))
    put = _put_without_minus_zero if data.dtype.is_floating_point else torch.Tensor.copy_

    def total_in_order(data: torch.Tensor) -> torch.Tensor:
        theirs = assembly.open(lambda places: put(places[0], data)).pieces
        terms = _in_order(devices, me, data, theirs)
        found = terms[0] + terms[1]
        for term in terms[2:]:
            found += term
        terms.clear()
        assembly.close()
        _count_alike(all_reduce, found)
        return found

    return total_in_order


def _pieces_of_others(blocks: torch.Tensor, devices: Sequence[tuple[int, Index]], me: int) -> list[torch.Tensor]:
    return [_piece(blocks[rank], index) for rank, index in devices if rank != me]


def _in_order(
    devices: Sequence[tuple[int, Index]], me: int, mine: torch.Tensor, theirs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The pieces of all devices: those of this process's block, and those of others."""
    coming = iter(theirs)
    return [_piece(mine, index) if rank == me else next(coming) for rank, index in devices]


def _put_without_minus_zero(place: torch.Tensor, values: torch.Tensor) -> None:
    """A sum begins with 0, so that of -0 and -0 is 0; it stays so where one of its terms is not -0."""
    torch.add(values, _ZERO, out=place)


def _devices(all_reduce: AllReduce, peers: PeerRanks, own: tuple[int, ...]) -> list[tuple[int, Index]]:
    """Of each member of the group, in order: the process that holds it, and where in that block it is."""
    ranks = {place: rank for rank, place in enumerate(peers.ranks.places(peers.axes))}
    wide = peers.joined_shape(own)
    found = []
    for member in product(*(range(wide[axis]) for axis in all_reduce.distinct)):
        at = dict(zip(all_reduce.distinct, member, strict=True))
        place = tuple(at[axis] // own[axis] if axis in peers.axes else 0 for axis in range(len(own)))
        index = tuple((axis, i % own[axis]) for axis, i in at.items() if own[axis] > 1)
        found.append((ranks[place], index))
    return found


def _piece(block: torch.Tensor, index: Index) -> torch.Tensor:
    for axis, at in index:
        block = block.narrow(axis, at, 1)
    return block


def _add_up(terms: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Two at once; of more, as many columns at a time as the caches hold."""
    width = out.shape[-1]
    if len(terms) == 2 or width <= _COLUMNS_AT_ONCE:
        _add_in_order(terms, out)
        return
    for first in range(0, width, _COLUMNS_AT_ONCE):
        n = min(_COLUMNS_AT_ONCE, width - first)
        _add_in_order([term.narrow(-1, first, n) for term in terms], out.narrow(-1, first, n))


def _add_in_order(terms: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    torch.add(terms[0], terms[1], out=out)
    for term in terms[2:]:
        out += term


def _count_alike(all_reduce: AllReduce, place: torch.Tensor) -> None:
    if all_reduce.alike != 1:
        place *= all_reduce.alike
