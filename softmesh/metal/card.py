"""One card of a mesh: its driver, rank and coordinate; opening cards, checking that they are alike, closing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from softmesh.arguments import checked_ints, refused
from softmesh.drivers.protocol import Driver, DriverInfo, ProgramSpec
from softmesh.drivers.worker_thread import Worker
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshShape

OpenCard = Callable[[int], Driver]

# What all cards of a mesh have in common, and why it matters.
_EQUAL = {
    "arch": "programs are compiled for one architecture",
    "core_grid": "a program runs on the same cores of every card",
    "dram_align": "pages lie at the same addresses of every card",
    "dram_banks": "page i lies in bank i % banks of every card",
}


class Card:
    """One card of a mesh: where it sits, its driver, and the thread that talks to it."""

    def __init__(self, rank: int, coordinate: MeshCoordinate, driver: Driver) -> None:
        self.rank, self.coordinate, self.driver = rank, coordinate, driver
        self.info = driver.info
        self.failed: str | None = None
        self.worker = Worker(f"talks to card {tuple(coordinate)}")
        self._images: WeakKeyDictionary[ProgramSpec, Any] = WeakKeyDictionary()

    def image(self, program: ProgramSpec) -> Any:
        """Compiled when it is first needed."""
        if program not in self._images:
            self._images[program] = self.driver.compile(program)
        return self._images[program]

    def forget(self, reason: str) -> None:
        """Nothing of what was under way matters any more."""
        self.worker.drop(reason)
        self.worker = Worker(self.worker.name)
        self._images = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"card {tuple(self.coordinate)}, serial {self.info.serial}, index {self.info.index}"


def checked_ids(device_ids: Sequence[int] | None, shape: MeshShape) -> list[int]:
    count = shape.mesh_size()
    if device_ids is None:
        return list(range(count))
    ids = checked_ints("open_mesh_device", "device_ids", device_ids)
    if len(ids) != count:
        raise MeshError(f"device_ids names {len(ids)} cards, and a mesh of {shape} has {count} places: {ids}")
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise MeshError(f"device_ids names card {twice[0]} twice: {ids}. Each card has one place in a mesh.")
    if min(ids) < 0:
        raise refused("open_mesh_device", f"device_ids must not be negative, got {ids}")
    return ids


def open_cards(shape: MeshShape, ids: Sequence[int], open_card: OpenCard, by_serial: bool) -> list[Card]:
    """Row-major in the order of `ids`, or of the serials. Where one fails, none stays open."""
    drivers: list[Driver] = []
    try:
        for index in ids:
            drivers.append(_opened(open_card, index, len(drivers), shape))
        if by_serial:
            drivers.sort(key=lambda driver: (len(driver.info.serial), driver.info.serial))
        _check_serials([driver.info for driver in drivers])
    except BaseException:
        close_all(drivers)
        raise
    seats = zip(shape.coordinates(), drivers, strict=True)
    return [Card(rank, coordinate, driver) for rank, (coordinate, driver) in enumerate(seats)]


def _opened(open_card: OpenCard, index: int, number: int, shape: MeshShape) -> Driver:
    try:
        return open_card(index)
    except Exception as error:
        raise MeshError(
            f"open_mesh_device: card {index}, number {number + 1} of {shape.mesh_size()}, did not open: "
            f"{type(error).__name__}: {error}. The {number} opened before it are closed again."
        ) from error


def close_all(drivers: Sequence[Driver]) -> None:
    """The last one first; what goes wrong here is not what went wrong."""
    for driver in reversed(drivers):
        with suppress(Exception):
            driver.close()


def _check_serials(infos: Sequence[DriverInfo]) -> None:
    serials = [info.serial for info in infos]
    for info in infos:
        if serials.count(info.serial) > 1:
            raise MeshError(f"open_mesh_device: two cards say that they are {info.serial}; a serial tells cards apart")


def check_alike(cards: Sequence[Card], forced_banks: int | None) -> None:
    """Each card against the first."""
    first = cards[0]
    for name, reason in _EQUAL.items():
        if name == "dram_banks" and forced_banks is not None:
            continue
        expected = getattr(first.info, name)
        for card in cards:
            actual = getattr(card.info, name)
            if actual != expected:
                raise MeshError(
                    f"open_mesh_device: {card} ({card.info.board}) has {name}={actual}, and {first} "
                    f"({first.info.board}) has {expected}: {reason}. {_remedy(name, cards)}"
                )


def _remedy(name: str, cards: Sequence[Card]) -> str:
    if name == "dram_banks":
        fewest = min(card.info.dram_banks for card in cards)
        return f"Open like cards together, or use only {fewest} banks of each: dram_banks={fewest}"
    return "Open like cards together: device_ids=[...]"
