"""Collectives of a mesh that several processes hold, with the work dealt out among them.

Each process writes its pieces once, into memory that all of them see (or sends them). A gathering is then there
already, laid out as one process would have it. Of a sum each process adds up some of the columns (`columns`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from softmesh.collectives.columns import Fellows, all_columns, sums_of_columns
from softmesh.collectives.expressions import Gathering, Scattering, Summing, before, dealt
from softmesh.collectives.groups import Group
from softmesh.placement.blocks import Block
from softmesh.placement.distribution import distribution
from softmesh.processes.exchange import Assembly, Whole

Compute = Callable[[torch.Tensor], torch.Tensor]
# Of all blocks together: up to here, adding them up oneself is quicker than waiting once more for the others.
_FEW_BYTES = 1 << 19


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
        return _summed(compute, fellows, data) or _checked(fellows, all_columns(compute, fellows, data))
    if isinstance(compute, Scattering) and is_whole:
        return _scattered(compute, fellows, data)
    return None


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
    back = sorted(range(len(order)), key=order.__getitem__)
    turned = Whole(
        tuple(whole.shape[axis] for axis in order),
        data.dtype,
        lambda memory, rank: whole.place(memory.permute(back), rank).permute(order),
        tuple(result),
    )
    assembly = Assembly(fellows.group, fellows.op, fellows.ranks.described(data, fellows.axes), turned)
    is_spread, is_turned = tuple(own) != tuple(data.shape), order != sorted(order)

    def gather(data: torch.Tensor) -> torch.Tensor:
        fellows.check(data)
        pieces = data.expand(own) if is_spread else data
        if is_turned:
            pieces = pieces.permute(order)
        assembly.open(lambda places: places[0].copy_(pieces))
        found = assembly.keep()
        return found if data.is_cpu else found.to(data.device)

    return gather


def _checked(fellows: Fellows, compute: Compute) -> Compute:
    def checked(data: torch.Tensor) -> torch.Tensor:
        fellows.check(data)
        return compute(data)

    return checked


def _summed(summing: Summing, fellows: Fellows, data: torch.Tensor) -> Compute | None:
    """Each process adds up some of the columns, and all read the sums."""
    lead, count = summing.group.lead, fellows.count
    columns = math.prod(data.shape[lead:])
    if columns % count or data.nbytes * count <= _FEW_BYTES:
        return None
    add = sums_of_columns(summing, fellows, data, (columns // count,))
    if add is None:
        return None
    left = _added_up(summing, data)
    parts = Whole(
        (*left, count, columns // count),
        data.dtype,
        lambda whole, rank: whole.select(lead, rank),
        (*left, *data.shape[lead:]),
    )
    assembly = Assembly(fellows.group, fellows.op, fellows.ranks.described(data, fellows.axes), parts)
    cut = (*data.shape[:lead], count, columns // count)

    def total(data: torch.Tensor) -> torch.Tensor:
        fellows.check(data)
        finish = add(data.reshape(cut).unbind(lead))
        assembly.open(lambda places: finish(places[0]))
        return assembly.keep()

    return total


def _scattered(scattering: Scattering, fellows: Fellows, data: torch.Tensor) -> Compute | None:
    """Each process adds up what its own devices get."""
    group, block = scattering.group, fellows.block
    lead, at = group.lead, group.lead + scattering.dim
    hosts = [block.hosts[axis] if axis in fellows.axes else 1 for axis in group.axes]
    own = [n // h for n, h in zip(group.extents, hosts, strict=True)]
    chunk = data.shape[at] // group.size
    kept = [*data.shape[lead:at], math.prod(own) * chunk, *data.shape[at + 1 :]]
    pairs = [n for pair in zip(hosts, own, strict=True) for n in pair]
    cut = (*data.shape[:at], *pairs, chunk, *data.shape[at + 1 :])
    first = [at + 2 * i for i in range(len(hosts))]  # dims that count processes
    order = [*first, *(i for i in range(len(cut)) if i not in first)]
    parts = (fellows.count, *(cut[i] for i in order[len(first) :]))
    add = sums_of_columns(scattering.total, fellows, data, parts[1 + lead :])
    if add is None:
        return None
    left = _added_up(scattering.total, data)
    here = _group_here(group, block, fellows.axes)

    def scatter(data: torch.Tensor) -> torch.Tensor:
        fellows.check(data)
        finish = add(data.reshape(cut).permute(order).reshape(parts).unbind(0))
        found = data.new_empty((*left, math.prod(kept)))
        finish(found)
        return dealt(found.view(*left, *kept), here, scattering.dim)

    return scatter


def _added_up(summing: Summing, data: torch.Tensor) -> list[int]:
    """The leading dims of a sum."""
    lead = data.shape[: summing.group.lead]
    return [1 if axis in summing.distinct else n for axis, n in enumerate(lead)]


def _group_here(group: Group, block: Block, axes: Sequence[int]) -> Group:
    """The members that this process holds."""
    grid = tuple(n // block.hosts[axis] if axis in axes else n for axis, n in enumerate(group.dist.grid))
    return replace(group, dist=distribution(grid, grid, group.dist.placements))
