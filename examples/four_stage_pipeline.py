"""A pipeline of four processes, each with a 4x2 mesh of its own: a quarter of a Galaxy each.

    softmesh bindings --system Galaxy -o bindings
    tt-run --system Galaxy --rank-binding bindings/4x2_multi_mesh_rank_binding.yaml -- \
        python examples/four_stage_pipeline.py

Every stage holds one layer. Micro-batches follow each other: while the last stage has the first of them, the
first stage is at the fourth. The last stage compares with the same model in torch.
"""

import sys

import torch
import ttnn

SHAPE = ttnn.MeshShape(4, 2)
STAGES, MICRO_BATCHES = 4, 8
ROWS, WIDTH = 256, 64  # of a micro-batch: each of the 8 devices of a stage has 32 rows of it
BYTES_ON_A_DEVICE = 32 * WIDTH * 4

torch.manual_seed(0)
micro_batches = torch.randn(MICRO_BATCHES, 1, 1, ROWS, WIDTH)
layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(STAGES)]


def torch_model(x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = torch.relu(layer(x))
    return x


def socket_between(sender: int, receiver: int, mesh: ttnn.MeshDevice) -> ttnn.MeshSocket:
    """Its FIFO holds two micro-batches: a stage may be that far ahead of the next, and then waits."""
    core = ttnn.CoreCoord(0, 0)
    connections = [
        ttnn.SocketConnection(ttnn.MeshCoreCoord(coord, core), ttnn.MeshCoreCoord(coord, core))
        for coord in ttnn.MeshCoordinateRange(SHAPE)
    ]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 2 * BYTES_ON_A_DEVICE)
    config = ttnn.SocketConfig(connections, memory, sender_rank=sender, receiver_rank=receiver)
    return ttnn.MeshSocket(mesh, config)


def replicated(tensor: torch.Tensor, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    return ttnn.from_torch(tensor.detach(), device=mesh, layout=ttnn.TILE_LAYOUT)


def split_by_rows(tensor: torch.Tensor, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    mapper = ttnn.ShardTensorToMesh(mesh, dim=2)
    return ttnn.from_torch(tensor, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def main() -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    ttnn.init_distributed_context()
    if (ranks := int(ttnn.distributed_context_get_size())) != STAGES:
        sys.exit(f"Four processes run this file together, not {ranks}. Start them with tt-run:\n\n{__doc__}")
    mesh = ttnn.open_mesh_device(mesh_shape=SHAPE)
    stage = int(ttnn.distributed_context_get_rank())
    upstream = socket_between(stage - 1, stage, mesh) if stage > 0 else None
    downstream = socket_between(stage, stage + 1, mesh) if stage < STAGES - 1 else None
    weight, bias = replicated(layers[stage].weight.T, mesh), replicated(layers[stage].bias, mesh)
    arrived = ttnn.allocate_tensor_on_device(split_by_rows(micro_batches[0], mesh).spec, mesh)

    results = []
    for micro_batch in micro_batches:
        if upstream is None:
            x = split_by_rows(micro_batch, mesh)
        else:
            (x,) = ttnn.experimental.recv_async(arrived, upstream)
        y = ttnn.relu(ttnn.linear(x, weight, bias=bias))
        if downstream is None:
            results.append(ttnn.to_torch(y, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=2)))
        else:
            ttnn.experimental.send_async(y, downstream)

    agrees = True  # as far as the first stages can tell
    if downstream is None:
        expected = torch_model(micro_batches).detach()
        difference = (torch.stack(results) - expected).abs().max()
        print(f"{MICRO_BATCHES} micro-batches went through {STAGES} stages, off by at most {difference:.1e}")
        agrees = torch.allclose(torch.stack(results), expected, atol=1e-5)
        print("agrees with torch:", agrees)
    ttnn.distributed_context_barrier()
    ttnn.close_device(mesh)
    assert agrees, "what came out of the last stage is not torch's"


if __name__ == "__main__":
    main()
