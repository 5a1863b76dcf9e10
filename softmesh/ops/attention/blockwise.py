"""Attention by torch's blockwise kernels, with what it takes to merge it with that of more keys.

Of each row: the logarithm of the sum of exponentials, which the kernels know, and where it is asked for the largest
score, which they do not tell: another product of queries and keys finds it. No more than a block of scores is held.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F

from softmesh.ops.attention.key_ranges import KeyRanges
from softmesh.ops.attention.sdpa_core import group, mask_bias
from softmesh.tensor.broadcasting import broadcast_shapes

_BLOCK_ROWS = 512
_BLOCK_KEYS = 4096
_HIDDEN = float("-inf")


class Attended(NamedTuple):
    """(*axes, batch, heads, rows, width), and of each row, (..., 1), the logarithm of its sum and its largest score."""

    values: torch.Tensor
    log_sums: torch.Tensor
    maxima: torch.Tensor


def attended(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: KeyRanges | None,
    scale: float,
    sink: torch.Tensor | None = None,
    *,
    with_maxima: bool = False,
) -> Attended:
    """q (*axes, batch, heads, rows, width) over k and v (*axes, batch, key heads, keys, width).

    `sink` (*axes, 1, heads, 1, 1) is the score of one more key, before scaling, which has no value. Without
    `with_maxima` the largest scores are none (0 columns).
    """
    kv_heads, heads = k.shape[-3], q.shape[-3]
    grouped = (kv_heads, heads // kv_heads)
    queries, k, v = group(q, -3, grouped), k.unsqueeze(-3), v.unsqueeze(-3)
    fold = _Fold.of(queries, k, v)
    flat, keys, values = fold.queries(queries), fold.keys(k), fold.keys(v)
    blocks = [
        _attended_block(block, flat, keys, values, scale, with_maxima)
        for block in _blocks(fold, flat, keys.shape[1], seen)
    ]
    out, log_sums, maxima = (
        torch.cat(parts, -2).reshape(*flat.shape[:2], parts[0].shape[-1]) for parts in zip(*blocks, strict=True)
    )
    if sink is not None:
        score = fold.queries((group(sink, -3, grouped) * scale).expand(*queries.shape[:-1], 1))
        out = out * torch.sigmoid(log_sums - score)
        log_sums, maxima = torch.logaddexp(log_sums, score), torch.maximum(maxima, score[..., : maxima.shape[-1]])
    return Attended(*(fold.back(part, q.shape[-2]).flatten(-4, -3) for part in (out, log_sums, maxima)))


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

    def queries(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, rows of all that share keys, width)"""
        rows, width = x.shape[-2:]
        whole = self._turned(x.expand(*self.extents, rows, width))
        return whole.reshape(self._product(self.own), self._product(self.shared) * rows, width)

    def keys(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, keys, width)"""
        whole = x.expand(*(n if i in self.own else 1 for i, n in enumerate(self.extents)), *x.shape[-2:])
        return self._turned(whole).reshape(self._product(self.own), *x.shape[-2:])

    def ranges(self, ends: torch.Tensor) -> torch.Tensor:
        """(batch or 1, rows of all that share keys) of ends of ranges (*axes, rows)."""
        axes = ends.shape[:-1] or (1,) * (len(self.extents) - 3)
        spread = ends.reshape(*axes, 1, 1, 1, ends.shape[-1], 1)
        is_common = all(spread.shape[i] == 1 for i in self.own)
        whole = [1 if is_common and i in self.own else n for i, n in enumerate(self.extents)]
        batch = 1 if is_common else self._product(self.own)
        return self._turned(spread.expand(*whole, -1, -1)).reshape(batch, self._product(self.shared) * ends.shape[-1])

    def back(self, x: torch.Tensor, rows: int) -> torch.Tensor:
        order = [*self.own, *self.shared]
        at = [order.index(i) for i in range(len(order))]
        spread = x.reshape(*(self.extents[i] for i in order), rows, x.shape[-1])
        return spread.permute(*at, len(order), len(order) + 1)

    def _product(self, dims: tuple[int, ...]) -> int:
        return math.prod(self.extents[i] for i in dims)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        last = x.dim() - 2
        return x.permute(*self.own, *self.shared, last, last + 1)


class _Block(NamedTuple):
    """Rows of some of the batch, the keys that any of them sees, and which of these (rows, keys) a row does not."""

    batch: slice
    rows: slice
    keys: slice
    hidden: torch.Tensor | None


def _blocks(fold: _Fold, q: torch.Tensor, keys: int, seen: KeyRanges | None) -> Iterator[_Block]:
    """All of the batch together, unless keys and what is seen of them both differ."""
    count, rows = q.shape[:2]
    if seen is None:
        yield _Block(slice(0, count), slice(0, rows), slice(0, keys), None)
        return
    first, last = fold.ranges(seen.first), fold.ranges(seen.last)
    apart = max(len(first), len(last))
    for batch in range(apart):
        ranges = KeyRanges(*(x[batch if len(x) > 1 else 0] for x in (first, last)))
        for at in range(0, max(rows, 1), _BLOCK_ROWS):
            block = slice(at, min(at + _BLOCK_ROWS, rows))
            yield _Block(slice(batch, batch + 1) if apart > 1 else slice(0, count), block, *ranges.block(block))


def _attended_block(
    block: _Block, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, with_maxima: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(batch, rows, width) over (batch, keys, width): of both, those of the block."""
    q = q[block.batch, block.rows]
    k, v = (x[block.batch, block.keys] for x in (k, v))
    bias = None if block.hidden is None else mask_bias(~block.hidden)
    out, log_sums = _with_log_sums(q, k, v, bias, scale)
    maxima = _largest_scores(q, k, block.hidden, scale) if with_maxima else q.new_empty(*q.shape[:2], 0)
    if block.hidden is not None:  # rows that see nothing
        nothing = block.hidden.all(-1, keepdim=True)
        out, log_sums = out.masked_fill(nothing, 0.0), log_sums.masked_fill(nothing, _HIDDEN)
    return out, log_sums, maxima


def _with_log_sums(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernels want heads that are equally wide."""
    rows, width = q.shape[1], v.shape[-1]
    if not q.numel() or not k.numel():
        return q.new_zeros(*q.shape[:2], width), q.new_full((*q.shape[:2], 1), _HIDDEN)
    widest = max(q.shape[-1], width)
    q, k, v = (F.pad(x, (0, widest - x.shape[-1])).unsqueeze(0) for x in (q, k, v))
    if q.is_cuda:
        mask = None if bias is None else bias.expand(*q.shape[:3], k.shape[2])
        found = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, mask, True, scale=scale)
    else:
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=bias, scale=scale)
    return found[0][0, ..., :width], found[1][0, :, :rows, None]


@torch.no_grad()
def _largest_scores(q: torch.Tensor, k: torch.Tensor, hidden: torch.Tensor | None, scale: float) -> torch.Tensor:
    """(batch, rows, 1)"""
    found = q.new_full((*q.shape[:2], 1), _HIDDEN)
    for row in range(0, q.shape[1], _BLOCK_ROWS):
        rows = slice(row, row + _BLOCK_ROWS)
        asked = q[:, rows] * scale
        for start in range(0, k.shape[1], _BLOCK_KEYS):
            keys = slice(start, start + _BLOCK_KEYS)
            for head in range(len(q)):
                scores = asked[head] @ k[head, keys].T
                if hidden is not None:
                    scores = scores.masked_fill_(hidden[rows, keys], _HIDDEN)
                found[head, rows] = torch.maximum(found[head, rows], scores.amax(-1, keepdim=True))
    return found
