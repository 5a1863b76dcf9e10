"""A file of tensors, so that what two runs computed can be compared without being held in memory.

What the host puts on devices is known by a digest of the whole tensor: where the reference put the same, it is not
written again, and needs no comparison.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import weakref
from typing import NamedTuple

import torch

from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import REPLICATE, Shard
from softmesh.train.equivalence.values import Value, spread, whole

MOST_BYTES = 16 << 30  # of one run: what comes after it is not kept, and the report says so


class Stored(NamedTuple):
    """A value of the run: where it lies in the file, and how devices share it."""

    number: int
    offset: int  # -1: it was not kept
    shape: tuple[int, ...]  # of the data, the dims of the distribution first
    kind: torch.dtype
    dist: Distribution
    dtype: object  # TT-NN's
    digest: bytes = b""  # of the whole tensor, where it was asked for
    is_lent: bool = False  # it lies in the other run's file, as the whole tensor

    @property
    def is_kept(self) -> bool:
        return self.offset >= 0


class ValueStore:
    """Values by number, written one after the other. `twin` is that of a run which put some of the same on devices."""

    def __init__(self, most_bytes: int = MOST_BYTES, twin: ValueStore | None = None) -> None:
        self._file = tempfile.TemporaryFile(prefix="softmesh-diff-", buffering=0)  # noqa: SIM115  (closed with the store)
        weakref.finalize(self, self._file.close)
        self._size = 0
        self._most = most_bytes
        self._twin = twin
        self._by_digest: dict[bytes, Stored] = {}
        self.values: list[Stored] = []
        self.left_out = 0

    @property
    def size(self) -> int:
        """In bytes, without what is lent."""
        return self._size

    def put(self, data: torch.Tensor, dist: Distribution, dtype: object, *, digested: bool = False) -> Stored:
        data = data.detach().cpu()
        digest = _digest(data, dist) if digested else b""
        lent = None if self._twin is None or not digest else self._twin._by_digest.get(digest)
        if lent is not None and lent.kind == data.dtype:
            stored = Stored(len(self.values), lent.offset, tuple(data.shape), data.dtype, dist, dtype, digest, True)
        else:
            offset = self._written(data.contiguous())
            stored = Stored(len(self.values), offset, tuple(data.shape), data.dtype, dist, dtype, digest)
        if digest and stored.is_kept and not stored.is_lent:
            self._by_digest.setdefault(digest, stored)
        self.values.append(stored)
        return stored

    def _written(self, data: torch.Tensor) -> int:
        size = data.numel() * data.element_size()
        if self._size + size > self._most:
            self.left_out += 1
            return -1
        if size:
            left = data.reshape(-1).view(torch.uint8).numpy().data
            while left:
                left = left[self._file.write(left) :]
        self._size += size
        return self._size - size

    def load(self, value: Stored) -> torch.Tensor:
        """The data, for whoever asks alone."""
        if value.is_lent and self._twin is not None:
            return self._borrowed(self._twin, value)
        count = math.prod(value.shape)
        if not count:
            return torch.zeros(value.shape, dtype=value.kind)
        data = torch.empty(value.shape, dtype=value.kind)
        _read(self._file.fileno(), data, value.offset)
        return data

    @staticmethod
    def _borrowed(twin: ValueStore, value: Stored) -> torch.Tensor:
        lent = twin._by_digest[value.digest]
        dealt = spread(whole("a value", Value(twin.load(lent), lent.dist)).reshape(_whole_shape(value)), value.dist)
        assert dealt is not None
        return dealt


def _whole_shape(value: Stored) -> list[int]:
    shape = list(value.shape[value.dist.lead :])
    for word, n in zip(value.dist.placements, value.dist.grid, strict=True):
        if isinstance(word, Shard):
            shape[word.dim] *= n
    return shape


def _read(file: int, data: torch.Tensor, offset: int) -> None:
    left = data.reshape(-1).view(torch.uint8).numpy().data
    while left:
        count = os.preadv(file, [left], offset)
        if not count:
            raise OSError("the file of recorded values ends too early.")
        left, offset = left[count:], offset + count


def _digest(data: torch.Tensor, dist: Distribution) -> bytes:
    """Of one tensor on all devices, by its values and its size; none where there is no such thing."""
    if data.dim() < dist.lead or not data.numel():
        return b""
    if not all(word is REPLICATE or (isinstance(word, Shard) and word.size is None) for word in dist.placements):
        return b""
    one = whole("a value", Value(data, dist)).contiguous()
    found = hashlib.sha1(one.reshape(-1).view(torch.uint8).numpy().data, usedforsecurity=False)
    found.update(str([n for n in one.shape if n != 1]).encode())
    return found.digest()
