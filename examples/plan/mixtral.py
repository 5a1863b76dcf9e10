"""A mixture of experts as on one device, in plain ops: Mixtral's layers, with the attention of the Llama beside it.

softmesh plan examples/plan/mixtral.py:decode --system T3000 layers=4

Every expert is a matrix of a stack [1, experts, in, out]. Each token's two best experts count, the others by zero. A
plan may split the stack by experts, or each of the experts within.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import llama
import torch
import ttnn


@dataclass(frozen=True)
class Config(llama.Config):
    experts: int = 8
    chosen: int = 2


CONFIGS = {
    "8x7b": Config(32, 4096, 32, 8, 14336, 32000),
    "tiny": Config(2, 128, 4, 2, 256, 256, 64, experts=4),
}


def weights(config: Config) -> dict[str, Any]:
    """Those of a Llama, with experts in the place of its MLPs."""
    found = llama.weights(config)
    for layer in found["layers"]:
        for name in ("gate", "up", "down"):
            rows, columns = layer.pop(name).shape
            layer[name] = torch.randn(1, config.experts, rows, columns, dtype=torch.bfloat16) * rows**-0.5
        layer["router"] = torch.randn(config.width, config.experts, dtype=torch.bfloat16) * config.width**-0.5 * 4
    return found


class Mixtral(llama.Llama):
    def _mlp(self, x: ttnn.Tensor, w: Any) -> ttnn.Tensor:
        """x [1, 1, tokens, width]"""
        shares = ttnn.softmax(ttnn.matmul(x, w["router"]), dim=-1)
        best, _ = ttnn.topk(shares, self.config.chosen, dim=-1)
        kept = ttnn.multiply(shares, ttnn.ge(shares, ttnn.min(best, dim=-1, keepdim=True)))
        factors = ttnn.div(kept, ttnn.sum(kept, dim=-1, keepdim=True))
        inner = ttnn.multiply(ttnn.silu(ttnn.matmul(x, w["gate"])), ttnn.matmul(x, w["up"]))
        made = ttnn.matmul(inner, w["down"])
        return ttnn.sum(ttnn.multiply(made, ttnn.permute(factors, (0, 3, 2, 1))), dim=1, keepdim=True)


def decode(
    device: ttnn.MeshDevice, size: str = "8x7b", layers: int = 0, users: int = 32, keys: int = 1024
) -> ttnn.Tensor:
    """One token for each user; `layers` 0: as many as the model has."""
    config = replace(CONFIGS[size], layers=layers or CONFIGS[size].layers)
    model = Mixtral(config, device, weights(config), users, keys)
    tokens = ttnn.from_torch(torch.zeros(1, 1, 1, users, dtype=torch.int32), ttnn.uint32, device=device)
    positions = ttnn.from_torch(torch.zeros(users, dtype=torch.int32), ttnn.int32, device=device)
    return model.decode(tokens, positions)


def prefill(device: ttnn.MeshDevice, size: str = "8x7b", layers: int = 0, length: int = 2048) -> ttnn.Tensor:
    """One prompt."""
    config = replace(CONFIGS[size], layers=layers or CONFIGS[size].layers)
    model = Mixtral(config, device, weights(config), 1, length)
    return model.prefill(ttnn.from_torch(torch.zeros(1, 1, 1, length, dtype=torch.int32), ttnn.uint32, device=device))
