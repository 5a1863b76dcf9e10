"""Page tables of paged KV caches: which user owns which block; and a memo of the last answer about them.

A cache is [blocks, heads, block size, width]; row b of the table [users, pages] lists the blocks of user b
in the order of positions. Each device's table numbers that device's own blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Generic, TypeVar

import torch

from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import TensorMemoryLayout
from softmesh.hardware.program_configs import PagedCacheGeometryOverride
from softmesh.runtime.cpu_block_cache import BIG, empty_result
from softmesh.runtime.gpu_value_cache import is_graphed, once_in_a_graph
from softmesh.tensor.dtype import TILE_SIZE, Layout
from softmesh.tensor.spec import make_spec

Define = Callable[..., Local]


def geometry(
    op: str, cache: Operand, width: int, override: PagedCacheGeometryOverride | None, is_given: bool = False
) -> tuple[int, int, int, int]:
    """(blocks, heads, positions of a block, width), as the op reads the cache.

    `is_given`: by the caller, who names both numbers then.
    """
    blocks, heads, size, own_width = cache.shape
    if override is None or not override.active():
        return blocks, heads, size, own_width
    for name in ("block_size", "num_kv_heads"):
        if is_given and not getattr(override, name):
            raise MeshError(f"PagedCacheGeometryOverride.{name} must be > 0: {op} got {override}.")
    heads, size = override.num_kv_heads or heads, override.block_size or size
    if heads * size * width != math.prod(cache.shape[1:]) or size % TILE_SIZE or width % TILE_SIZE:
        raise MeshError(
            f"{op.rpartition('.')[2]} geometry mismatch: cache has blocks {list(cache.shape[1:])}, which cannot be "
            f"read as {heads} heads of {size} positions of width {width}: block_size, num_kv_heads and the width must "
            "make up the same tiles."
        )
    return blocks, heads, size, width


def check_modulo(op: str, modulo: int | None, length: int, block: int) -> None:
    """Positions that go round do so within a user's `length`, in whole blocks."""
    if modulo is None:
        return
    if not 0 < modulo <= length:
        raise MeshError(f"{op}: cache_position_modulo={modulo} must lie within 1 to {length}, the positions of a user.")
    if modulo % block:
        raise MeshError(
            f"cache_position_modulo ({modulo}) must be a positive multiple of effective block_size ({block}); {op} "
            "goes round in whole pages."
        )


def reinterpret_tiles(cache: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """(*axes, blocks, heads, positions, width) with the tiles of each block in another order of rows and columns."""
    own = cache.shape[-3:]
    if tuple(own) == tuple(shape[-3:]):
        return cache
    lead = cache.shape[:-4]
    if own[-1] == shape[-1]:
        return cache.reshape(*lead, *shape)
    tiles = _tiles(cache).reshape(*lead, *shape[:2], shape[2] // TILE_SIZE, shape[3] // TILE_SIZE, TILE_SIZE, TILE_SIZE)
    return tiles.transpose(-3, -2).reshape(*lead, *shape)


def _tiles(cache: torch.Tensor) -> torch.Tensor:
    """(..., rows of tiles, columns of tiles, 32, 32)"""
    return cache.unflatten(-1, (-1, TILE_SIZE)).unflatten(-3, (-1, TILE_SIZE)).transpose(-3, -2)


def check_table(op: str, table: Operand, users: int) -> None:
    if table.is_float or table.layout is not Layout.ROW_MAJOR or table.rank != 2:
        raise MeshError(
            f"{op}: {table.name} must be [users, pages] of integers in ROW_MAJOR layout, got {list(table.shape)} "
            f"{table.dtype}, {table.layout}."
        )
    if table.shape[0] != users:
        raise MeshError(
            f"{op}: {table.name} {list(table.shape)} must have a row for each of the {users} users on each device."
        )


# -- tables and positions that lie in L1, a copy on each core -----------------------------------------


def read_on_cores(**dims: int) -> Callable[[Define], Define]:
    """A definition whose operands of these names have so many dims, or lie in L1 with a copy of them on each core.

    Such a table [cores * rows, columns] is cut into shards [rows, columns]; definition and computation see one.
    """

    def around(define: Define) -> Define:
        hints = {name: str(hint) for name, hint in define.__annotations__.items()}
        places = [name for name, hint in hints.items() if hint.startswith("Operand")]

        @wraps(define)
        def defined(**arguments: Any) -> Local:
            rows = {name: _rows_of_a_copy(arguments.get(name)) for name in dims}
            copied = {name: count for name, count in rows.items() if count is not None}
            if not copied:
                return define(**arguments)
            seen = {name: _one_copy(arguments[name], count, dims[name]) for name, count in copied.items()}
            local = define(**arguments | seen)
            at = {places.index(name): (count, dims[name]) for name, count in copied.items()}

            def compute(*data: Any) -> Any:
                return local.compute(*(_first(x, *at[i]) if i in at else x for i, x in enumerate(data)))

            return replace(local, compute=compute)

        return defined

    return around


def _rows_of_a_copy(table: Operand | None) -> int | None:
    if table is None or table.spec.memory_config.memory_layout is not TensorMemoryLayout.HEIGHT_SHARDED:
        return None
    shards = table.spec.memory_config.shard_spec
    return None if shards is None or table.rank != 2 else shards.shape[0]


def _one_copy(table: Operand, rows: int, dims: int) -> Operand:
    """Where a core has several rows of what is one, the check of its shape will tell."""
    shape = table.shape[1:] if dims == 1 and rows == 1 else (rows, *table.shape[1:])
    return table._replace(spec=make_spec(shape, table.dtype, table.layout))


def _first(data: torch.Tensor, rows: int, dims: int) -> torch.Tensor:
    copy = data.narrow(-2, 0, rows)
    return copy.squeeze(-2) if dims == 1 else copy


def positions_in_order(op: str, cache: torch.Tensor, table: torch.Tensor, needed: torch.Tensor) -> torch.Tensor:
    """(*axes, users, heads, pages * block size, width): each user's blocks one after the other.

    `needed` (*axes, users) counts the pages of each user that are read; numbers of others may be anything.
    """
    blocks, heads = cache.shape[-4:-2]
    lead = table.dim() - 2
    flat = cache.reshape(-1, *cache.shape[-2:])
    if is_graphed(table):  # numbers that are read were there at the capture
        index = once_in_a_graph(_rows_of_pages, [table], tuple(cache.shape[:lead]), blocks, heads)
        return flat.index_select(0, index.reshape(-1)).reshape(*index.shape[:-1], -1, cache.shape[-1])
    is_read = torch.arange(table.shape[-1], device=table.device) < needed.unsqueeze(-1)
    missing = is_read & ((table < 0) | (table >= blocks))
    if bool(missing.any()):
        wrong = int(table.expand(missing.shape)[missing][0])
        raise MeshError(
            f"{op}: the page table names block {wrong} for positions that are read, and the cache has the blocks 0 to "
            f"{blocks - 1} on each device. Fill in the user's pages up to its position."
        )
    index = _rows_of_pages(table, tuple(cache.shape[:lead]), blocks, heads)
    picked = torch.index_select(flat, 0, index.reshape(-1), out=_room(flat, index.numel()))
    return picked.reshape(*index.shape[:-1], -1, cache.shape[-1])


def _room(rows: torch.Tensor, count: int) -> torch.Tensor | None:
    """Memory that is there already, for so many of the rows where they are big."""
    is_small = count * rows[0].numel() * rows.itemsize <= BIG
    if is_small or not rows.is_cpu or rows.requires_grad:
        return None
    return empty_result((count, *rows.shape[1:]), rows.dtype)


def _rows_of_pages(table: torch.Tensor, extents: tuple[int, ...], blocks: int, heads: int) -> torch.Tensor:
    """(*axes, users, heads, pages): which block of which head, among those that all devices store."""
    devices = torch.arange(math.prod(extents), device=table.device).reshape(*extents, 1, 1)
    base = devices * blocks + table.clamp(0, blocks - 1)
    return base.unsqueeze(-2) * heads + torch.arange(heads, device=table.device).reshape(heads, 1)


# -- a cache of one entry: all layers of a model ask of the same positions and pages, one after the other


T = TypeVar("T")


class MemoizeLast(Generic[T]):
    """A function of small tensors and of hashable values that computes only where those are others than last time.

    Tensors are compared value by value: whoever has written to them since, and how, does not matter.
    """

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        self._last: tuple[tuple[torch.Tensor, ...], tuple[Any, ...], T] | None = None

    def __call__(self, tensors: Sequence[torch.Tensor], *given: Any) -> T:
        last = self._last
        if last is not None and last[1] == given and all(map(_are_equal, last[0], tensors)):
            return last[2]
        answer = self._compute(*tensors, *given)
        self._last = tuple(tensor.clone() for tensor in tensors), given, answer
        return answer


def _are_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype is b.dtype and a.device == b.device and torch.equal(a, b)
