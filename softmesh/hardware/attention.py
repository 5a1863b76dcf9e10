"""How attention reads its caches, and how its scores are shared out among cores."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.hardware.config import HardwareConfig
from softmesh.native_enum import NativeEnum


class SparseKVFormat(NativeEnum):
    """How a row of keys and values lies in a cache that sparse attention reads.

    SCALED_FP8 is a row of bytes: latent values in fp8, a float32 scale for each 128 of them, then bfloat16 ones.
    """

    BF16 = 0
    FP8_E4M3 = 1
    SCALED_FP8 = 2


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class PagedCacheGeometryOverride(HardwareConfig):
    """Reads the tiles of each block as `num_kv_heads` heads of `block_size` positions; 0 leaves the cache's own."""

    block_size: int = 0
    num_kv_heads: int = 0

    def active(self) -> bool:
        return bool(self.block_size or self.num_kv_heads)


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class IndexerScoreProgramConfig(HardwareConfig):
    """Chunks of queries and keys that the scores of an indexer are computed for at a time."""

    q_chunk_size: int = 32
    k_chunk_size: int = 32
    head_group_size: int = 1
