"""Receives that are under way (futures): a read of the tensor waits until its values have come from the socket.

`PendingReceive` is one receive: submitted, then complete (values are stored), or stopped (the tensor keeps what it
had). While receives into a storage are under way it is pending (see tensor.pending_storage): each read and write
first finishes the waits, in order. `data_now`, `dist_now` and `copy_now` look past that state: they are for the
receives themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from softmesh.placement.distribution import Distribution
from softmesh.sockets.transfer_queue import TRANSFERS, Task
from softmesh.tensor.pending_storage import hold, materialize_values, pending_of, settle, slot_value, suspend
from softmesh.tensor.storage import Storage


class _Waits:
    """Those still to come. Each that ends takes itself out (see `remove_wait`); one that fails raises and stays."""

    def __init__(self) -> None:
        self.waits: list[Callable[[], None]] = []

    def before_read(self, storage: Storage, slot: str) -> None:
        while self.waits:
            self.waits[0]()

    before_write = before_read


def add_wait(storage: Storage, wait: Callable[[], None]) -> None:
    """From now on a read of the storage calls `wait` first, until `remove_wait` is told that it is over."""
    materialize_values(storage)
    pending = pending_of(storage)
    if not isinstance(pending, _Waits):
        pending = _Waits()
        suspend(storage, pending)
    pending.waits.append(wait)


def remove_wait(storage: Storage, wait: Callable[[], None]) -> None:
    pending = pending_of(storage)
    assert isinstance(pending, _Waits)
    pending.waits.remove(wait)
    if not pending.waits:
        settle(storage)


def data_now(storage: Storage) -> torch.Tensor | None:
    """What the storage holds at this moment, whatever is to come."""
    materialize_values(storage)
    data: torch.Tensor | None = slot_value(storage, "data")
    return data


def dist_now(storage: Storage) -> Distribution:
    dist: Distribution = slot_value(storage, "dist")
    return dist


def copy_now(storage: Storage) -> Storage:
    """The same values, as a storage that can be worked on without waiting."""
    copy = Storage(data_now(storage), dist_now(storage), storage.device)
    copy.undefined = slot_value(storage, "undefined")
    copy.spec, copy.claim = storage.spec, storage.claim
    return copy


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
        hold(self.storage, values.data, values.dist, values.undefined)
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
