"""Blockwise attention, forward and backward: a device's own queries over one block of keys after another.

The block that device r has at step s belongs to device r - s, around the end. Causal: at step 0 it is the
device's own, of which the upper triangle is hidden; later it comes before the queries and is seen whole, or, on
devices r < s, it comes behind them and nothing is computed there. Scores exist for a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.attention.sdpa_core import check_keys, check_rank_4, group
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import LOCAL, Placement, Shard
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import DataType
from softmesh.train.training_ops import local_operation

OP = "ring_attention"
_ROWS = 128  # of scores at a time
_WIDTH_DIM = 3
Working = torch.Tensor | slice


@dataclass(frozen=True)
class Block:
    """How queries see the keys of one step, in data (devices, batch, heads, rows, width)."""

    step: int
    scale: float
    is_causal: bool

    def working(self, place: torch.Tensor, devices: Sequence[int]) -> Working:
        """The devices for which there is something to see."""
        if not self.is_causal:
            return slice(None)
        return (place >= self.step).squeeze(-1).expand(*devices).flatten()

    def rows(self, count: int) -> Iterator[tuple[slice, slice]]:
        """Some queries after the other, and the keys that one of them sees."""
        for first in range(0, count, _ROWS):
            rows = slice(first, min(first + _ROWS, count))
            yield rows, slice(0, rows.stop if self._is_diagonal else count)

    def scores(self, q: torch.Tensor, k: torch.Tensor, rows: slice) -> torch.Tensor:
        found = q @ k.mT * self.scale
        if self._is_diagonal:
            at = torch.arange(rows.start, rows.stop, device=q.device).unsqueeze(-1)
            found = found.masked_fill(torch.arange(k.shape[-2], device=q.device) > at, float("-inf"))
        return found

    @property
    def _is_diagonal(self) -> bool:
        return self.is_causal and self.step == 0


@local_operation(Kind.ATTENTION)
def attention_block(
    q: Operand,
    k: Operand,
    v: Operand,
    place: Operand,
    so_far: Operand | None = None,
    weight: Operand | None = None,
    *,
    step: int,
    scale: float,
    is_causal: bool,
) -> Local:
    """(attention over this block and those before it, the logarithm of what it was divided by)"""
    _check(q, k, v)
    block = Block(step, scale, is_causal)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        place: torch.Tensor,
        out: torch.Tensor | None,
        total: torch.Tensor | None,
    ) -> tuple[torch.Tensor, ...]:
        flat, devices = _by_device(place.dim() - 1, q, k, v, out, total)
        if out is None or total is None:
            found: Sequence[torch.Tensor] = _attended(block, *flat)
        else:
            found = tuple(x.clone() for x in flat[3:])
            works = block.working(place, devices)
            _merge(found, works, _attended(block, *(x[works] for x in flat[:3])))
        return tuple(x.unflatten(0, devices) for x in found)

    return Local(
        compute,
        _same_split,
        dtypes=(DataType.FLOAT32,) * 2,
        cost=matmul_cost(2 * k.shape[2]),
    )


def _attended(block: Block, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over this block alone, and the logarithm of the sum of its weights (..., rows, 1)."""
    asking = group(q, -3, (k.shape[-3], q.shape[-3] // k.shape[-3]))
    k, v = k.unsqueeze(-3), v.unsqueeze(-3)
    outs, totals = [], []
    for rows, keys in block.rows(q.shape[-2]):
        scores = block.scores(asking[..., rows, :], k[..., keys, :], rows)
        total = scores.logsumexp(-1, keepdim=True)
        outs.append(scores.sub_(total).exp_() @ v[..., keys, :])
        totals.append(total)
    return torch.cat(outs, -2).flatten(-4, -3), torch.cat(totals, -2).flatten(-4, -3)


def _merge(found: Sequence[torch.Tensor], works: Working, more: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Count more weights in, on the devices that have them."""
    out, total = found
    before, (added, weight) = total[works], more
    after = torch.logaddexp(before, weight)
    out[works] = out[works] * (before - after).exp() + added * (weight - after).exp()
    total[works] = after


@local_operation(Kind.ATTENTION)
def attention_block_gradient(
    q: Operand,
    k: Operand,
    v: Operand,
    place: Operand,
    out: Operand,
    weight: Operand,
    gradient: Operand,
    to_q: Operand | None = None,
    to_k: Operand | None = None,
    to_v: Operand | None = None,
    *,
    step: int,
    scale: float,
    is_causal: bool,
) -> Local:
    """The gradients that this block adds to those so far: of the queries, and of the keys and values it consists of."""
    block = Block(step, scale, is_causal)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        place: torch.Tensor,
        out: torch.Tensor,
        total: torch.Tensor,
        gradient: torch.Tensor,
        *so_far: torch.Tensor | None,
    ) -> tuple[torch.Tensor, ...]:
        flat, devices = _by_device(place.dim() - 1, q, k, v, out, total, gradient, *so_far)
        given, before = flat[:6], flat[6:]
        if not before:
            found: Sequence[torch.Tensor] = _gradients(block, *given)
        else:
            works = block.working(place, devices)
            found = tuple(x.clone() for x in before)
            for each, more in zip(found, _gradients(block, *(x[works] for x in given)), strict=True):
                each[works] += more
        return tuple(x.unflatten(0, devices) for x in found)

    return Local(
        compute,
        _same_split,
        dtypes=(DataType.FLOAT32,) * 3,
        cost=matmul_cost(5 * k.shape[2]),
    )


def _gradients(
    block: Block,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    total: torch.Tensor,
    gradient: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    heads = (k.shape[-3], q.shape[-3] // k.shape[-3])
    reached = (gradient * out).sum(-1, keepdim=True)
    asking, total, reached, gradient = (group(x, -3, heads) for x in (q, total, reached, gradient))
    to_q, to_k, to_v = torch.empty_like(asking), torch.zeros_like(k), torch.zeros_like(v)
    keys_once, values_once = k.unsqueeze(-3), v.unsqueeze(-3)
    for rows, keys in block.rows(q.shape[-2]):
        seen = keys_once[..., keys, :]
        share = block.scores(asking[..., rows, :], seen, rows).sub_(total[..., rows, :]).exp_()
        onward = gradient[..., rows, :]
        to_v[..., keys, :] += (share.mT @ onward).sum(-3)
        change = share * (onward @ values_once[..., keys, :].mT - reached[..., rows, :]) * block.scale
        to_q[..., rows, :] = change @ seen
        to_k[..., keys, :] += (change.mT @ asking[..., rows, :]).sum(-3)
    return to_q.flatten(-4, -3), to_k, to_v


def _by_device(lead: int, *data: torch.Tensor | None) -> tuple[list[torch.Tensor], tuple[int, ...]]:
    """Those that are there as (devices, ...), and the mesh dims that `devices` stands for."""
    given = [x for x in data if x is not None]
    devices = broadcast_shapes(*(x.shape[:lead] for x in given))
    return [x.expand(*devices, *x.shape[lead:]).flatten(0, lead - 1) for x in given], tuple(devices)


@rules.labelled(dim_labels.unlabelled)
def _same_split(at: rules.Situation) -> Placement:
    rules.refuse_partial(at)
    q, k, v = at.words[:3]
    for word in (q, k, v):
        if isinstance(word, Shard) and word.dim == _WIDTH_DIM:
            raise MeshError(
                f"{OP}: the width of the heads is split over devices ({word}), and scores need all of it. Split the "
                "heads (dim 1) instead."
            )
    return q if q is not None and q is k and q is v else LOCAL


def _check(q: Operand, k: Operand, v: Operand) -> None:
    check_rank_4(OP, q, k, v)
    check_keys(OP, k, v, q.shape[1], q.shape[3])
    if q.shape[0] != k.shape[0] or q.shape[2] != k.shape[2]:
        raise MeshError(
            f"{OP}: queries {list(q.shape)} and keys {list(k.shape)} on each device must be of one batch and of the "
            "same tokens."
        )
