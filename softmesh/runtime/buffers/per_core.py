"""Buffers with one page in the L1 of each of some cores, at the same address on all of them and on every chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softmesh.arguments import checked
from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.hardware.memory_config import ShardOrientation, ShardSpec, TensorMemoryLayout
from softmesh.runtime.buffers.chip_shards import BufferShardingArgs, ShardSpecBuffer
from softmesh.runtime.buffers.config import DeviceLocalBufferConfig, ReplicatedBufferConfig
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.runtime.buffers.shape_2d import Shape2D

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

A_RANGE_SET = "a ttnn.CoreRangeSet such as ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (7, 7))])"


def page_per_core(
    mesh: MeshDevice, cores: CoreRangeSet, page_size: int, buffer_type: BufferType
) -> MeshBuffer:
    count = cores.num_cores()
    shards = ShardSpecBuffer(
        ShardSpec(cores, [1, 1], ShardOrientation.ROW_MAJOR), Shape2D(1, 1), Shape2D(count, 1)
    )
    local = DeviceLocalBufferConfig(
        page_size, buffer_type, BufferShardingArgs(shards, TensorMemoryLayout.HEIGHT_SHARDED)
    )
    return MeshBuffer.create(ReplicatedBufferConfig(count * page_size), local, mesh)


def check_l1(what: str, buffer_type: BufferType) -> BufferType:
    kind = checked(what, "buffer_type", buffer_type, BufferType, "a ttnn.BufferType")
    if kind not in (BufferType.L1, BufferType.L1_SMALL):
        raise MeshError(
            f"{what} can only be created for L1 buffer types: {kind} is none. Take ttnn.BufferType.L1."
        )
    return kind


def check_cores(what: str, name: str, cores: CoreRangeSet) -> CoreRangeSet:
    found = checked(what, name, cores, CoreRangeSet, A_RANGE_SET)
    if found.empty():
        raise MeshError(f"{what}: {name} names no core.")
    return found
