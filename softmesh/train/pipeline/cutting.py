"""A model cut into parts: consecutive layers each, as evenly as it goes or as many as one says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

from softmesh.arguments import checked_ints
from softmesh.errors import ArgumentValueError
from softmesh.train.pipeline.schedules import checked_count

_Layer = TypeVar("_Layer")


def cut(layers: Sequence[_Layer], parts: int | Sequence[int]) -> list[list[_Layer]]:
    """Layers, or functions that make them, for each part: into so many parts, or so many layers for each.

    >>> cut("abcdefg", 3)
    [['a', 'b', 'c'], ['d', 'e'], ['f', 'g']]
    >>> cut("abcdefg", [1, 5, 1])
    [['a'], ['b', 'c', 'd', 'e', 'f'], ['g']]
    """
    sizes = _even(len(layers), parts) if isinstance(parts, int) else checked_ints("cut", "parts", parts)
    if any(size < 1 for size in sizes) or sum(sizes) != len(layers):
        raise ArgumentValueError(
            f"cut: {len(layers)} layers cannot be dealt out as {sizes}: every part needs at least one, and all of "
            "them together as many as there are."
        )
    return [list(layers[start:end]) for start, end in pairwise(accumulate(sizes, initial=0))]


def _even(layers: int, parts: int) -> list[int]:
    share, left = divmod(layers, checked_count("cut", "parts", parts))
    return [share + (part < left) for part in range(parts)]
