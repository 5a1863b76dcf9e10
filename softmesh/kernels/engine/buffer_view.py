"""A buffer as a launch sees it: reads and writes by bank and address, translated to pages; written back at the end.

Every value carries the mesh dims in front, extent 1 where all devices agree. A launch may cover a part of the mesh
only: then it reads its slice. Writes go to an overlay, and nothing of them is visible outside before the launch has
succeeded: `write_back` assembles them, then `store` hands them to the buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence

import torch

from softmesh.errors import MeshError
from softmesh.kernels.engine.byte_overlay import ByteOverlay, extents_of, join, over
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.buffers.mesh_memory import MemoryWithLayout, MeshMemory
from softmesh.runtime.buffers.paged_memory import Sharded
from softmesh.strictness import warn
from softmesh.tensor.dtype import DataType


class MeshSlice:
    """A rectangle of the mesh, as an index into the leading dims of values."""

    def __init__(self, place: MeshCoordinateRange, held: Sequence[int], origin: Sequence[int]) -> None:
        """`held` and `origin`: the extents of what this process holds of the mesh, and where that begins."""
        self.place = place
        self.extents = tuple(place.shape())
        self.is_whole = self.extents == tuple(held)
        self.covers_many_devices = any(extent > 1 for extent in self.extents)
        corners = zip(place.start, place.end, origin, strict=True)
        self._slices = [slice(a - first, b + 1 - first) for a, b, first in corners]

    def of(self, data: torch.Tensor) -> torch.Tensor:
        """This part of values that have the whole mesh in front."""
        if self.is_whole:
            return data
        index = tuple(
            part if extent > 1 else slice(None) for part, extent in zip(self._slices, data.shape, strict=False)
        )
        return data[index]


class BufferView(ABC):
    """One buffer or tensor. What is written reaches it when the launch has come to a good end."""

    def __init__(self, paged: MemoryWithLayout, is_undefined: bool) -> None:
        self.paged = paged
        self.end = paged.address + paged.layout.bytes_per_bank
        self._is_undefined = is_undefined  # allocated, and nothing more
        self._is_told = False  # that it is read so
        self.was_read = False
        self.was_written = False
        self._overlays: dict[MeshSlice, ByteOverlay] = {}  # page after page, as far as it was met

    @property
    def dtype(self) -> DataType | None:
        """Of the tensor it belongs to."""
        return None

    def read(self, mesh_slice: MeshSlice, bank: int, address: int, size: int) -> torch.Tensor:
        """Bytes of a bank, `(*extents, size)`; nobody may change them."""
        self.was_read = True
        held = self._overlay_of(mesh_slice)
        pieces = self._pieces(bank, address, size)
        parts = [held.read(place, count) for place, count in pieces if place is not None]
        if len(parts) < len(pieces):
            return self._with_padding(parts, pieces, mesh_slice)
        return parts[0] if len(parts) == 1 else join(parts)

    def _with_padding(
        self, parts: Iterable[torch.Tensor], pieces: Sequence[tuple[int | None, int]], mesh_slice: MeshSlice
    ) -> torch.Tensor:
        rest, like = iter(parts), self._overlay_of(mesh_slice).read(0, 1)
        lead = (1,) * (like.ndim - 1)
        return join([like.new_zeros(*lead, n) if place is None else next(rest) for place, n in pieces])

    def write(self, mesh_slice: MeshSlice, bank: int, address: int, values: torch.Tensor) -> None:
        """The caller must not change these values any more."""
        self.was_written = True
        held = self._overlay_of(mesh_slice)
        size, done = values.shape[-1], 0
        for place, count in self._pieces(bank, address, size):
            if place is not None:
                held.write(place, values if count == size else values[..., done : done + count])
            done += count

    def check_written(self, is_strict: bool) -> None:
        """Before a read: a warning, in strict mode an error. Of a plain buffer it is a doubt, told in strict mode only.

        Programs run once on plain buffers, before there is anything in them, so that they are compiled.
        """
        if not self._is_undefined or self.was_written or self._is_told:
            return
        message = (
            f"The {self.paged.buffer_type.name} buffer at {self.paged.address} is read, and nobody has ever "
            "written to it."
        )
        is_plain = isinstance(self, RawBufferView)
        if is_strict and not is_plain:
            raise MeshError(message)
        self._is_told = True
        if is_strict or not is_plain:
            warn(message)

    @abstractmethod
    def _initial_bytes(self, mesh_slice: MeshSlice) -> ByteOverlay:
        """The part of those devices, before the launch."""

    @abstractmethod
    def write_back(self) -> None:
        """Put together what was written; all that takes many small steps."""

    @abstractmethod
    def store(self) -> None:
        """Hand it to whom it belongs."""

    def detach_from(self, blocks: Collection[int]) -> None:
        """Copy what was written and lies in one of these blocks of memory, which may change."""

        def detached(piece: torch.Tensor) -> torch.Tensor:
            return piece.clone() if piece.untyped_storage().data_ptr() in blocks else piece

        for held in self._overlays.values():
            held.map(detached)

    def _overlay_of(self, mesh_slice: MeshSlice) -> ByteOverlay:
        held = self._overlays.get(mesh_slice)
        if held is None:
            held = self._overlays[mesh_slice] = self._initial_bytes(mesh_slice)
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


class RawBufferView(BufferView):
    """Bytes that are changed in place, by the host too."""

    def __init__(self, paged: MemoryWithLayout) -> None:
        super().__init__(paged, isinstance(paged, MeshMemory) and paged.is_untouched)

    def block(self) -> int:
        """The memory that others may hold parts of."""
        return self.paged.data.untyped_storage().data_ptr()

    def _initial_bytes(self, mesh_slice: MeshSlice) -> ByteOverlay:
        paged = self.paged
        return over(lambda: mesh_slice.of(paged.data))

    def write_back(self) -> None:
        for mesh_slice, held in self._overlays.items():
            written = list(held.pieces())
            if written:
                held.write_to(self._writable(mesh_slice, extents_of(written)).flatten(-2))

    def _writable(self, mesh_slice: MeshSlice, extents: Sequence[int]) -> torch.Tensor:
        data = self.paged.data
        part = mesh_slice.of(data)
        is_shared = any(
            have == 1 and (wanted > 1 or not mesh_slice.is_whole)
            for have, wanted in zip(data.shape, extents, strict=False)
        )
        return mesh_slice.of(self.paged.materialise()) if is_shared else part

    def store(self) -> None:
        if self.was_written:
            self.paged.store()
