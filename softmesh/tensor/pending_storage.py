"""Storages whose values are not there yet: lazy ones, made from a kernel's bytes, and futures, coming from a socket.

A storage has two states, and its class says which:

    Storage          the values are there; a read is a plain slot of the object and costs nothing extra
    PendingStorage   `pending` has to be asked before `data`, `dist` or `undefined` is read or written

This is the one place that swaps an object's class. Every op reads storages, and few are ever pending: a flag that each
read had to ask would be paid by all of them. Whoever must not wait asks `storage.is_pending` first, or looks past the
state with `held` and `hold`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

from softmesh.placement.distribution import Distribution
from softmesh.tensor.storage import Storage
from softmesh.tensor.undefined import Undefined

Fill = Callable[[torch.Tensor], None]
_SLOTS: dict[str, Any] = {name: Storage.__dict__[name] for name in ("data", "dist", "undefined")}
_LOCK = threading.RLock()  # two may ask for the same values


class Pending(Protocol):
    """What a storage waits for. It ends the state, by `settle`, when there is nothing left to wait for."""

    def before_read(self, storage: Storage, slot: str) -> None: ...

    def before_write(self, storage: Storage, slot: str) -> None: ...


def _guarded(name: str) -> Any:
    slot = _SLOTS[name]

    def read(storage: Storage) -> Any:
        if (pending := pending_of(storage)) is not None:
            pending.before_read(storage, name)
        return slot.__get__(storage)

    def write(storage: Storage, value: Any) -> None:
        if (pending := pending_of(storage)) is not None:
            pending.before_write(storage, name)
        slot.__set__(storage, value)

    return property(read, write)


class PendingStorage(Storage):
    __slots__ = ()
    is_pending = True

    data = _guarded("data")
    dist = _guarded("dist")
    undefined = _guarded("undefined")


def pending_of(storage: Storage) -> Pending | None:
    return getattr(storage, "pending", None)


def suspend(storage: Storage, pending: Pending) -> None:
    """From now on `pending` is asked before the storage is read or written."""
    storage.pending = pending
    storage.__class__ = PendingStorage


def settle(storage: Storage) -> None:
    """It is a plain storage again."""
    storage.__class__ = Storage
    if pending_of(storage) is not None:
        del storage.pending


def slot_value(storage: Storage, slot: str) -> Any:
    """What a slot holds at this moment, whatever is to come."""
    return _SLOTS[slot].__get__(storage)


def hold(storage: Storage, data: torch.Tensor | None, dist: Distribution, undefined: Undefined | None = None) -> None:
    """Put these in without waiting; lazy values that were to come are made first, and written over."""
    materialize_values(storage)
    for name, value in (("data", data), ("dist", dist), ("undefined", undefined)):
        _SLOTS[name].__set__(storage, value)


class _LazyValues:
    """Values that `fill` writes into the storage's memory when they are first read; a write makes them needless."""

    def __init__(self, fill: Fill) -> None:
        self.fill = fill

    def before_read(self, storage: Storage, slot: str) -> None:
        if slot == "data":
            materialize_values(storage)

    def before_write(self, storage: Storage, slot: str) -> None:
        if slot == "data":
            with _LOCK:
                if pending_of(storage) is self:
                    settle(storage)


def defer_values(storage: Storage, fill: Fill) -> None:
    """From now on a read of the values calls `fill` first, with the memory to write them to; once.

    It takes the place of what was deferred before. `fill` must not know the storage.
    """
    with _LOCK:
        suspend(storage, _LazyValues(fill))


def has_deferred_values(storage: Storage) -> bool:
    return isinstance(pending_of(storage), _LazyValues)


def materialize_values(storage: Storage) -> None:
    """Have the values made, where they are still deferred."""
    if not has_deferred_values(storage):
        return
    with _LOCK:
        if isinstance(lazy := pending_of(storage), _LazyValues):
            lazy.fill(slot_value(storage, "data"))
            settle(storage)


def value_memory(storage: Storage) -> torch.Tensor | None:
    """Where the values are, or will be once somebody asks for them."""
    data: torch.Tensor | None = slot_value(storage, "data") if has_deferred_values(storage) else storage.data
    return data
