"""Falcon's MLP, tensor-parallel on eight devices: columns of the first weight, rows of the second, one all_reduce.

softmesh run examples/falcon_mlp_all_reduce.py
"""

import torch
import ttnn

DEVICES = 8
HIDDEN_SIZE = 256


# The torch model, built here so that nothing is downloaded: Falcon's form, smaller sizes, random weights.
class FalconMLP(torch.nn.Module):
    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense_h_to_4h = torch.nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.act = torch.nn.GELU()
        self.dense_4h_to_h = torch.nn.Linear(4 * hidden_size, hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense_4h_to_h(self.act(self.dense_h_to_4h(x)))


# The same in TT-NN. The columns of the first result that a device computes are those that its rows of the second
# weight take: nothing travels in between, and each device ends with a contribution to the whole result.
class TtFalconMLP:
    def __init__(self, parameters: ttnn.model_preprocessing.ParameterDict) -> None:
        super().__init__()
        self.dense_h_to_4h_weights = parameters.dense_h_to_4h.weight
        self.dense_4h_to_h_weights = parameters.dense_4h_to_h.weight

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        ff1_linear: ttnn.Tensor = ttnn.linear(x, self.dense_h_to_4h_weights)
        gelu = ttnn.gelu(ff1_linear)
        ff2_partial: ttnn.Tensor = ttnn.linear(gelu, self.dense_4h_to_h_weights)
        ff2_linear = ttnn.all_reduce(ff2_partial)
        print(f"gelu         {gelu.shape} on each device, {ttnn.placements(gelu)}")
        print(f"ff2_partial  {ff2_partial.shape} on each device, {ttnn.placements(ff2_partial)}")
        print(f"all_reduce   {ff2_linear.shape} on each device, {ttnn.placements(ff2_linear)}")

        return ff2_linear


# Weights are (in, out), as ttnn.linear takes them: the first is split by columns, the second by rows
SPLIT_DIM = {"dense_h_to_4h": 1, "dense_4h_to_h": 0}


def split_weight(module: torch.nn.Module, name: str) -> dict[str, ttnn.Tensor]:
    if name not in SPLIT_DIM:
        return {}
    mapper = ttnn.ShardTensorToMesh(mesh_device, dim=SPLIT_DIM[name])
    weight = ttnn.model_preprocessing.preprocess_linear_weight(
        module.weight, dtype=ttnn.bfloat16, weights_mesh_mapper=mapper
    )
    return {"weight": weight}


torch.manual_seed(0)
model = FalconMLP(HIDDEN_SIZE).eval()
batch_size, sequence_length = 1, 128
torch_hidden_states = torch.rand(batch_size, 1, sequence_length, HIDDEN_SIZE) * 2 - 1
torch_output = model.forward(torch_hidden_states).detach()

# Collectives send data from chip to chip: the fabric is chosen before the mesh is opened
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, DEVICES))

with ttnn.distribute(ttnn.ReplicateTensorToMesh(mesh_device)):
    hidden_states = ttnn.from_torch(
        torch_hidden_states, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh_device
    )

parameters = ttnn.model_preprocessing.preprocess_model_parameters(
    initialize_model=lambda: model,
    custom_preprocessor=split_weight,
    device=mesh_device,
)

ttnn_model = TtFalconMLP(parameters)
ttnn_output = ttnn_model(hidden_states)

replicas = [ttnn.to_torch(replica) for replica in ttnn.get_device_tensors(ttnn_output)]
agree = all(torch.equal(replica, replicas[0]) for replica in replicas)
pcc = ttnn.pearson_correlation_coefficient(torch_output, replicas[0])
error = (replicas[0].float() - torch_output).abs().max()
print(f"{mesh_device}: pcc {pcc:.5f}, off by at most {error:.1e}")
print(f"the same on all {len(replicas)}: {agree}")

ttnn.close_mesh_device(mesh_device)
ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)

assert pcc >= 0.999, f"pcc {pcc:.5f} is below 0.999: the result is not torch's"
assert error <= 0.01, f"the result is not torch's: off by up to {error:.1e}"
assert agree, "the devices have different results: nobody added them up"
