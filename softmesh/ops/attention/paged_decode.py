"""Paged decode: attention of one new token of each user over a paged KV cache, or over latent keys (MLA)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.hardware.program_configs import PagedCacheGeometryOverride
from softmesh.kinds import Kind
from softmesh.ops.attention.decode import (
    Data,
    DecodeStep,
    Fetch,
    check_position_tensor,
    check_positions,
    check_queries,
    check_users,
    decode_rule,
    positions,
)
from softmesh.ops.attention.page_owners import doubt_moved_pages
from softmesh.ops.attention.page_tables import (
    MemoizeLast,
    check_modulo,
    check_table,
    geometry,
    positions_in_order,
    read_on_cores,
    reinterpret_tiles,
)
from softmesh.ops.attention.sdpa_core import (
    TUNING,
    check_groups,
    check_key_heads,
    check_value_width,
    group,
    split_with_key_heads,
)
from softmesh.ops.golden import golden_attention as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.ops.operand_checks import check_one_shape
from softmesh.runtime.gpu_value_cache import is_graphed

# -- attention that reads each block in place -------------------------------------------------------
#
# Queries go to the blocks, which are many and big; what comes back is small: of each block its highest score, the
# sum of its weights, and the sum of its values by these. It pays where most blocks of a cache are in use, each by
# one user. The blocks of all devices stand in one row here, and so do their users.


_FEWEST_BYTES = 1 << 20  # of keys: below, copying costs less than the steps here
_FEW_ROWS = 2  # queries of a group up to which the product with them in front is the faster one
_SUM, _HIGHEST = 0, 2  # torch's numbers for what becomes of the rows in a bag


def attend_by_block(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    current: torch.Tensor,
    scale: float,
) -> torch.Tensor | None:
    """q (*axes, users, key heads, group, width) over k, v (*axes, blocks, key heads, block, width).

    table (*axes, users, pages) numbers each user's blocks; a user sees positions up to current (*axes, users).
    None where copying costs less.
    """
    lead = k.dim() - 4
    axes, blocks = k.shape[:lead], k.shape[lead]
    if k.numel() * k.itemsize < _FEWEST_BYTES or not _is_plain(q, k, v) or q.shape[:lead] != axes:
        return None
    if not (_can_expand(table.shape[:-2], axes) and _can_expand(current.shape[:-1], axes)):
        return None  # devices that share a cache have tables of their own
    owned = _block_owners((table, current), tuple(axes), blocks, k.shape[-2])
    if owned is None:
        return None
    asking = (q.float() * scale).flatten(0, lead).index_select(0, owned.users)
    scores = _products(asking, k.float().flatten(0, lead))
    if owned.hidden is not None:
        scores.masked_fill_(owned.hidden, float("-inf"))
    highest = owned.for_users(scores.amax(-1), _HIGHEST)
    weights = scores.sub_(highest.index_select(0, owned.users).unsqueeze(-1)).exp_()
    total = owned.for_users(weights.sum(-1), _SUM)
    values = owned.for_users(torch.matmul(weights, v.float().flatten(0, lead)), _SUM)
    return (values / total.unsqueeze(-1)).unflatten(0, q.shape[: lead + 1])


def _can_expand(own: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether data of these extents can be expanded to `axes`."""
    return len(own) == len(axes) and all(n in (1, whole) for n, whole in zip(own, axes, strict=True))


def _is_plain(*data: torch.Tensor) -> bool:
    return all(x.is_cpu and not x.requires_grad for x in data)


def _products(asking: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """(..., group, block)"""
    if asking.shape[-2] <= _FEW_ROWS:
        return torch.matmul(asking, keys.transpose(-2, -1))
    return torch.matmul(keys, asking.transpose(-2, -1).contiguous()).transpose(-2, -1).contiguous()


class _BlockOwners:
    """Whose each block is. `blocks` (users, pages) are the blocks of each user, as far as `is_read` tells."""

    def __init__(self, blocks: torch.Tensor, is_read: torch.Tensor, places: torch.Tensor) -> None:
        counts = is_read.sum(1)
        self._members = blocks[is_read].int()  # the blocks of each user's bag
        self._starts = (counts.cumsum(0) - counts).int()
        self.users = places // blocks.shape[1]  # (blocks)
        self.hidden: torch.Tensor | None = None  # (blocks, 1, 1, block)

    @classmethod
    def of_tables(
        cls, table: torch.Tensor, current: torch.Tensor, axes: tuple[int, ...], each: int, block: int
    ) -> _BlockOwners | None:
        """None where few of the `each` blocks of a device are in use, or one of them by several."""
        pages = max(int(current.max()), 0) // block + 1
        numbers = table[..., :pages].long().expand(*axes, -1, -1)
        devices, users = math.prod(axes), numbers.shape[-2]
        current = current.expand(*axes, -1).flatten()
        is_read = torch.arange(pages) <= (current // block).unsqueeze(1)
        is_there = ((numbers >= 0) & (numbers < each)).reshape(-1, pages)
        if 2 * users * pages < each or bool((is_read & ~is_there).any()):
            return None  # of blocks that are not there, whoever copies them tells which
        begins = (torch.arange(devices) * each).reshape(*axes, 1, 1)
        blocks = (numbers + begins).reshape(-1, pages)
        own = torch.arange(blocks.numel()).reshape(blocks.shape)
        count = devices * each
        target = torch.where(is_read, blocks, count)
        places = torch.zeros(count + 1, dtype=torch.long).scatter_(0, target.flatten(), own.flatten())
        if not bool(((places[target] == own) | ~is_read).all()):
            return None
        made = cls(blocks, is_read, places[:count])
        made._hide(current, (places[:count] % pages) * block, block)
        return made

    def _hide(self, current: torch.Tensor, first: torch.Tensor, block: int) -> None:
        """What lies behind the position of the block's user; `first` is the position where each block begins."""
        behind = first.unsqueeze(1) + torch.arange(block) > current[self.users].unsqueeze(1)
        self.hidden = behind[:, None, None] if bool(behind.any()) else None

    def for_users(self, x: torch.Tensor, mode: int) -> torch.Tensor:
        """(blocks, ...) -> (users, ...), by torch's fastest way of adding up rows."""
        found = torch.embedding_bag(x.flatten(1), self._members, self._starts, False, mode)[0]
        return found.unflatten(1, x.shape[1:])


_block_owners = MemoizeLast(_BlockOwners.of_tables)


_PAGED = "transformer.paged_scaled_dot_product_attention_decode"
_LATENT = "transformer.flash_multi_latent_attention_decode"
_PAGED_LATENT = "transformer.paged_flash_multi_latent_attention_decode"


def _all_pages(
    op: str, caches: tuple[torch.Tensor, torch.Tensor], pages: torch.Tensor, within: slice, width: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of all positions, however far they are read: for a graph, which does not know."""
    keys = positions_in_order(op, caches[0], pages, pages)[..., within, :]
    if width is not None:
        return keys, keys[..., :width]
    return keys, positions_in_order(op, caches[1], pages, pages)[..., within, :]


def _from_pages(
    op: str, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, block: int, width: int | None = None
) -> Fetch:
    """Reads the pages that some user's position reaches. With `width`, values are the first columns of the keys."""

    def fetch(part: slice, current: Data) -> tuple[torch.Tensor, torch.Tensor]:
        first, after = part.start // block, -(-part.stop // block)
        pages = table[..., first:after]
        if is_graphed(pages):
            return _all_pages(op, (k, v), pages, slice(part.start - first * block, part.stop - first * block), width)
        pages = pages.long()
        reached = torch.tensor([after], device=k.device) if current is None else current // block + 1
        needed = reached - first
        within = slice(part.start - first * block, part.stop - first * block)
        keys = positions_in_order(op, k, pages, needed)[..., within, :]
        if width is not None:
            return keys, keys[..., :width]
        return keys, positions_in_order(op, v, pages, needed)[..., within, :]

    return fetch


@operation(
    _PAGED,
    kind=Kind.ATTENTION,
    rule=split_with_key_heads,
    native="SdpaDecodeDeviceOperation",
    precision="data",
    controls="memory_config",
    tuning=TUNING,
    check=doubt_moved_pages,
)
@read_on_cores(page_table_tensor=2, cur_pos_tensor=1)
@with_reference(golden.paged_decode)
def paged_scaled_dot_product_attention_decode(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    page_table_tensor: Operand,
    *,
    is_causal: bool = True,
    attn_mask: Operand | None = None,
    cur_pos_tensor: Operand | None = None,
    attention_sink: Operand | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    paged_cache_geometry: PagedCacheGeometryOverride | None = None,
    cache_position_modulo: int | None = None,
    spec_multi_pos_tiles: int = 0,
) -> Local:
    """q [1, users, heads, width] over k, v [blocks, kv_heads, block, width], found by page_table [users, pages].

    Positions, mask and sink are those of scaled_dot_product_attention_decode. With `cache_position_modulo`
    position p stands in place p % modulo of the user's pages, over what was there before.
    """
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    if spec_multi_pos_tiles:
        raise NotModelled(f"{_PAGED}: spec_multi_pos_tiles is not modelled: call it once for each position.")
    check_queries(_PAGED, q, k, v)
    check_one_shape(_PAGED, k, v)
    seen_as = geometry(_PAGED, k, q.shape[3], paged_cache_geometry, is_given=True)
    if seen_as[3] != q.shape[3]:
        raise MeshError(f"{_PAGED}: the heads of q have width {q.shape[3]}, those of {k.name} {seen_as[3]}.")
    step = _paged_step(
        _PAGED,
        (q, page_table_tensor, attn_mask, cur_pos_tensor, attention_sink),
        seen_as,
        q.shape[3],
        (scale, sliding_window_size, is_causal, cache_position_modulo),
    )
    options = (sliding_window_size, cache_position_modulo, attention_sink)
    is_plain = is_causal and all(option is None for option in options)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        table: torch.Tensor,
        mask: Data,
        current: Data,
        sink: Data,
    ) -> torch.Tensor:
        keys, values = reinterpret_tiles(k, seen_as), reinterpret_tiles(v, seen_as)
        if is_plain and current is not None and not is_graphed(q):
            step.visible_part(current)
            queries = group(q.select(-4, 0), -2, step.grouped)
            out = attend_by_block(queries, keys, values, table, current, step.factor)
            if out is not None:
                return step.finished(out, current, q.dim() - 4)
        fetch = _from_pages(_PAGED, keys, values, table, seen_as[2])
        return step.run(q, fetch, mask, current, sink)

    rule = decode_rule(q, attn_mask, own_caches=True, mask_at=4, table_at=3)
    return Local(
        compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * step.length), places_of={3: (1, 2)}
    )


def _paged_step(
    op: str,
    operands: tuple[Operand, Operand, Operand | None, Operand | None, Operand | None],
    seen_as: tuple[int, int, int, int],
    value_width: int,
    options: tuple[float | None, int | None, bool, int | None],
) -> DecodeStep:
    q, table, mask, current, sink = operands
    scale, window, is_causal, modulo = options
    _, kv_heads, block, _ = seen_as
    check_groups(op, q.shape[2], kv_heads)
    check_table(op, table, q.shape[1])
    length = table.shape[1] * block
    check_modulo(op, modulo, length, block)
    if is_causal and current is None:
        raise MeshError(f"{op}: causal attention over pages needs a cur_pos_tensor, the position of each user.")
    if is_causal and mask is not None:
        raise MeshError(f"{op}: attn_mask is given and is_causal=True: pass is_causal=False with it.")
    if current is not None:
        check_position_tensor(op, current, q.shape[1])
    step = DecodeStep(op, q, kv_heads, length, value_width, scale, window, is_causal, modulo)
    step.check(mask, sink)
    return step


# -- keys that hold the values too -----------------------------------------------------------------


@operation(
    _LATENT, kind=Kind.ATTENTION, rule=split_with_key_heads, precision="data", controls="memory_config", tuning=TUNING
)
@read_on_cores(cur_pos_tensor=1)
@with_reference(golden.latent_decode)
def flash_multi_latent_attention_decode(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand | None = None,
    head_dim_v: int | None = None,
    *,
    is_causal: bool = True,
    attn_mask: Operand | None = None,
    cur_pos_tensor: Operand | None = None,
    attention_sink: Operand | None = None,
    cur_pos: Value | Sequence[int] | None = (),
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Local:
    """Latent attention: as scaled_dot_product_attention_decode, with the first `head_dim_v` columns of k for v."""
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    check_users(_LATENT, q, k)
    check_key_heads(_LATENT, k, heads=q.shape[2], width=q.shape[3])
    width = _value_width(_LATENT, k, v, head_dim_v)
    listed = check_positions(_LATENT, q, cur_pos, cur_pos_tensor, attn_mask, is_causal)
    step = DecodeStep(_LATENT, q, k.shape[1], k.shape[2], width, scale, sliding_window_size, is_causal)
    step.check(attn_mask, attention_sink)

    def compute(
        q: torch.Tensor, k: torch.Tensor, v: Data, mask: Data, current: Data, sink: Data, *numbers: int
    ) -> torch.Tensor:
        given = current if current is not None or not listed else positions(numbers, q)
        values = k[..., :width] if v is None else v
        return step.run(q, lambda part, _: (k[..., part, :], values[..., part, :]), mask, given, sink)

    rule = decode_rule(q, attn_mask, own_caches=True)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * k.shape[2]))


@operation(
    _PAGED_LATENT,
    kind=Kind.ATTENTION,
    rule=split_with_key_heads,
    precision="data",
    controls="memory_config",
    tuning=TUNING,
    check=doubt_moved_pages,
)
@read_on_cores(page_table_tensor=2, cur_pos_tensor=1)
def paged_flash_multi_latent_attention_decode(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand | None = None,
    head_dim_v: int | None = None,
    page_table_tensor: Operand | None = None,
    *,
    is_causal: bool = True,
    attn_mask: Operand | None = None,
    cur_pos_tensor: Operand | None = None,
    attention_sink: Operand | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Local:
    """Latent attention over caches cut into blocks, found by page_table [users, pages]."""
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    if page_table_tensor is None:
        raise ArgumentError(
            f"{_PAGED_LATENT}(): incompatible function arguments: argument 'page_table_tensor' is missing."
        )
    check_queries(_PAGED_LATENT, q, k)
    check_key_heads(_PAGED_LATENT, k, heads=q.shape[2], width=q.shape[3])
    width = _value_width(_PAGED_LATENT, k, v, head_dim_v)
    block = k.shape[2]
    step = _paged_step(
        _PAGED_LATENT,
        (q, page_table_tensor, attn_mask, cur_pos_tensor, attention_sink),
        (k.shape[0], k.shape[1], block, k.shape[3]),
        width,
        (scale, sliding_window_size, is_causal, None),
    )

    def compute(
        q: torch.Tensor, k: torch.Tensor, v: Data, table: torch.Tensor, mask: Data, current: Data, sink: Data
    ) -> torch.Tensor:
        shared = width if v is None else None
        fetch = _from_pages(_PAGED_LATENT, k, k if v is None else v, table, block, shared)
        return step.run(q, fetch, mask, current, sink)

    rule = decode_rule(q, attn_mask, own_caches=True, mask_at=4, table_at=3)
    return Local(
        compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * step.length), places_of={3: (1, 2)}
    )


def _value_width(op: str, k: Operand, v: Operand | None, head_dim_v: int | None) -> int:
    if head_dim_v is None:
        raise ArgumentError(f"{op}(): incompatible function arguments: argument 'head_dim_v' is missing.")
    if v is None:
        check_value_width(op, head_dim_v, k.shape[3])
    elif v.shape != (*k.shape[:3], head_dim_v):
        raise MeshError(
            f"{op}: {v.name} {list(v.shape)} must be like {k.name} {list(k.shape)}, but for a width of "
            f"head_dim_v={head_dim_v}."
        )
    return head_dim_v
