"""Own ops of unified ones, in public ops: a reshape of pieces, and the softmax of rows that are split.

Each function is given the local shape of the result and the arguments of the own op, and calls public ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softmesh.dispatch.entry_point import EntryPoint
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.distributed.linear_and_embedding import in_a_chain
from softmesh.errors import NotModelled
from softmesh.ops.public_names import DOTTED, TOP
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


def _activation(local_shape: LocalShape, input_tensor: Symbol, each: Sequence[Any]) -> Any:
    return OPERATIONS["unary_chain"](input_tensor, [*in_a_chain(each)])


PLAIN_OPS: dict[str, Callable[..., Any]] = {
    "distributed.softmax_statistics": _softmax_rows,
    "distributed.softmax_by_statistics": _softmax,
    "distributed.reshape": _reshape,
    "distributed.activation": _activation,
}


# By the name of a function that is public, the op that computes for it, which may have operands of other names.
_RENAMED: dict[str, dict[str, str]] = {
    **{name: {} for name in ("conv2d", "conv_transpose2d", "move")},
    "batch_norm": {"mean": "running_mean", "variance": "running_var"},
}


def as_public(op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as the public function of this name takes them."""
    names = _RENAMED.get(op.name)
    if not names or not isinstance(op, Operation):
        return args, kwargs
    given = dict(zip(op.definition.signature.names, args, strict=False)) | kwargs
    return args[:1], {names.get(name, name): value for name, value in list(given.items())[1:]}


def is_part_of_a_function(op: EntryPoint) -> bool:
    """Whether the public name is that of a function that does more: it draws numbers first, say."""
    public = TOP.get(op.name) or DOTTED.get(op.name) or op
    return op.name.startswith(("prim.", "transformer.ring_")) or (public is not op and op.name not in _RENAMED)


def not_public(name: str, where: str) -> NotModelled:
    return NotModelled(
        f"softmesh.plan: the plan has {where} done by {name.removeprefix('distributed.')}, which no public op of TT-NN "
        "does, so it cannot be written as a program: plan with Freedom(plain_only=True), or run it by "
        "`with plan.followed(mesh):`."
    )
