"""A tensor as a launch sees it: bytes with lazy decoding, an LRU cache of bytes, and the table of all buffers.

A launch reads a tensor's values as the bytes of its pages, and leaves new bytes behind. The states of its storage:

    decoded    the values are there; the bytes are encoded on the first read, or found in the cache
    lazy       a kernel wrote the bytes; the values are decoded on the first read of the storage. Only where
               the storage is the only way to the values: else they are decoded at the end of the launch

EncodedBytesCache keeps the bytes of the tensors that kernels used last, so that the next launch need not encode the
values again. Its bytes never change. An entry is invalid once the values were changed (`TensorVersion`); lazy values
are decoded before their entry is evicted, so the limit bounds what is held beside the values.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from sys import getrefcount
from typing import NamedTuple

import torch

from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.engine.buffer_view import BufferView, MeshSlice, RawBufferView
from softmesh.kernels.engine.byte_overlay import ByteOverlay, over, single_torch_thread
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.buffers.mesh_memory import MemoryWithLayout, TensorVersion
from softmesh.runtime.queues.workload import Touched
from softmesh.tensor.device_pages import TensorBytes
from softmesh.tensor.dtype import FACTS, DataType
from softmesh.tensor.page_bytes import from_pages, to_pages
from softmesh.tensor.pending_storage import (
    defer_values,
    has_deferred_values,
    materialize_values,
    value_memory,
)
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage, is_sole_owner, share_memory
from softmesh.tensor.undefined import devices_of
from softmesh.tensor.written_part import WrittenPart

_LIMIT = 64 << 20  # bytes; what was used longest ago goes first


class _CacheEntry(NamedTuple):
    held: ByteOverlay
    size: int
    seen: TensorVersion  # the values


class EncodedBytesCache:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: weakref.WeakKeyDictionary[Storage, _CacheEntry] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def find(self, storage: Storage) -> ByteOverlay | None:
        """The bytes of a storage whose values have not changed since."""
        values = value_memory(storage)
        with self._lock:
            kept = self._entries.pop(storage, None)
            if kept is None or values is None or not kept.seen.is_unchanged(values):
                return None
            self._entries[storage] = kept  # the last that was used
            return kept.held

    def has_room_for(self, size: int) -> bool:
        """Whether such bytes would be kept at all."""
        return size <= self._limit

    def keep(self, storage: Storage, held: ByteOverlay, size: int, seen: TensorVersion) -> None:
        """`size` is what they take, on all devices; `seen` the values that they are those of."""
        gone = []
        with self._lock:
            self._entries.pop(storage, None)
            self._entries[storage] = _CacheEntry(held, size, seen)
            sizes = {storage: kept.size for storage, kept in self._entries.items()}
            total = sum(sizes.values())
            for oldest in list(sizes):
                if total <= self._limit:
                    break
                total -= sizes[oldest]
                self._entries.pop(oldest, None)
                gone.append(oldest)
        for oldest in gone:
            materialize_values(oldest)


ENCODED_BYTES = EncodedBytesCache(_LIMIT)


_MOST_PIECES = 4096
_MOST_TIMES_ITS_SIZE = 2  # bytes that the pieces of a tensor keep from being freed


class TensorView(BufferView):
    paged: TensorBytes

    def __init__(self, paged: TensorBytes) -> None:
        self._storage = paged.tensor.storage
        undefined = self._storage.undefined
        self._undefined = undefined if undefined is not None and undefined.is_unwritten else None
        nowhere = self._undefined is not None and self._undefined.coords == devices_of(self._storage.dist)
        super().__init__(paged, is_undefined=nowhere)
        self._size = paged.num_pages * paged.page_size
        self._before: ByteOverlay | None = None  # what all devices had
        self._is_cached = False  # and others know that
        self._after: ByteOverlay | None = None  # what they have then
        self._mask: torch.Tensor | None = None  # of memory that was empty, 0 in each value that is so still
        self._left_out: frozenset[MeshCoordinate] = frozenset()  # devices whose memory is empty still
        self._pages: torch.Tensor | None = None  # the same in one piece, where values are made of it at once

    @property
    def dtype(self) -> DataType:
        return self.paged.tensor.dtype

    def _initial_bytes(self, mesh_slice: MeshSlice) -> ByteOverlay:
        if self._before is None:
            self._before = ENCODED_BYTES.find(self._storage)
            self._is_cached = self._before is not None
        if self._before is None:
            paged = self.paged
            self._before = over(lambda: paged.data)
        held = self._before
        return (
            held.copy()
            if mesh_slice.is_whole
            else ByteOverlay(lambda start, size: mesh_slice.of(held.read(start, size)))
        )

    def write_back(self) -> None:
        whole = [held for mesh_slice, held in self._overlays.items() if mesh_slice.is_whole]
        if not whole:
            self._left_out = self._devices_left_out()
            self._after = _over(self._merged())
        else:
            (self._after,) = whole
            self._mask = self._mask_of(self._after)
            if self._after.covers(self._size):
                self._after = self._after.alone()
            if _is_wasteful(self._after, self._bytes_of(self._after)):
                self._after = _over(self._in_pages(self._after).clone())
        if not self._may_decode_lazily(self._after):
            self._pages = self._in_pages(self._after)
            self._after = _over(self._pages)

    def _mask_of(self, held: ByteOverlay) -> torch.Tensor | None:
        if not self._is_undefined or not self.was_written or held.covers(self._size):
            return None
        spec = self.paged.tensor.spec
        ones = to_pages(torch.ones(tuple(spec.shape), dtype=FACTS[spec.dtype].storage), spec)
        written, of_ones = torch.zeros_like(ones), ones.flatten(-2)
        for start, pieces in held.runs():
            end = start + sum(piece.shape[-1] for piece in pieces)
            written.flatten(-2)[..., start:end] = of_ones[..., start:end]
        mask = from_pages(written, spec)
        return None if bool(mask.all()) else mask

    def _devices_left_out(self) -> frozenset[MeshCoordinate]:
        device = self._storage.device
        if self._undefined is None or device is None or device.ranks is not None:
            return frozenset()
        written = [mesh_slice.place for mesh_slice, held in self._overlays.items() if any(True for _ in held.pieces())]
        return frozenset(coord for coord in self._undefined.coords if not any(one.contains(coord) for one in written))

    def _note_part(self) -> None:
        """What nobody has written is as undefined as it was."""
        if self._left_out and self._undefined is not None:
            self._storage.undefined = self._undefined._replace(coords=self._left_out)
            return
        values = self._values()
        if self._mask is None or self._undefined is None or self.paged.tensor.shard_positions is not None:
            return
        mask = self._mask.to(values.device).expand(values.shape).contiguous()
        part = WrittenPart(mask, self._storage.dist)
        self._storage.undefined = self._undefined._replace(is_unwritten=False, written=part)

    def _bytes_of(self, held: ByteOverlay) -> int:
        return self._size * held.extents(self._size).numel()

    def _in_pages(self, held: ByteOverlay) -> torch.Tensor:
        return held.read(0, self._size).unflatten(-1, (self.paged.num_pages, self.paged.page_size))

    def _merged(self) -> torch.Tensor:
        """What all devices have, and what some of them wrote."""
        assert self._before is not None
        mesh = self.paged.tensor.view_distribution().mesh
        pages = self._in_pages(self._before).expand(*mesh, -1, -1).clone()
        for mesh_slice, held in self._overlays.items():
            held.write_to(mesh_slice.of(pages).flatten(-2))
        return pages

    def _may_decode_lazily(self, held: ByteOverlay) -> bool:
        """Whether the tensor's storage is the only way to its values, and these stay where they are."""
        if type(self._storage) is not Storage and not has_deferred_values(self._storage):
            return False
        values = self._values()
        is_free = is_sole_owner(values) and not values.is_inference()
        del values
        fits = self.paged.fits(held.extents(self._size)) and ENCODED_BYTES.has_room_for(self._bytes_of(held))
        return fits and is_free and getrefcount(value_memory(self._storage)) == _UNREAD

    def store(self) -> None:
        if self._pages is not None:
            self.paged.replace(self._pages)
            self._note_part()
            if not share_memory(self._values(), self._pages):  # else the values took it, and may change
                self._cache(self._after)
        elif self._after is not None:
            self._storage.undefined = None
            self._note_part()
            seen = TensorVersion(self._values())
            defer_values(self._storage, LazyDecode(self._after, self._size, self.paged.tensor.spec, seen))
            ENCODED_BYTES.keep(self._storage, self._after, self._bytes_of(self._after), seen)
        elif not self._is_cached:
            self._cache(self._before)

    def _cache(self, held: ByteOverlay | None) -> None:
        """Those of the values that are there; what inference mode makes changes unseen."""
        if held is not None and not self._values().is_inference():
            ENCODED_BYTES.keep(self._storage, held, self._bytes_of(held), TensorVersion(self._values()))

    def _values(self) -> torch.Tensor:
        values = value_memory(self._storage)
        assert values is not None
        return values


class LazyDecode:
    """Makes a tensor's values of its bytes."""

    def __init__(self, held: ByteOverlay, size: int, spec: TensorSpec, seen: TensorVersion) -> None:
        self.held = held
        self._size = size
        self._spec = spec
        self._seen = seen

    def __call__(self, room: torch.Tensor) -> None:
        spec = self._spec
        with single_torch_thread():
            data = self.held.read(0, self._size)
        values = from_pages(data.unflatten(-1, (spec.num_pages(), spec.page_size())), spec, room)
        if values is not room:
            room.copy_(values)
        self._seen.refresh()


def _over(pages: torch.Tensor) -> ByteOverlay:
    return over(lambda: pages)


def _is_wasteful(held: ByteOverlay, size: int) -> bool:
    """Whether it is better put together: it is in crumbs, or keeps much memory that it has small parts of."""
    blocks = [piece.untyped_storage() for piece in held.pieces()]
    kept = {block.data_ptr(): block.nbytes() for block in blocks}
    return len(blocks) > _MOST_PIECES or sum(kept.values()) > _MOST_TIMES_ITS_SIZE * size


def _owners_of_unread_values() -> int:
    storage = Storage.__new__(Storage)
    storage.data = torch.empty(0)
    return getrefcount(value_memory(storage))


_UNREAD = _owners_of_unread_values()


Find = Callable[[BufferType, int], MemoryWithLayout | None]


class BufferTable:
    """Those that it has met so far."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._starts: defaultdict[BufferType, list[int]] = defaultdict(list)
        self._known: defaultdict[BufferType, list[BufferView]] = defaultdict(list)

    def at(self, buffer_type: BufferType, address: int) -> BufferView | None:
        """The memory that covers an address."""
        place = bisect_right(self._starts[buffer_type], address)
        if place and address < self._known[buffer_type][place - 1].end:
            return self._known[buffer_type][place - 1]
        found = self._find(buffer_type, address)
        return None if found is None else self.add(found)

    def add(self, paged: MemoryWithLayout) -> BufferView:
        kind = paged.buffer_type
        place = bisect_right(self._starts[kind], paged.address)
        memory = _view_of(paged)
        self._starts[kind].insert(place, paged.address)
        self._known[kind].insert(place, memory)
        return memory

    def _all(self) -> list[BufferView]:
        return [memory for known in self._known.values() for memory in known]

    def write_back(self) -> None:
        """The launch went well. What it moved is taken out of memory that changes before any of it does."""
        met = self._all()
        blocks = {memory.block() for memory in met if isinstance(memory, RawBufferView) and memory.was_read}
        written = [memory for memory in met if memory.was_written]
        if blocks:
            for memory in written:
                memory.detach_from(blocks)
        for memory in written:
            memory.write_back()

    def store(self) -> None:
        """After `write_back`."""
        for memory in self._all():
            memory.store()

    def touched(self) -> Touched:
        met = self._all()
        return Touched(
            tuple(memory.paged for memory in met if memory.was_read),
            tuple(memory.paged for memory in met if memory.was_written),
        )


def _view_of(paged: MemoryWithLayout) -> BufferView:
    if isinstance(paged, TensorBytes) and paged.is_whole:
        return TensorView(paged)
    return RawBufferView(paged)
