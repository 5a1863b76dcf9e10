"""The four placements of a value along one mesh axis: Replicate, Shard, Partial and Local.

    Replicate      all hold the same
    Shard(dim)     each holds its slice of `dim`; concatenated in order they are the value
    Partial(op)    each holds a whole-sized contribution; combined by `op` they are the value
    Local          each holds something of its own, with no meaning as one value

Each word exists once (`Shard(3) is Shard(3)`), so words compare and hash by identity. In a request for a
placement a word may name its mesh axis (`Shard(3, axis="tp")`); the words of a tensor stand in the order of the
axes and name none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

from softmesh.arguments import checked, checked_int, described
from softmesh.errors import ArgumentValueError

COMBINING = ("sum", "avg", "max", "min", "prod")
_Placing = TypeVar("_Placing")


def placed(sentence: str) -> Callable[[_Placing], _Placing]:
    """Describe where results are placed: by the decorated rule or function, or by the rules that it makes."""

    def note(placing: _Placing) -> _Placing:
        vars(placing)["sentence"] = sentence
        return placing

    return note


def sentence_of(placing: object) -> str | None:
    """Return the words of `placed`."""
    return getattr(placing, "sentence", None)


class Placement:
    """One of the four words."""

    __slots__ = ()

    def __copy__(self) -> Placement:
        return self

    def __deepcopy__(self, memo: object) -> Placement:
        return self


class Replicate(Placement):
    __slots__ = ()
    _one: ClassVar[Replicate | None] = None

    def __new__(cls) -> Replicate:
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "Replicate"


class Local(Placement):
    __slots__ = ()
    _one: ClassVar[Local | None] = None

    def __new__(cls) -> Local:
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "Local"


class Shard(Placement):
    """`size` is the global extent where it is not a multiple of the devices (lenient mode only)."""

    __slots__ = ("axis", "dim", "size")
    _all: ClassVar[dict[tuple[int, int | None, str | None], Shard]] = {}
    dim: int
    size: int | None
    axis: str | None

    def __new__(cls, dim: int, size: int | None = None, *, axis: str | None = None) -> Shard:
        if dim.__class__ is not int:  # what is equal to one, as True is, may be none
            dim = checked_int("Shard", "dim", dim)
        if size is not None and size.__class__ is not int:
            size = checked_int("Shard", "size", size)
        if axis is not None:
            checked("Shard", "axis", axis, str, "the name of a mesh axis")
        shard = cls._all.get((dim, size, axis))
        if shard is None:
            shard = super().__new__(cls)
            shard.dim, shard.size, shard.axis = dim, size, axis
            cls._all[dim, size, axis] = shard
        return shard

    def at(self, dim: int) -> Shard:
        """The same split, now found at another dim."""
        return Shard(dim, self.size)

    def __repr__(self) -> str:
        size = "" if self.size is None else f", size={self.size}"
        return f"Shard({self.dim}{size}{_along(self.axis)})"


class Partial(Placement):
    """`op` says how the contributions combine: sum, avg, max, min or prod."""

    __slots__ = ("axis", "op")
    _all: ClassVar[dict[tuple[str, str | None], Partial]] = {}
    op: str
    axis: str | None

    def __new__(cls, op: str = "sum", *, axis: str | None = None) -> Partial:
        if axis is not None:
            checked("Partial", "axis", axis, str, "the name of a mesh axis")
        if not isinstance(op, str) or op not in COMBINING:
            raise ArgumentValueError(f"Partial(): op must be one of {', '.join(COMBINING)}, got {described(op)}.")
        partial = cls._all.get((op, axis))
        if partial is None:
            partial = super().__new__(cls)
            partial.op, partial.axis = op, axis
            cls._all[op, axis] = partial
        return partial

    def __repr__(self) -> str:
        return f"Partial({self.op}{_along(self.axis)})"


def _along(axis: str | None) -> str:
    return "" if axis is None else f", axis={axis!r}"


REPLICATE = Replicate()
LOCAL = Local()
