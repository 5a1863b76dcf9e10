"""What a buffer takes of each chip: whose memory, and where in its banks the pages go."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.runtime.buffers.chip_shards import BufferDistributionSpec
from softmesh.runtime.buffers.config import DeviceLocalBufferConfig
from softmesh.runtime.buffers.page_map import page_map
from softmesh.runtime.buffers.placed import PageLayout

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.allocator import Allocator


def allocator_for(mesh: MeshDevice, local: DeviceLocalBufferConfig) -> Allocator:
    """Of the chips, or of the sub-device that the buffer is for."""
    if local.sub_device_id is None:
        return mesh.memory
    shards = local.sharding_args.distribution()
    if local.buffer_type is not BufferType.L1 or shards is None:
        raise MeshError(
            f"A buffer of {local.sub_device_id} must be sharded in L1, on the sub-device's cores: this one is "
            f"{local.sharding_args.buffer_layout} in {local.buffer_type}."
        )
    cores = mesh.sub_devices.cores(local.sub_device_id)
    outside = [core for core in shards.cores if not cores.contains(core)]
    if outside:
        raise MeshError(
            f"Shard core {outside[0]} lies outside {local.sub_device_id}, which has the cores {cores}: keep the shard "
            "grid inside it."
        )
    return mesh.allocator(local.sub_device_id)


def local_layout(size: int, local: DeviceLocalBufferConfig, allocator: Allocator) -> PageLayout:
    page_size, kind = local.page_size, local.buffer_type
    if size and (not page_size or size % page_size):
        raise MeshError(
            f"Each device holds {size} bytes, and page_size={page_size} does not divide them: choose a page size of "
            "which they are a multiple."
        )
    num_pages = size // page_size if size else 0
    shards = local.sharding_args.distribution() if size else None
    _check_pages(num_pages, shards)
    alignment = allocator.get_alignment(kind)
    return PageLayout(
        kind,
        page_size,
        -(-page_size // alignment) * alignment,
        num_pages,
        page_map(num_pages, shards, kind, allocator.memory_map),
    )


def _check_pages(num_pages: int, shards: BufferDistributionSpec | None) -> None:
    if shards is None:
        return
    counted = math.prod(shards.tensor_shape_in_pages)
    if counted != num_pages:
        raise MeshError(
            f"The shards cover {list(shards.tensor_shape_in_pages)} = {counted} pages, and each device holds "
            f"{num_pages}."
        )
