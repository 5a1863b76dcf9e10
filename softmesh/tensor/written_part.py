"""Memory that was written in part: a mask of what was, and values that might as well stand in the rest."""

from __future__ import annotations

from collections import Counter

import torch

from softmesh.placement.distribution import Distribution
from softmesh.tensor.untouched_memory import untouched_zeros

_LARGEST = 50.0  # so that no softmax hides it, and small beside what a mask subtracts


class WrittenPart:
    """`mask` is laid out as the values are: 0 where nothing was written."""

    __slots__ = ("_asked", "dist", "mask")

    def __init__(self, mask: torch.Tensor, dist: Distribution) -> None:
        self.mask, self.dist = mask, dist
        self._asked: Counter[str] = Counter()

    @classmethod
    def none_of(cls, values: torch.Tensor, dist: Distribution) -> WrittenPart:
        return cls(untouched_zeros(values.shape, values.dtype, values.device), dist)

    def is_due(self, op: str) -> bool:
        """Whether a call of this op is to be looked at: of many alike the first, and then ever fewer."""
        self._asked[op] += 1
        return self._asked[op].bit_count() == 1

    def is_whole(self) -> bool:
        return bool(self.mask.all())

    def like(self, values: torch.Tensor) -> torch.Tensor | None:
        """What was written of these values, which may have another shape by now; None where that is not known."""
        lead = len(self.dist.extents)
        if values.shape[:lead] != self.mask.shape[:lead] or values.numel() != self.mask.numel():
            return None
        return self.mask.reshape(values.shape) != 0

    def with_garbage(self, values: torch.Tensor, kind: int) -> torch.Tensor:
        """The values, with others where nothing was written: whatever depends on those is as undefined as they are."""
        written = self.like(values)
        return values if written is None else torch.where(written, values, _garbage(values, kind))


def _garbage(values: torch.Tensor, kind: int) -> torch.Tensor:
    if not values.is_floating_point():
        return torch.ones_like(values)  # they may be indices
    numbers = torch.arange(values.numel(), device=values.device).reshape(values.shape)
    scattered = (numbers * 1103515245 + 12345 + kind >> 8) % 255  # sums of neighbours do not cancel
    return ((scattered - 127.25) * (_LARGEST / 127.75)).to(values.dtype)
