from __future__ import annotations

import torch
import ttnn

from tt_llama.kv_cache import Caches
from tt_llama.model_args import ModelArgs
from tt_llama.rope import Rope, neighbours_paired
from tt_llama.tensor_parallel import TensorParallel

Angles = tuple[ttnn.Tensor, ttnn.Tensor]  # cosines and sines


class Attention:
    """Grouped-query attention over pages; each device has some of the query heads, and their key heads."""

    def __init__(self, tp: TensorParallel, args: ModelArgs, rope: Rope, weights: dict[str, torch.Tensor]) -> None:
        self._tp = tp
        self._turning = rope.turning
        self._scale = args.head_dim**-0.5
        self._heads = {
            "num_heads": args.num_attention_heads // tp.columns,
            "num_kv_heads": args.num_key_value_heads // tp.columns,
        }
        q, k, v, o = (weights[f"self_attn.{name}_proj.weight"] for name in "qkvo")
        q, k = (neighbours_paired(weight, args.head_dim) for weight in (q, k))
        self._wqkv = tp.from_hidden(_side_by_side([q, k, v], tp.columns))
        self._wo = tp.to_hidden(o)

    def prefill(
        self, x: ttnn.Tensor, angles: Angles, caches: Caches, page_table: ttnn.Tensor, user: int
    ) -> ttnn.Tensor:
        """All tokens of one user, [1, 1, tokens, hidden]; their keys and values go to the user's pages."""
        qkv = self._tp.summed_over_hidden(ttnn.linear(x, self._wqkv))
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(qkv, transpose_k_heads=False, **self._heads)
        q, k = (ttnn.experimental.rotary_embedding_llama(y, *angles, self._turning) for y in (q, k))
        for cache, new in zip(caches, (k, v), strict=True):
            ttnn.experimental.paged_fill_cache(cache, new, page_table, batch_idx=user)
        attended = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self._scale)
        joined = ttnn.experimental.nlp_concat_heads(attended)
        return self._tp.summed_over_width(ttnn.linear(joined, self._wo))

    def decode(
        self,
        x: ttnn.Tensor,
        angles: Angles,
        caches: Caches,
        page_table: ttnn.Tensor,
        positions: ttnn.Tensor,
    ) -> ttnn.Tensor:
        """The newest token of each user, [1, 1, users, hidden], at the user's own position."""
        qkv = self._tp.summed_over_hidden(ttnn.linear(x, self._wqkv))
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
            qkv, memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG, **self._heads
        )
        q, k = (
            ttnn.experimental.rotary_embedding_llama(y, *angles, self._turning, is_decode_mode=True) for y in (q, k)
        )
        for cache, new in zip(caches, (k, v), strict=True):
            ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions, page_table=page_table)
        attended = ttnn.transformer.paged_scaled_dot_product_attention_decode(
            q, *caches, page_table, cur_pos_tensor=positions, scale=self._scale
        )
        joined = ttnn.experimental.nlp_concat_heads_decode(attended, num_heads=self._heads["num_heads"])
        joined = joined[:, :, : x.shape[2], :]  # it has the rows of a whole tile
        return self._tp.summed_over_width(ttnn.linear(joined, self._wo))


def _side_by_side(weights: list[torch.Tensor], devices: int) -> torch.Tensor:
    """One weight whose rows are, device by device, its queries, keys and values."""
    shares = [weight.reshape(devices, -1, weight.shape[1]) for weight in weights]
    return torch.cat(shares, dim=1).flatten(0, 1)
