"""Keys and values in blocks that any user may own: which ones, a page table tells."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import ttnn

from tt_llama.model_args import TILE, ModelArgs
from tt_llama.tensor_parallel import TensorParallel

Caches = tuple[ttnn.Tensor, ttnn.Tensor]  # keys and values of one layer, [blocks, kv_heads, block, head_dim]
_BLOCKS, _KV_HEADS = 0, 1  # the dims of a cache that groups of users, and the devices of a row, share


@dataclass(frozen=True)
class PagedCache:
    page_table: ttnn.Tensor  # [users, pages]
    layers: list[Caches]


def paged_cache(tp: TensorParallel, args: ModelArgs, users: int, length: int, block_size: int = 32) -> PagedCache:
    """Room for `length` positions of each user. Blocks are dealt out in no order, as those of a server are."""
    pages = -(-length // block_size)
    _check_room(tp, args, users, length, pages * block_size)
    draw = torch.Generator().manual_seed(0)
    own = users // tp.groups * pages  # blocks of a group, which count from 0 in each
    blocks = torch.cat([torch.randperm(own, generator=draw) for _ in range(tp.groups)])
    empty = torch.zeros(users * pages, args.num_key_value_heads, block_size, args.head_dim)
    dims = (_BLOCKS if tp.shares_users else None, _KV_HEADS)

    def caches() -> Caches:
        return tp.put(empty, dims), tp.put(empty, dims)

    return PagedCache(
        tp.put_numbers(blocks.reshape(users, pages).int(), users=0, dtype=ttnn.int32),
        [caches() for _ in range(args.num_hidden_layers)],
    )


def _check_room(tp: TensorParallel, args: ModelArgs, users: int, length: int, positions: int) -> None:
    """Before the host is asked for memory: what the caches of all layers take of a device, and what it has."""
    tiles = users // tp.groups * positions * args.key_size // tp.columns // TILE**2
    needed = 2 * args.num_hidden_layers * tiles * ttnn.tile_size(tp.dtype)
    memory = ttnn.get_memory_view(tp.mesh_device, ttnn.BufferType.DRAM)
    free = memory.num_banks * memory.total_bytes_free_per_bank
    if needed > free:
        raise ValueError(
            f"the caches of {users} users with {length} tokens each take {needed / 2**30:.1f} GiB of every device, "
            f"and {free / 2**30:.1f} GiB are free: take fewer --users or --tokens, or more devices."
        )
