"""Falcon's MLP, data- and tensor-parallel at once on a 2x4 mesh: rows share the batch, columns share the weights.

softmesh run examples/hybrid_parallel.py
"""

import torch
import ttnn

MESH_SHAPE = (2, 4)  # data-parallel down the columns, tensor-parallel along the rows
ALONG_THE_ROW = 1
HIDDEN_SIZE = 256


class TtFalconMLP:
    def __init__(self, dense_h_to_4h: ttnn.Tensor, dense_4h_to_h: ttnn.Tensor) -> None:
        self.dense_h_to_4h_weights = dense_h_to_4h
        self.dense_4h_to_h_weights = dense_4h_to_h

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        gelu = ttnn.gelu(ttnn.linear(x, self.dense_h_to_4h_weights))
        partial = ttnn.linear(gelu, self.dense_4h_to_h_weights)
        # Only devices of one row work on the same part of the batch: they add up, the two rows do not meet
        output = ttnn.all_reduce(partial, cluster_axis=ALONG_THE_ROW)
        for name, tensor in {"x": x, "gelu": gelu, "partial": partial, "output": output}.items():
            print(f"{name:7}  {tensor.shape} on each device, {ttnn.placements(tensor)}")
        return output


def to_mesh(tensor: torch.Tensor, dims: tuple[int | None, int | None]) -> ttnn.Tensor:
    """Split over the mesh: which tensor dim the rows share, and which the columns; None for neither."""
    return ttnn.from_torch(
        tensor,
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh_device,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh_device, mesh_shape=MESH_SHAPE, dims=dims),
    )


torch.manual_seed(0)
batch_size, sequence_length = 4, 64
torch_hidden_states = torch.rand(batch_size, 1, sequence_length, HIDDEN_SIZE) * 2 - 1
torch_h_to_4h = torch.randn(HIDDEN_SIZE, 4 * HIDDEN_SIZE) * HIDDEN_SIZE**-0.5
torch_4h_to_h = torch.randn(4 * HIDDEN_SIZE, HIDDEN_SIZE) * (4 * HIDDEN_SIZE) ** -0.5
torch_output = torch.nn.functional.gelu(torch_hidden_states @ torch_h_to_4h) @ torch_4h_to_h

ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(*MESH_SHAPE))

hidden_states = to_mesh(torch_hidden_states, dims=(0, None))  # rows: half of the batch each
model = TtFalconMLP(
    to_mesh(torch_h_to_4h, dims=(None, 1)),  # columns: a quarter of the first weight's columns each
    to_mesh(torch_4h_to_h, dims=(None, 0)),  # ... and of the second weight's rows
)
output = model(hidden_states)

# Along a row the four results are the same: composed side by side, the first of them is enough
side_by_side = ttnn.to_torch(
    output, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh_device, mesh_shape=MESH_SHAPE, dims=(0, 3))
)
columns = side_by_side.chunk(MESH_SHAPE[1], dim=3)
agree = all(torch.equal(column, columns[0]) for column in columns)
pcc = ttnn.pearson_correlation_coefficient(torch_output, columns[0])
error = (columns[0].float() - torch_output).abs().max()
print(f"{mesh_device}: pcc {pcc:.5f}, off by at most {error:.1e}")
print(f"the same along each row: {agree}")

ttnn.close_mesh_device(mesh_device)
ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)

assert pcc >= 0.999, f"pcc {pcc:.5f} is below 0.999: the result is not torch's"
assert error <= 0.04, f"the result is not torch's: off by up to {error:.1e}"
assert agree, "the devices of a row have different results: nobody added them up"
