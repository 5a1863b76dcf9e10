"""Shape: the extents of a tensor, with TT-NN's own rules for indexing and equality; and rounding up.

Knows numbers only: padding is in `tile`, and the shape of a mesh is `softmesh.mesh.MeshShape`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsIndex

from softmesh.arguments import checked_int, checked_ints
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError

# A shape of lower rank answers negative indices as if ones stood before it, up to this rank.
_INDEXED_RANK = 4


_MOST_DIMS = 1 << 10  # of a shape that is asked for by its rank


class Shape(tuple[int, ...]):
    """The extents of a tensor.

    >>> shape = Shape([3, 4])
    >>> shape[-1], shape[-4], shape == [3, 4]
    (4, 1, True)
    """

    __slots__ = ()

    def __new__(cls, shape: Iterable[SupportsIndex]) -> Shape:
        self = super().__new__(cls, checked_ints("Shape", "shape", shape))
        if min(self, default=0) < 0:
            raise ArgumentError(f"a shape has no negative extents, got {list(self)}")
        return self

    @property
    def rank(self) -> int:
        return len(self)

    def to_rank(self, rank: int) -> Shape:
        """The same extents at another rank: ones are put before them, or taken away.

        >>> Shape([1, 1, 3, 4]).to_rank(2)
        Shape([3, 4])
        """
        rank = checked_int("to_rank", "rank", rank)
        if rank > _MOST_DIMS:
            raise MeshError(f"to_rank: no tensor has {rank} dims.")
        surplus = max(len(self) - rank, 0)
        extents = tuple(self)
        if any(extent != 1 for extent in extents[:surplus]):
            raise MeshError(
                f"Can't convert shape rank: {self} to rank {rank}, for its first {surplus} dims are not all 1"
            )
        return Shape((1,) * (rank - len(self)) + extents[surplus:])

    def __getitem__(self, index: SupportsIndex) -> int:  # type: ignore[override]  # TT-NN has no slices
        if isinstance(index, slice):
            raise ArgumentError("a Shape has no slices; take them from list(shape)")
        i, rank = index if type(index) is int else checked_int("Shape[]", "index", index), len(self)
        if -rank <= i < rank:
            return super().__getitem__(i)
        if -_INDEXED_RANK <= i < 0:
            return 1
        lowest = -max(rank, _INDEXED_RANK)
        raise MeshError(f"ShapeBase[] index out of range. {i} not in [{lowest}, {rank})")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):
            return super().__eq__(tuple(other))
        return super().__eq__(other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"Shape({list(self)})"


# Division and rounding up, as `ttnn.core` has them.


def divup(a: int, b: int) -> int:
    """How many times `b` it takes to reach `a`.

    >>> divup(33, 32)
    2
    """
    return -(-checked_int("divup", "a", a) // _divisor("divup", b))


def roundup(a: int, b: int) -> int:
    """The first multiple of `b` that is not below `a`.

    >>> roundup(33, 32)
    64
    """
    return divup(a, b) * b


def _divisor(where: str, b: object) -> int:
    number = checked_int(where, "b", b)
    if number == 0:
        raise ArgumentValueError(f"{where}: b is 0, and nothing is a multiple of it but 0.")
    return number
