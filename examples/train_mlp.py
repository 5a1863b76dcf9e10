"""Data-parallel training of an MLP on eight devices: gradients reduced on the host, then by the fabric.

    softmesh run examples/train_mlp.py [--steps N]

The loop does not change between the two. On a CPU the losses are the same to the last bit; a GPU adds in another
order than the host. One device that takes all samples has the same losses, but for rounding.
"""

import argparse

import torch
import ttnn

from softmesh import train

DEVICES = 8
SAMPLES, INPUTS, HIDDEN, OUTPUTS = 256, 32, 64, 32


class Model(train.Module):
    def __init__(self, mesh: ttnn.MeshDevice) -> None:
        first = train.Initial(seed=0)
        self.up = train.Linear(mesh, INPUTS, HIDDEN, first)
        self.down = train.Linear(mesh, HIDDEN, OUTPUTS, first)

    def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return self.down(ttnn.gelu(self.up(x)))


def trained(devices: int, mode: str, steps: int) -> list[float]:
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(devices, 1))
    mesh.axis_names = ("dp", "tp")
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 1, 1, INPUTS, generator=draw)
    wanted = torch.tanh(inputs @ torch.randn(INPUTS, OUTPUTS, generator=draw))
    x = train.on_mesh(inputs, mesh, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT)
    y = train.on_mesh(wanted, mesh, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT)
    model = Model(mesh)
    optimizer = train.SGD(model, lr=0.5, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = train.mse_loss(model(x), y)  # one on each device, over its own samples
        loss.backward()
        train.sync_gradients(model, axes=["dp"], mode=mode)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(train.loss_value(loss))
    ttnn.close_mesh_device(mesh)
    return losses


def apart(losses: list[float], others: list[float]) -> float:
    """How far, at most."""
    return (torch.tensor(losses) - torch.tensor(others)).abs().max().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    if steps < 1:
        parser.error(f"--steps must be at least 1, got {steps}")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    host, fabric = (trained(DEVICES, mode, steps) for mode in ("host", "fabric"))
    alone = trained(1, "host", steps)
    for step in range(0, steps, max(1, steps // 8)):
        print(f"step {step:3}   host {host[step]:.6f}   fabric {fabric[step]:.6f}")
    off = apart(host, fabric)
    print(f"The losses differ by at most {off:.1e}." if off else "The losses are the same to the last bit.")
    assert off < 1e-5, f"host and fabric train differently: losses are up to {off:.1e} apart"
    assert apart(host, alone) < 1e-4, f"one device trains differently: losses are {apart(host, alone):.1e} apart"
    if steps >= 10:
        assert host[-1] < host[0] / 2, f"little was learnt: the loss went from {host[0]:.6f} to {host[-1]:.6f}"


if __name__ == "__main__":
    main()
