"""A file of tensors, so that what two runs computed can be compared without being held in memory."""

from __future__ import annotations

import mmap
import tempfile
import weakref
from typing import NamedTuple

import torch

from softmesh.placement.distribution import Distribution

MOST_BYTES = 16 << 30  # of one run: what comes after it is not kept, and the report says so


class Stored(NamedTuple):
    """A value of the run: where it lies in the file, and how devices share it."""

    number: int
    offset: int  # -1: it was not kept
    shape: tuple[int, ...]  # of the data, the dims of the distribution first
    kind: torch.dtype
    dist: Distribution
    dtype: object  # TT-NN's

    @property
    def is_kept(self) -> bool:
        return self.offset >= 0


class ValueStore:
    """Values by number, written one after the other and read where they lie."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._file = tempfile.TemporaryFile(prefix="softmesh-diff-")  # noqa: SIM115  (closed with the store)
        weakref.finalize(self, self._file.close)
        self._map: mmap.mmap | None = None
        self._size = 0
        self._most = most_bytes
        self.values: list[Stored] = []
        self.left_out = 0

    def put(self, data: torch.Tensor, dist: Distribution, dtype: object) -> Stored:
        data = data.detach().cpu().contiguous()
        size = data.numel() * data.element_size()
        offset = -1 if self._size + size > self._most else self._size
        if offset >= 0 and size:
            self._file.write(data.reshape(-1).view(torch.uint8).numpy().data)
            self._size += size
        self.left_out += offset < 0
        stored = Stored(len(self.values), offset, tuple(data.shape), data.dtype, dist, dtype)
        self.values.append(stored)
        return stored

    def load(self, value: Stored) -> torch.Tensor:
        """The data, which must not be written to."""
        count = 1
        for n in value.shape:
            count *= n
        if not count:
            return torch.zeros(value.shape, dtype=value.kind)
        if self._map is None or len(self._map) < self._size:
            self._file.flush()
            self._map = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_COPY)
        found = torch.frombuffer(self._map, dtype=value.kind, count=count, offset=value.offset)
        return found.reshape(value.shape)
