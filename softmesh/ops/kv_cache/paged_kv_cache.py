"""paged_update_cache, paged_fused_update_cache and paged_fill_cache: writes into paged KV caches.

An update writes one token of each user at the user's own position, a fill the whole sequence of one user.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.program_configs import PagedCacheGeometryOverride
from softmesh.kinds import Kind
from softmesh.native.gpu_kernels import gpu_write_rows
from softmesh.ops.attention.decode import positions
from softmesh.ops.attention.page_owners import note_fill, note_update
from softmesh.ops.attention.page_tables import (
    MemoizeLast,
    check_modulo,
    check_table,
    geometry,
    read_on_cores,
    reinterpret_tiles,
)
from softmesh.ops.attention.sdpa_core import check_ints
from softmesh.ops.kv_cache.kv_cache import (
    ON_CHOSEN_DEVICES,
    Data,
    check_cache,
    check_inside,
    write_back_view,
    write_blocks,
    write_rows,
    writing_rule,
)
from softmesh.placement import dim_labels, rules
from softmesh.runtime.gpu_value_cache import is_graphed, once_in_a_graph, read_once
from softmesh.strictness import doubt, is_strict
from softmesh.tensor.convert import round_to

_UPDATE = "experimental.paged_update_cache"
_FUSED = "experimental.paged_fused_update_cache"
_ALIKE = {0: 1, 1: 2, 3: 3}  # users, heads, width: dims of the cache and of the input


@operation(
    _UPDATE,
    kind=Kind.CACHE,
    rule=writing_rule,
    **ON_CHOSEN_DEVICES,
    patches="cache_tensor",
    check=note_update,
    places="update_idxs",
)
@read_on_cores(update_idxs_tensor=1, page_table=2)
def paged_update_cache(
    cache_tensor: Operand,
    input_tensor: Operand,
    *,
    update_idxs_tensor: Operand | None = None,
    page_table: Operand | None = None,
    mesh_coords: Operand | None = None,
    update_idxs: Value | Sequence[int] = (),
    share_cache: bool | None = None,
    batch_offset: int = 0,
    block_size: int | None = None,
    num_kv_heads: int | None = None,
    cache_position_modulo: int | None = None,
) -> Local:
    """Write one token of each user, [1, users, heads, width], at the user's position; returns the cache.

    The cache is [users, kv_heads, length, width], or [1, ...] with `share_cache`; with a page table [users, pages]
    it is [blocks, kv_heads, block, width]. A position of -1, and a page numbered -1, are not written. Heads of the
    input beyond those of the cache are padding. `block_size` and `num_kv_heads` read the tiles of a block otherwise.

    >>> cache, token = split(2, 4, 64, 32, dim=1), split(1, 2, 4, 32, dim=2)
    >>> y = ttnn.experimental.paged_update_cache(cache, token, update_idxs=[0, 5])
    >>> y.shape, ttnn.placements(y)
    (Shape([2, 1, 64, 32]), (Replicate, Shard(1)))
    """
    overrides = {"block_size_override": block_size, "num_kv_heads_override": num_kv_heads}
    for name, given in {**overrides, "cache_position_modulo": cache_position_modulo}.items():
        if given and page_table is None:
            raise MeshError(
                f"{name} is only supported in paged mode (when page_table is provided): {_UPDATE} got {given}."
            )
    _check_shards(input_tensor)
    token = _Token(_UPDATE, input_tensor, batch_offset, bool(share_cache), cache_position_modulo)
    override = PagedCacheGeometryOverride(block_size=block_size or 0, num_kv_heads=num_kv_heads or 0)
    seen_as = token.check(cache_tensor, page_table, override)
    listed = token.check_positions(update_idxs, update_idxs_tensor)
    dtype = cache_tensor.dtype

    def compute(
        cache: torch.Tensor, values: torch.Tensor, at: Data, table: Data, chosen: Data, *numbers: int
    ) -> torch.Tensor:
        current = _positions(at, numbers if listed else (), values)
        view = reinterpret_tiles(cache, seen_as)
        token.write(view, round_to(values, dtype), current, table, chosen)
        return write_back_view(cache, view)

    rule = writing_rule(_ALIKE, (2, 3), is_shared=bool(share_cache), pages=3)
    return Local(compute, rule, places_of={3: (0,)})


@operation(
    _FUSED,
    kind=Kind.CACHE,
    rule=writing_rule,
    **ON_CHOSEN_DEVICES,
    patches="cache_tensor1 cache_tensor2",
    check=note_update,
    places="update_idxs",
)
@read_on_cores(update_idxs_tensor=1, page_table=2)
def paged_fused_update_cache(
    cache_tensor1: Operand,
    input_tensor1: Operand,
    cache_tensor2: Operand,
    input_tensor2: Operand,
    *,
    update_idxs_tensor: Operand | None = None,
    page_table: Operand | None = None,
    mesh_coords: Operand | None = None,
    update_idxs: Value | Sequence[int] = (),
    share_cache: bool | None = None,
    batch_offset: int = 0,
) -> Local:
    """paged_update_cache of two caches at the same positions, most often keys and values; returns both."""
    tokens = [_Token(_FUSED, x, batch_offset, bool(share_cache)) for x in (input_tensor1, input_tensor2)]
    caches = (cache_tensor1, cache_tensor2)
    for token, cache in zip(tokens, caches, strict=True):
        token.check(cache, page_table, None)
    if tokens[0].users != tokens[1].users:
        raise MeshError(
            f"{_FUSED}: input_tensor1 holds {tokens[0].users} users and input_tensor2 {tokens[1].users}: "
            "both caches are written at the same positions."
        )
    listed = tokens[0].check_positions(update_idxs, update_idxs_tensor)
    dtypes = [cache.dtype for cache in caches]

    def compute(
        first: torch.Tensor,
        new_first: torch.Tensor,
        second: torch.Tensor,
        new_second: torch.Tensor,
        at: Data,
        table: Data,
        chosen: Data,
        *numbers: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        current = _positions(at, numbers if listed else (), new_first)
        pairs = ((first, new_first), (second, new_second))
        for token, dtype, (cache, values) in zip(tokens, dtypes, pairs, strict=True):
            token.write(cache, round_to(values, dtype), current, table, chosen)
        return first, second

    rule = writing_rule(_ALIKE, (2, 3), is_shared=bool(share_cache))

    @rules.labelled_each(
        dim_labels.table({dim: [(0, dim), (1, own), (2, dim), (3, own)] for dim, own in _ALIKE.items() if dim})
    )
    def both(at: rules.Situation) -> list[rules.Placement]:
        return [rules.among(at, (cache, values, 4, 5, 6), rule) for cache, values in ((0, 1), (2, 3))]

    return Local(compute, both, places_of={5: (0, 2)})


def _check_shards(values: Operand) -> None:
    """Each core writes what it holds for one user."""
    shards = values.spec.memory_config.shard_spec
    if shards is not None and values.rank == 4 and shards.grid.num_cores() != values.shape[1]:
        raise MeshError(
            f"{_UPDATE}: the input shard grid num_cores ({shards.grid.num_cores()}) must equal the number of users "
            f"({values.shape[1]}) of {values.name} {list(values.shape)}: a core writes the token of one user."
        )


def _positions(at: Data, numbers: Sequence[int], values: torch.Tensor) -> torch.Tensor:
    """(*axes, users)"""
    return positions(numbers, values) if at is None else once_in_a_graph(torch.Tensor.long, [at])


class _Token:
    """The newest token of each user, on its way into a cache."""

    def __init__(self, op: str, values: Operand, offset: int, share_cache: bool, modulo: int | None = None) -> None:
        self.op, self.values, self.offset = op, values, offset
        self.share_cache, self.modulo = share_cache, modulo
        if values.rank != 4 or values.shape[0] != 1:
            raise MeshError(f"{op}: {values.name} must be [1, users, heads, width], got {list(values.shape)}.")
        if not 0 <= offset < values.shape[1]:
            raise MeshError(f"{op}: batch_offset={offset} must lie within the {values.shape[1]} users of the input.")
        self.users = values.shape[1] - offset
        self._check_cores()

    def _check_cores(self) -> None:
        """A kernel on each core writes what it finds there as one user's."""
        shards = self.values.spec.memory_config.shard_spec
        users = self.values.shape[1]
        if shards is not None and shards.num_cores() != users:
            raise MeshError(
                f"{self.op}: {self.values.name} {list(self.values.shape)} lies on num_cores={shards.num_cores()} cores "
                f"and must have one for each of its {users} users: shard it by height, a user on each core."
            )

    def check(
        self, cache: Operand, table: Operand | None, override: PagedCacheGeometryOverride | None
    ) -> tuple[int, int, int, int]:
        """The cache's shape as it is written."""
        op, values = self.op, self.values
        check_cache(op, cache)
        seen_as = geometry(op, cache, values.shape[3], override)
        if values.shape[3] != seen_as[3] or values.shape[2] < seen_as[1]:
            raise MeshError(
                f"{op}: {values.name} {list(values.shape)} must hold the {seen_as[1]} heads of {cache.name} "
                f"{list(seen_as)}, and have its width, on each device."
            )
        self._check_users(cache, table, seen_as)
        if table is not None:
            check_modulo(op, self.modulo, seen_as[2] * table.shape[1], seen_as[2])
        return seen_as

    def _check_users(self, cache: Operand, table: Operand | None, seen_as: Sequence[int]) -> None:
        if table is not None:
            if self.share_cache:
                raise MeshError(f"{self.op}: share_cache=True is for caches without a page_table: pass one of them.")
            check_table(self.op, table, self.users)
        elif seen_as[0] != (1 if self.share_cache else self.users):
            why = "share_cache=True" if self.share_cache else f"{self.values.name} holds {self.users} users"
            raise MeshError(
                f"{self.op}: {why}, and {cache.name} {list(cache.shape)} has a batch of {seen_as[0]} on each device."
            )

    def check_positions(self, numbers: object, tensor: Operand | None) -> list[Any]:
        """The positions that are given as numbers."""
        listed: list[Any] = list(numbers) if isinstance(numbers, Sequence) else [numbers]
        if bool(listed) == (tensor is not None):
            raise ArgumentError(
                f"{self.op}(): incompatible function arguments: pass update_idxs or update_idxs_tensor, one of them."
            )
        if any(isinstance(n, bool) or not isinstance(n, int) for n in listed):
            raise ArgumentError(f"{self.op}: update_idxs must hold ints, got {listed!r}")
        if listed and len(listed) != self.users:
            raise MeshError(
                f"{self.op}: update_idxs has {len(listed)} positions for {self.users} users on each device."
            )
        check_ints(self.op, tensor, (self.users,), "the position of each user")
        return listed

    def write(
        self, cache: torch.Tensor, values: torch.Tensor, current: torch.Tensor, table: Data, chosen: Data
    ) -> None:
        heads, _, width = cache.shape[-3:]
        tokens = values.select(-4, 0)[..., self.offset :, :heads, :]
        if table is not None and is_strict() and not is_graphed(cache):
            place, row, is_written = self._places(cache, current, table)
            _doubt_shared(self.op, place * cache.shape[-2] + row, is_written, "two users write the same row of a block")
        if table is not None and chosen is None and cache.is_contiguous():
            each = tokens.expand(*cache.shape[:-4], *tokens.shape[-3:]).reshape(-1, width)
            given = self.op, self.modulo, tuple(cache.shape[:-1])
            if is_graphed(cache):  # who writes is not known yet: others write what is there
                rows, is_written = once_in_a_graph(_numbered_rows, [current, table], *given)
                flat = cache.view(-1, width)
                if not gpu_write_rows(flat, rows, is_written, each):
                    flat.index_copy_(0, rows, torch.where(is_written, each, flat[rows]))
                return
            written = _rows_on_pages((current, table), *given)
            if written is not None:
                cache.view(-1, width).index_copy_(0, written, each)
                return
        place, row, is_written = self._places(cache, current, table)
        if chosen is not None:
            is_written = is_written & chosen.bool()
        write_rows(cache, place, row, tokens, is_written)

    def _places(
        self, cache: torch.Tensor, current: torch.Tensor, table: Data
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Which block and which row of it each user writes, and whether it does, (*axes, users)."""
        places, _, size, _ = cache.shape[-4:]
        if table is not None:
            return _on_pages(current, table, self.op, self.modulo, places, size)
        is_written = current >= 0
        check_inside(self.op, current, size, "positions of the cache")
        users = torch.arange(places, device=cache.device)
        place = (torch.zeros_like(users) if self.share_cache else users).expand(current.shape)
        return place, current % size, is_written


def _on_pages(
    current: torch.Tensor, table: torch.Tensor, op: str, modulo: int | None, blocks: int, size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    is_written = current >= 0
    if modulo is not None:
        current = torch.where(is_written, current % modulo, current)
    check_inside(op, current, table.shape[-1] * size, "positions of a user's pages")
    page = (current.clamp(min=0) // size).unsqueeze(-1)
    place = torch.take_along_dim(table.long(), page, -1).squeeze(-1)
    is_written = is_written & (place >= 0)
    check_inside(op, torch.where(is_written, place, 0), blocks, "blocks of the cache")
    return place, current % size, is_written


def _doubt_shared(op: str, places: torch.Tensor, is_written: torch.Tensor, what: str) -> None:
    """Cores write in any order; what stands for no user may be written anyhow."""
    if is_strict() and not is_graphed(places):  # reading places back takes time
        each = places.broadcast_to(torch.broadcast_shapes(places.shape, is_written.shape))
        flags = is_written.broadcast_to(each.shape)
        for found, written in zip(each.reshape(-1, each.shape[-1]), flags.reshape(-1, each.shape[-1]), strict=True):
            taken = found[written]
            if len(taken.unique()) < len(taken):
                doubt(
                    f"{op}: {what}, by the page_table: on silicon whichever core comes last wins. Give each page to "
                    "one user and one place, and -1 to those who write nothing.",
                )
                return


def _all_rows(current: torch.Tensor, table: torch.Tensor, op: str, modulo: int | None, shape: tuple[int, ...]) -> Data:
    """Of a cache with all its rows one below the other, those that are written; None where some user writes none."""
    rows, is_written = _numbered_rows(current, table, op, modulo, shape)
    return rows if bool(is_written.all()) else None


def _numbered_rows(
    current: torch.Tensor, table: torch.Tensor, op: str, modulo: int | None, shape: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of all users and heads, and whether each is written, (rows, 1)."""
    *axes, blocks, heads, size = shape
    place, row, is_written = _on_pages(current, table, op, modulo, blocks, size)
    devices = torch.arange(math.prod(axes), device=current.device).reshape(*axes, 1, 1)
    each_head = torch.arange(heads, device=current.device)
    block = devices * blocks + place.clamp(0, blocks - 1).unsqueeze(-1)
    rows = (block * heads + each_head) * size + row.unsqueeze(-1)
    return rows.flatten(), is_written.unsqueeze(-1).expand(rows.shape).reshape(-1, 1)


_rows_on_pages = MemoizeLast(_all_rows)


# -- paged_fill_cache: a whole sequence of one user into the user's pages ----------------------------


_FILL = "experimental.paged_fill_cache"


@operation(
    _FILL,
    kind=Kind.CACHE,
    rule=writing_rule,
    **ON_CHOSEN_DEVICES,
    patches="cache_tensor",
    check=note_fill,
    places="batch_idx",
)
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

    >>> pages = ttnn.typecast(ttnn.to_layout(whole(1, 2), ttnn.ROW_MAJOR_LAYOUT), ttnn.int32)
    >>> cache, x = split(4, 4, 32, 64, dim=1), split(1, 4, 32, 64, dim=1)
    >>> y = ttnn.experimental.paged_fill_cache(cache, x, pages, batch_idx=0)
    >>> y.shape, ttnn.placements(y)
    (Shape([4, 1, 32, 64]), (Replicate, Shard(1)))
    """
    override = PagedCacheGeometryOverride(
        block_size=block_size or 0, num_kv_heads=input_tensor.shape[1] if block_size else 0
    )
    seen_as = _checked(cache_tensor, input_tensor, override)
    check_table(_FILL, page_table, page_table.shape[0])
    check_ints(_FILL, batch_idx_tensor, (1,), "the user")
    if valid_seq_len_tensor is not None and valid_seq_len_tensor.spec.logical_volume() != 1:
        raise MeshError(
            "valid_seq_len tensor must contain exactly 1 element, got "
            f"logical_volume={valid_seq_len_tensor.spec.logical_volume()}: {_FILL} fills one user at a time."
        )
    check_ints(_FILL, valid_seq_len_tensor, (1,), "the number of positions")
    count, modulo = input_tensor.shape[2], cache_position_modulo
    length = page_table.shape[1] * seen_as[2]
    check_modulo(_FILL, modulo, length, seen_as[2])
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
        view = reinterpret_tiles(cache, seen_as)
        pages = _pages_of(read_once(torch.Tensor.long, [table]), users, number)
        writes = None if chosen is None else chosen.bool()
        if modulo is None and valid is None:
            _fill_blocks(view, values, pages, writes)
        else:
            _fill_rows(view, values, pages, writes, valid, modulo)
        return write_back_view(cache, view)

    alike = {0: 0, 1: 1, 3: 3}
    return Local(compute, writing_rule(alike, (2, 3, 4)), places_of={2: (0,)})


def _checked(cache: Operand, values: Operand, override: PagedCacheGeometryOverride) -> tuple[int, int, int, int]:
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


def _is_numbered(pages: torch.Tensor) -> torch.Tensor:
    return pages >= 0


def _fill_blocks(cache: torch.Tensor, values: torch.Tensor, pages: torch.Tensor, writes: Data) -> None:
    """Whole blocks first, then what is left over."""
    blocks, _, size, _ = cache.shape[-4:]
    whole, rest = divmod(values.shape[-2], size)
    tokens = values.squeeze(-4)
    used = pages[..., : whole + bool(rest)]
    check_inside(_FILL, used, blocks, "blocks of the cache")
    is_written = read_once(_is_numbered, [used])
    is_written = is_written if writes is None else is_written & writes
    _doubt_shared(_FILL, used, is_written, "two parts of the sequence go to the same block")
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
    writes: Data,
    valid: Data,
    modulo: int | None,
) -> None:
    blocks, _, size, _ = cache.shape[-4:]
    count = values.shape[-2]
    at = torch.arange(count, device=cache.device)
    length = torch.full((1,), count, device=cache.device) if valid is None else valid.long()
    is_written = at < length if writes is None else (at < length) & writes
    if modulo is not None:
        is_written = is_written & (at >= length - modulo)
        at = at % modulo
    place = torch.take_along_dim(pages, (at // size).expand(*pages.shape[:-1], count), -1)
    is_written = is_written & (place >= 0)
    check_inside(_FILL, torch.where(is_written, place, 0), blocks, "blocks of the cache")
    write_rows(cache, place, at % size, values.squeeze(-4).transpose(-3, -2), is_written)
