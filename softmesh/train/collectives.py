"""Differentiable collectives of training: each says how its gradient comes back.

    forward            backward
    all_gather         reduce_scatter of contributions; or, where all devices hold the same gradient, one's own slice
    reduce_scatter     all_gather
    scatter            all_gather
    all_reduce         all_reduce; or nothing (`noop_backward`), where all devices hold the same gradient
    broadcast          forwards nothing; all_reduce
    ring_shift         the shift in the other direction

`broadcast` before and `all_reduce(noop_backward=True)` behind a block whose weights are split are what makes its
gradients those of the whole. Along an axis of one device all of them are the identity.
"""

from __future__ import annotations

from typing import Any

from softmesh.autograd.function import Context, Function
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_number, axis_size
from softmesh.train.training_ops import own_slice, ring_shift_forward

_op = OPERATIONS


def _mesh(op: str, tensor: Tensor) -> MeshDevice:
    device = tensor.device()
    if device is None:
        raise MeshError(f"{op}: the tensor is on the host: move it with ttnn.to_device(tensor, mesh_device).")
    return device


def _along(op: str, tensor: Tensor, axis: Axis) -> int | None:
    """The number of the axis; None where there is nobody to talk to."""
    mesh = _mesh(op, tensor)
    return axis_number(mesh, axis) if axis_size(mesh, axis) > 1 else None


class _AllReduceOnly(Function):
    @staticmethod
    def forward(ctx: Context, x: Tensor, axis: int) -> Any:
        return _op["all_reduce"](x, cluster_axis=axis)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> Any:
        return gradient, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int) -> Any:
        ctx.axis = axis
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _op["all_reduce"](gradient, cluster_axis=ctx.axis), None


class _GatherReplicated(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, axis: int) -> Any:
        ctx.dim, ctx.axis = dim, axis
        return _op["all_gather"](x, dim, cluster_axis=axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return own_slice(gradient, ctx.dim, cluster_axis=ctx.axis), None, None


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, axis: int) -> Any:
        ctx.dim, ctx.axis = dim, axis
        return own_slice(x, dim, cluster_axis=axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _op["all_gather"](gradient, ctx.dim, cluster_axis=ctx.axis), None, None


class _RingShift(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int, steps: int) -> Any:
        ctx.axis, ctx.steps = axis, steps
        return ring_shift_forward(x, axis, steps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ring_shift_forward(gradient, ctx.axis, -ctx.steps), None, None


def all_reduce(x: Tensor, axis: Axis, *, noop_backward: bool = False) -> Tensor:
    """The sum over the devices along the axis. `noop_backward`: the gradient is already the same on all of them."""
    along = _along("all_reduce", x, axis)
    if along is None:
        return x
    return _AllReduceOnly.apply(x, along) if noop_backward else _op["all_reduce"](x, cluster_axis=along)


def broadcast(x: Tensor, axis: Axis) -> Tensor:
    """x as it is, for devices that go on with different weights: backwards, their gradients are added up."""
    along = _along("broadcast", x, axis)
    return x if along is None else _Broadcast.apply(x, along)


def all_gather(x: Tensor, dim: int, axis: Axis, *, gradients: str = "partial") -> Tensor:
    """All pieces side by side. `gradients`: each device brings a contribution ("partial"), or all the same one."""
    if gradients not in ("partial", "replicated"):
        raise ArgumentValueError(
            f'all_gather: gradients must be "partial" or "replicated", got {gradients!r}.'
        )
    along = _along("all_gather", x, axis)
    if along is None:
        return x
    if gradients == "replicated":
        return _GatherReplicated.apply(x, dim, along)
    return _op["all_gather"](x, dim, cluster_axis=along)


def reduce_scatter(x: Tensor, dim: int, axis: Axis) -> Tensor:
    """Of the sum over the devices along the axis, each its slice along `dim`."""
    along = _along("reduce_scatter", x, axis)
    return x if along is None else _op["reduce_scatter"](x, dim, cluster_axis=along)


def scatter(x: Tensor, dim: int, axis: Axis) -> Tensor:
    """Each device keeps its slice of what all of them hold."""
    along = _along("scatter", x, axis)
    return x if along is None else _Scatter.apply(x, dim, along)


def ring_shift(x: Tensor, axis: Axis, steps: int = 1) -> Tensor:
    """Each device gets the piece of the one `steps` before it along the axis, around the end."""
    along = _along("ring_shift", x, axis)
    return x if along is None else _RingShift.apply(x, along, steps)
