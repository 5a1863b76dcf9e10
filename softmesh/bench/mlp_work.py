"""The work of `softmesh bench mlp`: y = gelu(x w1 + b1) w2 + b2, as TT-NN has it and as torch does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

import softmesh as ttnn
from softmesh.bench.operands import put


@dataclass(frozen=True)
class Operands:
    """Operands in torch, w1 and w2 as (in, out)."""

    x: torch.Tensor
    w1: torch.Tensor
    b1: torch.Tensor
    w2: torch.Tensor
    b2: torch.Tensor

    @classmethod
    def random(cls, rows: int, width: int, inner: int) -> Operands:
        draw = torch.Generator().manual_seed(0)

        def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
            return torch.randn(*shape, generator=draw) * scale

        return cls(
            x=normal(rows, width),
            w1=normal(width, inner, scale=width**-0.5),
            b1=normal(inner),
            w2=normal(inner, width, scale=inner**-0.5),
            b2=normal(width),
        )

    def to(self, dtype: torch.dtype) -> Operands:
        return Operands(*(value.to(dtype) for value in vars(self).values()))

    def in_torchs_order(self) -> Operands:
        """w1 and w2 as (out, in), which is how torch.nn.Linear keeps them."""
        return replace(self, w1=self.w1.T.contiguous(), w2=self.w2.T.contiguous())

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: value.float().numpy() for name, value in vars(self).items()}


def torch_mlp(o: Operands) -> torch.Tensor:
    return F.linear(F.gelu(F.linear(o.x, o.w1, o.b1)), o.w2, o.b2)


def torch_mlp_in_fp32(o: Operands) -> torch.Tensor:
    hidden = F.gelu(F.linear(o.x.float(), o.w1.float(), o.b1.float())).to(o.x.dtype)
    return F.linear(hidden.float(), o.w2.float(), o.b2.float()).to(o.x.dtype)


class MeshMlp:
    """The MLP as a TT-NN program has it."""

    def __init__(self, mesh: ttnn.MeshDevice, operands: Operands, dtype: str) -> None:
        self._mesh = mesh
        on_all = ttnn.ReplicateTensorToMesh(mesh)
        self._x = put(operands.x, dtype, mesh, ttnn.ShardTensorToMesh(mesh, dim=0))
        self._w1, self._b1 = put(operands.w1, dtype, mesh, on_all), put(operands.b1, dtype, mesh, on_all)
        self._w2, self._b2 = put(operands.w2, dtype, mesh, on_all), put(operands.b2, dtype, mesh, on_all)

    def __call__(self) -> ttnn.Tensor:
        hidden = ttnn.linear(self._x, self._w1, bias=self._b1, activation="gelu")
        return ttnn.linear(hidden, self._w2, bias=self._b2)

    def result(self) -> torch.Tensor:
        return ttnn.to_torch(self(), mesh_composer=ttnn.ConcatMeshToTensor(self._mesh, dim=0))


def torch_peers(dtype: str, operands: Operands) -> dict[str, Callable[[], torch.Tensor]]:
    kept = operands.in_torchs_order()
    peers: dict[str, Callable[[], torch.Tensor]] = {"torch": lambda: torch_mlp(kept)}
    if dtype == "bfloat16":
        peers["torch, fp32"] = lambda: torch_mlp_in_fp32(kept)
    return peers
