"""Symbols in a written program for what only a running one has: tensors, and extents that depend on the mesh."""

from __future__ import annotations

from typing import NamedTuple


class StandIn:
    """For an operand, while calls are written down."""

    def gathered(self, dim: int, *, cluster_axis: int) -> StandIn | None:
        """What it is after an all_gather, where it is no tensor; None of a tensor, which is gathered as such."""
        return None


class Symbol(StandIn):
    """A tensor of the program; `hint` says what it is."""

    __slots__ = ("hint",)

    def __init__(self, hint: str) -> None:
        self.hint = hint

    def __repr__(self) -> str:
        return f"<{self.hint}>"


class Extent(NamedTuple):
    """Of a piece, where these axes of the mesh share the whole."""

    whole: int
    axes: tuple[int, ...]
