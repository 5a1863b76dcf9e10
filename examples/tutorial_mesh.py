"""A mesh, a tensor split over it, and one op on all devices: TT-NN's mesh tutorial, sections 2 to 4.

softmesh run examples/tutorial_mesh.py
"""

import torch
import ttnn

# 2.2 Open a mesh, look at it, close it
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
print(mesh_device)
ttnn.visualize_mesh_device(mesh_device)
ttnn.close_mesh_device(mesh_device)

# 3.2 Split a tensor over two devices: ones for the first, twos for the second
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
torch_tensor = torch.zeros(1, 1, 32, 64)
torch_tensor[..., 0:32] = 1.0
torch_tensor[..., 32:64] = 2.0

mesh_tensor: ttnn.Tensor = ttnn.from_torch(
    torch_tensor,
    mesh_mapper=ttnn.ShardTensorToMesh(mesh_device, dim=3),
    layout=ttnn.TILE_LAYOUT,
)
print("\nTwo shards in host memory:")
print(mesh_tensor)

mesh_tensor = ttnn.to_device(mesh_tensor, mesh_device)
print("\nThe same, each on its device:")
print(mesh_tensor)
ttnn.visualize_mesh_device(mesh_device, tensor=mesh_tensor)
ttnn.close_mesh_device(mesh_device)

# 4.2 The same op on one device ...
device = ttnn.open_device(0)
torch_tensor = torch.rand((1, 1, 32, 32), dtype=torch.bfloat16)
ttnn_tensor = ttnn.from_torch(torch_tensor, layout=ttnn.TILE_LAYOUT, device=device)
output_tensor = ttnn.gelu(ttnn_tensor)
difference = ttnn.to_torch(output_tensor) - torch.nn.functional.gelu(torch_tensor)
print(f"\ngelu on {device}: {output_tensor.shape}, off by at most {difference.abs().max():.4f}")
assert difference.abs().max() <= 2**-7, "gelu on one device is not torch's"
ttnn.close_device(device)

# ... and on four: each device gets the whole tensor unless a mapper splits it
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
torch_tensor = torch.rand((1, 1, 32, 128), dtype=torch.bfloat16)
expected = torch.nn.functional.gelu(torch_tensor)

ttnn_tensor = ttnn.from_torch(torch_tensor, layout=ttnn.TILE_LAYOUT, device=mesh_device)
output_tensor = ttnn.gelu(ttnn_tensor)
replicas = [ttnn.to_torch(replica) for replica in ttnn.get_device_tensors(output_tensor)]
print(f"gelu on {mesh_device}, replicated: {output_tensor.shape} on each device")
for replica in replicas:
    assert (replica - expected).abs().max() <= 2**-7, "gelu of a replica is not torch's"

ttnn_tensor = ttnn.from_torch(
    torch_tensor,
    layout=ttnn.TILE_LAYOUT,
    device=mesh_device,
    mesh_mapper=ttnn.ShardTensorToMesh(mesh_device, dim=3),
)
output_tensor = ttnn.gelu(ttnn_tensor)
composed = ttnn.to_torch(output_tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh_device, dim=3))
print(f"gelu on {mesh_device}, sharded: {output_tensor.shape} on each device, {tuple(composed.shape)} in all")
print(f"off by at most {(composed - expected).abs().max():.4f}")
assert (composed - expected).abs().max() <= 2**-7, "gelu of the shards, put together, is not torch's"
ttnn.close_mesh_device(mesh_device)
