"""Derivatives of ops that each device computes by itself, with a gradient for each device.

Torch derives the op's own computation (the inner graph); the engine sees one node for each op. In the inner
graph an operand that requires a gradient has the leading extents of the result: what is stored once is
expanded, without a copy, so that each device's gradient comes out apart. Where gradients arrive that differ
between devices which computed the same, the computation is run once more, for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from softmesh.autograd.activation_offload import reload_values
from softmesh.autograd.gradient_wrapper import unwrap_gradient, wrap_gradient
from softmesh.dispatch.plan import Plan
from softmesh.runtime.grad_mode import keeps_graph
from softmesh.tensor.dtype import FACTS

Extents = tuple[int, ...]


@dataclass
class Inner:
    """One run of an op's computation that torch can derive."""

    leaves: list[torch.Tensor]
    results: list[torch.Tensor]

    def lead(self, count: int) -> Extents:
        return tuple(self.results[0].shape[:count])


def differentiated(plan: Plan, data: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """What `plan.run(data)` gives, with gradients for those of `data` that ask for them."""
    needs = tuple(isinstance(value, torch.Tensor) and value.requires_grad for value in data)
    natively = plan.derived_natively.get(needs)
    if natively is None:
        natively = plan.derived_natively[needs] = _is_uniform(plan, needs)
    if natively:
        return plan.run(data)
    made: tuple[torch.Tensor, ...] = LocalOp.apply(plan, *data)
    return made


def _is_uniform(plan: Plan, needs: Sequence[bool]) -> bool:
    """Whether operands and results are stored alike: then torch's derivative is each device's own."""
    first = plan.outputs[0]
    dists = [dist for dist, need in zip(plan.operand_dists, needs, strict=True) if need and dist is not None]
    others = [output.dist for output in plan.outputs]
    return (
        plan.wide_adapts is None
        and all(dist.grid == first.dist.grid and dist.extents == first.dist.extents for dist in (*dists, *others))
        and all(FACTS[output.spec.dtype].exact_storage for output in plan.outputs)
    )


class LocalOp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, *data: Any) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        own = [value.detach() if isinstance(value, torch.Tensor) else value for value in data]
        needs = ctx.needs_input_grad[1:]
        dist = plan.outputs[0].dist
        inner = _run(plan, own, needs, dist.extents)
        made = plan.finish(_as_given(plan, _stored(plan, inner.results)))
        ctx.mark_non_differentiable(
            *(
                result
                for result, raw in zip(made, inner.results, strict=True)
                if not (raw.requires_grad and result.is_floating_point())
            )
        )
        ctx.plan, ctx.inner = plan, inner
        ctx.shapes = [value.shape if need else None for value, need in zip(own, needs, strict=True)]
        # devices that computed the same may be told different gradients: for them it is computed again
        ctx.again = own if dist.extents != dist.grid else None
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        plan, inner, lead = ctx.plan, ctx.inner, ctx.plan.outputs[0].dist.lead
        if inner is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time: say backward(retain_graph=True) the first time."
            )
        if not keeps_graph():
            ctx.inner = None
        given = [None if gradient is None else unwrap_gradient(gradient) for gradient in gradients]
        wanted = _widest(given, inner.lead(lead), lead)
        needs = ctx.needs_input_grad[1:]
        if wanted != inner.lead(lead) and ctx.again is not None:
            reload_values(ctx.again)
            inner = _run(plan, ctx.again, needs, wanted)
        found = iter(_derived(inner, given, keeps_graph()))
        answer = [None if shape is None else _answer(next(found), shape) for shape in ctx.shapes]
        return None, *answer


def _answer(gradient: torch.Tensor | None, shape: torch.Size) -> torch.Tensor | None:
    return None if gradient is None else wrap_gradient(gradient, shape)


def _run(plan: Plan, data: Sequence[Any], needs: Sequence[bool], extents: Extents) -> Inner:
    leaves: list[torch.Tensor] = []
    values: list[Any] = []
    adapts = plan.adapts if plan.wide_adapts is None else plan.wide_adapts
    with torch.enable_grad():
        for at, (value, need) in enumerate(zip(data, needs, strict=True)):
            adapt = (adapts if need else plan.adapts)[at]
            if need:
                value = _expanded(plan, at, value, extents).requires_grad_()
                leaves.append(value)
            values.append(value if adapt is None else adapt(value))
        raw = plan.compute(*values)
    return Inner(leaves, [raw] if isinstance(raw, torch.Tensor) else list(raw))


def _expanded(plan: Plan, at: int, value: torch.Tensor, extents: Extents) -> torch.Tensor:
    """The operand with a place for each device that is to get a gradient of its own. A view."""
    dist = plan.operand_dists[at]
    assert dist is not None
    wanted = dist.grid if plan.wide_adapts is not None else tuple(map(max, extents, dist.extents))
    return value.detach().expand(*wanted, *value.shape[dist.lead :])


def _stored(plan: Plan, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Once along axes on which devices agree: operands that were expanded made more of them."""
    found = []
    for result, output in zip(results, plan.outputs, strict=True):
        result = result.detach()
        for axis, n in enumerate(output.dist.extents):
            if n < result.shape[axis]:
                result = result.narrow(axis, 0, 1)
        found.append(result)
    return found


def _as_given(plan: Plan, results: list[torch.Tensor]) -> Any:
    return results[0] if plan.container is None else results


def _widest(gradients: Sequence[torch.Tensor | None], own: Extents, lead: int) -> Extents:
    for gradient in gradients:
        if gradient is not None:
            own = tuple(map(max, own, gradient.shape[:lead]))
    return own


def _derived(inner: Inner, gradients: Sequence[torch.Tensor | None], keep: bool) -> tuple[torch.Tensor | None, ...]:
    pairs = [
        (result, gradient.expand(result.shape).to(result.dtype))
        for result, gradient in zip(inner.results, gradients, strict=True)
        if gradient is not None and result.requires_grad
    ]
    if not pairs:
        return (None,) * len(inner.leaves)
    results, seeds = zip(*pairs, strict=True)
    return torch.autograd.grad(results, inner.leaves, seeds, allow_unused=True, retain_graph=keep)
