"""A block of two products with weights of its own on each device of a row, and the sum over them.

    softmesh estimate --system T3000 examples/two_layer_mlp.py
    softmesh fit --system T3000 examples/two_layer_mlp.py --width 65536

`--ring` asks for the wrap-around links, where the machine has them; `--traced` replays the block as a trace.
"""

import argparse

import torch
import ttnn

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--ring", action="store_true")
parser.add_argument("--traced", action="store_true")
given = parser.parse_args()

ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING if given.ring else ttnn.FabricConfig.FABRIC_1D)
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 8), trace_region_size=1 << 20)


def put(values: torch.Tensor, dim: int | None = None) -> ttnn.Tensor:
    mapper = ttnn.ReplicateTensorToMesh(mesh) if dim is None else ttnn.ShardTensorToMesh(mesh, dim=dim)
    return ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


x = put(torch.randn(32, given.width))
up = put(torch.randn(given.width, 4 * given.width), dim=1)
down = put(torch.randn(4 * given.width, given.width), dim=0)


def block() -> ttnn.Tensor:
    return ttnn.all_reduce(ttnn.matmul(ttnn.gelu(ttnn.matmul(x, up)), down), cluster_axis=1)


made = block()
trace = None
if given.traced:
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    made = block()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
for _ in range(given.steps):
    if trace is None:
        made = block()
    else:
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
ttnn.synchronize_device(mesh)
print(made.shape, "on each of", mesh.get_num_devices(), "devices")
ttnn.close_mesh_device(mesh)
