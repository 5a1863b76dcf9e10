"""A storage whose values are still on their way: whoever reads it waits for them.

The class of a storage is changed while something is under way, and back when all has come; so a read of any
other storage costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.placement.distribution import Distribution
from softmesh.tensor.owed import pay
from softmesh.tensor.storage import Storage
from softmesh.tensor.undefined import Undefined

_DATA: Any = Storage.__dict__["data"]
_DIST: Any = Storage.__dict__["dist"]
_UNDEFINED: Any = Storage.__dict__["undefined"]

# By the identity of the storage, which the waits keep alive: those still to come, in order.
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
    is_pending = True

    data = _waiting(_DATA)
    dist = _waiting(_DIST)
    undefined = _waiting(_UNDEFINED)


def expect(storage: Storage, wait: Callable[[], None]) -> None:
    """From now on a read of the storage calls `wait` first, until `settle` is told that it is over."""
    pay(storage)
    _WAITS.setdefault(id(storage), []).append(wait)
    storage.__class__ = ArrivingStorage


def settle(storage: Storage, wait: Callable[[], None]) -> None:
    waits = _WAITS[id(storage)]
    waits.remove(wait)
    if not waits:
        del _WAITS[id(storage)]
        storage.__class__ = Storage


def data_now(storage: Storage) -> torch.Tensor | None:
    """What the storage holds at this moment, whatever is to come."""
    pay(storage)
    data: torch.Tensor | None = _DATA.__get__(storage)
    return data


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
    pay(storage)
    _DATA.__set__(storage, data)
    _DIST.__set__(storage, dist)
    _UNDEFINED.__set__(storage, undefined)
