"""Buffers and tensors as one launch sees them: found by address, read and written page by page.

Every value carries the mesh dims in front, extent 1 where all devices agree. A launch may stand for a part
of the mesh only: then it reads its part, and gives every device its own copy before it writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import torch

from softmesh.errors import MeshError
from softmesh.kernels.engine.kept_pages import KEPT
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.buffers.finding import LaidOut
from softmesh.runtime.buffers.mesh_memory import MeshMemory
from softmesh.runtime.buffers.page_map import Sharded
from softmesh.runtime.queues.workload import Touched
from softmesh.tensor.device_pages import TensorBytes
from softmesh.tensor.memory import BufferType

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
    """One buffer or tensor. `undo` puts back what was there before the launch."""

    def __init__(self, paged: LaidOut, remembers: bool) -> None:
        self.paged = paged
        self.end = paged.address + paged.layout.bytes_per_bank
        self.was_read = False
        self.was_written = False
        self._is_undefined = _is_undefined(paged)
        self._before: list[tuple[Box, int, int, torch.Tensor]] | None = None
        if isinstance(paged, TensorBytes):
            KEPT.take(paged)
        elif remembers:
            self._before = []

    def read(self, box: Box, bank: int, address: int, size: int) -> torch.Tensor:
        """Bytes of a bank, `(*extents, size)`."""
        self.was_read = True
        pieces = list(self._pieces(bank, address, size))
        data = box.of(self.paged.data)
        if len(pieces) == 1:
            return _piece(data, *pieces[0])
        return torch.cat([_piece(data, *piece) for piece in pieces], dim=-1)

    def check_written(self) -> None:
        """In strict mode, before a read."""
        if self._is_undefined and not self.was_written:
            raise MeshError(
                f"The {self.paged.buffer_type.name} buffer at {self.paged.address} is read, and nobody has ever "
                "written to it."
            )

    def write(self, box: Box, bank: int, address: int, values: torch.Tensor) -> None:
        data = self._writable(box, values.shape[:-1])
        self.was_written = True
        done = 0
        for page, offset, count in self._pieces(bank, address, values.shape[-1]):
            if page is not None:
                target = data[..., page, offset : offset + count]
                if self._before is not None:
                    self._before.append((box, page, offset, target.clone()))
                target.copy_(values[..., done : done + count])
            done += count

    def _writable(self, box: Box, extents: Sequence[int]) -> torch.Tensor:
        data = self.paged.data
        part = box.of(data)
        is_shared = any(
            have == 1 and (wanted > 1 or not box.is_whole)
            for have, wanted in zip(data.shape, extents, strict=False)
        )
        return box.of(self.paged.materialise()) if is_shared else part

    def _pieces(self, bank: int, address: int, size: int) -> Iterator[tuple[int | None, int, int]]:
        """Page, offset and length of each piece; page None in the padding between two pages."""
        paged, end = self.paged, address + size
        while address < end:
            found = paged.page_at(bank, address)
            if found is not None:
                page, offset = found
                count = min(paged.page_size - offset, end - address)
            else:
                page, offset = None, 0
                count = min(self._padding_at(bank, address), end - address)
            yield page, offset, count
            address += count

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

    def store(self) -> None:
        """Hand what was written to whom it belongs."""
        if self.was_written:
            self.paged.store()
        if isinstance(self.paged, TensorBytes):
            KEPT.give(self.paged)

    def undo(self) -> None:
        if isinstance(self.paged, TensorBytes):
            self.paged.encoded = None  # its values are as they were
        for box, page, offset, before in reversed(self._before or []):
            box.of(self.paged.data)[..., page, offset : offset + before.shape[-1]] = before


def _is_undefined(paged: LaidOut) -> bool:
    """Memory that was allocated, and nothing more."""
    if isinstance(paged, TensorBytes):
        return paged.tensor._storage.undefined is not None
    return isinstance(paged, MeshMemory) and paged.is_untouched


def _piece(data: torch.Tensor, page: int | None, offset: int, count: int) -> torch.Tensor:
    if page is None:
        return data.new_zeros(*data.shape[:-2], count)
    return data[..., page, offset : offset + count]


class Memories:
    """The buffers that a launch has met so far. `remembers`: they can be put back as they were."""

    def __init__(self, find: Find, remembers: bool) -> None:
        self._find = find
        self._remembers = remembers
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
        self._known[kind].insert(place, Memory(paged, self._remembers))
        return self._known[kind][place]

    def _all(self) -> list[Memory]:
        return [memory for known in self._known.values() for memory in known]

    def store(self) -> None:
        """The launch went well."""
        for memory in self._all():
            memory.store()

    def undo(self) -> None:
        for memory in self._all():
            memory.undo()

    def touched(self) -> Touched:
        met = self._all()
        return Touched(
            tuple(memory.paged for memory in met if memory.was_read),
            tuple(memory.paged for memory in met if memory.was_written),
        )
