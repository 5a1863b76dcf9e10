"""Keys and values in blocks that any user may own: which ones, a page table tells."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import ttnn

from tt_llama.model_args import ModelArgs
from tt_llama.tensor_parallel import TensorParallel

Caches = tuple[ttnn.Tensor, ttnn.Tensor]  # keys and values of one layer, [blocks, kv_heads, block, head_dim]
_KV_HEADS = 1  # the dim of a cache that the devices of a row share


@dataclass(frozen=True)
class PagedCache:
    page_table: ttnn.Tensor  # [users, pages]
    layers: list[Caches]


def paged_cache(
    tp: TensorParallel, args: ModelArgs, users: int, length: int, block_size: int = 32
) -> PagedCache:
    """Room for `length` positions of each user. Blocks are dealt out in no order, as those of a server are."""
    pages = -(-length // block_size)
    blocks = torch.randperm(users * pages, generator=torch.Generator().manual_seed(0))
    table = blocks.reshape(users, pages).int()
    empty = torch.zeros(users * pages, args.num_key_value_heads, block_size, args.head_dim)

    def caches() -> Caches:
        return tp.put(empty, (None, _KV_HEADS)), tp.put(empty, (None, _KV_HEADS))

    return PagedCache(
        tp.put(table, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT),
        [caches() for _ in range(args.num_hidden_layers)],
    )
