"""Lazy tensor values: a kernel's output bytes are decoded into values when the storage is first read.

A storage has two states. Plain (`Storage`): `data` are the values. Deferred (`LazyStorage`, with `pending_fill`): the
first read of `data` calls `pending_fill` with the memory to fill, and the storage is plain again; a write of `data`
discards it. The state is the storage's class, so a read of a plain storage costs nothing; `type(storage) is Storage`
means that nothing is deferred. A lock makes the change once where two threads read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from softmesh.tensor.storage import Storage

Fill = Callable[[torch.Tensor], None]

_DATA: Any = Storage.__dict__["data"]
_LOCK = threading.RLock()  # two may ask for the same values


def _read(storage: Storage) -> torch.Tensor | None:
    materialize_values(storage)
    data: torch.Tensor | None = _DATA.__get__(storage)
    return data


def _write(storage: Storage, data: torch.Tensor | None) -> None:
    """Nobody will ask for the values that were deferred."""
    with _LOCK:
        _discard_deferred(storage)
        _DATA.__set__(storage, data)


class LazyStorage(Storage):
    __slots__ = ()
    is_pending = True

    data = property(_read, _write)


def defer_values(storage: Storage, fill: Fill) -> None:
    """From now on a read of the values calls `fill` first, with the memory to write them to; once.

    It takes the place of what was deferred before. `fill` must not know the storage.
    """
    with _LOCK:
        storage.pending_fill = fill
        storage.__class__ = LazyStorage


def has_deferred_values(storage: Storage) -> bool:
    return type(storage) is LazyStorage


def materialize_values(storage: Storage) -> None:
    """Have the values made, where they are still deferred."""
    if type(storage) is not LazyStorage:
        return
    with _LOCK:
        if type(storage) is LazyStorage:
            storage.pending_fill(_DATA.__get__(storage))
            _discard_deferred(storage)


def _discard_deferred(storage: Storage) -> None:
    if type(storage) is LazyStorage:
        storage.__class__ = Storage  # type: ignore[assignment]
        del storage.pending_fill


def value_memory(storage: Storage) -> torch.Tensor | None:
    """Where the values are, or will be once somebody asks for them."""
    data: torch.Tensor | None = _DATA.__get__(storage) if type(storage) is LazyStorage else storage.data
    return data
