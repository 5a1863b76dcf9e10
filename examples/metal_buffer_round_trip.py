"""A buffer in the L1 of a 2x4 mesh, one shard on each device: written whole, read whole.

softmesh run examples/metal_buffer_round_trip.py
"""

import torch
import ttnn

from softmesh.metal import (
    DeviceLocalBufferConfig,
    EnqueueReadMeshBuffer,
    EnqueueWriteMeshBuffer,
    MeshBuffer,
    Shape2D,
    ShardedBufferConfig,
)

PAGE = ttnn.tile_size(ttnn.uint32)  # one tile is one datum here: 4096 bytes
SHARD = Shape2D(32, 32)

with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
    whole = Shape2D(32 * mesh.shape[0], 32 * mesh.shape[1])
    size = whole.height * whole.width * PAGE
    on_each = DeviceLocalBufferConfig(page_size=PAGE, buffer_type=ttnn.BufferType.L1, bottom_up=False)
    config = ShardedBufferConfig(global_size=size, global_buffer_shape=whole, shard_shape=SHARD)
    buffer = MeshBuffer.create(config, on_each, mesh)

    source = torch.randint(0, 256, (size,), dtype=torch.uint8)
    queue = mesh.mesh_command_queue()
    EnqueueWriteMeshBuffer(queue, buffer, source)
    read_back = EnqueueReadMeshBuffer(queue, None, buffer, blocking=True)

    assert torch.equal(read_back, source), "what was read is not what was written"
    print(
        f"{size >> 20} MiB round trip, {buffer.device_local_size() >> 20} MiB on each device at {buffer.address():#x}"
    )
