"""Steps of a redistribution as calls of public ops: what `distributed` does with ops of its own, said in TT-NN's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmesh.dispatch.operation import OPERATIONS
from softmesh.distributed.layouts import Layout, Value
from softmesh.distributed.redistribution import (
    CONTRIBUTE,
    EXCHANGE,
    GATHER,
    PARTITION,
    REDUCE,
    REDUCE_SCATTER,
    Step,
)
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.placement.placements import Partial
from softmesh.planner.program.symbols import Symbol


def take_step(
    step: Step,
    tensor: Symbol,
    value: Value,
    before: Layout,
    mask: Callable[[int], Symbol],
) -> Any:
    """`mask` gives the tensor that is 1 on the first device along an axis, and 0 on the others."""
    axis, dim = step.axis, step.dim or 0
    if step.kind == GATHER:
        return OPERATIONS["all_gather"](tensor, dim, cluster_axis=axis)
    if step.kind == REDUCE:
        return _reduced(step, tensor)
    if step.kind == REDUCE_SCATTER:
        return _in_two_dims(
            tensor,
            value.local_shape(before),
            lambda t, more: OPERATIONS["reduce_scatter"](t, dim + more, cluster_axis=axis),
        )
    if step.kind == PARTITION:
        return _partitioned(tensor, dim, axis, value.cuts_tiles(step.after, dim))
    if step.kind == EXCHANGE:
        return _exchanged(step, tensor, value, before)
    assert step.kind == CONTRIBUTE
    return _in_two_dims(tensor, value.local_shape(before), lambda t, _: _on_first(t, mask(axis), before))


def _on_first(tensor: Symbol, mask: Symbol, before: Layout) -> Any:
    """The value on the first device and 0 on the others, which times -inf is NaN. Of a sum only products are parts."""
    if any(isinstance(word, Partial) for word in before):
        return OPERATIONS["multiply"](tensor, mask)
    return OPERATIONS["where"](mask, tensor, 0.0)


def _reduced(step: Step, tensor: Symbol) -> Any:
    if step.combines == "sum":
        return OPERATIONS["all_reduce"](tensor, cluster_axis=step.axis)
    side_by_side = OPERATIONS["all_gather"](OPERATIONS["unsqueeze"](tensor, 0), 0, cluster_axis=step.axis)
    return OPERATIONS["mean" if step.combines == "avg" else step.combines](side_by_side, dim=0)


def _in_two_dims(tensor: Symbol, shape: tuple[int, ...], move: Callable[[Symbol, int], Any]) -> Any:
    """What TT-NN takes with two dims or more."""
    if len(shape) > 1:
        return move(tensor, 0)
    return OPERATIONS["squeeze"](move(OPERATIONS["unsqueeze"](tensor, 0), 1), 0)


def _partitioned(tensor: Symbol, dim: int, axis: int, cuts_tiles: bool) -> Any:
    if not cuts_tiles:
        return OPERATIONS["mesh_partition"](tensor, dim, cluster_axis=axis)
    rows = OPERATIONS["to_layout"](tensor, TensorLayout.ROW_MAJOR)
    cut = OPERATIONS["mesh_partition"](rows, dim, cluster_axis=axis)
    return OPERATIONS["to_layout"](cut, TensorLayout.TILE)


def _exchanged(step: Step, tensor: Symbol, value: Value, before: Layout) -> Any:
    """In one op, or everybody gets everything and keeps a part."""
    joins, cuts, axis = step.dim or 0, step.to_dim or 0, step.axis
    if value.can_exchange(before, step.after):
        return OPERATIONS["experimental.all_to_all_async_generic"](tensor, joins, cuts, cluster_axis=axis)
    everything = OPERATIONS["all_gather"](tensor, joins, cluster_axis=axis)
    return _partitioned(everything, cuts, axis, value.cuts_tiles(step.after, cuts))
