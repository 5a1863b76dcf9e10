"""A storage whose values are not there yet: still on their way, or still to be made from what a kernel wrote.

Whoever reads it waits for them. The class of a storage is changed while something is to come, and back when all has
come; so a read of any other storage costs nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from softmesh.placement.distribution import Distribution
from softmesh.tensor.storage import Storage
from softmesh.tensor.undefined import Undefined

Fill = Callable[[torch.Tensor], None]

_DATA: Any = Storage.__dict__["data"]
_DIST: Any = Storage.__dict__["dist"]
_UNDEFINED: Any = Storage.__dict__["undefined"]

# By the identity of the storage, which the waits keep alive, or see the end of: those still to come, in order.
_WAITS: dict[int, list[Callable[[], None]]] = {}


def _settled(storage: Storage) -> None:
    """Each wait that ends takes itself out (see `settle`); one that fails raises and stays."""
    while waits := _WAITS.get(id(storage)):
        waits[0]()


def _waiting(slot: Any) -> Any:
    def read(storage: Storage) -> Any:
        _settled(storage)
        return slot.__get__(storage)

    def write(storage: Storage, value: Any) -> None:
        _settled(storage)
        slot.__set__(storage, value)

    return property(read, write)


class ArrivingStorage(Storage):
    __slots__ = ()

    data = _waiting(_DATA)
    dist = _waiting(_DIST)
    undefined = _waiting(_UNDEFINED)


class OwingStorage(Storage):
    """Only the values are missing: where they are placed, and that there are some, is known."""

    __slots__ = ()

    data = _waiting(_DATA)


def expect(storage: Storage, wait: Callable[[], None]) -> None:
    """From now on a read of the storage calls `wait` first, until `settle` is told that it is over."""
    _WAITS.setdefault(id(storage), []).append(wait)
    storage.__class__ = ArrivingStorage


def owe(storage: Storage, fill: Fill) -> None:
    """Whoever reads the values has `fill` write them first, into the memory that is there. It replaces an older debt.

    For a storage that nothing is on its way to. What is owed to nobody any more is forgotten.
    """
    assert type(storage) is not ArrivingStorage
    _WAITS[id(storage)] = [_Debt(storage, fill)]
    storage.__class__ = OwingStorage


def owed(storage: Storage) -> Fill | None:
    """What is still to be called before the values are there."""
    if type(storage) is not OwingStorage:
        return None
    (debt,) = _WAITS[id(storage)]
    assert isinstance(debt, _Debt)
    return debt.fill


class _Debt:
    def __init__(self, storage: Storage, fill: Fill) -> None:
        key = id(storage)
        self._storage = weakref.ref(storage, lambda _: _WAITS.pop(key, None))
        self.fill = fill

    def __call__(self) -> None:
        storage = self._storage()
        assert storage is not None
        memory = data_now(storage)
        assert memory is not None
        self.fill(memory)
        settle(storage, self)


def settle(storage: Storage, wait: Callable[[], None]) -> None:
    waits = _WAITS[id(storage)]
    waits.remove(wait)
    if not waits:
        del _WAITS[id(storage)]
        storage.__class__ = Storage


def data_now(storage: Storage) -> torch.Tensor | None:
    """What the storage holds at this moment, whatever is to come."""
    data: torch.Tensor | None = _DATA.__get__(storage)
    return data


def memory_of(storage: Storage) -> torch.Tensor | None:
    """Where the values are, or will be once somebody asks; what is on its way is waited for."""
    return data_now(storage) if type(storage) is OwingStorage else storage.data


def dist_now(storage: Storage) -> Distribution:
    dist: Distribution = _DIST.__get__(storage)
    return dist


def copy_now(storage: Storage) -> Storage:
    """The same values, as a storage that can be worked on without waiting."""
    copy = Storage(data_now(storage), dist_now(storage), storage.device)
    copy.undefined = _UNDEFINED.__get__(storage)
    copy.spec, copy.claim = storage.spec, storage.claim
    return copy


def put(
    storage: Storage, data: torch.Tensor | None, dist: Distribution, undefined: Undefined | None = None
) -> None:
    """Put in what came, without waiting."""
    _DATA.__set__(storage, data)
    _DIST.__set__(storage, dist)
    _UNDEFINED.__set__(storage, undefined)
