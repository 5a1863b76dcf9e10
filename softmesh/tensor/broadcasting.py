"""Shape broadcasting without torch's own function.

The first call of torch's loads sympy, which takes half a second, and each call takes 25 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import torch


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """
    >>> broadcast_shapes((4, 1, 3), (2, 1))
    torch.Size([4, 2, 3])
    """
    found = []
    for extents in zip_longest(*map(reversed, shapes), fillvalue=1):
        real = {extent for extent in extents if extent != 1}
        if len(real) > 1:
            told = " and ".join(str(list(shape)) for shape in shapes)
            raise RuntimeError(f"Shape mismatch: {told} do not broadcast to one shape.")
        found.append(real.pop() if real else 1)
    return torch.Size(reversed(found))


def expand_mesh_dims(rank: int, *values: torch.Tensor) -> list[torch.Tensor]:
    """The same mesh dims for all, where some have them once; `rank` is that of the pieces."""
    fronts = [value.shape[: value.dim() - rank] for value in values]
    if all(front == fronts[0] for front in fronts):
        return list(values)
    lead = broadcast_shapes(*fronts)
    return [value.expand(*lead, *value.shape[value.dim() - rank :]) for value in values]


def concat_on_mesh(parts: Sequence[torch.Tensor], at: int) -> torch.Tensor:
    """torch.cat along dim `at`, from the end, of parts some of which may store their mesh dims once."""
    return torch.cat(expand_mesh_dims(-at, *parts), at)
