"""A layout: one word for each axis of the mesh, and what follows from it for a value of some shape.

Along several axes that split one dim the first is the outermost, so only the last of them can be gathered
by itself, and a split is added behind the others. Words here never carry the size of an uneven split: it
follows from the shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from softmesh.placement.words import REPLICATE, Partial, Placement, Shard

Layout = tuple[Placement, ...]
Extents = tuple[int, ...]
SUM = Partial("sum")


@dataclass(frozen=True)
class Value:
    """What the devices hold together: what redistributing it costs depends on this only.

    `uneven` has the splits (axis, dim) that do not divide and are to be kept: they are there already, or asked
    for. None is invented.
    """

    shape: Extents
    bits: int  # of one element
    mesh: Extents
    uneven: frozenset[tuple[int, int]] = frozenset()

    def pieces(self, layout: Layout, dim: int) -> int:
        return math.prod(n for n, word in zip(self.mesh, layout, strict=True) if is_split(word, dim))

    def local_shape(self, layout: Layout) -> Extents:
        """Of the fullest device; uneven splits round up."""
        extents = list(self.shape)
        for n, word in zip(self.mesh, layout, strict=True):
            if isinstance(word, Shard):
                extents[word.dim] = -(-extents[word.dim] // n)
        return tuple(extents)

    def bytes_on_each(self, layout: Layout) -> int:
        return -(-math.prod(self.local_shape(layout)) * self.bits // 8)

    def may_split(self, layout: Layout, axis: int, dim: int) -> bool:
        """Whether `dim` can be split along `axis` too, inside the splits that are there."""
        others = [at for at, word in enumerate(layout) if at != axis and is_split(word, dim)]
        if others and others[-1] > axis:
            return False
        return self.divides(layout, axis, dim) or (not others and (axis, dim) in self.uneven)

    def divides(self, layout: Layout, axis: int, dim: int) -> bool:
        """Whether `dim` does over the devices along `axis` and those of the other axes that split it."""
        pieces = self.mesh[axis]
        for at, word in enumerate(layout):
            if at != axis and is_split(word, dim):
                pieces *= self.mesh[at]
        return self.shape[dim] % pieces == 0

    def can_be(self, layout: Layout) -> bool:
        """Whether every split divides, or is one to be kept and stands alone."""
        for axis, word in enumerate(layout):
            if isinstance(word, Shard) and not self.divides(layout, axis, word.dim):
                alone = sum(is_split(other, word.dim) for other in layout) == 1
                if not alone or (axis, word.dim) not in self.uneven:
                    return False
        return True

    def keeping(self, uneven: frozenset[tuple[int, int]]) -> Value:
        return replace(self, uneven=uneven) if uneven else self


def is_split(word: Placement, dim: int) -> bool:
    return isinstance(word, Shard) and word.dim == dim


def with_word(layout: Layout, axis: int, word: Placement) -> Layout:
    return (*layout[:axis], word, *layout[axis + 1 :])


def unsized(layout: Sequence[Placement]) -> Layout:
    """Without the sizes that uneven splits remember."""
    return tuple(Shard(word.dim) if isinstance(word, Shard) else word for word in layout)


def is_whole(layout: Layout) -> bool:
    """Whether nothing is waiting to be combined."""
    return not any(isinstance(word, Partial) for word in layout)


def split_axes(layout: Layout, dim: int) -> tuple[int, ...]:
    return tuple(axis for axis, word in enumerate(layout) if is_split(word, dim))


def described(layout: Sequence[Placement], names: Sequence[str] | None = None) -> str:
    """
    >>> described((Shard(0), REPLICATE)), described((Shard(0), REPLICATE), ("dp", "tp"))
    ('Shard(0), Replicate', 'dp: Shard(0), tp: Replicate')
    """
    if names is None:
        return ", ".join(map(repr, layout))
    return ", ".join(f"{name}: {word!r}" for name, word in zip(names, layout, strict=True))


def all_layouts(value: Value) -> Iterator[Layout]:
    """Every layout the value can have; contributions are to a sum."""

    def extended(start: Layout) -> Iterator[Layout]:
        axis = len(start)
        if axis == len(value.mesh):
            yield start
            return
        rest = (REPLICATE,) * (len(value.mesh) - axis)
        words: list[Placement] = [REPLICATE]
        if value.mesh[axis] > 1:
            dims = range(len(value.shape))
            words += [Shard(dim) for dim in dims if value.may_split((*start, *rest), axis, dim)]
            words.append(SUM)
        for word in words:
            yield from extended((*start, word))

    return extended(())
