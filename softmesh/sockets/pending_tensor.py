"""Tensors whose values are still on their way from a socket (futures): a read of the storage waits for them.

A storage has two states. `Storage`: nothing is pending, and a read costs nothing extra. `PendingStorage`: its class
is swapped while receives into it are under way, and each read of `data`, `dist` or `undefined` first runs the pending
waits in order. `add_wait` enters the second state, `remove_wait` of the last wait leaves it. The functions `..._now`
look past the state: they are for the receives themselves. `PendingReceive` is one receive: submitted, then complete
(values are stored), or stopped (the tensor keeps what it had).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.placement.distribution import Distribution
from softmesh.sockets.transfer_queue import TRANSFERS, Task
from softmesh.tensor.lazy_values import materialize_values
from softmesh.tensor.storage import Storage
from softmesh.tensor.undefined import Undefined

_DATA: Any = Storage.__dict__["data"]
_DIST: Any = Storage.__dict__["dist"]
_UNDEFINED: Any = Storage.__dict__["undefined"]

# By the identity of the storage, which the waits keep alive: those still to come, in order.
_WAITS: dict[int, list[Callable[[], None]]] = {}


def _finish_waits(storage: Storage) -> None:
    """Each wait that ends takes itself out (see `remove_wait`); one that fails raises and stays."""
    while waits := _WAITS.get(id(storage)):
        waits[0]()


def _waiting_property(slot: Any) -> Any:
    def read(storage: Storage) -> Any:
        _finish_waits(storage)
        return slot.__get__(storage)

    def write(storage: Storage, value: Any) -> None:
        _finish_waits(storage)
        slot.__set__(storage, value)

    return property(read, write)


class PendingStorage(Storage):
    __slots__ = ()
    is_pending = True

    data = _waiting_property(_DATA)
    dist = _waiting_property(_DIST)
    undefined = _waiting_property(_UNDEFINED)


def add_wait(storage: Storage, wait: Callable[[], None]) -> None:
    """From now on a read of the storage calls `wait` first, until `remove_wait` is told that it is over."""
    materialize_values(storage)
    _WAITS.setdefault(id(storage), []).append(wait)
    storage.__class__ = PendingStorage


def remove_wait(storage: Storage, wait: Callable[[], None]) -> None:
    waits = _WAITS[id(storage)]
    waits.remove(wait)
    if not waits:
        del _WAITS[id(storage)]
        storage.__class__ = Storage


def data_now(storage: Storage) -> torch.Tensor | None:
    """What the storage holds at this moment, whatever is to come."""
    materialize_values(storage)
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


def store_now(
    storage: Storage, data: torch.Tensor | None, dist: Distribution, undefined: Undefined | None = None
) -> None:
    """Put in what came, without waiting."""
    materialize_values(storage)
    _DATA.__set__(storage, data)
    _DIST.__set__(storage, dist)
    _UNDEFINED.__set__(storage, undefined)


class PendingReceive:
    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._task: Task | None = None
        self._expected = False

    def submit(self, task: Task) -> None:
        """Submit the receive; until it is over, readers of the storage wait for it."""
        self._task = task
        TRANSFERS.submit(task)
        if not task.done:
            self._expected = True
            add_wait(self.storage, self._wait)

    def complete(self, values: Storage) -> None:
        """It came."""
        store_now(self.storage, values.data, values.dist, values.undefined)
        self.stop_waiting()

    def _wait(self) -> None:
        assert self._task is not None
        try:
            TRANSFERS.finish(self._task)
        finally:
            if self._task.error is not None:  # the tensor keeps what it had
                self.stop_waiting()

    def stop_waiting(self) -> None:
        """Nobody waits any longer; the tensor holds what it holds."""
        if self._expected:
            self._expected = False
            remove_wait(self.storage, self._wait)
