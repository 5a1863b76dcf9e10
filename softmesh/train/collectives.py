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

from collections.abc import Callable
from functools import partial
from typing import Any

from softmesh.arguments import checked
from softmesh.autograd.function import Function
from softmesh.callsite import raw_call_site, resolved
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.placement.placements import LOCAL, Partial
from softmesh.runtime.device import MeshDevice
from softmesh.strictness import warn_or_raise
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.train import training_ops
from softmesh.train.axes import Axis, axis_number, axis_size

_op = OPERATIONS
Change = Callable[[Tensor], Tensor]


def _mesh(op: str, tensor: Tensor) -> MeshDevice:
    device = checked(op, "x", tensor, Tensor, "a ttnn.Tensor").device()
    if device is None:
        raise MeshError(f"{op}: the tensor is on the host: move it with ttnn.to_device(tensor, mesh_device).")
    return device


def _along(op: str, tensor: Tensor, axis: Axis) -> int | None:
    """The number of the axis; None where there is nobody to talk to."""
    mesh = _mesh(op, tensor)
    return axis_number(mesh, axis) if axis_size(mesh, axis) > 1 else None


class _Collective(Function):
    """One collective forwards, and another one, or nothing, backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Change, back: Change) -> Any:
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.back(gradient), None, None


def _unchanged(x: Tensor) -> Tensor:
    return x


def _the_same(op: str, along: int) -> Change:
    """Hands on a gradient of which the program has said that all devices along the axis hold the same."""
    site = raw_call_site()

    def back(gradient: Tensor) -> Tensor:
        dist = gradient.view_distribution()
        if not isinstance(dist.placements[along], Partial):
            return gradient
        warn_or_raise(
            f"backward: the gradient that comes to {op} ({resolved(site)}) is not the same on the "
            f"{dist.devices[along]} devices along mesh axis {along}: each brings its contribution, and {op} takes its "
            "own one for the sum: gradients before it lack what the other devices bring. Put softmesh.train's "
            "broadcast(x, axis) before layers whose weights are split, or leave that argument out.",
            at=resolved(site),
        )
        words = (LOCAL if axis == along else word for axis, word in enumerate(dist.placements))
        return Tensor.make(
            Storage(gradient.view_data(), dist.with_placements(tuple(words)), gradient.storage.device), gradient.spec
        )

    return back


def all_reduce(x: Tensor, axis: Axis, *, noop_backward: bool = False) -> Tensor:
    """The sum over the devices along the axis. `noop_backward`: the gradient is already the same on all of them."""
    along = _along("all_reduce", x, axis)
    if along is None:
        return x
    reduced = partial(_op["all_reduce"], cluster_axis=along)
    if not noop_backward:
        return reduced(x)
    return _Collective.apply(x, reduced, _the_same("all_reduce(noop_backward=True)", along))


def broadcast(x: Tensor, axis: Axis) -> Tensor:
    """x as it is, for devices that go on with different weights: backwards, their gradients are added up."""
    along = _along("broadcast", x, axis)
    if along is None:
        return x
    return _Collective.apply(x, _unchanged, partial(_op["all_reduce"], cluster_axis=along))


def all_gather(x: Tensor, dim: int, axis: Axis, *, gradients: str = "partial") -> Tensor:
    """All pieces side by side. `gradients`: each device brings a contribution ("partial"), or all the same one."""
    if gradients not in ("partial", "replicated"):
        raise ArgumentValueError(f'all_gather: gradients must be "partial" or "replicated", got {gradients!r}.')
    along = _along("all_gather", x, axis)
    if along is None:
        return x
    gathered, own = _gathered_and_own(dim, along)
    if gradients != "replicated":
        return gathered(x)
    same = _the_same('all_gather(gradients="replicated")', along)
    return _Collective.apply(x, gathered, lambda gradient: own(same(gradient)))


def _gathered_and_own(dim: int, along: int) -> tuple[Change, Change]:
    """Two that undo each other: all pieces side by side, and one's own slice of them."""
    return (
        partial(_op["all_gather"], dim=dim, cluster_axis=along),
        partial(training_ops.scatter, dim=dim, cluster_axis=along),
    )


def reduce_scatter(x: Tensor, dim: int, axis: Axis) -> Tensor:
    """Of the sum over the devices along the axis, each its slice along `dim`."""
    along = _along("reduce_scatter", x, axis)
    return x if along is None else _op["reduce_scatter"](x, dim, cluster_axis=along)


def scatter(x: Tensor, dim: int, axis: Axis) -> Tensor:
    """Each device keeps its slice of what all of them hold."""
    along = _along("scatter", x, axis)
    if along is None:
        return x
    gathered, own = _gathered_and_own(dim, along)
    return _Collective.apply(x, own, gathered)


def ring_shift(x: Tensor, axis: Axis, steps: int = 1) -> Tensor:
    """Each device gets the piece of the one `steps` before it along the axis, around the end."""
    along = _along("ring_shift", x, axis)
    if along is None:
        return x
    there, back = (partial(training_ops.ring_shift, steps=n, cluster_axis=along) for n in (steps, -steps))
    return _Collective.apply(x, there, back)
