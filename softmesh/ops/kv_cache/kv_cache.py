"""fill_cache, update_cache and plus_one: keys and values written into KV caches in place; what all cache ops share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from softmesh.arguments import checked_all
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import ArgumentError, MeshError
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinate
from softmesh.ops.attention.page_tables import reinterpret_tiles
from softmesh.ops.golden import golden_images_and_caches as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.ops.operand_checks import check_four_dims
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.runtime.gpu_value_cache import is_graphed, read_once
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.implicit_operands import chosen_devices
from softmesh.tensor.tensor import Tensor

# -- shared by all ops that write into caches: which devices write, where rows go, what stays split --


Data = torch.Tensor | None
OPTIONS: dict[str, Any] = {
    "cost": moves_bytes,
    "precision": "data",
    "controls": "",
    "tuning": "compute_kernel_config",
}


def _on_chosen_devices(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """`mesh_coords` names the devices that write; the others keep what they have."""
    coords = kwargs.get("mesh_coords")
    if coords is None:
        return args, kwargs
    wanted = "mesh coordinates such as ttnn.MeshCoordinate(0, 1)"
    listed = checked_all(signature.op, "mesh_coords", coords, (MeshCoordinate,), wanted)
    cache = args[0] if args else kwargs.get(signature.names[0])
    device = cache.device() if isinstance(cache, Tensor) else None
    chosen = None if device is None else chosen_devices(device, listed, signature.op)
    return args, kwargs | {"mesh_coords": chosen}


ON_CHOSEN_DEVICES: dict[str, Any] = {**OPTIONS, "rearrange": _on_chosen_devices}


def check_cache(op: str, cache: Operand) -> None:
    if cache.rank != 4 or cache.layout is not Layout.TILE:
        raise MeshError(
            f"{op}: {cache.name} must have 4 dims and TILE layout, got {list(cache.shape)}, {cache.layout}."
        )


def _largest(numbers: torch.Tensor) -> int:
    return int(numbers.max())


def _all_true(flags: torch.Tensor) -> bool:
    return bool(flags.all())


def check_inside(op: str, numbers: torch.Tensor, extent: int, what: str) -> None:
    last = -1 if is_graphed(numbers) else read_once(_largest, [numbers])
    if last >= extent:
        raise MeshError(f"{op}: {last} does not lie within the {extent} {what} on each device.")


def write_rows(
    cache: torch.Tensor,
    place: torch.Tensor,
    row: torch.Tensor,
    values: torch.Tensor,
    is_written: torch.Tensor,
) -> None:
    """values (*axes, n, heads, width) into cache (*axes, places, heads, rows, width); the others are (*axes, n)."""
    heads = torch.arange(cache.shape[-3], device=cache.device)
    shape = (*cache.shape[:-4], *values.shape[-3:-1])
    index = [*_axes(cache, len(shape)), place.unsqueeze(-1), heads, row.unsqueeze(-1)]
    _write(cache, index, values, is_written.unsqueeze(-1), shape)


def write_blocks(cache: torch.Tensor, place: torch.Tensor, values: torch.Tensor, is_written: torch.Tensor) -> None:
    """values (*axes, n, heads, rows, width) as whole blocks of the cache; the others are (*axes, n)."""
    shape = (*cache.shape[:-4], values.shape[-4])
    _write(cache, [*_axes(cache, len(shape)), place], values, is_written, shape)


def _axes(cache: torch.Tensor, rank: int) -> list[torch.Tensor]:
    """An index for each mesh axis, in `rank` dims."""
    lead = cache.dim() - 4
    return [
        torch.arange(cache.shape[axis], device=cache.device).reshape(-1, *(1,) * (rank - 1 - axis))
        for axis in range(lead)
    ]


def _write(
    cache: torch.Tensor,
    index: Sequence[torch.Tensor],
    values: torch.Tensor,
    is_written: torch.Tensor,
    shape: Sequence[int],
) -> None:
    where = [part.expand(shape) for part in index]
    if is_graphed(cache):  # how many are written is not known: others get what they have
        kept = cache[tuple(where)]
        lasting = is_written.expand(shape).reshape(*shape, *(1,) * (kept.dim() - len(shape)))
        values = torch.where(lasting, values, kept)
    elif not read_once(_all_true, [is_written]):
        chosen = is_written.expand(shape)
        where = [part[chosen] for part in where]
        values = values.expand(*shape, *cache.shape[len(where) :])[chosen]
    cache.index_put_(tuple(where), values)


def write_back_view(cache: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The cache, after what was written to another reading of its tiles."""
    if view.untyped_storage().data_ptr() != cache.untyped_storage().data_ptr():
        cache.copy_(reinterpret_tiles(view, cache.shape[-4:]))
    return cache


@placed("As the cache is, where the input is split with it; otherwise Local.")
def writing_rule(
    alike: Mapping[int, int], by_user: Sequence[int], *, is_shared: bool = False, pages: int | None = None
) -> rules.SingleRule:
    """Of a cache, what is written, and other operands: a split that they share stays.

    `alike` has for each dim of the cache that of the input; dim 0 are users (or their blocks), along which the
    operands `by_user` run too, unless all users share one cache. An operand that is not mentioned only tells
    which devices write: what all of them shared is then shared no longer.
    """

    def labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
        """Users are split where the operands number them, not a page table."""
        cache, values = shapes[:2]
        assert cache is not None
        assert values is not None
        dims = {dim: [(0, dim), (1, own)] for dim, own in alike.items() if dim}
        has_pages = pages is not None and shapes[pages] is not None
        if alike[0] and not (is_shared or has_pages) and cache[0] == values[alike[0]]:
            dims[0] = [(0, 0), (1, alike[0]), *((at, 0) for at in by_user)]
        return dim_labels.table(dims)(shapes, results)

    @rules.labelled(labels)
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        cache, values = at.words[:2]
        splits: set[rules.Placement] = {cache} if isinstance(cache, rules.Shard) else set()
        if isinstance(values, rules.Shard):
            splits |= {values.at(dim) for dim, own in alike.items() if own == values.dim} or {rules.LOCAL}
        for word in (at.words[i] for i in by_user):
            if isinstance(word, rules.Shard):
                splits.add(rules.LOCAL if word.dim else word)  # pages of a user are not split
        if len(splits) != 1:
            return rules.LOCAL
        word = splits.pop()
        is_known = isinstance(word, rules.Shard) and word.dim in alike and not _has_others_heads(at, alike)
        return word if is_known and not (is_shared and word is rules.Shard(0)) else rules.LOCAL

    return rule


def _has_others_heads(at: rules.Situation, alike: Mapping[int, int]) -> bool:
    """Whether a part of the cache's heads is written from all heads: each device would take the first ones."""
    cache, values = at.shapes[:2]
    heads = alike.get(_HEADS)
    if cache is None or values is None or heads is None or values[heads] <= cache[_HEADS]:
        return False
    return at.words[0] == rules.Shard(_HEADS) and at.words[1] is rules.REPLICATE


_HEADS = 1  # a dim of the cache
_OPTIONS: dict[str, Any] = {
    "kind": Kind.CACHE,
    "cost": moves_bytes,
    "precision": "data",
    "controls": "",
    "needs_tile": True,
    "rule": writing_rule,
}


def _check_pair(op: str, cache: Operand, values: Operand) -> None:
    check_four_dims(op, cache, values)
    if values.shape[0] != 1:
        raise MeshError(f"{op}: dim 0 of {values.name} {list(values.shape)} must be 1.")
    if (values.shape[1], values.shape[3]) != (cache.shape[1], cache.shape[3]):
        raise MeshError(
            f"{op}: {values.name} {list(values.shape)} and {cache.name} {list(cache.shape)} must agree in heads "
            "(dim 1) and width of a head (dim 3) on each device."
        )


def _check_int(op: str, **arguments: Value) -> None:
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(f"{op}: {name} must be an int, got {value!r}")


def _check_within(op: str, argument: str, first: int, count: int, extent: int, what: str) -> None:
    if not 0 <= first <= first + count <= extent:
        several = f"{count} from {argument}={first} on do" if count > 1 else f"{argument}={first} does"
        raise MeshError(f"{op}: {several} not lie within the {extent} {what} of the cache on each device.")


@operation(**_OPTIONS, patches="cache_tensor", places="batch_idx update_idx")
@with_reference(golden.fill_cache)
def fill_cache(cache_tensor: Operand, input_tensor: Operand, batch_idx: Value, *, update_idx: Value = 0) -> Local:
    """Write [1, heads, s, width] at cache[batch_idx, :, update_idx : update_idx + s]; returns the cache.

    >>> y = ttnn.fill_cache(split(2, 4, 64, 32, dim=1), split(1, 4, 32, 32, dim=1), 0)
    >>> y.shape, ttnn.placements(y)
    (Shape([2, 1, 64, 32]), (Replicate, Shard(1)))
    """
    _check_int("fill_cache", batch_idx=batch_idx, update_idx=update_idx)
    return _filling("fill_cache", "batch_idx", cache_tensor, input_tensor)


@operation("kv_cache.fill_cache_for_user_", **_OPTIONS, patches="cache", places="batch_index update_idx")
def fill_cache_for_user_(cache: Operand, input: Operand, batch_index: Value, *, update_idx: Value = 0) -> Local:
    """Write [1, heads, s, width] at cache[batch_index, :, update_idx : update_idx + s]; returns the cache."""
    op = "kv_cache.fill_cache_for_user_"
    _check_int(op, batch_index=batch_index, update_idx=update_idx)
    return _filling(op, "batch_index", cache, input)


def _filling(op: str, argument: str, cache: Operand, values: Operand) -> Local:
    _check_pair(op, cache, values)
    if cache.dtype is not values.dtype:
        raise MeshError(
            f"Input and cache tensors must have same dtype! {op} got {values.dtype} for a cache of {cache.dtype}: "
            "use ttnn.typecast on the input."
        )
    (users, _, length, _), count = cache.shape, values.shape[2]

    def compute(cache: torch.Tensor, values: torch.Tensor, user: int, start: int) -> torch.Tensor:
        _check_within(op, argument, user, 1, users, "users")
        _check_within(op, "update_idx", start, count, length, "positions")
        cache.select(-4, user).narrow(-2, start, count).copy_(values.select(-4, 0))
        return cache

    alike = {0: 0, 1: 1, 3: 3}
    return Local(compute, writing_rule(alike, ()))


@operation(**_OPTIONS, tuning="compute_kernel_config", patches="cache", places="update_idx")
@with_reference(golden.update_cache)
def update_cache(cache: Operand, input: Operand, update_idx: Value, *, batch_offset: int = 0) -> Local:
    """Write one token of each user, [1, heads, users, width], at cache[:, :, update_idx]; returns the cache.

    The cache's first user is row `batch_offset` of the input, whose other rows are not read: TT-NN pads
    users to a tile of 32.
    """
    _check_int("update_cache", update_idx=update_idx, batch_offset=batch_offset)
    return _updating("update_cache", "update_idx", cache, input, batch_offset)


@operation(
    "kv_cache.update_cache_for_token_",
    **_OPTIONS,
    tuning="compute_kernel_config",
    positional="batch_offset compute_kernel_config",
    patches="cache",
    places="update_index",
)
def update_cache_for_token_(cache: Operand, input: Operand, update_index: Value, *, batch_offset: int = 0) -> Local:
    """Write one token of each user, [1, heads, users, width], at cache[:, :, update_index]; returns the cache."""
    op = "kv_cache.update_cache_for_token_"
    _check_int(op, update_index=update_index, batch_offset=batch_offset)
    return _updating(op, "update_index", cache, input, batch_offset)


def _updating(op: str, argument: str, cache: Operand, values: Operand, offset: int) -> Local:
    _check_pair(op, cache, values)
    (users, _, length, _), dtype = cache.shape, cache.dtype
    if not 0 <= offset <= offset + users <= values.shape[2]:
        raise MeshError(
            f"{op}: input {list(values.shape)} must hold the {users} users of the cache from row "
            f"batch_offset={offset} on; it has {values.shape[2]} rows on each device."
        )

    def compute(cache: torch.Tensor, values: torch.Tensor, position: int) -> torch.Tensor:
        _check_within(op, argument, position, 1, length, "positions")
        tokens = values.select(-4, 0).narrow(-2, offset, users).transpose(-3, -2)
        cache.select(-2, position).copy_(round_to(tokens, dtype))
        return cache

    alike = {0: 2, 1: 1, 3: 3}
    return Local(compute, writing_rule(alike, ()))


@operation(
    kind=Kind.CACHE,
    rule=rules.elementwise,
    **OPTIONS | {"tuning": "sub_core_grids"},
    positional="sub_core_grids skip_negative_entries",
    updates="input_tensor",
)
@with_reference(golden.plus_one)
def plus_one(input_tensor: Operand, *, skip_negative_entries: bool = False) -> Local:
    """Add 1 in place, to positions most often; with `skip_negative_entries` those of users who pause stay.

    >>> positions = ttnn.typecast(ttnn.to_layout(whole(1, 8), ttnn.ROW_MAJOR_LAYOUT), ttnn.int32)
    >>> y = ttnn.plus_one(positions)
    >>> y.shape, ttnn.placements(y)
    (Shape([1, 8]), (Replicate, Replicate))
    """
    dtype = input_tensor.dtype
    if dtype not in (DataType.INT32, DataType.UINT32):
        raise MeshError(f"plus_one: counts in {DataType.INT32} and {DataType.UINT32} only, got {dtype}.")
    if skip_negative_entries and dtype is not DataType.INT32:
        raise MeshError(f"plus_one: {dtype} has no negative entries to skip: use {DataType.INT32}.")

    def increased(x: torch.Tensor) -> torch.Tensor:
        return x + (x >= 0) if skip_negative_entries else x + 1

    def compute(x: torch.Tensor) -> torch.Tensor:
        return x.copy_(round_to(increased(x), dtype))

    return Local(compute, exact=increased)
