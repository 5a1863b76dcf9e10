"""The bytes of tensors that kernels used last, so that the next launch need not make them again from the values.

Nobody changes these bytes. Values that are still to be made of them are made before they are forgotten here, so there
is a limit to what is held beside the values.
"""

from __future__ import annotations

import threading
import weakref
from typing import NamedTuple

from softmesh.kernels.engine.held_bytes import HeldBytes
from softmesh.runtime.buffers.seen import Seen
from softmesh.tensor.owed import pay, value_memory
from softmesh.tensor.storage import Storage

_LIMIT = 64 << 20  # bytes; what was used longest ago goes first


class _Kept(NamedTuple):
    held: HeldBytes
    size: int
    seen: Seen  # the values


class KeptBytes:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: weakref.WeakKeyDictionary[Storage, _Kept] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def find(self, storage: Storage) -> HeldBytes | None:
        """The bytes of a storage whose values have not changed since."""
        values = value_memory(storage)
        with self._lock:
            kept = self._kept.pop(storage, None)
            if kept is None or values is None or not kept.seen.is_unchanged(values):
                return None
            self._kept[storage] = kept  # the last that was used
            return kept.held

    def has_room_for(self, size: int) -> bool:
        """Whether such bytes would be kept at all."""
        return size <= self._limit

    def keep(self, storage: Storage, held: HeldBytes, size: int, seen: Seen) -> None:
        """`size` is what they take, on all devices; `seen` the values that they are those of."""
        gone = []
        with self._lock:
            self._kept.pop(storage, None)
            self._kept[storage] = _Kept(held, size, seen)
            sizes = {storage: kept.size for storage, kept in self._kept.items()}
            total = sum(sizes.values())
            for oldest in list(sizes):
                if total <= self._limit:
                    break
                total -= sizes[oldest]
                self._kept.pop(oldest, None)
                gone.append(oldest)
        for oldest in gone:
            pay(oldest)


KEPT = KeptBytes(_LIMIT)
