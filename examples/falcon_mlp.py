"""Falcon's MLP on one device, then data-parallel on four: TT-NN's mesh tutorial, section 5.

softmesh run examples/falcon_mlp.py
"""

from dataclasses import dataclass

import torch
import ttnn
from ttnn.model_preprocessing import preprocess_linear_weight


# The torch model, built here so that nothing is downloaded: Falcon's form, smaller sizes, random weights.
@dataclass
class FalconConfig:
    hidden_size: int = 64


class FalconMLP(torch.nn.Module):
    def __init__(self, config: FalconConfig) -> None:
        super().__init__()
        self.dense_h_to_4h = torch.nn.Linear(config.hidden_size, 4 * config.hidden_size, bias=False)
        self.act = torch.nn.GELU()
        self.dense_4h_to_h = torch.nn.Linear(4 * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense_4h_to_h(self.act(self.dense_h_to_4h(x)))


# The same in TT-NN
class TtFalconMLP:
    def __init__(self, parameters: ttnn.model_preprocessing.ParameterDict) -> None:
        super().__init__()
        self.dense_h_to_4h_weights = parameters.dense_h_to_4h.weight
        self.dense_4h_to_h_weights = parameters.dense_4h_to_h.weight

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        ff1_linear: ttnn.Tensor = ttnn.linear(x, self.dense_h_to_4h_weights)
        gelu = ttnn.gelu(ff1_linear)
        ff2_linear: ttnn.Tensor = ttnn.linear(gelu, self.dense_4h_to_h_weights)

        return ff2_linear


def assert_with_pcc(expected: torch.Tensor, actual: torch.Tensor, pcc: float) -> float:
    """Their Pearson correlation is at least `pcc`; returned for printing."""
    assert expected.shape == actual.shape
    pair = torch.stack([expected.detach().double().flatten(), actual.detach().double().flatten()])
    found = torch.corrcoef(pair)[0, 1].item()
    assert found >= pcc, f"pcc {found} is below {pcc}"
    return found


def random_hidden_states(batch_size: int, sequence_length: int = 128) -> torch.Tensor:
    return (torch.rand(batch_size, 1, sequence_length, config.hidden_size, dtype=torch.float32) * 2) - 1


torch.manual_seed(0)
config = FalconConfig()
model = FalconMLP(config).eval()

# One device
device = ttnn.open_device(0)
torch_hidden_states = random_hidden_states(batch_size=1)
hidden_states = ttnn.from_torch(torch_hidden_states, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

parameters = ttnn.model_preprocessing.preprocess_model_parameters(
    initialize_model=lambda: model,
    device=device,
)
print(parameters)

ttnn_model = TtFalconMLP(parameters)
ttnn_output = ttnn_model(hidden_states)

single_pcc = assert_with_pcc(model.forward(torch_hidden_states), ttnn.to_torch(ttnn_output), 0.98)
print(f"one device: pcc {single_pcc:.5f}")
ttnn.close_device(device)

# Four devices, data-parallel: the batch is split, the weights are replicated
torch_hidden_states = random_hidden_states(batch_size=4)
torch_output = model.forward(torch_hidden_states)
mesh_device = ttnn.open_device_mesh(ttnn.DeviceGrid(y=1, x=4))

with ttnn.distribute(ttnn.ShardTensorToMesh(mesh_device, dim=0)):
    hidden_states = ttnn.from_torch(
        torch_hidden_states,
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh_device,
    )

with ttnn.distribute(ttnn.ReplicateTensorToMesh(mesh_device)):
    parameters = ttnn.model_preprocessing.preprocess_model_parameters(
        initialize_model=lambda: model,
        device=mesh_device,
    )

ttnn_model = TtFalconMLP(parameters)
ttnn_output = ttnn_model(hidden_states)

with ttnn.distribute(ttnn.ConcatMeshToTensor(mesh_device, dim=0)):
    parallel_pcc = assert_with_pcc(torch_output, ttnn.to_torch(ttnn_output), 0.98)
print(f"four devices: pcc {parallel_pcc:.5f}, {ttnn_output.shape} on each device")


# The same in float32, where it agrees to the last digits
def in_float32(module: torch.nn.Module, name: str) -> dict[str, ttnn.Tensor]:
    if isinstance(module, torch.nn.Linear):
        return {"weight": preprocess_linear_weight(module.weight, dtype=ttnn.float32)}
    return {}


with ttnn.distribute(ttnn.ShardTensorToMesh(mesh_device, dim=0)):
    hidden_states = ttnn.from_torch(torch_hidden_states, layout=ttnn.TILE_LAYOUT, device=mesh_device)

with ttnn.distribute(ttnn.ReplicateTensorToMesh(mesh_device)):
    parameters = ttnn.model_preprocessing.preprocess_model_parameters(
        initialize_model=lambda: model,
        custom_preprocessor=in_float32,
        device=mesh_device,
    )

with ttnn.distribute(ttnn.ConcatMeshToTensor(mesh_device, dim=0)):
    float32_output = ttnn.to_torch(TtFalconMLP(parameters)(hidden_states))
torch.testing.assert_close(float32_output, torch_output, rtol=1e-4, atol=1e-5)
print(f"four devices, float32: off by at most {(float32_output - torch_output).abs().max():.1e}")
ttnn.close_device_mesh(mesh_device)
