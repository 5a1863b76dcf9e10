"""The whole model on one mesh: prefill one user's prompt, or decode one token of every user."""

from __future__ import annotations

import torch
import ttnn

from tt_llama.attention import Angles, Attention
from tt_llama.checkpoint import StateDict
from tt_llama.kv_cache import Caches, PagedCache
from tt_llama.mlp import MLP
from tt_llama.model_args import TILE, ModelArgs
from tt_llama.norm import RMSNorm
from tt_llama.progress import progress
from tt_llama.rope import Rope
from tt_llama.tensor_parallel import TensorParallel


class Embedding:
    def __init__(self, tp: TensorParallel, table: torch.Tensor) -> None:
        self._table = tp.like_residual(table, dim=1)

    def __call__(self, tokens: ttnn.Tensor) -> ttnn.Tensor:
        """[1, n] -> [1, 1, n, hidden]"""
        return ttnn.unsqueeze_to_4D(ttnn.embedding(tokens, self._table, layout=ttnn.TILE_LAYOUT))


class LMHead:
    """Devices of a row share the vocabulary, which is filled up to whole tiles on each of them."""

    def __init__(self, tp: TensorParallel, weight: torch.Tensor) -> None:
        self._tp, self._vocabulary = tp, weight.shape[0]
        self._filler = -self._vocabulary % (TILE * tp.columns)
        self._weight = tp.from_hidden(torch.nn.functional.pad(weight, (0, 0, 0, self._filler)))

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        logits = self._tp.gathered(self._tp.summed_over_hidden(ttnn.linear(x, self._weight)))
        return logits[:, :, :, : self._vocabulary] if self._filler else logits


class Layer:
    def __init__(self, tp: TensorParallel, args: ModelArgs, rope: Rope, weights: StateDict) -> None:
        self._attention_norm = RMSNorm(tp, args, weights["input_layernorm.weight"])
        self._attention = Attention(tp, args, rope, weights)
        self._mlp_norm = RMSNorm(tp, args, weights["post_attention_layernorm.weight"])
        self._mlp = MLP(tp, weights)

    def prefill(
        self, x: ttnn.Tensor, angles: Angles, caches: Caches, page_table: ttnn.Tensor, user: int
    ) -> ttnn.Tensor:
        attended = self._attention.prefill(self._attention_norm(x), angles, caches, page_table, user)
        return self._feed_forward(ttnn.add(x, attended))

    def decode(
        self,
        x: ttnn.Tensor,
        angles: Angles,
        caches: Caches,
        page_table: ttnn.Tensor,
        positions: ttnn.Tensor,
    ) -> ttnn.Tensor:
        attended = self._attention.decode(self._attention_norm(x), angles, caches, page_table, positions)
        return self._feed_forward(ttnn.add(x, attended))

    def _feed_forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.add(x, self._mlp(self._mlp_norm(x)))


class Transformer:
    def __init__(self, tp: TensorParallel, args: ModelArgs, weights: StateDict, length: int) -> None:
        """`length` is the longest sequence, prompt and answer together."""
        check_fits(args, tp)
        self.tp, self.args = tp, args
        self._rope = Rope(tp, args, length)
        self._embedding = Embedding(tp, weights["model.embed_tokens.weight"])
        numbers = progress(range(args.num_hidden_layers), "Placing layers")
        self._layers = [Layer(tp, args, self._rope, _of_layer(weights, n)) for n in numbers]
        self._norm = RMSNorm(tp, args, weights["model.norm.weight"])
        head = "model.embed_tokens.weight" if args.tie_word_embeddings else "lm_head.weight"
        self._lm_head = LMHead(tp, weights[head])

    def prefill(self, tokens: ttnn.Tensor, cache: PagedCache, user: int, is_last: ttnn.Tensor) -> ttnn.Tensor:
        """The logits [1, 1, 1, vocabulary] that follow a prompt [1, n]; `is_last` [1, 1, 1, n] is 1 at its end.

        Rows of the mesh that have users of their own have prompts of their own, which end where they do.
        """
        x = self._embedding(tokens)
        angles = self._rope.of_sequence(tokens.shape[-1])
        for layer, caches in zip(self._layers, cache.layers, strict=True):
            x = layer.prefill(x, angles, caches, cache.page_table, user)
        return self._lm_head(self._norm(ttnn.matmul(is_last, x)))

    def decode(
        self,
        tokens: ttnn.Tensor,
        positions: ttnn.Tensor,
        rope_positions: ttnn.Tensor,
        cache: PagedCache,
    ) -> ttnn.Tensor:
        """The logits [1, 1, users, vocabulary] that follow one token of each user, [1, users]."""
        x = self._embedding(tokens)
        angles = self._rope.of_users(rope_positions)
        for layer, caches in zip(self._layers, cache.layers, strict=True):
            x = layer.decode(x, angles, caches, cache.page_table, positions)
        return self._lm_head(self._norm(x))


def check_fits(args: ModelArgs, tp: TensorParallel) -> None:
    """Each device gets whole heads, and whole tiles of what is split."""
    shared = {
        "num_key_value_heads": (args.num_key_value_heads, tp.columns),
        "num_attention_heads": (args.num_attention_heads, tp.columns),
        "intermediate_size": (args.intermediate_size, TILE * tp.columns),
        "hidden_size": (args.hidden_size, TILE * (tp.rows * tp.columns if tp.splits_residual else tp.rows)),
        "head_dim": (args.head_dim, TILE),
    }
    for name, (size, multiple) in shared.items():
        if size % multiple:
            raise ValueError(
                f"{name}={size} must be a multiple of {multiple} on {tp.mesh_device}: "
                "take fewer along that axis, or make groups of them by --data-parallel."
            )


def _of_layer(weights: StateDict, number: int) -> StateDict:
    prefix = f"model.layers.{number}."
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
