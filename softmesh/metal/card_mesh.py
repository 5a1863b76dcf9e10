"""A mesh of cards: runs a call on all of them, with one address space and one error for all.

What becomes of a mesh when a card fails:

    a call was refused, an allocation failed, a read came short, a kernel raised
                         nothing is marked; the call has no result, and all cards stay usable
    a card did not answer in time, or a transfer between cards broke off
                         the card is marked, and the mesh refuses everything but `reset` and `close`;
                         the other cards were waited for, and their drivers are still usable
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from softmesh.drivers.heap import region_of
from softmesh.drivers.protocol import Handle, MemoryKind
from softmesh.drivers.worker_thread import Deadline
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.metal.card import Card
from softmesh.runtime.memory.memory_map import Region
from softmesh.runtime.memory.pool import Pool


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


_Result = TypeVar("_Result")
_ENDING_SECONDS = 30.0  # a card boots anew, or gives up work that hangs
_MEMORIES: tuple[MemoryKind, ...] = ("dram", "l1")


@dataclass(frozen=True)
class Timeouts:
    """Seconds that a card has for a transfer, and for a program."""

    transfer: float = 10.0
    run: float = 30.0

    def __post_init__(self) -> None:
        if not (0 < self.transfer < float("inf") and 0 < self.run < float("inf")):
            raise ArgumentValueError(f"{self}: seconds are positive, and nothing waits for ever")


class CardMesh:
    """Made by `open_mesh_device`. Cards are in row-major order: the rank of a card is its place there."""

    def __init__(self, shape: MeshShape, cards: Sequence[Card], timeouts: Timeouts, dram_banks: int | None) -> None:
        self.shape = shape
        self.cards = tuple(cards)
        self.timeouts = timeouts
        self.dram_banks = dram_banks or cards[0].info.dram_banks
        self.is_open = True
        self.epoch = 0  # counts resets: buffers of an earlier one are gone
        self.orphans: list[tuple[int, MemoryKind, Mapping[Card, Handle]]] = []
        self._pools = self._empty_pools()

    @property
    def num_devices(self) -> int:
        return len(self.cards)

    def get_device_ids(self) -> list[int]:
        return [card.info.index for card in self.cards]

    def card(self, coordinate: MeshCoordinate) -> Card:
        return self.cards[self.shape.index(coordinate)]

    @property
    def failed(self) -> list[Card]:
        """The cards that did not answer; while there are any, the mesh can only be reset or closed."""
        return [card for card in self.cards if card.failed]

    def pool(self, mem: MemoryKind) -> Pool:
        if mem not in self._pools:
            raise ArgumentError(f"mem={mem!r}: a card has {' and '.join(map(repr, self._pools))}")
        return self._pools[mem]

    def banks(self, mem: MemoryKind) -> int:
        """How many a buffer is spread over."""
        return self._pools[mem].region.banks

    def _empty_pools(self) -> dict[MemoryKind, Pool]:
        return {mem: Pool(self._common(mem)) for mem in _MEMORIES}

    def _common(self, mem: MemoryKind) -> Region:
        """The addresses that every card has."""
        regions = [region_of(card.info, mem) for card in self.cards]
        base, end = max(region.base for region in regions), min(region.end for region in regions)
        banks = self.dram_banks if mem == "dram" else regions[0].banks
        return replace(regions[0], banks=banks, base=base, size=max(0, end - base))

    def each(self, what: str, jobs: Mapping[Card, Callable[[], _Result]], timeout: float) -> dict[Card, _Result]:
        """One job on each card: all are given out before any is waited for, all have ended before one raises."""
        results, failures = self.outcomes(what, jobs, timeout)
        if failures:
            raise self.error(what, failures)
        return results

    def outcomes(
        self, what: str, jobs: Mapping[Card, Callable[[], _Result]], timeout: float
    ) -> tuple[dict[Card, _Result], list[CardFailure]]:
        """What came of each job; those that failed are not yet an error."""
        self.check_usable(what)
        tasks = {card: card.worker.post(what, job) for card, job in jobs.items()}
        # A driver's own deadline comes first: it knows what it waited for.
        deadline = Deadline(1.1 * timeout + 0.1)
        results: dict[Card, _Result] = {}
        failures = []
        for card, task in tasks.items():
            try:
                results[card] = task.wait(deadline.left())
            except Exception as cause:
                failures.append(self._noted(card, cause))
        return results, failures

    def _noted(self, card: Card, cause: Exception) -> CardFailure:
        if isinstance(cause, TimeoutError):
            card.failed = str(cause)
        return CardFailure(card.coordinate, card.info.serial, card.info.index, cause)

    def each_or_fail(
        self, what: str, jobs: Mapping[Card, Callable[[], _Result]], timeout: float
    ) -> dict[Card, _Result]:
        """`each`, for what leaves the cards out of step where it fails: the mesh is then unusable."""
        results, failures = self.outcomes(what, jobs, timeout)
        for failure in failures:
            card = self.card(failure.coordinate)
            card.failed = card.failed or f"{what}: {failure.cause}"
        if failures:
            raise self.error(what, failures)
        return results

    def error(self, what: str, failures: Sequence[CardFailure]) -> CardsError:
        others = self.num_devices - len(failures)
        rest = f"All {self.num_devices} cards are still usable."
        if self.failed:
            rest = (
                f"The mesh is unusable until mesh.reset(); the other {others} cards have been waited for, and answer. "
                "Close it to open them without those that failed."
            )
        is_timeout = any(isinstance(failure.cause, TimeoutError) for failure in failures)
        made = (CardsTimeout if is_timeout else CardsError)(what, failures, rest)
        made.__cause__ = failures[0].cause
        return made

    def check_usable(self, what: str) -> None:
        if not self.is_open:
            raise MeshError(f"{what}: the mesh is closed")
        if self.failed:
            card = self.failed[0]
            raise MeshError(
                f"{what}: the mesh is unusable since {card} failed ({card.failed}). mesh.reset() makes it usable "
                "again, without its buffers."
            )

    def synchronize(self) -> None:
        """Wait for all that was submitted."""
        seconds = self.timeouts.run
        self.each("synchronize", {card: partial(card.driver.sync, seconds) for card in self.cards}, seconds)

    def reset(self) -> None:
        """All cards start afresh. Buffers and programs from before are gone; memory holds nothing in particular."""
        if not self.is_open:
            raise MeshError("reset: the mesh is closed")
        for card in self.cards:
            card.forget("the mesh was reset")
            card.failed = None
        self.epoch += 1
        self.orphans = []
        self._pools = self._empty_pools()
        self.each("reset", {card: card.driver.reset for card in self.cards}, _ENDING_SECONDS)

    def close(self) -> None:
        """All cards are closed, also where closing one of them fails."""
        if not self.is_open:
            return
        for card in self.failed:
            card.forget("the mesh was closed")
            card.failed = None
        jobs: dict[Card, Callable[[], Any]] = {card: card.driver.close for card in self.cards}
        _, failures = self.outcomes("close", jobs, _ENDING_SECONDS)
        self.is_open = False
        for card in self.cards:
            card.worker.drop("the mesh was closed")
        if failures:
            raise CardsError("close", failures, "The others are closed.")

    def __enter__(self) -> CardMesh:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except CardsError:
            if error is None:
                raise

    def __repr__(self) -> str:
        extents = "x".join(map(str, self.shape))
        kinds = ", ".join(sorted({card.info.kind for card in self.cards}))
        return f"CardMesh({extents}, {self.num_devices} {kinds} cards)"
