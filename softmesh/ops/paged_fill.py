"""Writing a whole sequence of one user into the user's pages."""

from __future__ import annotations

import torch

from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.attention import PagedCacheGeometryOverride
from softmesh.ops.attention.checks import check_ints
from softmesh.ops.attention.pages import check_table, geometry, read_as
from softmesh.ops.cache_writing import (
    ON_CHOSEN_DEVICES,
    Data,
    check_cache,
    check_inside,
    kept,
    write_blocks,
    write_rows,
    writing_rule,
)

_FILL = "experimental.paged_fill_cache"


@operation(_FILL, **ON_CHOSEN_DEVICES, writes="cache_tensor")
def paged_fill_cache(
    cache_tensor: Operand,
    input_tensor: Operand,
    page_table: Operand,
    *,
    batch_idx_tensor: Operand | None = None,
    valid_seq_len_tensor: Operand | None = None,
    mesh_coords: Operand | None = None,
    batch_idx: Value = 0,
    block_size: int | None = None,
    cache_position_modulo: int | None = None,
) -> Local:
    """Write [1, heads, s, width] as positions 0 to s - 1 of user `batch_idx`; returns the cache.

    The cache is [blocks, heads, block, width], the user's blocks are a row of page_table [users, pages]. A page
    numbered -1 is not written, nor is what follows the first `valid_seq_len_tensor` positions. With
    `cache_position_modulo`, of the positions that meet in one place the last stays.
    """
    override = PagedCacheGeometryOverride(
        block_size=block_size or 0, num_kv_heads=input_tensor.shape[1] if block_size else 0
    )
    seen_as = _checked(cache_tensor, input_tensor, override)
    check_table(_FILL, page_table, page_table.shape[0])
    check_ints(_FILL, batch_idx_tensor, (1,), "the user")
    check_ints(_FILL, valid_seq_len_tensor, (1,), "the number of positions")
    count, modulo = input_tensor.shape[2], cache_position_modulo
    length = page_table.shape[1] * seen_as[2]
    if modulo is not None and not 0 < modulo <= length:
        raise MeshError(
            f"{_FILL}: cache_position_modulo={modulo} must lie within 1 to {length}, a user's positions."
        )
    if modulo is None and count > length:
        raise MeshError(
            f"{_FILL}: {count} positions do not fit the {length} of page_table {list(page_table.shape)}: give the user "
            f"more pages of {seen_as[2]}."
        )

    def compute(
        cache: torch.Tensor,
        values: torch.Tensor,
        table: torch.Tensor,
        users: Data,
        valid: Data,
        chosen: Data,
        number: int,
    ) -> torch.Tensor:
        view = read_as(cache, seen_as)
        pages = _pages_of(table.long(), users, number)
        writes = torch.ones((1,), dtype=torch.bool, device=cache.device) if chosen is None else chosen.bool()
        if modulo is None and valid is None:
            _fill_blocks(view, values, pages, writes)
        else:
            _fill_rows(view, values, pages, writes, valid, modulo)
        return kept(cache, view)

    return Local(compute, writing_rule({0: 0, 1: 1, 3: 3}, (2, 3, 4)))


def _checked(
    cache: Operand, values: Operand, override: PagedCacheGeometryOverride
) -> tuple[int, int, int, int]:
    check_cache(_FILL, cache)
    if values.rank != 4 or values.shape[0] != 1:
        raise MeshError(f"{_FILL}: {values.name} must be [1, heads, s, width], got {list(values.shape)}.")
    if cache.dtype is not values.dtype:
        raise MeshError(
            f"Input and cache tensors must have same dtype! {_FILL} got {values.dtype} for a cache of {cache.dtype}: "
            "use ttnn.typecast on the input."
        )
    seen_as = geometry(_FILL, cache, values.shape[3], override)
    if (values.shape[1], values.shape[3]) != (seen_as[1], seen_as[3]):
        raise MeshError(
            f"{_FILL}: {values.name} {list(values.shape)} and {cache.name} {list(seen_as)} must agree in heads (dim 1) "
            "and width of a head (dim 3) on each device."
        )
    return seen_as


def _pages_of(table: torch.Tensor, users: Data, number: int) -> torch.Tensor:
    """(*axes, pages): the row of one user."""
    rows = table.shape[-2]
    if users is None:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < rows:
            raise MeshError(f"{_FILL}: batch_idx={number!r} must lie within the {rows} rows of page_table.")
        return table.select(-2, number)
    check_inside(_FILL, users, rows, "rows of page_table")
    return torch.take_along_dim(table, users.long().unsqueeze(-1), -2).squeeze(-2)


def _fill_blocks(
    cache: torch.Tensor, values: torch.Tensor, pages: torch.Tensor, writes: torch.Tensor
) -> None:
    """Whole blocks first, then what is left over."""
    blocks, _, size, _ = cache.shape[-4:]
    whole, rest = divmod(values.shape[-2], size)
    tokens = values.squeeze(-4)
    used = pages[..., : whole + bool(rest)]
    check_inside(_FILL, used, blocks, "blocks of the cache")
    is_written = (used >= 0) & writes
    if whole:
        cut = tokens[..., : whole * size, :].unflatten(-2, (whole, size)).transpose(-4, -3)
        write_blocks(cache, used[..., :whole], cut, is_written[..., :whole])
    if rest:
        last = tokens[..., whole * size :, :].unsqueeze(-4)
        write_blocks(cache.narrow(-2, 0, rest), used[..., whole:], last, is_written[..., whole:])


def _fill_rows(
    cache: torch.Tensor,
    values: torch.Tensor,
    pages: torch.Tensor,
    writes: torch.Tensor,
    valid: Data,
    modulo: int | None,
) -> None:
    blocks, _, size, _ = cache.shape[-4:]
    count = values.shape[-2]
    at = torch.arange(count, device=cache.device)
    length = torch.full((1,), count, device=cache.device) if valid is None else valid.long()
    is_written = (at < length) & writes
    if modulo is not None:
        is_written = is_written & (at >= length - modulo)
        at = at % modulo
    place = torch.take_along_dim(pages, (at // size).expand(*pages.shape[:-1], count), -1)
    is_written = is_written & (place >= 0)
    check_inside(_FILL, torch.where(is_written, place, 0), blocks, "blocks of the cache")
    write_rows(cache, place, at % size, values.squeeze(-4).transpose(-3, -2), is_written)
