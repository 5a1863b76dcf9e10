"""MeshBuffer: one allocation at the same address on every chip of a mesh; and Buffer, its part on one device.

A MeshBuffer owns its memory and gives it back when it is dropped. A view (made with an `address`) and a Buffer own
nothing.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from softmesh.arguments import checked, checked_int, described, refused
from softmesh.callsite import raw_call_site, resolved
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import TensorMemoryLayout
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.runtime.buffers.buffer_config import (
    BufferDistributionSpec,
    BufferRegion,
    DeviceLocalBufferConfig,
    MeshBufferConfig,
    MeshBufferLayout,
    ReplicatedBufferConfig,
    Shape2D,
    ShardedBufferConfig,
    ShardSpecBuffer,
)
from softmesh.runtime.buffers.mesh_memory import MeshMemory, Window, memory_at
from softmesh.runtime.buffers.paged_memory import PageLayout, allocator_for, local_layout
from softmesh.runtime.buffers.sharded_layout import ShardedLayout, sharded_layout
from softmesh.strictness import warn_or_raise

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.allocator import Allocator


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


class MeshBuffer:
    """Made by `MeshBuffer.create`. It gives its memory back when it is dropped; views give back nothing."""

    __slots__ = (
        "__weakref__",
        "_allocator",
        "_config",
        "_is_deallocated",
        "_local",
        "_mesh",
        "memory",
        "sharded",
    )

    memory: MeshMemory | Window  # its pages and their bytes
    sharded: ShardedLayout | None  # None: the same bytes everywhere
    _is_deallocated: bool
    _config: MeshBufferConfig
    _local: DeviceLocalBufferConfig
    _mesh: weakref.ref[MeshDevice]
    _allocator: Allocator | None  # None: it is a view, or has no bytes

    def __init__(self) -> None:
        raise refused(
            "MeshBuffer",
            "it has no constructor: MeshBuffer.create(mesh_config, local_config, mesh_device) makes one",
        )

    @classmethod
    def create(
        cls,
        mesh_buffer_config: MeshBufferConfig,
        device_local_config: DeviceLocalBufferConfig,
        mesh_device: MeshDevice,
        address: int | None = None,
    ) -> MeshBuffer:
        """Take memory on all chips; or, with `address`, look at the memory that is there."""
        _check_kinds(mesh_buffer_config, device_local_config, mesh_device)
        mesh_device.check_open("MeshBuffer.create")
        made = cls.__new__(cls)
        made._config, made._local, made._mesh = (
            mesh_buffer_config,
            device_local_config,
            weakref.ref(mesh_device),
        )
        made._allocator, made._is_deallocated = None, False
        made.sharded = None
        if isinstance(mesh_buffer_config, ShardedBufferConfig):
            made.sharded = sharded_layout(mesh_buffer_config, mesh_device.shape, mesh_device.block)
        allocator = allocator_for(mesh_device, device_local_config)
        layout = local_layout(made.device_local_size(), device_local_config, allocator)
        if address is None:
            made._take(layout, mesh_device, allocator)
        else:
            made.memory = memory_at(mesh_device, layout, checked_int("MeshBuffer.create", "address", address))
        return made

    def _take(self, layout: PageLayout, mesh: MeshDevice, allocator: Allocator) -> None:
        self.memory = MeshMemory(layout, 0, mesh.local_extents, mesh.torch_device)
        if layout.bytes_per_bank:
            self.memory.address = allocator.allocate(
                layout.bytes_per_bank,
                layout.buffer_type,
                bottom_up=self._local.bottom_up,
                owner=self.memory,
                label=str(self),
                size=layout.num_pages * layout.aligned_page_size,
            )
            self._allocator, self.memory.was_allocated = allocator, True

    def __str__(self) -> str:
        return f"mesh buffer of {self.device_local_size()} B, {self.global_layout().name.lower()}"

    def __repr__(self) -> str:
        state = "" if self.is_allocated() else ", deallocated"
        return f"MeshBuffer(address={self.address()}, {self.device_local_size()} B on each device{state})"

    def __del__(self) -> None:
        allocator: Allocator | None = getattr(self, "_allocator", None)  # None too where `create` failed
        if allocator is not None and self.is_allocated():
            allocator.free_later(self.address(), self._local.buffer_type)

    # -- life ------------------------------------------------------------------------------------

    def deallocate(self) -> None:
        """Give the memory back; twice is harmless, and a view has none to give."""
        if self._allocator is not None and self.is_allocated():
            self._allocator.free(self.address(), self._local.buffer_type)
        if not self._is_deallocated:
            self.memory.freed = raw_call_site()
        self._is_deallocated = True

    def is_allocated(self) -> bool:
        """False after `deallocate`, and once the mesh is closed or gone."""
        mesh = self._mesh()
        return not self._is_deallocated and not self.memory.is_lost and mesh is not None and mesh.is_open

    def owns_data(self) -> bool:
        return self._allocator is not None

    def get_backing_buffer(self) -> Buffer | None:
        """Of the allocation; None for a view."""
        return self.get_reference_buffer() if self.owns_data() else None

    def check_allocated(self, doing: str) -> MeshDevice:
        """The mesh; an error where the bytes are gone."""
        mesh = self.device()
        mesh.check_open(doing)
        if not self.is_allocated():
            at = self.memory.freed
            where = "" if at is None else f" at {resolved(at)}"
            raise MeshError(
                f"{doing}: {self!r} is not allocated. Drop its deallocate(){where} before this use, or create it again."
            )
        if self.memory.mesh != mesh.local_extents:
            raise NotModelled(
                f"{doing}: {self!r} was created on {MeshShape(self.memory.mesh)}, and mesh.reshape() made it "
                f"{mesh.shape}: create buffers after reshaping."
            )
        return mesh

    def warn_if_unwritten(self, doing: str, devices: Sequence[MeshCoordinate] = ()) -> None:
        """Where nobody has written to any of it; or, of these devices, to what one of them holds."""
        base = self.memory.base if isinstance(self.memory, Window) else self.memory
        written = base.devices_written() if isinstance(base, MeshMemory) and base.was_allocated else None
        if written is None or (written and written.issuperset(devices)):
            return
        mesh = self.device()
        held = mesh.memory.at(base.buffer_type, base.address) if mesh.block is None else None
        if held is not None and held.owner is base:
            missing = [tuple(one) for one in devices if one not in written] if written else []
            where = f" on device {missing[0]}" if missing else ""
            warn_or_raise(
                f"{doing}: {self!r} is memory that nothing was written to{where} since MeshBuffer.create "
                f"({held.site}). On silicon this reads what the memory held before; here it is 0. Write to it first "
                "(EnqueueWriteMeshBuffer), or let a workload fill it.",
            )

    def device(self) -> MeshDevice:
        mesh = self._mesh()
        if mesh is None:
            raise MeshError(
                "MeshBuffer.device: the mesh of this buffer is gone. Keep a reference to it for as long as its buffers "
                "are used."
            )
        return mesh

    # -- size and place --------------------------------------------------------------------------

    def address(self) -> int:
        return self.memory.address

    def size(self) -> int:
        """Of one copy of everything: what a write takes from the host."""
        return self._config.size if isinstance(self._config, ReplicatedBufferConfig) else self._config.global_size

    def device_local_size(self) -> int:
        """On each device."""
        if isinstance(self._config, ReplicatedBufferConfig):
            return self._config.size
        height, width = self._config.physical_shard_shape()
        return self._config.compute_datum_size_bytes() * height * width

    def page_size(self) -> int:
        return self._local.page_size

    def num_pages(self) -> int:
        """On each device."""
        return self.memory.num_pages

    def global_layout(self) -> MeshBufferLayout:
        return MeshBufferLayout.REPLICATED if self.sharded is None else MeshBufferLayout.SHARDED

    def global_config(self) -> MeshBufferConfig:
        return self._config

    def device_local_config(self) -> DeviceLocalBufferConfig:
        return self._local

    def global_shard_spec(self) -> ShardedBufferConfig:
        if not isinstance(self._config, ShardedBufferConfig):
            raise MeshError(
                "Can only query the global shard spec for a sharded buffer: this one holds the same bytes on every "
                "device."
            )
        return self._config

    def datum_size_bytes(self) -> int:
        return self.global_shard_spec().compute_datum_size_bytes()

    def physical_shard_shape(self) -> Shape2D:
        return self.global_shard_spec().physical_shard_shape()

    def replicated_dims(self) -> tuple[bool, bool]:
        return self.global_shard_spec().replicated_dims()

    # -- on each device --------------------------------------------------------------------------

    def get_device_buffer(self, coord: MeshCoordinate) -> Buffer:
        mesh = self.device()
        mesh.get_device_id(coord)
        return Buffer(self, coord, range(self.num_pages()))

    def get_reference_buffer(self) -> Buffer:
        """That of the first device of this process."""
        return self.get_device_buffer(self.device().get_view().get_local_mesh_coord_range().start)


def _check_kinds(mesh_config: object, local_config: object, mesh: object) -> None:
    where = "MeshBuffer.create"
    if not isinstance(mesh_config, ReplicatedBufferConfig | ShardedBufferConfig):
        wanted = "a ReplicatedBufferConfig or a ShardedBufferConfig"
        raise refused(where, f"mesh_buffer_config must be {wanted}, got {described(mesh_config)}")
    if not isinstance(local_config, DeviceLocalBufferConfig):
        raise refused(where, f"device_local_config must be a DeviceLocalBufferConfig, got {described(local_config)}")
    if not callable(getattr(mesh, "mesh_command_queue", None)):
        raise refused(where, f"mesh_device must be a MeshDevice, got {described(mesh)}")
