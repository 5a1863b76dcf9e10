"""Backward passes of collectives: the gradient of a collective is its conjugate (all_gather and reduce_scatter).

The conjugates of the common ones are collectives again, so that a backward pass shows its traffic as a forward
pass does. Any other is run once more on pieces that torch can derive, one for each device, of all processes that
hold the mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from softmesh.autograd.activation_offload import reload_values
from softmesh.autograd.gradient_wrapper import unwrap_gradient, wrap_gradient
from softmesh.autograd.leaves import gradient_distribution
from softmesh.autograd.process_gradients import told_apart
from softmesh.callsite import RawSite, raw_call_site, resolved
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.dispatch.plan import Output, Plan
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import pieces_at
from softmesh.placement.placements import LOCAL, Replicate
from softmesh.runtime.commands import is_within
from softmesh.runtime.grad_mode import natively
from softmesh.strictness import warn_or_raise
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

Conjugate = Callable[[Tensor, dict[str, Any]], Tensor]


def _conjugate(name: str, *positional: str) -> Conjugate:
    def run(gradient: Tensor, arguments: dict[str, Any]) -> Tensor:
        given = (arguments[argument] for argument in positional)
        return OPERATIONS[name](gradient, *given, cluster_axis=arguments["cluster_axis"])

    return run


CONJUGATES: dict[str, Conjugate] = {
    "all_reduce": _conjugate("all_reduce"),
    "all_gather": _conjugate("reduce_scatter", "dim"),
    "reduce_scatter": _conjugate("all_gather", "dim"),
}
_FEWEST_DIMS = 2  # that collectives which add up ask for


def differentiated(op: Operation, plan: Plan, values: list[Any], data: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    made: tuple[torch.Tensor, ...] = CollectiveOp.apply(op, plan, values, *data)
    return made


class CollectiveOp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: Operation, plan: Plan, values: list[Any], *data: Any) -> Any:
        ctx.set_materialize_grads(False)
        own = [value.detach() if isinstance(value, torch.Tensor) else value for value in data]
        made = plan.run(own)
        ctx.mark_non_differentiable(*(result for result in made if not result.is_floating_point()))
        ctx.op, ctx.plan, ctx.values, ctx.own = op, plan, _without_history(values), own
        ctx.site = None if is_within() else raw_call_site()
        return tuple(result.view_as(result) for result in made)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        op, plan = ctx.op, ctx.plan
        conjugate = CONJUGATES.get(op.name)
        tensors = _tensors_in(op, ctx.values)
        rank = len(plan.outputs[0].spec.shape)
        found: list[torch.Tensor | None]
        with torch.no_grad():
            gradient = None
            if gradients[0] is not None and (conjugate is not None or op.name in _ADDED_UP):
                names = op.definition.signature.named(ctx.values, range(len(ctx.values)))
                gradient = as_tensor(unwrap_gradient(gradients[0]), plan.outputs[0], tensors[0])
                gradient = told_apart(gradient, f"backward of {op.name}")
                if ctx.site is not None:  # a unified op knows what it does
                    _warn_if_summed_again(op.name, gradient, names.get("cluster_axis"), ctx.site)
            if conjugate is not None and gradient is not None and rank >= _FEWEST_DIMS:
                found = [under_grid_of(conjugate(gradient, names), tensors[0].view_distribution())]
            else:
                reload_values(tensor.view_data() for tensor in tensors)
                if plan.derivation is not None:
                    plain = [None if one is None else unwrap_gradient(one) for one in gradients]
                    with natively():
                        found = plan.derivation.gradients(plan.adapts, ctx.own, plain)
                else:
                    found = _derived(op, plan, ctx.values, tensors, gradients)
        each = iter(found)
        answer = [next(each, None) if isinstance(value, torch.Tensor) else None for value in ctx.own]
        shaped = [
            wrap_gradient(gradient, value.shape) if need and gradient is not None else None
            for gradient, value, need in zip(answer, ctx.own, ctx.needs_input_grad[3:], strict=True)
        ]
        return None, None, None, *shaped


_ADDED_UP = {"all_reduce": "all_reduce(x, axis, noop_backward=True)"}
_ADDED_UP["experimental.all_reduce_async"] = _ADDED_UP["all_reduce"]
_ADDED_UP["all_gather"] = 'all_gather(x, dim, axis, gradients="replicated")'
_ADDED_UP["experimental.all_gather_async"] = _ADDED_UP["all_gather"]


def _warn_if_summed_again(op: str, gradient: Tensor, axis: int | None, site: RawSite) -> None:
    """A loss that every device computes alike counts once for each of them where a sum is derived."""
    dist, instead = gradient.view_distribution(), _ADDED_UP.get(op)
    if instead is None:
        return
    for one in range(len(dist.grid)) if axis is None else {axis} & set(range(len(dist.grid))):
        devices = dist.devices[one]
        if devices > 1 and isinstance(dist.placements[one], Replicate):
            warn_or_raise(
                f"backward: the gradient that comes to {op} ({resolved(site)}) is the same on {devices} devices along "
                f"mesh axis {one}, and its backward pass adds it up again: gradients before it are {devices} times too "
                f"large. Use softmesh.train's {instead}, which hands it on as it is.",
            )


def as_tensor(gradient: torch.Tensor, output: Output, like: Tensor) -> Tensor:
    """The gradient of a result as a tensor of its mesh."""
    dist = gradient_distribution(output.dist, gradient)
    return Tensor.make(Storage(gradient, dist, like.storage.device), output.spec)


def under_grid_of(gradient: Tensor, dist: Distribution) -> torch.Tensor:
    """Its values with the leading dims of another distribution over the same devices."""
    data, own = gradient.view_data(), gradient.view_distribution()
    if own.grid == dist.grid and own.coords == dist.coords:
        return data
    return pieces_at(data, own, dist.coordinates()).reshape(*dist.grid, *data.shape[own.lead :])


def _without_history(values: list[Any]) -> list[Any]:
    """The arguments, with tensors that hold on to no graph."""
    return [[_plain(item) for item in value] if isinstance(value, list | tuple) else _plain(value) for value in values]


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _tensors_in(op: Operation, values: list[Any]) -> list[Tensor]:
    given = (values[at] for at in op.definition.signature.operand_at)
    flat = (item for value in given for item in (value if isinstance(value, list | tuple) else (value,)))
    return [item for item in flat if isinstance(item, Tensor)]


def _derived(
    op: Operation,
    plan: Plan,
    values: list[Any],
    tensors: list[Tensor],
    gradients: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    """Run once more, each device with a piece of its own that torch derives."""
    leaves = {id(tensor): _leaf_per_device(tensor) for tensor in tensors}
    replaced = [_replaced(value, leaves) for value in values]
    names = op.definition.signature.named(replaced, range(len(replaced)))
    with natively(), torch.enable_grad():
        made = op(**{name: value for name, value in names.items() if value is not None})
        results = made if isinstance(made, list | tuple) else [made]
        pieces = [result.pieces() for result in results]
    pairs = [
        (piece, _pieces_of(unwrap_gradient(gradient), output.dist))
        for piece, gradient, output in zip(pieces, gradients, plan.outputs, strict=True)
        if gradient is not None and piece.requires_grad
    ]
    data = [leaf.view_data() for leaf in leaves.values()]
    wanted = [piece for piece in data if piece.requires_grad]
    outs, seeds = zip(*pairs, strict=True) if pairs else ((), ())
    found = iter(torch.autograd.grad(outs, wanted, seeds, allow_unused=True) if outs else ())
    return [next(found, None) if piece.requires_grad else None for piece in data]


def _replaced(value: Any, leaves: Mapping[int, Tensor]) -> Any:
    """The leaf that stands for a tensor, also within a list."""
    if isinstance(value, list | tuple):
        return [leaves.get(id(item), item) for item in value]
    return leaves.get(id(value), value)


def _leaf_per_device(tensor: Tensor) -> Tensor:
    dist, data = tensor.view_distribution(), tensor.view_data()
    full = data.detach().expand(*dist.grid, *data.shape[dist.lead :])
    if full.is_floating_point():
        full = full.clone().requires_grad_()
    alone = dist.with_placements((LOCAL,) * dist.lead)
    return Tensor.make(Storage(full, alone, tensor.storage.device), tensor.spec)


def _pieces_of(gradient: torch.Tensor, dist: Distribution) -> torch.Tensor:
    local = gradient.shape[dist.lead :]
    return gradient.expand(*dist.grid, *local).reshape(-1, *local)
