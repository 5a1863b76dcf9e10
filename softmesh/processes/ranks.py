"""Numbers of processes, as TT-NN wraps them: `Rank(3)` is no list index and never equals a plain 3."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.arguments import checked_int


@dataclass(frozen=True)
class _Number:
    value: int

    def __post_init__(self) -> None:
        checked_int(type(self).__name__, "value", self.value)

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"


@dataclass(frozen=True, order=True, repr=False)
class Rank(_Number):
    """The number of a process in its context.

    >>> Rank(3), str(Rank(3)), Rank(3) == 3, Rank(2) < Rank(3)
    (Rank(3), '3', False, True)
    """


@dataclass(frozen=True, order=True, repr=False)
class Size(_Number):
    """How many processes a context has."""


@dataclass(frozen=True, repr=False)
class SubcontextId(_Number):
    """The number of a sub-context of the job."""
