"""A training step of GPT as on one device, in plain ops: forward, backward and AdamW.

softmesh plan examples/plan/gpt_training.py:step --system T3000 --goal training layers=4

Nothing is said of data, tensor or fully sharded parallelism: a plan chooses where weights, gradients and the state of
the optimizer lie, and what is gathered or summed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import ttnn

EPSILON = 1e-5
Weights = dict[str, Any]


@dataclass(frozen=True)
class Config:
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50304
    tokens: int = 1024  # of a sequence
    learning_rate: float = 1e-3
    decay: float = 0.01

    @property
    def head(self) -> int:
        return self.width // self.heads


def weights(config: Config) -> Weights:
    """By name, as torch tensors; those of each layer below `layers`."""
    torch.manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape) * 0.02

    width = config.width
    layer = dict.fromkeys(("wq", "wk", "wv", "wo"), (width, width))
    layer |= {"up": (width, 4 * width), "down": (4 * width, width)}
    return {
        "embedding": random(config.vocabulary, width),
        "position": random(1, 1, config.tokens, width),
        "layers": [
            {name: random(*shape) for name, shape in layer.items()}
            | {name: torch.ones(1, 1, 1, width) for name in ("attention_norm", "mlp_norm")}
            for _ in range(config.layers)
        ],
        "norm": torch.ones(1, 1, 1, width),
        "head": random(width, config.vocabulary),
    }


class Training:
    """Weights, and what AdamW remembers of them, on a device."""

    def __init__(self, config: Config, values: Weights, device: ttnn.MeshDevice, dtype: ttnn.DataType) -> None:
        self.config, self.device, self.dtype = config, device, dtype
        self.weights = self._map(values, self._put)
        self.momentum = self._map(values, lambda value: self._put(torch.zeros(value.shape)))
        self.variance = self._map(values, lambda value: self._put(torch.zeros(value.shape)))
        ahead = torch.triu(torch.ones(config.tokens, config.tokens), 1)
        self.hidden = self._put((ahead * -1e9)[None, None])
        self.numbers = self._put(torch.arange(config.vocabulary).float()[None, None, None])

    def _put(self, values: torch.Tensor, layout: ttnn.Layout = ttnn.TILE_LAYOUT) -> ttnn.Tensor:
        return ttnn.from_torch(values, self.dtype, layout=layout, device=self.device)

    def _map(self, values: Any, change: Any) -> Any:
        if isinstance(values, dict):
            return {name: self._map(value, change) for name, value in values.items()}
        return [self._map(value, change) for value in values] if isinstance(values, list) else change(values)

    def step(self, tokens: ttnn.Tensor, targets: ttnn.Tensor, number: int = 1) -> ttnn.Tensor:
        """tokens [sequences, tokens], targets [sequences, 1, tokens, 1] -> the loss before the step"""
        loss, gradients = self._gradients(tokens, targets)
        self._update(self.weights, gradients, self.momentum, self.variance, number)
        return loss

    # -- forward, with what backward needs -----------------------------------------------------------

    def _gradients(self, tokens: ttnn.Tensor, targets: ttnn.Tensor) -> tuple[ttnn.Tensor, Weights]:
        c, w = self.config, self.weights
        sequences, length = tokens.shape
        looked_up = ttnn.embedding(tokens, w["embedding"], layout=ttnn.TILE_LAYOUT)
        x = ttnn.add(ttnn.reshape(looked_up, (sequences, 1, length, c.width)), w["position"])
        kept = []
        for layer in w["layers"]:
            x, saved = self._block(x, layer)
            kept.append(saved)
        final, norm = normed(x, w["norm"])
        shares = ttnn.softmax(ttnn.matmul(final, w["head"]), dim=-1)
        wanted = ttnn.eq(self.numbers, targets)
        count = sequences * length
        loss = ttnn.multiply(
            ttnn.sum(ttnn.multiply(ttnn.log(ttnn.sum(ttnn.multiply(shares, wanted), -1, True)), -1.0)), 1 / count
        )
        # backward
        d_logits = ttnn.multiply(ttnn.subtract(shares, wanted), 1 / count)
        grads: Weights = {"layers": [], "head": weight_gradient(final, d_logits)}
        dx, grads["norm"] = normed_backward(ttnn.matmul(d_logits, w["head"], transpose_b=True), norm, w["norm"])
        for layer, saved in zip(reversed(w["layers"]), reversed(kept), strict=True):
            dx, own = self._block_backward(dx, layer, saved)
            grads["layers"].insert(0, own)
        grads["position"] = ttnn.sum(dx, 0, True)
        rows = ttnn.reshape(dx, (1, 1, count, c.width))
        table = ttnn.embedding_bw(tokens, w["embedding"], rows)
        grads["embedding"] = ttnn.reshape(table, (c.vocabulary, c.width))
        return loss, grads

    def _block(self, x: ttnn.Tensor, w: Weights) -> tuple[ttnn.Tensor, dict[str, Any]]:
        h, first = normed(x, w["attention_norm"])
        q, k, v = (self._heads(ttnn.matmul(h, w[name])) for name in ("wq", "wk", "wv"))
        scores = ttnn.multiply(ttnn.matmul(q, k, transpose_b=True), self.config.head**-0.5)
        shares = ttnn.softmax(ttnn.add(scores, self.hidden), dim=-1)
        seen = self._joined(ttnn.matmul(shares, v))
        x = ttnn.add(x, ttnn.matmul(seen, w["wo"]))
        m, second = normed(x, w["mlp_norm"])
        inner = ttnn.matmul(m, w["up"])
        active = ttnn.gelu(inner)
        kept = {"h": h, "first": first, "q": q, "k": k, "v": v, "shares": shares, "seen": seen}
        return ttnn.add(x, ttnn.matmul(active, w["down"])), kept | {
            "m": m,
            "second": second,
            "inner": inner,
            "active": active,
        }

    def _block_backward(self, dy: ttnn.Tensor, w: Weights, kept: dict[str, Any]) -> tuple[ttnn.Tensor, Weights]:
        grads: Weights = {"down": weight_gradient(kept["active"], dy)}
        d_inner = ttnn.gelu_bw(ttnn.matmul(dy, w["down"], transpose_b=True), kept["inner"], approximate="none")[0]
        grads["up"] = weight_gradient(kept["m"], d_inner)
        d_m = ttnn.matmul(d_inner, w["up"], transpose_b=True)
        d_mlp, grads["mlp_norm"] = normed_backward(d_m, kept["second"], w["mlp_norm"])
        dx = ttnn.add(dy, d_mlp)
        grads["wo"] = weight_gradient(kept["seen"], dx)
        d_seen = self._heads(ttnn.matmul(dx, w["wo"], transpose_b=True))
        shares, scale = kept["shares"], self.config.head**-0.5
        d_v = ttnn.matmul(shares, d_seen, transpose_a=True)
        d_shares = ttnn.matmul(d_seen, kept["v"], transpose_b=True)
        mixed = ttnn.sum(ttnn.multiply(d_shares, shares), -1, True)
        d_scores = ttnn.multiply(ttnn.multiply(shares, ttnn.subtract(d_shares, mixed)), scale)
        d_q, d_k = ttnn.matmul(d_scores, kept["k"]), ttnn.matmul(d_scores, kept["q"], transpose_a=True)
        d_h = None
        for name, gradient in (("wq", d_q), ("wk", d_k), ("wv", d_v)):
            joined = self._joined(gradient)
            grads[name] = weight_gradient(kept["h"], joined)
            back = ttnn.matmul(joined, w[name], transpose_b=True)
            d_h = back if d_h is None else ttnn.add(d_h, back)
        d_attention, grads["attention_norm"] = normed_backward(d_h, kept["first"], w["attention_norm"])
        return ttnn.add(dx, d_attention), grads

    def _heads(self, x: ttnn.Tensor) -> ttnn.Tensor:
        c = self.config
        return ttnn.permute(ttnn.reshape(x, (x.shape[0], x.shape[2], c.heads, c.head)), (0, 2, 1, 3))

    def _joined(self, x: ttnn.Tensor) -> ttnn.Tensor:
        back = ttnn.permute(x, (0, 2, 1, 3))
        return ttnn.reshape(back, (x.shape[0], 1, x.shape[2], self.config.width))

    # -- AdamW ---------------------------------------------------------------------------------------

    def _update(self, value: Any, gradient: Any, momentum: Any, variance: Any, number: int) -> None:
        if isinstance(value, dict | list):
            for key in value if isinstance(value, dict) else range(len(value)):
                self._update(value[key], gradient[key], momentum[key], variance[key], number)
            return
        ttnn.multiply_(momentum, 0.9)
        ttnn.add_(momentum, ttnn.multiply(gradient, 0.1))
        ttnn.multiply_(variance, 0.999)
        ttnn.add_(variance, ttnn.multiply(ttnn.multiply(gradient, gradient), 0.001))
        root = ttnn.sqrt(ttnn.multiply(variance, 1 / (1 - 0.999**number)))
        change = ttnn.div(ttnn.multiply(momentum, 1 / (1 - 0.9**number)), ttnn.add(root, 1e-8))
        ttnn.multiply_(value, 1 - self.config.learning_rate * self.config.decay)
        ttnn.subtract_(value, ttnn.multiply(change, self.config.learning_rate))


def normed(x: ttnn.Tensor, weight: ttnn.Tensor) -> tuple[ttnn.Tensor, tuple[ttnn.Tensor, ttnn.Tensor]]:
    """The layer norm without a bias; and of each row what its gradient needs."""
    centred = ttnn.subtract(x, ttnn.mean(x, -1, True))
    variance = ttnn.mean(ttnn.multiply(centred, centred), -1, True)
    factor = ttnn.rsqrt(ttnn.add(variance, EPSILON))
    plain = ttnn.multiply(centred, factor)
    return ttnn.multiply(plain, weight), (plain, factor)


def normed_backward(dy: ttnn.Tensor, kept: tuple[ttnn.Tensor, ttnn.Tensor], weight: ttnn.Tensor) -> tuple[Any, Any]:
    plain, factor = kept
    by_row = ttnn.sum(ttnn.multiply(dy, plain), 2, True)
    own = ttnn.multiply(dy, weight)
    along = ttnn.multiply(plain, ttnn.mean(ttnn.multiply(own, plain), -1, True))
    dx = ttnn.multiply(ttnn.subtract(ttnn.subtract(own, ttnn.mean(own, -1, True)), along), factor)
    return dx, ttnn.sum(by_row, 0, True)


def weight_gradient(x: ttnn.Tensor, dy: ttnn.Tensor) -> ttnn.Tensor:
    """x [sequences, 1, tokens, in], dy [sequences, 1, tokens, out] -> [in, out]"""
    rows = x.shape[0] * x.shape[2]
    flat = (ttnn.reshape(one, (rows, one.shape[3])) for one in (x, dy))
    return ttnn.matmul(*flat, transpose_a=True)


def step(
    device: ttnn.MeshDevice,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    sequences: int = 32,
    tokens: int = 1024,
) -> ttnn.Tensor:
    config = Config(layers, width, heads, tokens=tokens)
    training = Training(config, weights(config), device, ttnn.bfloat16)
    ids = ttnn.from_torch(torch.zeros(sequences, tokens, dtype=torch.int32), ttnn.uint32, device=device)
    targets = torch.zeros(sequences, 1, tokens, 1)
    return training.step(ids, ttnn.from_torch(targets, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device))
