"""Buffer: the part of a mesh buffer on one device, or some pages of it. Sizes and addresses; it owns nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from softmesh.arguments import checked, checked_int
from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.hardware.memory_config import TensorMemoryLayout
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.buffers.chip_shards import BufferDistributionSpec, ShardSpecBuffer
from softmesh.runtime.buffers.config import BufferRegion

if TYPE_CHECKING:
    from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
    from softmesh.runtime.device import MeshDevice


class Buffer:
    """`pages` of `root`, on the device at `coordinate`."""

    __slots__ = ("coordinate", "pages", "root")

    def __init__(self, root: MeshBuffer, coordinate: MeshCoordinate, pages: range) -> None:
        self.root = root
        self.coordinate = coordinate
        self.pages = pages

    def __repr__(self) -> str:
        return f"Buffer(address={self.address()}, {self.size()} B at {self.coordinate})"

    def device(self) -> MeshDevice:
        return self.root.device()

    def device_id(self) -> int:
        return self.device().get_device_id(self.coordinate)

    def is_allocated(self) -> bool:
        return self.root.is_allocated()

    def address(self) -> int:
        """Of the whole buffer, also where this is a view of some of its pages."""
        return self.root.address()

    def size(self) -> int:
        return len(self.pages) * self.page_size()

    def num_pages(self) -> int:
        return len(self.pages)

    def num_dev_pages(self) -> int:
        """With the room that the last shards leave empty."""
        shards = self.root.device_local_config().sharding_args.distribution()
        if shards is None or len(self.pages) != self.root.num_pages():
            return len(self.pages)
        return math.prod(shards.shard_grid()) * math.prod(shards.shard_shape_in_pages)

    def page_size(self) -> int:
        return self.root.page_size()

    def aligned_page_size(self) -> int:
        return self.root.memory.aligned_page_size

    def aligned_size(self) -> int:
        return self.num_dev_pages() * self.aligned_page_size()

    def aligned_size_per_bank(self) -> int:
        return self.root.memory.layout.bytes_per_bank

    def buffer_type(self) -> BufferType:
        return self.root.memory.buffer_type

    def is_l1(self) -> bool:
        return self.buffer_type() in (BufferType.L1, BufferType.L1_SMALL)

    def is_dram(self) -> bool:
        return not self.is_l1()

    def buffer_layout(self) -> TensorMemoryLayout:
        return self.root.device_local_config().sharding_args.buffer_layout

    def shard_spec(self) -> ShardSpecBuffer | BufferDistributionSpec:
        spec = self.root.device_local_config().sharding_args.shard_spec
        if spec is None:
            raise MeshError("shard_spec: this buffer is interleaved over all banks and has no shards.")
        return spec

    def page_address(self, bank_id: int, page_index: int) -> int:
        """Where a page lies in the bank that holds it."""
        page = checked_int("page_address", "page_index", page_index)
        if not 0 <= page < len(self.pages):
            raise MeshError(f"page_address: page {page} of a buffer that has {len(self.pages)} pages.")
        bank, address = self.root.memory.locate(self.pages[page])
        if bank != checked_int("page_address", "bank_id", bank_id):
            raise MeshError(f"page_address: page {page} lies in bank {bank}, not in bank {bank_id}.")
        return address

    def view(self, region: BufferRegion) -> Buffer:
        """Some pages of it."""
        part = checked("view", "region", region, BufferRegion, "a BufferRegion(offset, size)")
        chosen = part.pages(self.page_size(), len(self.pages))
        return Buffer(self.root, self.coordinate, self.pages[chosen])
