"""Llama as on one device, in plain ops: nothing here knows of a mesh. `softmesh plan` finds where to put it.

softmesh plan examples/plan/llama.py:decode --system Galaxy size=70b
softmesh plan examples/plan/llama.py:prefill --system T3000 --goal prefill size=8b length=4096

`decode` makes one token for each user, `prefill` reads prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import ttnn

EPSILON = 1e-5


@dataclass(frozen=True)
class Config:
    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    positions: int = 4096

    @property
    def head(self) -> int:
        return self.width // self.heads


CONFIGS = {
    "70b": Config(80, 8192, 64, 8, 28672, 128256),
    "8b": Config(32, 4096, 32, 8, 14336, 128256),
    "tiny": Config(2, 128, 4, 2, 256, 256, 64),
}


def weights(config: Config) -> dict[str, Any]:
    """By name, as torch tensors; those of each layer below `layers`."""
    torch.manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.bfloat16) * shape[0] ** -0.5

    c, kv = config, config.kv_heads * config.head
    layer = {"wq": (c.width, c.width), "wk": (c.width, kv), "wv": (c.width, kv), "wo": (c.width, c.width)}
    layer |= {"gate": (c.width, c.inner), "up": (c.width, c.inner), "down": (c.inner, c.width)}
    norms = {"attention_norm", "mlp_norm"}
    return {
        "embedding": random(c.vocabulary, c.width),
        "layers": [
            {name: random(*shape) for name, shape in layer.items()} | {name: torch.ones(c.width) for name in norms}
            for _ in range(c.layers)
        ],
        "norm": torch.ones(c.width),
        "head": random(c.width, c.vocabulary),
        **rotary_tables(c),
    }


def rotary_tables(config: Config) -> dict[str, torch.Tensor]:
    """cos and sin of each position, and the matrix that turns (a, b) into (-b, a), halves of a head apart."""
    steps = 10000.0 ** (-torch.arange(0, config.head, 2) / config.head)
    angles = torch.outer(torch.arange(config.positions), steps).repeat(1, 2)
    half = torch.eye(config.head // 2)
    turn = torch.zeros(config.head, config.head)
    turn[config.head // 2 :, : config.head // 2], turn[: config.head // 2, config.head // 2 :] = -half, half
    return {"cos": angles.cos()[None, None], "sin": angles.sin()[None, None], "turn": turn}


class Llama:
    def __init__(self, config: Config, device: ttnn.MeshDevice, values: dict[str, Any], batch: int, keys: int) -> None:
        """`keys`: how many positions each user's cache has room for."""
        self.config, self.device = config, device
        self.layers = [{name: self._put(value) for name, value in layer.items()} for layer in values["layers"]]
        self.embedding = self._put(values["embedding"], ttnn.ROW_MAJOR_LAYOUT)
        self.norm, self.head = self._put(values["norm"]), self._put(values["head"])
        self.cos, self.sin, self.turn = (self._put(values[name]) for name in ("cos", "sin", "turn"))
        self.cos_rows, self.sin_rows = (self._put(values[name][0, 0], ttnn.ROW_MAJOR_LAYOUT) for name in ("cos", "sin"))
        empty = torch.zeros(batch, config.kv_heads, keys, config.head)
        self.caches = [{"k": self._put(empty), "v": self._put(empty)} for _ in range(config.layers)]

    def _put(self, values: torch.Tensor, layout: ttnn.Layout = ttnn.TILE_LAYOUT) -> ttnn.Tensor:
        return ttnn.from_torch(values, ttnn.bfloat16, layout=layout, device=self.device)

    # -- one token for each user ---------------------------------------------------------------------

    def decode(self, tokens: ttnn.Tensor, positions: ttnn.Tensor) -> ttnn.Tensor:
        """tokens [1, 1, 1, users], positions [users] -> logits [1, 1, users, vocabulary]"""
        users = tokens.shape[-1]
        x = ttnn.embedding(tokens, self.embedding, layout=ttnn.TILE_LAYOUT)
        x = ttnn.reshape(x, (1, 1, users, self.config.width))
        cos, sin = (self._table_at(table, positions, users) for table in (self.cos_rows, self.sin_rows))
        for layer, cache in zip(self.layers, self.caches, strict=True):
            x = ttnn.add(
                x, self._decode_attention(self._normed(x, layer["attention_norm"]), layer, cache, cos, sin, positions)
            )
            x = ttnn.add(x, self._mlp(self._normed(x, layer["mlp_norm"]), layer))
        return ttnn.matmul(self._normed(x, self.norm), self.head)

    def _table_at(self, table: ttnn.Tensor, positions: ttnn.Tensor, users: int) -> ttnn.Tensor:
        rows = ttnn.embedding(ttnn.reshape(positions, (1, users)), table, layout=ttnn.TILE_LAYOUT)
        return ttnn.reshape(rows, (1, users, 1, self.config.head))

    def _decode_attention(self, x: Any, w: Any, cache: Any, cos: Any, sin: Any, positions: Any) -> ttnn.Tensor:
        c, users = self.config, x.shape[-2]
        q, k, v = (
            ttnn.reshape(ttnn.matmul(x, w[name]), (1, users, count, c.head))
            for name, count in (("wq", c.heads), ("wk", c.kv_heads), ("wv", c.kv_heads))
        )
        q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
        ttnn.experimental.paged_update_cache(cache["k"], k, update_idxs_tensor=positions)
        ttnn.experimental.paged_update_cache(cache["v"], v, update_idxs_tensor=positions)
        seen = ttnn.transformer.scaled_dot_product_attention_decode(q, cache["k"], cache["v"], cur_pos_tensor=positions)
        return ttnn.matmul(ttnn.reshape(seen, (1, 1, users, c.width)), w["wo"])

    # -- a whole prompt ------------------------------------------------------------------------------

    def prefill(self, tokens: ttnn.Tensor) -> ttnn.Tensor:
        """tokens [prompts, 1, 1, length] -> logits [prompts, 1, length, vocabulary]"""
        prompts, length = tokens.shape[0], tokens.shape[-1]
        x = ttnn.embedding(tokens, self.embedding, layout=ttnn.TILE_LAYOUT)
        x = ttnn.reshape(x, (prompts, 1, length, self.config.width))
        cos, sin = (ttnn.slice(t, [0, 0, 0, 0], [1, 1, length, self.config.head]) for t in (self.cos, self.sin))
        for layer, cache in zip(self.layers, self.caches, strict=True):
            x = ttnn.add(x, self._prefill_attention(self._normed(x, layer["attention_norm"]), layer, cache, cos, sin))
            x = ttnn.add(x, self._mlp(self._normed(x, layer["mlp_norm"]), layer))
        return ttnn.matmul(self._normed(x, self.norm), self.head)

    def _prefill_attention(self, x: Any, w: Any, cache: Any, cos: Any, sin: Any) -> ttnn.Tensor:
        c, prompts, length = self.config, x.shape[0], x.shape[-2]

        def heads(name: str, count: int) -> ttnn.Tensor:
            made = ttnn.reshape(ttnn.matmul(x, w[name]), (prompts, length, count, c.head))
            return ttnn.permute(made, (0, 2, 1, 3))

        q, k, v = heads("wq", c.heads), heads("wk", c.kv_heads), heads("wv", c.kv_heads)
        q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
        for user in range(prompts):
            ttnn.fill_cache(cache["k"], k[user : user + 1] if prompts > 1 else k, user)
            ttnn.fill_cache(cache["v"], v[user : user + 1] if prompts > 1 else v, user)
        seen = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)
        joined = ttnn.reshape(ttnn.permute(seen, (0, 2, 1, 3)), (prompts, 1, length, c.width))
        return ttnn.matmul(joined, w["wo"])

    # -- both ----------------------------------------------------------------------------------------

    def _rotated(self, x: ttnn.Tensor, cos: ttnn.Tensor, sin: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.add(ttnn.multiply(x, cos), ttnn.multiply(ttnn.matmul(x, self.turn), sin))

    def _normed(self, x: ttnn.Tensor, weight: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.rms_norm(x, weight=weight, epsilon=EPSILON)

    def _mlp(self, x: ttnn.Tensor, w: Any) -> ttnn.Tensor:
        gate = ttnn.linear(x, w["gate"], activation="silu")
        return ttnn.matmul(ttnn.multiply(gate, ttnn.matmul(x, w["up"])), w["down"])


# -- what is planned: functions of a device, that make weights and inputs on it ----------------------


def decode(
    device: ttnn.MeshDevice, size: str = "8b", layers: int = 0, users: int = 32, keys: int = 1024
) -> ttnn.Tensor:
    """One token for each user; `layers` 0: as many as the model has."""
    model = _model(device, size, layers, users, keys)
    tokens = ttnn.from_torch(torch.zeros(1, 1, 1, users, dtype=torch.int32), ttnn.uint32, device=device)
    positions = ttnn.from_torch(torch.zeros(users, dtype=torch.int32), ttnn.int32, device=device)
    return model.decode(tokens, positions)


def prefill(
    device: ttnn.MeshDevice, size: str = "8b", layers: int = 0, length: int = 4096, prompts: int = 1
) -> ttnn.Tensor:
    model = _model(device, size, layers, prompts, length)
    tokens = ttnn.from_torch(torch.zeros(prompts, 1, 1, length, dtype=torch.int32), ttnn.uint32, device=device)
    return model.prefill(tokens)


def _model(device: ttnn.MeshDevice, size: str, layers: int, users: int, keys: int) -> Llama:
    config = replace(CONFIGS[size], layers=layers or CONFIGS[size].layers)
    return Llama(config, device, weights(config), users, keys)
