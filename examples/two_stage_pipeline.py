"""A pipeline of two processes, each with a 4x4 mesh of its own: half a Galaxy each, joined by a socket.

    softmesh bindings --system Galaxy -o bindings
    tt-run --system Galaxy --rank-binding bindings/4x4_multi_mesh_rank_binding.yaml -- \
        python examples/two_stage_pipeline.py

Both run this file. Rank 0 applies relu and sends; rank 1 receives, applies exp, and compares with torch.
"""

import sys

import torch
import ttnn

SHAPE = ttnn.MeshShape(4, 4)


def socket_config() -> ttnn.SocketConfig:
    """Every device of the first mesh is connected with its counterpart in the second."""
    core = ttnn.CoreCoord(0, 0)
    connections = [
        ttnn.SocketConnection(ttnn.MeshCoreCoord(coord, core), ttnn.MeshCoreCoord(coord, core))
        for coord in ttnn.MeshCoordinateRange(SHAPE)
    ]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 4096)
    return ttnn.SocketConfig(connections, memory, sender_rank=0, receiver_rank=1)


def main() -> None:
    torch.manual_seed(0)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    ttnn.init_distributed_context()
    if (ranks := int(ttnn.distributed_context_get_size())) != 2:
        sys.exit(f"Two processes run this file together, not {ranks}. Start them with tt-run:\n\n{__doc__}")
    mesh = ttnn.open_mesh_device(mesh_shape=SHAPE)
    values = torch.randn(1, 1, 1024, 1024)
    x = ttnn.from_torch(
        values,
        device=mesh,
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, dims=(2, 3), mesh_shape=SHAPE),
    )
    socket = ttnn.MeshSocket(mesh, socket_config())
    agrees = True  # as far as the first stage can tell
    if int(ttnn.distributed_context_get_rank()) == 0:
        ttnn.experimental.send_async(ttnn.relu(x), socket)
    else:
        arrived = ttnn.allocate_tensor_on_device(x.spec, mesh)
        ttnn.experimental.recv_async(arrived, socket)
        composer = ttnn.ConcatMesh2dToTensor(mesh, mesh_shape=SHAPE, dims=(2, 3))
        result = ttnn.to_torch(ttnn.from_device(ttnn.exp(arrived)), mesh_composer=composer)
        agrees = torch.allclose(result, torch.exp(torch.relu(values)))
        print("agrees with torch:", agrees)
    ttnn.distributed_context_barrier()
    ttnn.close_device(mesh)
    assert agrees, "what arrived and went through exp is not torch's"


if __name__ == "__main__":
    main()
