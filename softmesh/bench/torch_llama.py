"""A Llama in plain torch on one GPU, as one would write it there: bfloat16, fused attention, a CUDA graph for a step.

The peer of `softmesh bench gpu`; its weights have the names of Hugging Face.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

_NEVER = float("-inf")


class PlainLlama:
    """For `users` users whose sequences have up to `length` tokens. `sizes` is the example's ModelArgs."""

    def __init__(self, sizes: Any, weights: Mapping[str, torch.Tensor], users: int, length: int) -> None:
        self.sizes, self.w = sizes, {name: value.to("cuda", torch.bfloat16) for name, value in weights.items()}
        half = torch.arange(0, sizes.head_dim, 2, device="cuda", dtype=torch.float64)
        turns = torch.outer(torch.arange(length, device="cuda"), sizes.rope_theta ** (-half / sizes.head_dim))
        self.cos, self.sin = (table.bfloat16() for table in (turns.cos().repeat(1, 2), turns.sin().repeat(1, 2)))
        shape = (sizes.num_hidden_layers, 2, users, sizes.num_key_value_heads, length, sizes.head_dim)
        self.cache = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
        self.tokens = torch.zeros(users, device="cuda", dtype=torch.int64)
        self.positions = torch.zeros(users, device="cuda", dtype=torch.int64)
        self.users, self.reach = torch.arange(users, device="cuda"), torch.arange(length, device="cuda")

    def prefill(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits that follow one prompt."""
        x, count = F.embedding(tokens, self.w["model.embed_tokens.weight"]), len(tokens)

        def attend(n: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = (y.transpose(0, 1) for y in (q, k, v))
            self.cache[n, 0, 0, :, :count], self.cache[n, 1, 0, :, :count] = k, v
            out = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)
            return out[0].transpose(0, 1)

        return self._rest(x, self.cos[:count, None], self.sin[:count, None], attend, last_only=True)

    def decode(self) -> torch.Tensor:
        """One token of each user: the likeliest becomes the next one, and positions move on."""
        x = F.embedding(self.tokens, self.w["model.embed_tokens.weight"])
        at = self.positions
        hidden = torch.zeros(len(at), 1, 1, len(self.reach), device="cuda", dtype=torch.bfloat16)
        hidden.masked_fill_((self.reach > at[:, None])[:, None, None], _NEVER)

        def attend(n: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.cache[n]
            keys[self.users, :, at], values[self.users, :, at] = k, v
            out = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=hidden, enable_gqa=True)
            return out[:, :, 0]

        logits = self._rest(x, self.cos[at, None], self.sin[at, None], attend)
        self.tokens.copy_(logits.argmax(-1))
        self.positions += 1
        return logits

    def graphed(self) -> Callable[[], None]:
        """A step as a CUDA graph."""
        self.decode()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.decode()
        return graph.replay

    def _rest(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        attend: Callable[..., torch.Tensor],
        last_only: bool = False,
    ) -> torch.Tensor:
        for n in range(self.sizes.num_hidden_layers):
            layer = f"model.layers.{n}"
            normed = self._normed(x, f"{layer}.input_layernorm")
            q, k, v = (
                self._linear(normed, f"{layer}.self_attn.{name}_proj").unflatten(-1, (-1, self.sizes.head_dim))
                for name in "qkv"
            )
            attended = attend(n, *(y * cos + _rotated(y) * sin for y in (q, k)), v).flatten(-2)
            x = x + self._linear(attended, f"{layer}.self_attn.o_proj")
            normed = self._normed(x, f"{layer}.post_attention_layernorm")
            gate, up = (self._linear(normed, f"{layer}.mlp.{name}_proj") for name in ("gate", "up"))
            x = x + self._linear(F.silu(gate) * up, f"{layer}.mlp.down_proj")
        return self._linear(self._normed(x[-1:] if last_only else x, "model.norm"), "lm_head")

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.w[f"{name}.weight"])

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.sizes.rms_norm_eps)


def _rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)
