"""Attention over pages that reads each block where it lies, in place of copying a user's blocks into one row.

Queries go to the blocks, which are many and big, and scores come back: all that is moved is small. It pays where
most blocks of the cache are in use, each by one user, alike on all devices.
"""

from __future__ import annotations

import torch

_FEWEST_BYTES = 1 << 20  # of keys: below, copying costs less than the steps here
_FEW_ROWS = 2  # queries of a group up to which the product with them in front is the faster one


def attend_by_block(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    current: torch.Tensor,
    scale: float,
) -> torch.Tensor | None:
    """q (*axes, users, key heads, group, width) over k, v (*axes, blocks, key heads, block, width); None: does not pay.

    table (*axes, users, pages) numbers each user's blocks; a user sees positions up to current (*axes, users).
    """
    lead = k.dim() - 4
    if k.numel() * k.itemsize < _FEWEST_BYTES or not _is_plain(q, k, v) or q.shape[:lead] != k.shape[:lead]:
        return None
    if table.numel() != table.shape[-2] * table.shape[-1] or current.numel() != current.shape[-1]:
        return None  # other pages on other devices
    owned = _Owned.found(table.reshape(table.shape[-2:]), current.flatten(), k.shape[-4], k.shape[-2])
    if owned is None:
        return None
    asking = (q.float() * scale).index_select(lead, owned.users)
    scores = owned.by_user(_products(asking, k.float()), lead)  # (*axes, users, pages, heads, group, block)
    row = scores.movedim(-4, -2).flatten(-2)
    if owned.hidden is not None:
        row = row.masked_fill(owned.hidden, float("-inf"))
    weights = torch.softmax(row, -1).unflatten(-1, (-1, k.shape[-2])).movedim(-2, -4)
    back = weights.flatten(lead, lead + 1).index_select(lead, owned.places)
    parts = owned.by_user(torch.matmul(back, v.float()), lead)
    if owned.unread is not None:
        parts = parts.masked_fill(owned.unread, 0.0)
    return parts.sum(lead + 1)


def _is_plain(*data: torch.Tensor) -> bool:
    return all(x.is_cpu and not x.requires_grad for x in data)


def _products(asking: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """(..., group, block)"""
    if asking.shape[-2] <= _FEW_ROWS:
        return torch.matmul(asking, keys.transpose(-2, -1))
    return torch.matmul(keys, asking.transpose(-2, -1).contiguous()).transpose(-2, -1)


class _Owned:
    """Which user and page each block is, and back."""

    def __init__(
        self,
        numbers: torch.Tensor,
        places: torch.Tensor,
        is_read: torch.Tensor,
        current: torch.Tensor,
        block: int,
    ) -> None:
        pages = numbers.shape[1]
        self.places = places  # (blocks): the number of user and page
        self.users = places // pages
        self._numbers, self._extents = numbers.flatten(), tuple(numbers.shape)
        at = torch.arange(pages * block)
        hidden = at > current.unsqueeze(1)
        self.hidden = hidden[:, None, None] if bool(hidden.any()) else None
        self.unread = None if bool(is_read.all()) else ~is_read[:, :, None, None, None]

    @classmethod
    def found(cls, table: torch.Tensor, current: torch.Tensor, blocks: int, block: int) -> _Owned | None:
        """None where few blocks are in use, or one of them by several."""
        pages = max(int(current.max()), 0) // block + 1
        numbers = table[:, :pages].long()
        if 2 * numbers.numel() < blocks:
            return None
        is_read = torch.arange(pages) <= (current // block).unsqueeze(1)
        own = torch.arange(numbers.numel()).reshape(numbers.shape)
        if bool((is_read & ((numbers < 0) | (numbers >= blocks))).any()):
            return None  # whoever copies them says which are wrong
        target = torch.where(is_read, numbers, blocks)
        places = torch.zeros(blocks + 1, dtype=torch.long).scatter_(0, target.flatten(), own.flatten())
        if not bool(((places[target] == own) | ~is_read).all()):
            return None
        return cls(numbers.clamp(0, blocks - 1), places[:blocks], is_read, current, block)

    def by_user(self, x: torch.Tensor, lead: int) -> torch.Tensor:
        """(*axes, blocks, ...) -> (*axes, users, pages, ...)"""
        return x.index_select(lead, self._numbers).unflatten(lead, self._extents)
