"""The same model in plain torch, on one device and with a plain cache.

In bfloat16 it computes in float32 and rounds after each step, as the chips do.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tt_llama.checkpoint import StateDict
from tt_llama.model_args import ModelArgs
from tt_llama.rope import angles


class TorchLlama:
    def __init__(
        self,
        args: ModelArgs,
        weights: StateDict,
        users: int,
        length: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.args, self.dtype = args, dtype
        self._weights = {name: value.to(dtype) for name, value in weights.items()}
        if args.tie_word_embeddings:
            self._weights["lm_head.weight"] = self._weights["model.embed_tokens.weight"]
        turns = angles(args, length).repeat(1, 2)
        self._cos, self._sin = (table.to(dtype).float() for table in (turns.cos(), turns.sin()))
        shape = (args.num_hidden_layers, 2, users, args.num_key_value_heads, length, args.head_dim)
        self._cache = torch.zeros(shape, dtype=dtype)

    def prefill(self, user: int, tokens: list[int]) -> torch.Tensor:
        """The logits (vocabulary) that follow a user's prompt."""
        count = len(tokens)
        x = self._embedded(tokens)
        cos, sin = self._cos[:count], self._sin[:count]
        for n in range(self.args.num_hidden_layers):
            q, k, v = (heads.transpose(0, 1) for heads in self._heads(n, x))
            q, k = (self._turned(y, cos, sin) for y in (q, k))
            self._cache[n, 0, user, :, :count], self._cache[n, 1, user, :, :count] = k, v
            grouped = q.unflatten(0, (k.shape[0], -1))
            whole = torch.broadcast_to(k.unsqueeze(1), (*grouped.shape[:2], *k.shape[1:]))
            values = torch.broadcast_to(v.unsqueeze(1), whole.shape)
            out = F.scaled_dot_product_attention(grouped.float(), whole.float(), values.float(), is_causal=True)
            x = self._rest_of_layer(n, x, out.flatten(0, 1).transpose(0, 1))
        return self._logits(x[-1:])[0]

    def decode(self, tokens: list[int], positions: list[int]) -> torch.Tensor:
        """The logits (users, vocabulary) that follow one token of each user."""
        x, at = self._embedded(tokens), torch.tensor(positions)
        users = torch.arange(len(tokens))
        cos, sin = self._cos[at].unsqueeze(1), self._sin[at].unsqueeze(1)
        reach = max(positions) + 1
        seen = None if min(positions) + 1 == reach else torch.arange(reach) <= at.view(-1, 1, 1, 1)
        for n in range(self.args.num_hidden_layers):
            q, k, v = self._heads(n, x)
            q, k = (self._turned(y, cos, sin) for y in (q, k))
            keys, values = self._cache[n]
            keys[users, :, at], values[users, :, at] = k, v
            grouped = q.unflatten(1, (k.shape[1], -1))  # the queries of a group are rows over its keys
            known = (cache[:, :, :reach].float() for cache in (keys, values))
            out = F.scaled_dot_product_attention(grouped.float(), *known, attn_mask=seen)
            x = self._rest_of_layer(n, x, out.flatten(1, 2))
        return self._logits(x)

    # -- steps that prefill and decode share, on x (tokens, hidden) --------------------------------

    def _embedded(self, tokens: list[int]) -> torch.Tensor:
        return self._weights["model.embed_tokens.weight"][torch.tensor(tokens)]

    def _heads(self, n: int, x: torch.Tensor) -> list[torch.Tensor]:
        """Queries, keys and values, each (tokens, heads, head_dim)."""
        layer = f"model.layers.{n}"
        normed = self._normed(x, f"{layer}.input_layernorm")
        projected = (self._linear(normed, f"{layer}.self_attn.{name}_proj") for name in "qkv")
        return [y.unflatten(-1, (-1, self.args.head_dim)) for y in projected]

    def _turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        first, second = wide.chunk(2, -1)
        return (wide * cos + torch.cat([-second, first], -1) * sin).to(self.dtype)

    def _rest_of_layer(self, n: int, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        layer = f"model.layers.{n}"
        joined = attended.to(self.dtype).flatten(-2)
        x = x + self._linear(joined, f"{layer}.self_attn.o_proj")
        normed = self._normed(x, f"{layer}.post_attention_layernorm")
        gate, up = (self._linear(normed, f"{layer}.mlp.{name}_proj") for name in ("gate", "up"))
        gated = (F.silu(gate.float()) * up.float()).to(self.dtype)
        return x + self._linear(gated, f"{layer}.mlp.down_proj")

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        return self._linear(self._normed(x, "model.norm"), "lm_head")

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x.float(), self._weights[f"{name}.weight"].float()).to(self.dtype)

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.args.rms_norm_eps)
        return (wide * scale * self._weights[f"{name}.weight"].float()).to(self.dtype)


def greedy(model: TorchLlama, prompts: list[list[int]], count: int) -> list[list[int]]:
    """`count` tokens after each prompt."""
    tokens = [int(model.prefill(user, prompt).argmax()) for user, prompt in enumerate(prompts)]
    steps = [tokens]
    for step in range(count - 1):
        tokens = model.decode(tokens, [len(prompt) + step for prompt in prompts]).argmax(-1).tolist()
        steps.append(tokens)
    return [list(each) for each in zip(*steps, strict=True)]
