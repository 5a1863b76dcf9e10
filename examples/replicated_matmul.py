"""Two tensors replicated over a 2x4 mesh, multiplied on every device.

softmesh run examples/replicated_matmul.py
"""

import torch
import ttnn

# Open mesh device (e.g., 2x4 mesh)
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))

# Create replicated tensors
a = torch.randn([4, 1, 64, 64], dtype=torch.bfloat16)
b = torch.randn([1, 1, 64, 128], dtype=torch.bfloat16)

tt_a = ttnn.from_torch(
    a, device=mesh_device, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh_device)
)
tt_b = ttnn.from_torch(
    b, device=mesh_device, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh_device)
)

# Each device multiplies what it holds, which is everything
output = ttnn.matmul(tt_a, tt_b)

replicas = [ttnn.to_torch(replica) for replica in ttnn.get_device_tensors(output)]
print(f"{tt_a.shape} @ {tt_b.shape} = {output.shape} on each device of {mesh_device}")
equal = all(torch.equal(replica, replicas[0]) for replica in replicas)
expected = a.float() @ b.float()
print(f"replicas: {len(replicas)}, all equal: {equal}")
print(f"off by at most {(replicas[0].float() - expected).abs().max():.3f}")
ttnn.close_mesh_device(mesh_device)

assert equal, "the devices have different products"
assert torch.allclose(replicas[0].float(), expected, rtol=2**-7, atol=2**-7), "the product is not torch's"
