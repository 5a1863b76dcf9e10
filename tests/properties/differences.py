"""Gradients of the mesh against central differences, in float64.

The loss is a sum over devices: each weighs its own piece of each result. Every device's copy of an operand is a
variable of its own, whether or not the devices hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import assume
from strategies import Like, Words, draw_values

import softmesh as ttnn
from softmesh.autograd.leaves import backward_all
from softmesh.placement.distribution import distribution
from softmesh.placement.placements import LOCAL, REPLICATE
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage

Function = Callable[[Sequence[ttnn.Tensor]], Any]
_STEP = 1e-6
_TOLERANCE = 1e-6
_JUMP = 1e-4  # between the derivatives to the left and to the right: a kink


def lying_as(mesh: ttnn.MeshDevice, like: Like | torch.Tensor, words: Words, seed: int) -> ttnn.Tensor:
    """A tensor that has these words; for a gradient any pieces will do. Numbers that are given all devices share."""
    if isinstance(like, torch.Tensor):
        dtype = ttnn.uint16 if like.dtype is torch.int16 else ttnn.int32
        made = ttnn.from_torch(like, dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh)
        assert made is not None
        return made
    grid = tuple(mesh.shape)
    dist = distribution(grid, grid, words)
    values = draw_values((*dist.extents, *like.shape), like.values, seed)
    return ttnn.Tensor.make(Storage(values, dist, mesh), make_spec(like.shape, like.dtype, like.layout))


def floats(results: Any) -> list[ttnn.Tensor]:
    several = results if isinstance(results, list | tuple) else [results]
    return [one for one in several if one is not None and one.view_data().is_floating_point()]


def check(function: Function, operands: Sequence[ttnn.Tensor], seed: int, alike: Sequence[bool]) -> None:
    """Along one direction for each operand. `alike`: mesh axes along which devices weigh their pieces the same."""
    draws = torch.Generator().manual_seed(seed)
    leaves = [one.requires_grad_() if floats(one) else one for one in operands]
    made = floats(function(leaves))
    assume(made)
    places = [at for at, one in enumerate(made) if one.requires_grad]
    assert places, "none of the results requires a gradient"
    weights = {at: _weights(made[at], draws, alike) for at in places}
    _check_numbers(made)
    backward_all([made[at] for at in places], [weights[at] for at in places])
    for index, leaf in enumerate(leaves):
        if leaf.requires_grad:
            step = torch.rand(*leaf.view_distribution().grid, *leaf.shape, generator=draws) * 2 - 1
            moved = [_moved(leaves, index, step * by) for by in (0.0, _STEP, -_STEP)]
            here, ahead, behind = (_weighed(floats(function(given)), weights) for given in moved)
            gradient = leaf.grad
            parts = torch.zeros(()) if gradient is None else gradient.pieces().reshape(step.shape) * step
            _compare(f"operand {index} {ttnn.placements(leaf)}", parts, here, ahead, behind)


def _check_numbers(results: Sequence[ttnn.Tensor]) -> None:
    """Where an op has no value (the variance of one element) it has no derivative."""
    assume(all(one.storage.undefined is not None or not one.pieces().isnan().any() for one in results))


def _compare(what: str, parts: torch.Tensor, here: float, ahead: float, behind: float) -> None:
    right, left = (ahead - here) / _STEP, (here - behind) / _STEP
    scale = max(1.0, abs(right), abs(left), float(parts.abs().sum()) / 100)
    assume(abs(right - left) < _JUMP * scale)
    along, by_difference = float(parts.sum()), (ahead - behind) / (2 * _STEP)
    assert abs(along - by_difference) < _TOLERANCE * scale, (
        f"{what}: the gradient says {along}, differences {by_difference}"
    )


def _moved(leaves: Sequence[ttnn.Tensor], index: int, step: torch.Tensor) -> list[ttnn.Tensor]:
    """All operands with a piece for each device; one of them moved a little."""
    return [_apart(leaf, step if at == index else 0.0) for at, leaf in enumerate(leaves)]


def _apart(tensor: ttnn.Tensor, step: torch.Tensor | float) -> ttnn.Tensor:
    dist, data = tensor.view_distribution(), tensor.view_data().detach()
    own = data.expand(*dist.grid, *data.shape[dist.lead :])
    alone = dist.with_placements((LOCAL,) * dist.lead)
    values = own + step if own.is_floating_point() else own
    return ttnn.Tensor.make(Storage(values, alone, tensor.device()), tensor.spec)


def _weights(result: ttnn.Tensor, draws: torch.Generator, alike: Sequence[bool]) -> ttnn.Tensor:
    dist = result.view_distribution()
    same = (*alike, *(False,) * dist.lead)[: dist.lead]
    own = dist.with_placements(tuple(REPLICATE if yes else LOCAL for yes in same))
    values = torch.rand(*own.extents, *result.shape, generator=draws) * 2 - 1
    return ttnn.Tensor.make(Storage(values, own, result.device()), result.spec)


def _weighed(results: Sequence[ttnn.Tensor], weights: dict[int, ttnn.Tensor]) -> float:
    """What a collective leaves undefined has no part in the loss."""
    total = 0.0
    for at, weight in weights.items():
        parts = results[at].pieces() * weight.pieces()
        total += float((parts if results[at].storage.undefined is None else parts.nan_to_num(0)).sum())
    return total
