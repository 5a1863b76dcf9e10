"""The bytes of tensors that kernels used last, so that the next launch need not make them again from the values.

Whoever takes pages has them alone, and gives them back when its launch went well: nobody ever finds bytes that
differ from the tensor's values.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from softmesh.tensor.device_pages import TensorBytes

if TYPE_CHECKING:
    from softmesh.tensor.storage import Storage

_LIMIT = 64 << 20  # bytes; what was used longest ago goes first


class KeptPages:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: weakref.WeakKeyDictionary[Storage, TensorBytes.Encoded] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def take(self, paged: TensorBytes) -> None:
        """Let it have the bytes that were kept; it looks itself whether the tensor has changed since."""
        if paged.encoded is None and paged.is_whole:
            with self._lock:
                paged.encoded = self._kept.pop(paged.tensor._storage, None)

    def give(self, paged: TensorBytes) -> None:
        if paged.encoded is None or not paged.is_whole or not paged.is_current():
            return
        mine, size = paged.tensor._storage, paged.encoded[1].nbytes
        gone: list[Storage] = []
        with self._lock:
            self._kept.pop(mine, None)
            held = {storage: encoded[1].nbytes for storage, encoded in self._kept.items()}
            while held and sum(held.values()) + size > self._limit:
                oldest = next(iter(held))
                del held[oldest]
                self._kept.pop(oldest, None)
                gone.append(oldest)
            if size <= self._limit:
                self._kept[mine] = paged.encoded
            else:
                gone.append(mine)
        for storage in gone:
            _ = storage.data  # made from the pages now, if it was not yet: then nobody needs them

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


KEPT = KeptPages(_LIMIT)
