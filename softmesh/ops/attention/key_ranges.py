"""Attention masks as ranges: the keys that each query sees, by order, windows and the bounds of sequences.

A mask of all queries over all keys is never made: a block of queries asks for the keys that any of them sees, and which
of these are hidden from one or another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from softmesh.tensor.broadcasting import broadcast_shapes


@dataclass(frozen=True)
class KeyRanges:
    """A query sees the keys from `first` to `last`, both among them; (*axes, rows), axes where devices differ."""

    first: torch.Tensor
    last: torch.Tensor

    def block(self, rows: slice) -> tuple[slice, torch.Tensor | None]:
        """The keys that some of these rows see, at least one, and which of them (*axes, rows, keys) a row does not."""
        first, last = self.first[..., rows], self.last[..., rows]
        start = int(first.min())
        keys = slice(start, max(int(last.max()), start) + 1)
        if int(first.max()) == start and int(last.min()) == keys.stop - 1:
            return keys, None
        return keys, hidden_from(first, last, keys)


def hidden_from(first: torch.Tensor, last: torch.Tensor, keys: slice) -> torch.Tensor:
    """(*axes, rows, keys): which keys lie outside of the ranges (*axes, rows)."""
    places = torch.arange(keys.start, keys.stop, device=first.device)
    return (places < first.unsqueeze(-1)) | (places > last.unsqueeze(-1))


def ranges_in_order(asking: torch.Tensor, keys: int, is_causal: bool, window: int | None) -> KeyRanges:
    """Of queries at the places `asking` (*axes, rows), over `keys` keys: none that follow, none beyond the window.

    A causal window ends with the query's own key, any other has it in its middle.
    """
    if is_causal:
        first = torch.zeros_like(asking) if window is None else asking - window + 1
        last = asking
    else:
        reach = keys if window is None else window // 2
        first, last = asking - reach, asking + reach
    return KeyRanges(first.clamp(0, keys - 1), last.clamp(max=keys - 1))


def ranges_between(bounds: torch.Tensor, asking: torch.Tensor, keys: int) -> KeyRanges:
    """Of queries that see what lies between the same two of `bounds` (*axes, n), or before or behind all of them."""
    lead = broadcast_shapes(bounds.shape[:-1], asking.shape[:-1])
    bounds, asking = (x.expand(*lead, x.shape[-1]).contiguous() for x in (bounds, asking))
    own = torch.searchsorted(bounds, asking, right=True)
    ends = bounds.new_zeros(*bounds.shape[:-1], 1)
    whole = torch.cat([ends, bounds, ends + keys], -1).clamp(0, keys)
    first, behind = (whole.gather(-1, at) for at in (own, own + 1))
    return KeyRanges(first.clamp(max=keys - 1), behind - 1)


def overlap(one: KeyRanges, other: KeyRanges) -> KeyRanges:
    return KeyRanges(torch.maximum(one.first, other.first), torch.minimum(one.last, other.last))
