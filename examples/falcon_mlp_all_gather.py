"""Falcon's MLP, tensor-parallel on eight devices: both weights split by columns, all_gather between and behind.

softmesh run examples/falcon_mlp_all_gather.py
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


# The same in TT-NN. Each device has some columns of both weights, so it computes some columns of each result;
# the second product sums over all columns of the first, which are gathered for it.
class TtFalconMLP:
    def __init__(self, parameters: ttnn.model_preprocessing.ParameterDict) -> None:
        super().__init__()
        self.dense_h_to_4h_weights = parameters.dense_h_to_4h.weight
        self.dense_4h_to_h_weights = parameters.dense_4h_to_h.weight

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        ff1_linear: ttnn.Tensor = ttnn.linear(x, self.dense_h_to_4h_weights)
        gelu = ttnn.gelu(ff1_linear)
        gathered = ttnn.all_gather(gelu, dim=3, num_links=1)
        ff2_linear: ttnn.Tensor = ttnn.linear(gathered, self.dense_4h_to_h_weights)
        print(f"gelu        {gelu.shape} on each device, {ttnn.placements(gelu)}")
        print(f"all_gather  {gathered.shape} on each device, {ttnn.placements(gathered)}")
        print(f"ff2_linear  {ff2_linear.shape} on each device, {ttnn.placements(ff2_linear)}")

        return ff2_linear


torch.manual_seed(0)
model = FalconMLP(HIDDEN_SIZE).eval()
batch_size, sequence_length = 1, 128
torch_hidden_states = torch.rand(batch_size, 1, sequence_length, HIDDEN_SIZE) * 2 - 1
torch_output = model.forward(torch_hidden_states).detach()

# Collectives send data from chip to chip: the fabric is chosen before the mesh is opened
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(1, DEVICES))

# Every device gets all activations ...
with ttnn.distribute(ttnn.ReplicateTensorToMesh(mesh_device)):
    hidden_states = ttnn.from_torch(
        torch_hidden_states, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh_device
    )

# ... and its columns of the weights
with ttnn.distribute(ttnn.ShardTensorToMesh(mesh_device, dim=-1)):
    parameters = ttnn.model_preprocessing.preprocess_model_parameters(
        initialize_model=lambda: model,
        device=mesh_device,
    )

ttnn_model = TtFalconMLP(parameters)
ttnn_output = ttnn_model(hidden_states)

# The columns of the result side by side: put together on the host ...
with ttnn.distribute(ttnn.ConcatMeshToTensor(mesh_device, dim=3)):
    composed = ttnn.to_torch(ttnn_output)
pcc = ttnn.pearson_correlation_coefficient(torch_output, composed)
error = (composed.float() - torch_output).abs().max()
print(f"{mesh_device}: pcc {pcc:.5f}, off by at most {error:.1e}")

# ... or by the devices, after which each has it all
whole = ttnn.all_gather(ttnn_output, dim=3, num_links=1)
replicas = [ttnn.to_torch(replica) for replica in ttnn.get_device_tensors(whole)]
agree = all(torch.equal(replica, composed) for replica in replicas)
print(f"gathered on the devices: {whole.shape} on each, the same on all {len(replicas)}: {agree}")

ttnn.close_mesh_device(mesh_device)
ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)

assert pcc >= 0.999, f"pcc {pcc:.5f} is below 0.999: the result is not torch's"
assert error <= 0.01, f"the result is not torch's: off by up to {error:.1e}"
assert agree, "not every device has the whole result after the last all_gather"
