"""Own ops of unified ones, in public ops: a reshape of pieces, and the softmax of rows that are split.

Each function is given the local shape of the result and the arguments of the own op, and calls public ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import NotModelled
from softmesh.planner.program.symbols import StandIn, Symbol

Extents = tuple[int, ...]
LocalShape = Callable[[Extents], tuple[Any, ...]]


class SoftmaxRows(StandIn):
    """What softmax wants to know of rows that several devices share: their maxima, gathered."""

    def __init__(self, tensor: Symbol, dim: int) -> None:
        self.tensor, self.dim = tensor, dim
        self.top = OPERATIONS["max"](tensor, dim=dim, keepdim=True)
        self.axes: list[int] = []

    def gathered(self, dim: int, *, cluster_axis: int) -> SoftmaxRows:
        self.top = OPERATIONS["all_gather"](self.top, dim, cluster_axis=cluster_axis)
        self.axes.append(cluster_axis)
        return self


def _softmax_rows(local_shape: LocalShape, input_tensor: Symbol, dim: int) -> SoftmaxRows:
    return SoftmaxRows(input_tensor, dim)


def _softmax(local_shape: LocalShape, input_tensor: Symbol, stats: SoftmaxRows, dim: int, **others: Any) -> Any:
    top = OPERATIONS["max"](stats.top, dim=dim, keepdim=True)
    powers = OPERATIONS["exp"](OPERATIONS["subtract"](input_tensor, top))
    total = OPERATIONS["sum"](powers, dim=dim, keepdim=True)
    for axis in stats.axes:
        total = OPERATIONS["all_reduce"](total, cluster_axis=axis)
    return OPERATIONS["divide"](powers, total)


def _reshape(local_shape: LocalShape, input_tensor: Symbol, *, shape: Extents, **others: Any) -> Any:
    return OPERATIONS["reshape"](input_tensor, local_shape(shape))


PLAIN_OPS: dict[str, Callable[..., Any]] = {
    "distributed.softmax_statistics": _softmax_rows,
    "distributed.softmax_by_statistics": _softmax,
    "distributed.reshape": _reshape,
}


def not_public(name: str, where: str) -> NotModelled:
    return NotModelled(
        f"softmesh.plan: the plan has {where} done by {name.removeprefix('distributed.')}, which no public op of TT-NN "
        "does, so it cannot be written as a program: plan with Freedom(plain_only=True), or run it by "
        "`with plan.followed(mesh):`."
    )
