"""The GPT of `softmesh bench train` in plain torch, with the parameter names of the one on a mesh."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Size:
    vocabulary: int = 96
    features: int = 512
    heads: int = 8
    blocks: int = 4
    tokens: int = 64
    rows: int = 16


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        wide = size.features
        self.heads = size.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.asking, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self._attended(self.norm_1(x)))
        moved: torch.Tensor = self.down(F.gelu(self.up(self.norm_2(x))))
        return x + moved

    def _attended(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, wide = x.shape
        by_head = self.asking(x).view(rows, tokens, self.heads, 3, wide // self.heads).transpose(1, 2)
        q, k, v = by_head.unbind(-2)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return found.transpose(1, 2).reshape(rows, tokens, wide)


class TorchGPT(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.characters = nn.Embedding(size.vocabulary, size.features)
        self.places = nn.Parameter(torch.zeros(size.tokens, size.features))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.blocks))
        self.norm = nn.LayerNorm(size.features)
        self.head = nn.Linear(size.features, size.vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.characters(ids) + self.places
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class TorchTraining:
    """Steps of AdamW on one batch, with the gradients' norm bounded."""

    def __init__(self, model: nn.Module, ids: torch.Tensor, targets: torch.Tensor) -> None:
        self._model, self._ids, self._targets = model, ids.long(), targets.long()
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(self) -> float:
        loss = self._model(self._ids, self._targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())
