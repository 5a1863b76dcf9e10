"""Computations written for one device, run for all that hold different values; and results put where they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.arguments import checked, described, refused
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import MeshError
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.tensor import Tensor

Present = Callable[[str, Any, dict[str, Any]], Any]


def on_each_device(function: Callable[..., Any], *operands: object) -> Callable[..., Any]:
    """`function` of torch tensors of one device, as one of tensors with the mesh dims in front: one batch of all.

    `operands` are what a definition got: an `Operand` for each tensor, anything else for what stands in its place.
    """
    ranks = _ranks(operands)
    batched = torch.vmap(function, in_dims=tuple(None if rank is None else 0 for rank in ranks))

    def compute(*values: Any) -> Any:
        lead, flat = _in_one_batch(values, ranks)
        made = batched(*flat)
        if isinstance(made, torch.Tensor):
            return made.reshape(*lead, *made.shape[1:])
        return [one.reshape(*lead, *one.shape[1:]) for one in made]

    return compute


def gradients_on_each_device(function: Callable[..., torch.Tensor], *operands: object) -> Callable[..., Any]:
    """(gradient of the result, *values) to the gradients of the values that are tensors, each device its own."""
    ranks = _ranks(operands)
    batched = torch.vmap(function, in_dims=tuple(None if rank is None else 0 for rank in ranks[1:]))

    def compute(*values: Any) -> list[torch.Tensor]:
        lead, (gradient, *flat) = _in_one_batch(values, ranks)
        with torch.enable_grad():
            given = [v.detach().requires_grad_() if isinstance(v, torch.Tensor) else v for v in flat]
            made = batched(*given)
        leaves = [v for v in given if isinstance(v, torch.Tensor)]
        spread = gradient.reshape(made.shape).to(made.dtype)
        found = torch.autograd.grad(made, leaves, spread, allow_unused=True, materialize_grads=True)
        return [one.reshape(*lead, *one.shape[1:]) for one in found]

    return compute


def _ranks(operands: Sequence[object]) -> list[int | None]:
    return [operand.rank if isinstance(operand, Operand) else None for operand in operands]


def _in_one_batch(values: Sequence[Any], ranks: Sequence[int | None]) -> tuple[tuple[int, ...], list[Any]]:
    """The mesh dims that all values share, and the values with one dim in their place."""
    pairs = list(zip(values, ranks, strict=True))
    lead = broadcast_shapes(*(v.shape[: v.dim() - r] for v, r in pairs if r is not None))
    flat = [
        v if r is None else v.expand(*lead, *v.shape[v.dim() - r :]).reshape(-1, *v.shape[v.dim() - r :])
        for v, r in pairs
    ]
    return tuple(lead), flat


def delivered(*names: str, only_given: Sequence[str] = (), required: str = "are_required_outputs") -> Present:
    """Results to the output tensors that arguments of these names give, in their order.

    What is not required is None, and so is one of `only_given` for which there is no output tensor.
    """

    def present(op: str, results: Sequence[Any], given: dict[str, Any]) -> list[Any]:
        wanted = given.get(required)
        asked = [True] * len(results) if wanted is None else asked_for(op, required, wanted)
        if len(asked) != len(results):
            raise MeshError(f"{op}: {required}={asked} must say True or False for each of {len(results)} results.")
        return [
            None if not yes or (name in only_given and given[name] is None) else _put(op, result, name, given)
            for result, name, yes in zip(results, names, asked, strict=True)
        ]

    return present


def asked_for(op: str, name: str, wanted: object) -> list[bool]:
    """Which results the argument of this name asks for."""
    if not isinstance(wanted, list | tuple) or not all(isinstance(one, int) for one in wanted):
        raise refused(op, f"{name} must be a list of True and False, got {described(wanted)}")
    return [bool(one) for one in wanted]


def delivered_alone(name: str) -> Present:
    """The one result, to the output tensor that an argument of this name gives."""
    return lambda op, result, given: _put(op, result, name, given)


def _put(op: str, result: Any, name: str, given: dict[str, Any]) -> Any:
    target, config = given[name], given.get(f"{name}_memory_config")
    if target is not None:
        checked(op, name, target, Tensor, "a ttnn.Tensor to write to")
        shaped = result if result.shape == target.shape else OPERATIONS["reshape"](result, list(target.shape))
        return OPERATIONS["assign"](shaped, output_tensor=target)
    return result if config is None else OPERATIONS["to_memory_config"](result, config)
