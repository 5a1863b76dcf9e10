"""Attention block by block: running maxima and sums of each row, so that no more than a block of scores is held.

For a block of keys with scores s, of which a row has seen the maximum m, the sum l and the weighted values o:

    m' = max(m, rowmax s)    l' = exp(m - m') l + rowsum exp(s - m')    o' = exp(m - m') o + exp(s - m') v

and in the end o / l. Blocks that a row must not see are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from softmesh.ops.attention.sdpa_core import group
from softmesh.tensor.broadcasting import broadcast_shapes

_BLOCK_KEYS = 1024
_BLOCK_SCORES = 1 << 24  # 64 MiB of fp32
_HIDDEN = float("-inf")


@dataclass(frozen=True)
class Visibility:
    """Which keys a row sees: those that are shown, none that follow it, none further off than the window.

    Any of it may differ from device to device, along leading axes. `asking` (*axes, rows) and `keys` (keys,) are
    positions in the sequence; without `asking` a row sees all that is shown (*axes, keys).
    """

    shown: torch.Tensor
    keys: torch.Tensor
    asking: torch.Tensor | None = None
    window: int | None = None

    def block(self, rows: slice, keys: slice) -> torch.Tensor:
        """(*axes, rows or 1, keys)"""
        shown = self.shown[..., keys].unsqueeze(-2)
        if self.asking is None:
            return shown
        ahead = self.keys[keys] - self.asking[..., rows].unsqueeze(-1)
        visible = shown & (ahead <= 0)
        return visible if self.window is None else visible & (ahead > -self.window)


class Attended(NamedTuple):
    """(*axes, batch, heads, rows, width), and of each row, (..., 1), the largest score and the sum of exponentials."""

    values: torch.Tensor
    maxima: torch.Tensor
    sums: torch.Tensor


def attended(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visibility: Visibility,
    scale: float,
    sink: torch.Tensor | None = None,
) -> Attended:
    """q (*axes, batch, heads, rows, width) over k and v (*axes, batch, key heads, keys, width).

    `sink` (*axes, 1, heads, 1, 1) is the score of one more key, before scaling, which has no value.
    """
    kv_heads, heads = k.shape[-3], q.shape[-3]
    grouped = (kv_heads, heads // kv_heads)
    queries, k, v = group(q, -3, grouped), k.unsqueeze(-3), v.unsqueeze(-3)
    fold = _Fold.of(queries, k, v)
    keys, values = fold.beside(k), fold.beside(v)
    start = None if sink is None else fold.turned(group(sink * scale, -3, grouped))
    rows = q.shape[-2]
    scores_of_a_row = math.prod(fold.extents) * min(_BLOCK_KEYS, k.shape[-2])
    step = max(1, min(rows, _BLOCK_SCORES // max(scores_of_a_row, 1)))
    blocks = [
        _rows_attended(queries, keys, values, visibility, scale, start, fold, slice(at, min(at + step, rows)))
        for at in range(0, rows, step)
    ] or [_rows_attended(queries, keys, values, visibility, scale, start, fold, slice(0, 0))]
    joined = [torch.cat(parts, -2) if len(parts) > 1 else parts[0] for parts in zip(*blocks, strict=True)]
    return Attended(*(fold.back(part).flatten(-4, -3) for part in joined))


class _Fold(NamedTuple):
    """Leading dims of queries and keys, those first that the keys have too; along the others queries share keys."""

    extents: tuple[int, ...]
    own: tuple[int, ...]
    shared: tuple[int, ...]

    @classmethod
    def of(cls, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> _Fold:
        of_keys = broadcast_shapes(k.shape[:-2], v.shape[:-2])
        extents = tuple(broadcast_shapes(q.shape[:-2], of_keys))
        own = tuple(i for i, n in enumerate(of_keys) if n == extents[i])
        return cls(extents, own, tuple(i for i in range(len(extents)) if i not in own))

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        last = x.dim() - 2
        return x.permute(*self.own, *self.shared, last, last + 1)

    def beside(self, x: torch.Tensor) -> torch.Tensor:
        """Keys or values as (batch, keys, width)."""
        whole = x.expand(*(n if i in self.own else 1 for i, n in enumerate(self.extents)), *x.shape[-2:])
        return self.turned(whole).reshape(-1, *x.shape[-2:])

    def sizes(self, dims: Sequence[int]) -> list[int]:
        return [self.extents[i] for i in dims]

    def back(self, x: torch.Tensor) -> torch.Tensor:
        order = [*self.own, *self.shared]
        at = [order.index(i) for i in range(len(order))]
        return x.permute(*at, len(order), len(order) + 1)


def _rows_attended(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visibility: Visibility,
    scale: float,
    start: torch.Tensor | None,
    fold: _Fold,
    rows: slice,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A block of rows over all keys, under the leading dims of `fold`."""
    lead = [*fold.sizes(fold.own), *fold.sizes(fold.shared)]
    block = fold.turned(q[..., rows, :].expand(*fold.extents, -1, -1))
    asked = block.shape[-2]
    flat = block.reshape(k.shape[0], -1, block.shape[-1]) * scale
    shape = [*lead, asked, 1]
    m = flat.new_full(shape, _HIDDEN) if start is None else start.expand(shape)
    total = flat.new_zeros(shape) if start is None else flat.new_ones(shape)
    out = flat.new_zeros([*lead, asked, v.shape[-1]])
    for at in range(0, k.shape[-2], _BLOCK_KEYS):
        keys = slice(at, min(at + _BLOCK_KEYS, k.shape[-2]))
        visible = visibility.block(rows, keys)
        if not bool(visible.any()):
            continue
        scores = (flat @ k[:, keys].transpose(-2, -1)).reshape(*lead, asked, -1)
        if not bool(visible.all()):
            axes = visible.shape[:-2] or (1,) * (len(fold.extents) - 3)
            spread = visible.reshape(*axes, 1, 1, 1, *visible.shape[-2:])
            scores = scores.masked_fill(~fold.turned(spread), _HIDDEN)
        highest = torch.maximum(m, scores.amax(-1, keepdim=True))
        base = highest.masked_fill(highest == _HIDDEN, 0)  # a row that has seen nothing yet
        fade, weights = torch.exp(m - base), torch.exp(scores - base)
        total = fade * total + weights.sum(-1, keepdim=True)
        added = weights.reshape(k.shape[0], -1, weights.shape[-1]) @ v[:, keys]
        out = fade * out + added.reshape(out.shape)
        m = highest
    seen = torch.where(total > 0, total, torch.ones_like(total))
    return out / seen, m, total
