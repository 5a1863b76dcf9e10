"""Values that are still to be made, from bytes that a kernel wrote: whoever reads the storage has them made first.

The class of a storage is changed while it owes its values, and back when they are there; so a read of any other
storage costs nothing.
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
    pay(storage)
    data: torch.Tensor | None = _DATA.__get__(storage)
    return data


def _write(storage: Storage, data: torch.Tensor | None) -> None:
    """Nobody will ask for the values that were owed."""
    with _LOCK:
        _forgive(storage)
        _DATA.__set__(storage, data)


class OwingStorage(Storage):
    __slots__ = ()
    is_pending = True

    data = property(_read, _write)


def owe(storage: Storage, fill: Fill) -> None:
    """From now on a read of the values calls `fill` first, with the memory to write them to; once.

    It takes the place of what was owed before. `fill` must not know the storage.
    """
    with _LOCK:
        storage.owed = fill
        storage.__class__ = OwingStorage


def owes(storage: Storage) -> bool:
    return type(storage) is OwingStorage


def pay(storage: Storage) -> None:
    """Have the values made, where they are still owed."""
    if type(storage) is not OwingStorage:
        return
    with _LOCK:
        if type(storage) is OwingStorage:
            storage.owed(_DATA.__get__(storage))
            _forgive(storage)


def _forgive(storage: Storage) -> None:
    if type(storage) is OwingStorage:
        storage.__class__ = Storage  # type: ignore[assignment]
        del storage.owed


def value_memory(storage: Storage) -> torch.Tensor | None:
    """Where the values are, or will be once somebody asks for them."""
    data: torch.Tensor | None = _DATA.__get__(storage) if type(storage) is OwingStorage else storage.data
    return data
