"""Attention over pages that reads each block where it lies, in place of copying a user's blocks into one row.

Queries go to the blocks, which are many and big; what comes back is small: of each block its highest score, the sum
of its weights, and the sum of its values by these. It pays where most blocks of a cache are in use, each by one user.
The blocks of all devices stand in one row here, and so do their users.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from softmesh.ops.memoize_last import Latest

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
    axes, blocks = k.shape[:lead], k.shape[lead]
    if k.numel() * k.itemsize < _FEWEST_BYTES or not _is_plain(q, k, v) or q.shape[:lead] != axes:
        return None
    if not (_spreads(table.shape[:-2], axes) and _spreads(current.shape[:-1], axes)):
        return None  # devices that share a cache have tables of their own
    owned = _owned((table, current), tuple(axes), blocks, k.shape[-2])
    if owned is None:
        return None
    asking = (q.float() * scale).flatten(0, lead).index_select(0, owned.users)
    scores = _products(asking, k.float().flatten(0, lead))
    if owned.hidden is not None:
        scores.masked_fill_(owned.hidden, float("-inf"))
    highest = owned.for_users(scores.amax(-1), _HIGHEST)
    weights = scores.sub_(highest.index_select(0, owned.users).unsqueeze(-1)).exp_()
    total = owned.for_users(weights.sum(-1), _SUM)
    values = owned.for_users(torch.matmul(weights, v.float().flatten(0, lead)), _SUM)
    return (values / total.unsqueeze(-1)).unflatten(0, q.shape[: lead + 1])


def _spreads(own: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether data of these extents can be expanded to `axes`."""
    return len(own) == len(axes) and all(n in (1, whole) for n, whole in zip(own, axes, strict=True))


def _is_plain(*data: torch.Tensor) -> bool:
    return all(x.is_cpu and not x.requires_grad for x in data)


def _products(asking: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """(..., group, block)"""
    if asking.shape[-2] <= _FEW_ROWS:
        return torch.matmul(asking, keys.transpose(-2, -1))
    return torch.matmul(keys, asking.transpose(-2, -1).contiguous()).transpose(-2, -1).contiguous()


class _Owned:
    """Whose each block is. `blocks` (users, pages) are the blocks of each user, as far as `is_read` tells."""

    def __init__(self, blocks: torch.Tensor, is_read: torch.Tensor, places: torch.Tensor) -> None:
        counts = is_read.sum(1)
        self._members = blocks[is_read].int()  # the blocks of each user's bag
        self._starts = (counts.cumsum(0) - counts).int()
        self.users = places // blocks.shape[1]  # (blocks)
        self.hidden: torch.Tensor | None = None  # (blocks, 1, 1, block)

    @classmethod
    def found(
        cls, table: torch.Tensor, current: torch.Tensor, axes: tuple[int, ...], each: int, block: int
    ) -> _Owned | None:
        """None where few of the `each` blocks of a device are in use, or one of them by several."""
        pages = max(int(current.max()), 0) // block + 1
        numbers = table[..., :pages].long().expand(*axes, -1, -1)
        devices, users = math.prod(axes), numbers.shape[-2]
        current = current.expand(*axes, -1).flatten()
        is_read = torch.arange(pages) <= (current // block).unsqueeze(1)
        is_there = ((numbers >= 0) & (numbers < each)).reshape(-1, pages)
        if 2 * users * pages < each or bool((is_read & ~is_there).any()):
            return None  # of blocks that are not there, whoever copies them tells which
        begins = (torch.arange(devices) * each).reshape(*axes, 1, 1)
        blocks = (numbers + begins).reshape(-1, pages)
        own = torch.arange(blocks.numel()).reshape(blocks.shape)
        count = devices * each
        target = torch.where(is_read, blocks, count)
        places = torch.zeros(count + 1, dtype=torch.long).scatter_(0, target.flatten(), own.flatten())
        if not bool(((places[target] == own) | ~is_read).all()):
            return None
        made = cls(blocks, is_read, places[:count])
        made._hide(current, (places[:count] % pages) * block, block)
        return made

    def _hide(self, current: torch.Tensor, first: torch.Tensor, block: int) -> None:
        """What lies behind the position of the block's user; `first` is the position where each block begins."""
        behind = first.unsqueeze(1) + torch.arange(block) > current[self.users].unsqueeze(1)
        self.hidden = behind[:, None, None] if bool(behind.any()) else None

    def for_users(self, x: torch.Tensor, mode: int) -> torch.Tensor:
        """(blocks, ...) -> (users, ...), by torch's fastest way of adding up rows."""
        found = torch.embedding_bag(x.flatten(1), self._members, self._starts, False, mode)[0]
        return found.unflatten(1, x.shape[1:])


_owned = Latest(_Owned.found)
