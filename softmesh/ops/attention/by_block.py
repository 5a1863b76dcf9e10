"""Attention over pages that reads each block where it lies, in place of copying a user's blocks into one row.

Queries go to the blocks, which are many and big; what comes back is small: of each block its highest score, the sum
of its weights, and the sum of its values by these. It pays where most blocks of a cache are in use, each by one user,
alike on all devices.
"""

from __future__ import annotations

import math

import torch

from softmesh.ops.latest import Latest

_FEWEST_BYTES = 1 << 20  # of keys: below, copying costs less than the steps here
_FEW_ROWS = 2  # queries of a group up to which the product with them in front is the faster one
_SUM, _HIGHEST = 0, 2  # torch's numbers for what becomes of the rows in a bag


def attend_by_block(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    current: torch.Tensor,
    scale: float,
) -> torch.Tensor | None:
    """q (*axes, users, key heads, group, width) over k, v (*axes, blocks, key heads, block, width).

    table (*axes, users, pages) numbers each user's blocks; a user sees positions up to current (*axes, users).
    None where copying costs less.
    """
    lead = k.dim() - 4
    if k.numel() * k.itemsize < _FEWEST_BYTES or not _is_plain(q, k, v) or q.shape[:lead] != k.shape[:lead]:
        return None
    if table.numel() != table.shape[-2] * table.shape[-1] or current.numel() != current.shape[-1]:
        return None  # other pages on other devices
    pages = (table.reshape(table.shape[-2:]), current.flatten())
    owned = _owned(pages, math.prod(k.shape[:lead]), k.shape[-4], k.shape[-2])
    if owned is None:
        return None
    scores = _products((q.float() * scale).index_select(lead, owned.users), k.float())
    if owned.hidden is not None:
        scores.masked_fill_(owned.hidden, float("-inf"))
    highest = owned.for_users(scores.amax(-1), lead, _HIGHEST)
    weights = scores.sub_(highest.index_select(lead, owned.users).unsqueeze(-1)).exp_()
    total = owned.for_users(weights.sum(-1), lead, _SUM)
    values = owned.for_users(torch.matmul(weights, v.float()), lead, _SUM)
    return values / total.unsqueeze(-1)


def _is_plain(*data: torch.Tensor) -> bool:
    return all(x.is_cpu and not x.requires_grad for x in data)


def _products(asking: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """(..., group, block)"""
    if asking.shape[-2] <= _FEW_ROWS:
        return torch.matmul(asking, keys.transpose(-2, -1))
    return torch.matmul(keys, asking.transpose(-2, -1).contiguous()).transpose(-2, -1).contiguous()


class _Owned:
    """Whose each block is. `numbers` (users, pages) are the blocks of each user, as far as `is_read` tells."""

    def __init__(
        self, numbers: torch.Tensor, is_read: torch.Tensor, places: torch.Tensor, devices: int, blocks: int
    ) -> None:
        each = torch.arange(devices).unsqueeze(1)
        counts = is_read.sum(1)
        self._members = (each * blocks + numbers[is_read]).flatten().int()  # the blocks of each user's bag
        self._starts = (each * counts.sum() + counts.cumsum(0) - counts).flatten().int()
        self._count = len(numbers)
        self.users = places // numbers.shape[1]  # (blocks)
        self.hidden: torch.Tensor | None = None  # (blocks, 1, 1, block)

    @classmethod
    def found(
        cls, table: torch.Tensor, current: torch.Tensor, devices: int, blocks: int, block: int
    ) -> _Owned | None:
        """None where few blocks are in use, or one of them by several."""
        pages = max(int(current.max()), 0) // block + 1
        numbers = table[:, :pages].long()
        is_read = torch.arange(pages) <= (current // block).unsqueeze(1)
        is_there = (numbers >= 0) & (numbers < blocks)
        if 2 * numbers.numel() < blocks or bool((is_read & ~is_there).any()):
            return None  # of blocks that are not there, whoever copies them tells which
        own = torch.arange(numbers.numel()).reshape(numbers.shape)
        target = torch.where(is_read, numbers, blocks)
        places = torch.zeros(blocks + 1, dtype=torch.long).scatter_(0, target.flatten(), own.flatten())
        if not bool(((places[target] == own) | ~is_read).all()):
            return None
        made = cls(numbers, is_read, places[:blocks], devices, blocks)
        made._hide(current, (places[:blocks] % pages) * block, block)
        return made

    def _hide(self, current: torch.Tensor, first: torch.Tensor, block: int) -> None:
        """What lies behind the position of the block's user; `first` is the position where each block begins."""
        behind = first.unsqueeze(1) + torch.arange(block) > current[self.users].unsqueeze(1)
        self.hidden = behind[:, None, None] if bool(behind.any()) else None

    def for_users(self, x: torch.Tensor, lead: int, mode: int) -> torch.Tensor:
        """(*axes, blocks, ...) -> (*axes, users, ...), by torch's fastest way of adding up rows."""
        rows = x.reshape(math.prod(x.shape[: lead + 1]), -1)
        found = torch.embedding_bag(rows, self._members, self._starts, False, mode)[0]
        return found.reshape(*x.shape[:lead], self._count, *x.shape[lead + 1 :])


_owned = Latest(_Owned.found)
