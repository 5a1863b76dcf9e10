"""The ops that run redistribution steps: TT-NN's collectives where they take the operand, and own ones elsewhere.

TT-NN cuts only between tiles, gathers only even splits and reduces only sums of two dims or more; here a dim of
any extent may be split, and contributions may combine in other ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.collectives.collective_operation import NOTHING_IS_SENT, CollectivePlanner, unlisted_collective
from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group, replicated_placement, scattered_placement
from softmesh.collectives.torch_expressions import AllGather, exchanged, scatter_view
from softmesh.collectives.ttnn_collectives import all_gather, all_reduce, reduce_scatter
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.distributed.layouts import SUM, Value
from softmesh.distributed.redistribution import (
    CONTRIBUTE,
    EXCHANGE,
    GATHER,
    PARTITION,
    REDUCE,
    REDUCE_SCATTER,
    Step,
)
from softmesh.kinds import Kind
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import combined
from softmesh.placement.placements import Shard
from softmesh.tensor.tensor import Tensor

Run = Callable[[Tensor], Tensor]


class _TakesUneven(CollectivePlanner):
    """Knows where the filler of a last shard begins, or leaves it where it is."""

    def _check_even(self, dists: Sequence[Distribution]) -> None: ...


def move(name: str, kind: Kind, **options: Any) -> Callable[[Callable[..., CollectiveSpec]], Operation]:
    """A collective of the unified ops' own, which is not one of TT-NN's names."""
    return lambda define: unlisted_collective(f"distributed.{name}", kind, define, planner=_TakesUneven, **options)


@move("partition", Kind.PARTITION, **NOTHING_IS_SENT)
def partition(input_tensor: Operand, dim: int, room: int, size: int | None, *, cluster_axis: int) -> CollectiveSpec:
    """Device g keeps chunk g of `room` elements along `dim`; what is missing to `room` is filled with zeros.

    `size` is the extent of the whole dim, where filler takes part.
    """
    missing = room - input_tensor.shape[dim]
    behind = [0, 0] * (input_tensor.rank - 1 - dim) + [0, missing]

    def deal(group: Group) -> GroupComputation:
        after, share = scattered_placement(group, dim, from_one_value=True), scatter_view(group, dim)
        if size is not None:
            split = Shard(dim, size)
            words = tuple(split if word is Shard(dim) else word for word in after.placements)
            after = after.with_placements(words)
        return GroupComputation(share if not missing else lambda data: share(F.pad(data, behind)), (after,))

    return CollectiveSpec(cluster_axis, deal, needs_fabric=False)


@move("gather", Kind.ALL_GATHER)
def gather_uneven(input_tensor: Operand, dim: int, keep: int | None = None, *, cluster_axis: int) -> CollectiveSpec:
    """All chunks side by side; `keep` of their elements, without the filler behind them."""

    def move(group: Group) -> GroupComputation:
        gather, at = AllGather(group, dim), group.lead + dim
        joined = _nested(group, dim)
        if keep is None:
            return GroupComputation(gather, (joined,))
        return GroupComputation(lambda data: gather(data).narrow(at, 0, keep), (joined,))

    return CollectiveSpec(cluster_axis, move)


def _nested(group: Group, dim: int) -> Distribution:
    """The axes outside the group keep their words: where they split `dim` too, filler and all, they stand before it."""
    after = replicated_placement(group)
    return after.with_placements(
        tuple(
            own if axis not in group.axes and isinstance(own, Shard) and own.dim == dim else word
            for axis, (own, word) in enumerate(zip(group.dist.placements, after.placements, strict=True))
        )
    )


@move("all_to_all", Kind.ALL_TO_ALL)
def exchange(input_tensor: Operand, dim: int, to_dim: int, *, cluster_axis: int) -> CollectiveSpec:
    """Split along `dim` before, along `to_dim` after: every device sends a chunk to each other."""

    def move(group: Group) -> GroupComputation:
        gathered = replicated_placement(group, dim)
        after = scattered_placement(Group(gathered, group.axes, group.cluster_axis), to_dim, from_one_value=True)
        return GroupComputation(lambda data: exchanged(data, group, dim, to_dim), (after,))

    return CollectiveSpec(cluster_axis, move)


@move("contribute", Kind.PARTITION, **NOTHING_IS_SENT)
def contribute(input_tensor: Operand, *, cluster_axis: int) -> CollectiveSpec:
    """The first device along the axis keeps the value, the others hold zeros: contributions to a sum."""

    def move(group: Group) -> GroupComputation:
        (axis,) = group.axes

        def first_only(data: torch.Tensor) -> torch.Tensor:
            zeros = data.new_zeros(1).expand(*data.shape[:axis], group.size - 1, *data.shape[axis + 1 :])
            return torch.cat([data, zeros], axis)

        return GroupComputation(first_only, (group.dist.with_placements(group.words_with(SUM)),))

    return CollectiveSpec(cluster_axis, move, needs_fabric=False)


@move("combine", Kind.ALL_REDUCE, precision="native")
def combine(input_tensor: Operand, how: str, *, cluster_axis: int) -> CollectiveSpec:
    """Every member gets the contributions of all, combined."""

    def move(group: Group) -> GroupComputation:
        (axis,) = group.axes
        return GroupComputation(lambda data: combined(group.full(data), axis, how), (replicated_placement(group),))

    return CollectiveSpec(cluster_axis, move)


def runner(step: Step, value: Value) -> Run:
    """The call that takes this step."""
    return _RUNNERS[step.kind](step, value)


def _is_plain(step: Step, value: Value) -> bool:
    """Whether TT-NN's collective takes it: two dims or more, and no split that does not divide."""
    return len(value.shape) > 1 and all(
        value.divides(step.after, axis, word.dim) for axis, word in enumerate(step.after) if isinstance(word, Shard)
    )


def _gather(step: Step, value: Value) -> Run:
    dim, axis = _dim(step), step.axis
    size = value.shape[dim]
    if size % value.mesh[axis]:
        return gathering(dim, size, axis)
    if not _is_plain(step, value):
        return gathering(dim, None, axis)
    return lambda t: all_gather(t, dim, cluster_axis=axis)


def _reduce(step: Step, value: Value) -> Run:
    axis, how = step.axis, step.combines
    if how == "sum" and _is_plain(step, value):
        return lambda t: all_reduce(t, cluster_axis=axis)
    return lambda t: combine(t, how, cluster_axis=axis)


def _reduce_scatter(step: Step, value: Value) -> Run:
    dim, axis = _dim(step), step.axis
    if _is_plain(step, value):
        return lambda t: reduce_scatter(t, dim, cluster_axis=axis)
    share = _partition(step, value)
    return lambda t: share(combine(t, "sum", cluster_axis=axis))


def _partition(step: Step, value: Value) -> Run:
    dim, axis, n = _dim(step), step.axis, value.mesh[step.axis]
    extent = value.local_shape(step.after)[dim]
    size = None if value.divides(step.after, axis, dim) else value.shape[dim]
    return lambda t: partition(t, dim, extent * n, size, cluster_axis=axis)


def _exchange(step: Step, value: Value) -> Run:
    dim, to_dim, axis = _dim(step), step.to_dim, step.axis
    return lambda t: exchange(t, dim, to_dim, cluster_axis=axis)


def _contribute(step: Step, value: Value) -> Run:
    axis = step.axis
    return lambda t: contribute(t, cluster_axis=axis)


_RUNNERS: dict[str, Callable[[Step, Value], Run]] = {
    GATHER: _gather,
    REDUCE: _reduce,
    REDUCE_SCATTER: _reduce_scatter,
    PARTITION: _partition,
    EXCHANGE: _exchange,
    CONTRIBUTE: _contribute,
}


def _dim(step: Step) -> int:
    assert step.dim is not None
    return step.dim


def gathering(dim: int, keep: int | None, axis: int) -> Run:
    return lambda tensor: gather_uneven(tensor, dim, keep, cluster_axis=axis)
