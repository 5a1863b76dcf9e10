"""What `softmesh demo` trains: a small MLP, and one whose author forgot a collective."""

from __future__ import annotations

import torch

import softmesh as ttnn
from softmesh import train


class Perceptron(train.Module):
    """Its hidden features are split along `tp`."""

    def __init__(self, mesh: ttnn.MeshDevice) -> None:
        first = train.Initial(seed=0)
        self.up = train.ColumnParallelLinear(mesh, 32, 128, first, axis="tp")
        self.down = train.RowParallelLinear(mesh, 128, 32, first, axis="tp")

    def forward(self, x: ttnn.Tensor, wanted: ttnn.Tensor) -> ttnn.Tensor:
        return train.mse_loss(self.down(ttnn.gelu(self.up(x))), wanted)


class Forgetful(Perceptron):
    def forward(self, x: ttnn.Tensor, wanted: ttnn.Tensor) -> ttnn.Tensor:
        hidden = ttnn.gelu(self.up(x))
        out = ttnn.linear(hidden, self.down.weight, transpose_b=True)
        return train.mse_loss(ttnn.gelu(out), wanted)


def losses(mesh: ttnn.MeshDevice, steps: int) -> list[float]:
    mesh.axis_names = ("dp", "tp")
    model, batch = Perceptron(mesh), _batch(mesh)
    optimizer = train.AdamW(model, lr=0.01)
    seen = []
    for _ in range(steps):
        loss = model(*batch)
        loss.backward()
        train.sync_gradients(model, axes=["dp"])
        optimizer.step()
        optimizer.zero_grad()
        seen.append(train.loss_value(loss))
    return seen


def forgotten(mesh: ttnn.MeshDevice) -> train.Finding:
    """What the check has to say of the forgetful one."""
    mesh.axis_names = ("dp", "tp")
    return train.check(Forgetful(mesh), _batch(mesh)).findings[0]


def _batch(mesh: ttnn.MeshDevice) -> list[ttnn.Tensor]:
    draw = torch.Generator().manual_seed(0)
    values = [torch.randn(16, 1, 1, 32, generator=draw) for _ in range(2)]
    return [train.on_mesh(one, mesh, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT) for one in values]
