"""Errors of cards: one for a whole call, which names every card that failed and tells what became of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate


@dataclass(frozen=True)
class CardFailure:
    coordinate: MeshCoordinate
    serial: str
    index: int
    cause: BaseException

    def __str__(self) -> str:
        seat = tuple(self.coordinate)
        return f"card {seat}, serial {self.serial}, index {self.index}: {type(self.cause).__name__}: {self.cause}"


class CardsError(MeshError):
    """Some cards of a mesh failed; `failures` says which, in the order of the ranks."""

    def __init__(self, what: str, failures: Sequence[CardFailure], rest: str) -> None:
        self.failures = tuple(failures)
        super().__init__("\n  ".join([f"{what} failed on", *map(str, failures), rest]))


class CardsTimeout(CardsError, TimeoutError):
    """A card did not answer in time: it and its mesh are unusable until the mesh is reset."""
