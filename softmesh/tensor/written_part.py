"""Memory that was written in part: a mask of what was, and values that might as well stand in the rest."""

from __future__ import annotations

from collections import Counter

import torch

from softmesh.placement.distribution import Distribution
from softmesh.tensor.untouched_memory import untouched_zeros

KINDS = (0, 1 << 20)  # of garbage: a result may be the same with one of them by chance
_PERIOD = 8191
_LARGEST = 50.0  # so that no softmax hides it, and small beside what a mask subtracts


class WrittenPart:
    """`mask` is laid out as the values are: 0 where nothing was written."""

    __slots__ = ("_asked", "dist", "mask")

    def __init__(self, mask: torch.Tensor, dist: Distribution) -> None:
        self.mask, self.dist = mask, dist
        self._asked: Counter[int] = Counter()

    @classmethod
    def none_of(cls, values: torch.Tensor, dist: Distribution) -> WrittenPart:
        return cls(untouched_zeros(values.shape, values.dtype, values.device), dist)

    def is_due(self, plan: object) -> bool:
        """Whether a call of this plan is to be looked at: of many alike the first, and then ever fewer."""
        self._asked[id(plan)] += 1
        return self._asked[id(plan)].bit_count() == 1

    def is_whole(self) -> bool:
        return bool(self.mask.all())

    def like(self, values: torch.Tensor) -> torch.Tensor | None:
        """What was written of these values, which may have another shape by now; None where that is not known."""
        lead = len(self.dist.extents)
        if values.shape[:lead] != self.mask.shape[:lead] or values.numel() != self.mask.numel():
            return None
        return self.mask.reshape(values.shape) != 0

    def with_garbage(self, values: torch.Tensor) -> list[torch.Tensor]:
        """The values, with others where nothing was written: whatever depends on those is as undefined as they are."""
        written = self.like(values)
        if written is None:
            return [values for _ in KINDS]
        return [torch.where(written, values, _garbage(values, kind)) for kind in KINDS]


def _garbage(values: torch.Tensor, kind: int) -> torch.Tensor:
    """Sums of neighbours do not cancel, and rows are not alike: a prime number of values, again and again."""
    if not values.is_floating_point():
        return torch.ones_like(values)  # they may be indices
    count = values.numel()
    scattered = (torch.arange(kind, kind + _PERIOD, device=values.device) * 1103515245 + 12345 >> 8) % 255
    pattern = ((scattered - 127.25) * (_LARGEST / 127.75)).to(values.dtype)
    return pattern.repeat(count // _PERIOD + 1)[:count].reshape(values.shape)
