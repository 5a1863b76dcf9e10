"""The work of `softmesh bench mlp`: y = gelu(x w1 + b1) w2 + b2, as TT-NN has it and as torch does.

TT-NN has it in three forms, which differ in what is split over the devices and in what travels between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


Tensors = Mapping[str, ttnn.Tensor]


@dataclass(frozen=True)
class Form:
    """Along which dim an operand is split (each device has all of the others), and what a device does then."""

    splits: Mapping[str, int]
    second_half: Callable[[ttnn.Tensor, Tensors], ttnn.Tensor]


def _alone(hidden: ttnn.Tensor, o: Tensors) -> ttnn.Tensor:
    return ttnn.linear(hidden, o["w2"], bias=o["b2"])


def _gathering(hidden: ttnn.Tensor, o: Tensors) -> ttnn.Tensor:
    return ttnn.linear(ttnn.all_gather(hidden, dim=-1), o["w2"], bias=o["b2"])


def _reducing(hidden: ttnn.Tensor, o: Tensors) -> ttnn.Tensor:
    return ttnn.add(ttnn.all_reduce(ttnn.linear(hidden, o["w2"])), o["b2"])


FORMS = {
    "data": Form({"x": 0}, _alone),
    "all_gather": Form({"w1": 1, "b1": 0, "w2": 1, "b2": 0}, _gathering),
    "all_reduce": Form({"w1": 1, "b1": 0, "w2": 0}, _reducing),
}


class MeshMlp:
    """The MLP as a TT-NN program has it."""

    def __init__(self, mesh: ttnn.MeshDevice, operands: Operands, dtype: str, form: str) -> None:
        self._form = FORMS[form]
        on_all = ttnn.ReplicateTensorToMesh(mesh)
        split = {name: ttnn.ShardTensorToMesh(mesh, dim=dim) for name, dim in self._form.splits.items()}
        self._operands = {
            name: put(value, dtype, mesh, split.get(name, on_all)) for name, value in vars(operands).items()
        }

    def __call__(self) -> ttnn.Tensor:
        o = self._operands
        hidden = ttnn.linear(o["x"], o["w1"], bias=o["b1"], activation="gelu")
        return self._form.second_half(hidden, o)

    def result(self) -> torch.Tensor:
        return ttnn.compose(self())


def torch_peers(dtype: str, operands: Operands) -> dict[str, Callable[[], torch.Tensor]]:
    kept = operands.in_torchs_order()
    peers: dict[str, Callable[[], torch.Tensor]] = {"torch": lambda: torch_mlp(kept)}
    if dtype == "bfloat16":
        peers["torch, fp32"] = lambda: torch_mlp_in_fp32(kept)
    return peers
