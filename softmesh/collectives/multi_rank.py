"""Collectives on a mesh that several processes (ranks) hold: data is gathered from the ranks, work is split over them.

The blocks of the ranks along the collective's axis are put side by side, the collective's expression is applied to
them, and each rank takes its own part of the result: the same expression on the same values as in one process, and
so the same bits. What all devices share is not sent. For the most used collectives the ranks share the work as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group, group_of
from softmesh.collectives.partitioned_sums import PeerRanks, all_columns, sums_of_columns
from softmesh.collectives.torch_expressions import AllGather, AllReduce, ReduceScatter, before, dealt
from softmesh.placement.distribution import Distribution, distribution
from softmesh.placement.placements import LOCAL
from softmesh.placement.process_blocks import Block
from softmesh.processes.exchange import AllGatherExchange, ExchangeLayout
from softmesh.processes.rank_grid import RankGrid
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.pinned_memory import over_host

# The work of the most used collectives, split over the processes. Each process writes its pieces once, into memory
# that all of them see (or sends them). A gathered result is then there already, laid out as one process would have
# it. Of a sum each process adds up some of the columns (`partitioned_sums`).


Compute = Callable[[torch.Tensor], torch.Tensor]
# Of all blocks together: up to here, adding them up oneself is quicker than waiting once more for the others.
_FEW_BYTES = 1 << 19


def can_split_work(compute: object) -> bool:
    """Whether it is a collective that is known here."""
    return isinstance(compute, AllReduce | ReduceScatter) or (isinstance(compute, AllGather) and not compute.backwards)


def with_split_work(compute: object, peers: PeerRanks, data: torch.Tensor, is_whole: bool) -> Compute | None:
    """The collective for data like this; None where each process must compute it from the blocks of all.

    `is_whole`: along every axis that processes share, they hold pieces of their own.
    """
    if not data.numel():
        return None
    if isinstance(compute, AllGather):
        return _gathered(compute, peers, data)
    if not data.is_cpu:  # a GPU adds in its own way
        return None
    if isinstance(compute, AllReduce):
        return _summed(compute, peers, data) or all_columns(compute, peers, data)
    if isinstance(compute, ReduceScatter) and is_whole:
        return _scattered(compute, peers, data)
    return None


def _gathered(all_gather: AllGather, peers: PeerRanks, data: torch.Tensor) -> Compute:
    group, at = all_gather.group, all_gather.group.lead + all_gather.dim
    order = before(group, at, data.ndim)
    own = list(data.shape)
    for axis in group.axes:
        own[axis] = group.dist.grid[axis] // (peers.block.hosts[axis] if axis in peers.axes else 1)
    result = list(own)
    for axis in group.axes:
        result[axis] = 1
    result[at] *= group.size
    whole = peers.ranks.side_by_side(tuple(own), data.dtype, peers.axes)
    back = sorted(range(len(order)), key=order.__getitem__)
    turned = ExchangeLayout(
        tuple(whole.shape[axis] for axis in order),
        data.dtype,
        lambda memory, rank: whole.place(memory.permute(back), rank).permute(order),
        tuple(result),
    )
    assembly = AllGatherExchange(peers.group, peers.op, peers.ranks.described(data, peers.axes), turned)
    is_spread, is_turned = tuple(own) != tuple(data.shape), order != sorted(order)

    def gather(data: torch.Tensor) -> torch.Tensor:
        pieces = data.expand(own) if is_spread else data
        if is_turned:
            pieces = pieces.permute(order)
        assembly.open(lambda places: places[0].copy_(pieces))
        found = assembly.keep()
        return found if data.is_cpu else found.to(data.device)

    return gather


def _summed(all_reduce: AllReduce, peers: PeerRanks, data: torch.Tensor) -> Compute | None:
    """Each process adds up some of the columns, and all read the sums."""
    lead, count = all_reduce.group.lead, peers.count
    columns = math.prod(data.shape[lead:])
    if columns % count or data.nbytes * count <= _FEW_BYTES:
        return None
    add = sums_of_columns(all_reduce, peers, data, (columns // count,))
    if add is None:
        return None
    left = _added_up(all_reduce, data)
    parts = ExchangeLayout(
        (*left, count, columns // count),
        data.dtype,
        lambda whole, rank: whole.select(lead, rank),
        (*left, *data.shape[lead:]),
    )
    assembly = AllGatherExchange(peers.group, peers.op, peers.ranks.described(data, peers.axes), parts)
    cut = (*data.shape[:lead], count, columns // count)

    def total(data: torch.Tensor) -> torch.Tensor:
        finish = add(data.reshape(cut).unbind(lead))
        assembly.open(lambda places: finish(places[0]))
        return assembly.keep()

    return total


def _scattered(reduce_scatter: ReduceScatter, peers: PeerRanks, data: torch.Tensor) -> Compute | None:
    """Each process adds up what its own devices get."""
    group, block = reduce_scatter.group, peers.block
    lead, at = group.lead, group.lead + reduce_scatter.dim
    hosts = [block.hosts[axis] if axis in peers.axes else 1 for axis in group.axes]
    own = [n // h for n, h in zip(group.extents, hosts, strict=True)]
    chunk = data.shape[at] // group.size
    kept = [*data.shape[lead:at], math.prod(own) * chunk, *data.shape[at + 1 :]]
    pairs = [n for pair in zip(hosts, own, strict=True) for n in pair]
    cut = (*data.shape[:at], *pairs, chunk, *data.shape[at + 1 :])
    first = [at + 2 * i for i in range(len(hosts))]  # dims that count processes
    order = [*first, *(i for i in range(len(cut)) if i not in first)]
    parts = (peers.count, *(cut[i] for i in order[len(first) :]))
    add = sums_of_columns(reduce_scatter.total, peers, data, parts[1 + lead :])
    if add is None:
        return None
    left = _added_up(reduce_scatter.total, data)
    here = _group_here(group, block, peers.axes)

    def scatter(data: torch.Tensor) -> torch.Tensor:
        finish = add(data.reshape(cut).permute(order).reshape(parts).unbind(0))
        found = data.new_empty((*left, math.prod(kept)))
        finish(found)
        return dealt(found.view(*left, *kept), here, reduce_scatter.dim)

    return scatter


def _added_up(all_reduce: AllReduce, data: torch.Tensor) -> list[int]:
    """The leading dims of a sum."""
    lead = data.shape[: all_reduce.group.lead]
    return [1 if axis in all_reduce.distinct else n for axis, n in enumerate(lead)]


def _group_here(group: Group, block: Block, axes: Sequence[int]) -> Group:
    """The members that this process holds."""
    grid = tuple(n // block.hosts[axis] if axis in axes else n for axis, n in enumerate(group.dist.grid))
    return replace(group, dist=distribution(grid, grid, group.dist.placements))


@dataclass(frozen=True)
class RankSpan:
    """`block` is None where this process holds the whole mesh."""

    op: str
    axes: tuple[int, ...]
    block: Block | None = None
    ranks: RankGrid | None = None

    @classmethod
    def of(cls, op: str, mesh: MeshDevice, cluster_axis: int | None) -> RankSpan:
        axes = tuple(range(mesh.shape.dims())) if cluster_axis is None else (cluster_axis,)
        return cls(op, axes, mesh.block, mesh.ranks)

    def joined_distribution(self, dist: Distribution) -> Distribution:
        return dist if self.block is None else self.block.wide(dist, self.axes)

    def over_blocks(self, moved: GroupComputation, held: Sequence[Distribution]) -> GroupComputation:
        """The same collective, from blocks to blocks."""
        block = self.block
        if block is None:
            return moved

        def compute(*data: Any) -> Any:
            dists = iter(held)
            together = [
                self._gathered_blocks(block, d, next(dists)) if isinstance(d, torch.Tensor) else d for d in data
            ]
            result = moved.compute(*together)
            if isinstance(result, torch.Tensor):
                return block.narrowed(result, moved.dists[0], self.axes)
            return [block.narrowed(r, dist, self.axes) for r, dist in zip(result, moved.dists, strict=True)]

        shared = self._with_split_work(moved.compute, held[0], compute) if len(held) == 1 else compute
        return replace(moved, compute=over_host(shared), dists=tuple(map(block.narrow, moved.dists)))

    def derivation(self, declared: CollectiveSpec, held: Sequence[Distribution]) -> BlockDerivation | None:
        """How gradients pass it where torch derives them, for blocks; None where this process holds the whole mesh."""
        return None if self.block is None else BlockDerivation(self, self.block, declared, tuple(held))

    def _with_split_work(self, compute: object, dist: Distribution, alone: Callable[..., Any]) -> Callable[..., Any]:
        """The collective with its work dealt out, where that can be; `alone` each process does all of it."""
        block, ranks = self.block, self.ranks
        assert block is not None
        assert ranks is not None
        axes = block.spread_axes(dist, self.axes)
        group = ranks.group(axes)
        if group is None or not can_split_work(compute):
            return alone
        peers = PeerRanks(self.op, block, ranks, group, axes)
        is_whole = axes == ranks.split_axes(self.axes)  # else some hold the same, and take their part of it
        plan: Callable[..., Any] | None = None

        def run(data: torch.Tensor) -> Any:
            nonlocal plan
            if data.requires_grad:
                data = data.detach()
            if plan is None:  # all data that comes here is alike
                plan = with_split_work(compute, peers, data, is_whole) or alone
            return plan(data)

        return run

    def _gathered_blocks(self, block: Block, data: torch.Tensor, dist: Distribution) -> torch.Tensor:
        ranks = self.ranks
        assert ranks is not None
        return block.widened(data, dist, self.axes, lambda d, axes: ranks.gather(d, axes, self.op))

    def gathered_pieces(self, data: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
        """What each device has of its own, of all blocks: `grid` are the devices of this one."""
        assert self.ranks is not None
        pieces, axes = data.expand(*grid, *data.shape[len(grid) :]), self.ranks.split_axes(self.axes)
        return self.ranks.gather(pieces, axes, self.op) if axes else pieces


@dataclass(frozen=True)
class BlockDerivation:
    """Gradients of a collective between blocks: of the blocks of all side by side, each device with its own piece."""

    span: RankSpan
    block: Block
    declared: CollectiveSpec
    held: tuple[Distribution, ...]

    def gradients(
        self, adapts: Sequence[Any], data: Sequence[Any], gradients: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Of each operand that is a tensor, on the devices of this process."""
        dists = iter(self.held)
        leaves = [
            self._leaf(one if adapt is None else adapt(one), next(dists)) if isinstance(one, torch.Tensor) else one
            for adapt, one in zip(adapts, data, strict=True)
        ]
        given = [None if one is None else self.span.gathered_pieces(one, self.block.shape) for one in gradients]
        joined = self.span.joined_distribution(self.held[0])
        apart = joined.with_placements((LOCAL,) * joined.lead)
        whole = self.declared.move(group_of(apart, self.declared.cluster_axis))
        with torch.enable_grad():
            made = whole.compute(*leaves)
            pairs = [
                (result.expand(seed.shape), seed.to(result))
                for result, seed in zip([made] if isinstance(made, torch.Tensor) else made, given, strict=True)
                if seed is not None and result.requires_grad
            ]
        wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        outs, seeds = zip(*pairs, strict=True) if pairs else ((), ())
        found = iter(torch.autograd.grad(outs, wanted, seeds, allow_unused=True) if outs else ())
        return [
            self._own(next(found, None), one) if leaf.requires_grad else None
            for leaf, one in zip(leaves, data, strict=True)
            if isinstance(one, torch.Tensor)
        ]

    def _leaf(self, data: torch.Tensor, dist: Distribution) -> torch.Tensor:
        pieces = self.span.gathered_pieces(data, dist.grid)
        return pieces.clone().requires_grad_() if pieces.is_floating_point() else pieces

    def _own(self, gradient: torch.Tensor | None, data: torch.Tensor) -> torch.Tensor | None:
        if gradient is None:
            return None
        for axis in self.span.axes:
            gradient = gradient.narrow(axis, self.block.origin[axis], self.block.shape[axis])
        return gradient.to(data)
