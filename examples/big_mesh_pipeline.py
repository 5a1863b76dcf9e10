"""A pipeline whose stages are big meshes: two stages of 4x4 devices, each held by two processes.

    softmesh bindings --system Galaxy -o bindings
    tt-run --system Galaxy --rank-binding bindings/4x4_multi_big_mesh_rank_binding.yaml -- \
        python examples/big_mesh_pipeline.py

All four processes run this file. The two of a stage work in lockstep on one mesh, as one process would with all
of it: the all_reduce along the mesh's rows adds up what both hold. The socket names meshes rather than ranks,
and each process sends or receives the shards of its own devices.
"""

import sys

import torch
import ttnn

SHAPE = ttnn.MeshShape(4, 4)  # the batch is split down the columns, the weights along the rows
ALONG_THE_ROW = 1
STAGES, PROCESSES, MICRO_BATCHES = 2, 4, 3
BATCH, ROWS, WIDTH = 4, 32, 128

torch.manual_seed(0)
micro_batches = torch.randn(MICRO_BATCHES, BATCH, 1, ROWS, WIDTH)
up = [torch.randn(WIDTH, 4 * WIDTH) * WIDTH**-0.5 for _ in range(STAGES)]
down = [torch.randn(4 * WIDTH, WIDTH) * (4 * WIDTH) ** -0.5 for _ in range(STAGES)]


def torch_model(x: torch.Tensor) -> torch.Tensor:
    for stage in range(STAGES):
        x = torch.relu(x @ up[stage]) @ down[stage]
    return x


def socket_between_stages(mesh: ttnn.MeshDevice) -> ttnn.MeshSocket:
    core = ttnn.CoreCoord(0, 0)
    connections = [
        ttnn.SocketConnection(ttnn.MeshCoreCoord(coord, core), ttnn.MeshCoreCoord(coord, core))
        for coord in ttnn.MeshCoordinateRange(SHAPE)
    ]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, ROWS * WIDTH * 4)
    return ttnn.MeshSocket(mesh, ttnn.SocketConfig(connections, memory, sender_mesh_id=0, receiver_mesh_id=1))


def main() -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    ttnn.init_distributed_context()
    if (ranks := int(ttnn.distributed_context_get_size())) != PROCESSES:
        sys.exit(f"Four processes run this file together, not {ranks}. Start them with tt-run:\n\n{__doc__}")
    mesh = ttnn.open_mesh_device(mesh_shape=SHAPE)
    stage = mesh.get_system_mesh_id()  # as the binding of this process says
    socket = socket_between_stages(mesh)

    def on_mesh(tensor: torch.Tensor, dims: tuple[int | None, int | None]) -> ttnn.Tensor:
        mapper = ttnn.ShardTensor2dMesh(mesh, mesh_shape=SHAPE, dims=dims)
        return ttnn.from_torch(tensor, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)

    weight_up, weight_down = on_mesh(up[stage], (None, 1)), on_mesh(down[stage], (None, 0))
    arrived = ttnn.allocate_tensor_on_device(on_mesh(micro_batches[0], (0, None)).spec, mesh)

    results = []
    for micro_batch in micro_batches:
        if stage == 0:
            x = on_mesh(micro_batch, (0, None))
        else:
            (x,) = ttnn.experimental.recv_async(arrived, socket)
        hidden = ttnn.relu(ttnn.linear(x, weight_up))
        y = ttnn.all_reduce(ttnn.linear(hidden, weight_down), cluster_axis=ALONG_THE_ROW)
        if stage == 0:
            ttnn.experimental.send_async(y, socket)
        else:
            composer = ttnn.ConcatMesh2dToTensor(mesh, mesh_shape=SHAPE, dims=(0, 3))
            results.append(ttnn.to_torch(y, mesh_composer=composer)[..., :WIDTH])  # the same along a row

    agrees = True  # as far as the first stage can tell
    if stage == 1:
        expected = torch_model(micro_batches)
        rank, difference = ttnn.distributed_context_get_rank(), (torch.stack(results) - expected).abs().max()
        print(f"rank {rank}: {MICRO_BATCHES} micro-batches, off by at most {difference:.1e}")
        agrees = torch.allclose(torch.stack(results), expected, atol=1e-4)
        print(f"rank {rank} agrees with torch: {agrees}")
    ttnn.distributed_context_barrier()
    ttnn.close_device(mesh)
    assert agrees, "what came out of the second stage is not torch's"


if __name__ == "__main__":
    main()
