"""A small Llama in plain torch, float32, and its weights rounded to the dtypes that the chips hold them in."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

import softmesh as ttnn

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class LlamaConfig:
    dim: int = 512
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 64
    hidden: int = 1024
    vocab: int = 1024
    layers: int = 2
    eps: float = 1e-5
    length: int = 256
    block: int = 32  # positions of a page of the caches
    dtypes: dict[str, ttnn.DataType] = field(
        default_factory=lambda: {
            "wq": ttnn.bfloat8_b,
            "wk": ttnn.bfloat8_b,
            "wv": ttnn.bfloat8_b,
            "wo": ttnn.bfloat8_b,
            "w1": ttnn.bfloat4_b,
            "w2": ttnn.bfloat8_b,
            "w3": ttnn.bfloat4_b,
            "output": ttnn.bfloat8_b,
        }
    )


def random_weights(config: LlamaConfig, seed: int = 0) -> Weights:
    """Matrices as [in, out], with the values that their dtype can hold."""
    generator = torch.Generator().manual_seed(seed)
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes = {
        "wq": (config.dim, q),
        "wk": (config.dim, kv),
        "wv": (config.dim, kv),
        "wo": (q, config.dim),
        "w1": (config.dim, config.hidden),
        "w3": (config.dim, config.hidden),
        "w2": (config.hidden, config.dim),
    }

    def drawn(name: str, shape: tuple[int, int]) -> torch.Tensor:
        values = torch.randn(shape, generator=generator) * shape[0] ** -0.5
        return ttnn.to_torch(ttnn.from_torch(values, config.dtypes[name], layout=ttnn.TILE_LAYOUT)).float()

    def norm() -> torch.Tensor:
        return (1 + 0.1 * torch.randn(config.dim, generator=generator)).bfloat16().float()

    weights = {
        "embedding": torch.randn(config.vocab, config.dim, generator=generator).bfloat16().float(),
        "norm": norm(),
        "output": drawn("output", (config.dim, config.vocab)),
    }
    for layer in range(config.layers):
        weights |= {f"{layer}.{name}": drawn(name, shape) for name, shape in shapes.items()}
        weights |= {f"{layer}.attention_norm": norm(), f"{layer}.ffn_norm": norm()}
    return weights


def angles(config: LlamaConfig, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [length, head_dim], each of them twice, side by side."""
    speeds = 1.0 / 10000.0 ** (torch.arange(0, config.head_dim, 2) / config.head_dim)
    turned = torch.outer(torch.arange(length), speeds).repeat_interleave(2, -1)
    return turned.cos(), turned.sin()


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class TorchLlama:
    """Keeps keys and values [users, kv_heads, length, head_dim] of every layer."""

    def __init__(self, config: LlamaConfig, weights: Weights, users: int) -> None:
        self.config, self.weights = config, weights
        self.cos, self.sin = angles(config, config.length)
        shape = (config.layers, 2, users, config.kv_heads, config.length, config.head_dim)
        self.caches = torch.zeros(shape)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits [users, tokens, vocab] of tokens [users, tokens] that begin at each user's position."""
        x = self.weights["embedding"][tokens]
        where = positions[:, None] + torch.arange(tokens.shape[1])
        for layer in range(self.config.layers):
            x = x + self._attention(layer, self._norm(f"{layer}.attention_norm", x), where)
            x = x + self._mlp(layer, self._norm(f"{layer}.ffn_norm", x))
        return self._norm("norm", x) @ self.weights["output"]

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return normed(x, self.weights[name], self.config.eps)

    def _mlp(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        w1, w2, w3 = (self.weights[f"{layer}.w{i}"] for i in (1, 2, 3))
        return (torch.nn.functional.silu(x @ w1) * (x @ w3)) @ w2

    def _attention(self, layer: int, x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        q, k, v = (self._heads(x @ self.weights[f"{layer}.w{name}"]) for name in "qkv")
        q, k = self._turned(q, where), self._turned(k, where)
        users = torch.arange(x.shape[0])[:, None]
        for cache, new in zip(self.caches[layer], (k, v), strict=True):
            cache.transpose(1, 2)[users, where] = new.transpose(1, 2)
        keys, values = (c.repeat_interleave(self.config.heads // self.config.kv_heads, 1) for c in self.caches[layer])
        scores = q @ keys.transpose(-2, -1) * self.config.head_dim**-0.5
        hidden = torch.arange(self.config.length) > where[:, None, :, None]
        attended = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values
        return attended.transpose(1, 2).flatten(2) @ self.weights[f"{layer}.wo"]

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def _turned(self, x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        across = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return x * self.cos[where][:, None] + across * self.sin[where][:, None]


def pcc(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Pearson's correlation, as the tests of models measure it."""
    pair = torch.stack([result.flatten().double(), expected.flatten().double()])
    return float(torch.corrcoef(pair)[0, 1])
