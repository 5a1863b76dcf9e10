"""Buffers and tensors as one launch sees them: found by address, read and written page by page.

Every value carries the mesh dims in front, extent 1 where all devices agree. A launch may stand for a part
of the mesh only: then it reads its part. Nothing that it writes is seen outside before it has come to a good end.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch

from softmesh.errors import MeshError
from softmesh.kernels.engine.held_bytes import HeldBytes, Run, extents_of, join
from softmesh.kernels.engine.kept_pages import KEPT
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.buffers.finding import LaidOut
from softmesh.runtime.buffers.mesh_memory import MeshMemory
from softmesh.runtime.buffers.page_map import Sharded
from softmesh.runtime.queues.workload import Touched
from softmesh.tensor.device_pages import TensorBytes
from softmesh.tensor.memory import BufferType
from softmesh.tensor.storage import is_sole_owner

Find = Callable[[BufferType, int], LaidOut | None]


class Box:
    """A rectangle of the mesh, as an index into the leading dims of values."""

    def __init__(self, place: MeshCoordinateRange, held: Sequence[int], origin: Sequence[int]) -> None:
        """`held` and `origin`: the extents of what this process holds of the mesh, and where that begins."""
        self.place = place
        self.extents = tuple(place.shape())
        self.is_whole = self.extents == tuple(held)
        self.stands_for_many = any(extent > 1 for extent in self.extents)
        corners = zip(place.start, place.end, origin, strict=True)
        self._slices = [slice(a - first, b + 1 - first) for a, b, first in corners]

    def of(self, data: torch.Tensor) -> torch.Tensor:
        """This part of values that have the whole mesh in front."""
        if self.is_whole:
            return data
        index = tuple(
            part if extent > 1 else slice(None)
            for part, extent in zip(self._slices, data.shape, strict=False)
        )
        return data[index]


class Memory:
    """One buffer or tensor. What is written reaches it when the launch has come to a good end (`store`)."""

    def __init__(self, paged: LaidOut) -> None:
        self.paged = paged
        self.end = paged.address + paged.layout.bytes_per_bank
        self.was_read = False
        self.was_written = False
        self._is_undefined = _is_undefined(paged)
        self._held: dict[Box, HeldBytes] = {}  # page after page
        if isinstance(paged, TensorBytes):
            KEPT.take(paged)

    def read(self, box: Box, bank: int, address: int, size: int) -> torch.Tensor:
        """Bytes of a bank, `(*extents, size)`; nobody may change them."""
        self.was_read = True
        held = self._held_by(box)
        parts = [
            _padding(self.paged.data, count) if place is None else held.read(place, count)
            for place, count in self._pieces(bank, address, size)
        ]
        return parts[0] if len(parts) == 1 else join(parts)

    def check_written(self) -> None:
        """In strict mode, before a read."""
        if self._is_undefined and not self.was_written:
            raise MeshError(
                f"The {self.paged.buffer_type.name} buffer at {self.paged.address} is read, and nobody has ever "
                "written to it."
            )

    def write(self, box: Box, bank: int, address: int, values: torch.Tensor) -> None:
        """The caller must not change these values any more."""
        self.was_written = True
        held = self._held_by(box)
        size, done = values.shape[-1], 0
        for place, count in self._pieces(bank, address, size):
            if place is not None:
                held.write(place, values if count == size else values[..., done : done + count])
            done += count

    def _held_by(self, box: Box) -> HeldBytes:
        held = self._held.get(box)
        if held is None:
            flat = box.of(self.paged.data).flatten(-2)
            held = self._held[box] = HeldBytes(lambda start, size: flat[..., start : start + size])
        return held

    def _pieces(self, bank: int, address: int, size: int) -> list[tuple[int | None, int]]:
        """Where each piece begins, counted over all pages, and its length; None in the padding between two pages."""
        paged, end = self.paged, address + size
        pieces: list[tuple[int | None, int]] = []
        while address < end:
            found = paged.page_at(bank, address)
            if found is not None:
                page, offset = found
                place, count = page * paged.page_size + offset, min(paged.page_size - offset, end - address)
                pieces.append((place, count))
            else:
                count = min(self._padding_at(bank, address), end - address)
                pieces.append((None, count))
            address += count
        return pieces

    def _padding_at(self, bank: int, address: int) -> int:
        """How many bytes are left of the padding that the address lies in."""
        stride = self.paged.aligned_page_size
        into = (address - self.paged.address) % stride
        if isinstance(self.paged.layout.page_map, Sharded) and self.paged.address <= address < self.end:
            return stride - into  # the last shard along a dim has room for pages that there are not
        if into < self.paged.page_size or self.paged.page_at(bank, address - into) is None:
            raise MeshError(
                f"No page of the buffer at {self.paged.address} covers address {address} of bank {bank}: "
                f"it has {self.paged.num_pages} pages of {self.paged.page_size} bytes."
            )
        return stride - into

    def collect(self) -> Callable[[], None]:
        """Take together what was written; what comes back hands it to whom it belongs.

        Others may hold parts of these bytes, to be written elsewhere: then this is done from copies.
        """
        written = [(box, run) for box, held in self._held.items() for run in held.taken()]
        self._held.clear()
        if written and not is_sole_owner(self.paged.data):
            written = [(box, (start, [join(pieces)])) for box, (start, pieces) in written]
        return functools.partial(self._store, written)

    def _store(self, written: Sequence[tuple[Box, Run]]) -> None:
        if self.was_written:
            for box, (start, pieces) in written:
                flat = self._writable(box, extents_of(pieces)).flatten(-2)
                join(pieces, flat[..., start : start + sum(piece.shape[-1] for piece in pieces)])
            self.paged.store()
        self.give_back()

    def give_back(self) -> None:
        if isinstance(self.paged, TensorBytes):
            KEPT.give(self.paged)

    def _writable(self, box: Box, extents: Sequence[int]) -> torch.Tensor:
        data = self.paged.data
        part = box.of(data)
        is_shared = any(
            have == 1 and (wanted > 1 or not box.is_whole)
            for have, wanted in zip(data.shape, extents, strict=False)
        )
        return box.of(self.paged.materialise()) if is_shared else part


def _is_undefined(paged: LaidOut) -> bool:
    """Memory that was allocated, and nothing more."""
    if isinstance(paged, TensorBytes):
        return paged.tensor._storage.undefined is not None
    return isinstance(paged, MeshMemory) and paged.is_untouched


def _padding(data: torch.Tensor, count: int) -> torch.Tensor:
    return data.new_zeros(*(1,) * (data.ndim - 2), count)


class Memories:
    """The buffers that a launch has met so far."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._starts: defaultdict[BufferType, list[int]] = defaultdict(list)
        self._known: defaultdict[BufferType, list[Memory]] = defaultdict(list)

    def at(self, buffer_type: BufferType, address: int) -> Memory | None:
        """The memory that covers an address."""
        place = bisect_right(self._starts[buffer_type], address)
        if place and address < self._known[buffer_type][place - 1].end:
            return self._known[buffer_type][place - 1]
        found = self._find(buffer_type, address)
        return None if found is None else self.add(found)

    def add(self, paged: LaidOut) -> Memory:
        kind = paged.buffer_type
        place = bisect_right(self._starts[kind], paged.address)
        self._starts[kind].insert(place, paged.address)
        self._known[kind].insert(place, Memory(paged))
        return self._known[kind][place]

    def _all(self) -> list[Memory]:
        return [memory for known in self._known.values() for memory in known]

    def store(self) -> None:
        """The launch went well. All is collected before anything changes: memories may hold parts of each other."""
        for store in [memory.collect() for memory in self._all()]:
            store()

    def give_back(self) -> None:
        """It did not: everything stays as it was."""
        for memory in self._all():
            memory.give_back()

    def touched(self) -> Touched:
        met = self._all()
        return Touched(
            tuple(memory.paged for memory in met if memory.was_read),
            tuple(memory.paged for memory in met if memory.was_written),
        )
