"""The core of scaled dot-product attention (SDPA): operand checks, sharding rules and arithmetic of all its forms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, overload

import torch
import torch.nn.functional as F

from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.ops.attention.key_ranges import KeyRanges
from softmesh.ops.operand_checks import check_four_dims, check_one_shape
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import DataType, Layout

TUNING = "program_config compute_kernel_config"


def check_keys(op: str, k: Operand, v: Operand, heads: int, width: int) -> None:
    check_one_shape(op, k, v)
    check_key_heads(op, k, heads, width)


def check_key_heads(op: str, k: Operand, heads: int, width: int) -> None:
    if k.shape[3] != width:
        raise MeshError(f"{op}: the heads of q have width {width}, those of {k.name} {k.shape[3]}.")
    check_groups(op, heads, k.shape[1])


def check_groups(op: str, heads: int, kv_heads: int) -> None:
    if heads % kv_heads:
        raise MeshError(
            f"{op}: Q num_heads must be divisible by K num_heads: {heads} query heads cannot share {kv_heads} "
            "key heads in equal groups on each device. Split both over the same mesh axis, or replicate keys."
        )


def check_rank_4(op: str, *operands: Operand) -> None:
    for operand in operands:
        check_four_dims(op, operand)
        if operand.layout is not Layout.TILE:
            raise MeshError(
                f"Inputs to {op} must be tilized: {operand.name} is {operand.layout}. "
                "Use ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)."
            )


def check_mask(op: str, mask: Operand | None, full: Sequence[int]) -> None:
    """Each dim as in `full`, or 1; the keys, in the last dim, one by one."""
    if mask is None:
        return
    check_rank_4(op, mask)
    fits = all(n in (1, whole) for n, whole in zip(mask.shape, full, strict=True))
    if not fits or mask.shape[-1] != full[-1]:
        raise MeshError(
            f"{op}: attn_mask {list(mask.shape)} does not fit {list(full)}, the shape of all scores on each device "
            "(an extent of 1 is repeated, but for the last)."
        )


def check_sink(op: str, sink: Operand | None, wanted: tuple[int, ...]) -> None:
    if sink is not None and sink.shape != wanted:
        raise MeshError(f"{op}: attention_sink {list(sink.shape)} must hold a score for each head: {list(wanted)}.")


def check_window(op: str, window: int | None) -> None:
    if window is not None and window < 1:
        raise MeshError(f"{op}: sliding_window_size={window} must be at least 1, or None for no window.")


def check_batch(op: str, q: Operand, k: Operand) -> None:
    if q.shape[0] != k.shape[0]:
        raise MeshError(f"{op}: {q.name} has batch {q.shape[0]}, {k.name} {k.shape[0]}.")


def check_value_width(op: str, head_dim_v: int, width: int) -> None:
    if not 0 < head_dim_v <= width:
        raise MeshError(
            f"{op}: head_dim_v={head_dim_v} must lie within 1 to {width}: the values are the first columns of the keys."
        )


def check_ints(op: str, operand: Operand | None, shape: tuple[int, ...], what: str) -> None:
    if operand is None:
        return
    if operand.is_float or operand.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"{op}: {operand.name} must hold integers in ROW_MAJOR layout ({DataType.INT32}), got {operand.dtype}, "
            f"{operand.layout}."
        )
    if operand.shape != shape:
        raise MeshError(f"{op}: {operand.name} {list(operand.shape)} must be {list(shape)}, {what}.")


# -- placements ------------------------------------------------------------------------------------


@placed("Split by batch, or by heads where queries and keys both are; any other split gives Local.")
def split_with_key_heads(rule: rules.SingleRule, query_heads: int) -> rules.SingleRule:
    """Query heads are split only together with their key heads, or beside a single one that all share."""

    @rules.labelled(rule.labels)
    def checked(at: rules.Situation) -> rules.Placement:
        at = _with_keys_by_heads(at, query_heads)
        answer = rule(at)
        key_shape = at.shapes[1]
        assert key_shape is not None
        splits_queries = isinstance(at.word, rules.Shard) and at.word.dim == query_heads
        for keys in at.words[1:3]:
            if keys is None:
                continue
            splits_keys = isinstance(keys, rules.Shard) and keys.dim == 1
            if splits_keys != splits_queries and not (splits_queries and key_shape[1] == 1):
                return rules.LOCAL
        return answer

    return checked


def _with_keys_by_heads(at: rules.Situation, query_heads: int) -> rules.Situation:
    """Of keys with one head on each device a reshape cannot tell a split by heads from one of their width.

    Beside queries of this width, which are split by heads, it is the former.
    """
    if not isinstance(at.word, rules.Shard) or at.word.dim != query_heads:
        return at
    words = [
        word.at(1) if isinstance(word, rules.Shard) and word.dim == 3 and shape and shape[1] == 1 else word
        for word, shape in zip(at.words[1:3], at.shapes[1:3], strict=True)
    ]
    return at._replace(words=(at.words[0], *words, *at.words[3:]))


def by_page_table(rule: rules.SingleRule, *caches: int) -> rules.SingleRule:
    """Keep the blocks of these operands whole in unified ops: the page table counts all of them."""
    return rule.with_labels(lambda labels_of: dim_labels.whole(labels_of, [(cache, 0) for cache in caches]))


def concat_heads_rule(rule: rules.SingleRule) -> rules.SingleRule:
    """Heads split unevenly end in filler, which would stand within the joined row."""

    @rules.labelled(rule.labels)
    def joined(at: rules.Situation) -> rules.Placement:
        word = rule(at)
        return rules.LOCAL if isinstance(word, rules.Shard) and word.dim == 3 and word.size else word

    return joined


# -- the arithmetic ---------------------------------------------------------------------------------
#
# Grouped heads, and mesh axes along which the keys are stored once, are folded beside the queries: keys
# and values are never copied for them.


_HIDDEN = float("-inf")
_BEYOND = 1e30  # all scores
_BLOCK_BIAS = 1 << 22  # 16 MiB of fp32
_BLOCK_ROWS = 512  # those of a block see little that not all of them see


def attend_ranges(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: KeyRanges,
    bias: torch.Tensor | None,
    sink: torch.Tensor | None,
    *,
    scale: float,
) -> torch.Tensor:
    """`attend` of queries each of which sees a range of keys, some rows at a time over what any of them sees."""
    q, k, v, bias, sink = _computed_in(q, k, v, bias, sink)
    parts = []
    for block in row_blocks(q.shape[-2], k.shape[-2]):
        keys, hidden = seen.block(block)
        added = None if bias is None else bias[..., block if bias.shape[-2] > 1 else slice(None), keys]
        if hidden is not None:
            between = (1,) * (q.dim() - hidden.dim())
            outside = mask_bias(~hidden, q.dtype).reshape(*hidden.shape[:-2], *between, *hidden.shape[-2:])
            added = outside if added is None else added + outside
        parts.append(attend(q[..., block, :], k[..., keys, :], v[..., keys, :], added, sink, scale=scale))
    return parts[0] if len(parts) == 1 else torch.cat(parts, -2)


def row_blocks(rows: int, scores: int) -> Iterator[slice]:
    """Rows, some at a time, with `scores` for each, so that a block of these is small."""
    step = max(1, min(_BLOCK_ROWS, _BLOCK_BIAS // max(scores, 1)))
    for at in range(0, max(rows, 1), step):
        yield slice(at, min(at + step, rows))


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    sink: torch.Tensor | None,
    *,
    scale: float,
    is_causal: bool = False,
) -> torch.Tensor:
    """q (*axes, group, rows, width) over k and v (*axes, keys, width).

    bias (*axes, group, rows, keys) is added to the scores; sink (*axes, group, rows, 1) is one more, before
    scaling. Any extent may be 1 where another operand has more. Heads are made equally wide: torch's blockwise
    kernel takes no others, and without it all scores would be held.
    """
    q, k, v, bias, sink = _computed_in(q, k, v, bias, sink)
    if sink is not None:
        q, k, v, bias = _with_sink(q, k, v, bias, sink)
    value_width = v.shape[-1]
    v, (q, k) = _widened(v, k.shape[-1]), (_widened(x, value_width) for x in (q, k))
    k, v = k.unsqueeze(-3), v.unsqueeze(-3)
    shapes = [x.shape[:-2] for x in (q, k, v, bias) if x is not None]
    extents = [max(sizes) for sizes in zip(*shapes, strict=True)]
    beside = [i for i, n in enumerate(extents) if n > 1 and k.shape[i] == v.shape[i] == 1]
    others = [i for i in range(len(extents)) if i not in beside]
    batch, heads = (others, beside) if beside else (others[:-2], others[-2:])
    q, k, v = (_folded(x, batch, heads, extents) for x in (q, k, v))
    full = (math.prod(extents[i] for i in batch), math.prod(extents[i] for i in heads))
    q, k, v = (x.expand(*full, *x.shape[2:]) for x in (q, k, v))
    mask = None if bias is None else _folded(bias, batch, heads, extents)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale)
    order = [*batch, *heads]
    spread = out[..., :value_width].reshape(*(extents[i] for i in order), out.shape[2], value_width)
    back = [order.index(i) for i in range(len(order))]
    return spread.permute(*back, len(order), len(order) + 1)


def _computed_in(q: torch.Tensor, k: torch.Tensor, *others: torch.Tensor | None) -> tuple[Any, ...]:
    """fp32; on a GPU bfloat16, where all is given in it: the fused kernels accumulate and normalise in fp32."""
    given = (q, k, *others)
    if q.is_cuda and all(x is None or x.dtype is torch.bfloat16 for x in given):
        return given
    return tuple(None if x is None else x.float() for x in given)


def _widened(x: torch.Tensor, width: int) -> torch.Tensor:
    missing = width - x.shape[-1]
    return F.pad(x, (0, missing)) if missing > 0 else x


def _folded(x: torch.Tensor, batch: Sequence[int], heads: Sequence[int], extents: Sequence[int]) -> torch.Tensor:
    """(batch, heads, rows, columns): each side whole, or 1 where `x` has nothing of it."""
    sizes = [[extents[i] if any(x.shape[j] > 1 for j in side) else 1 for i in side] for side in (batch, heads)]
    last = x.dim() - 2
    ordered = x.permute(*batch, *heads, last, last + 1)
    spread = ordered.expand(*sizes[0], *sizes[1], *x.shape[-2:])
    return spread.reshape(math.prod(sizes[0]), math.prod(sizes[1]), *x.shape[-2:])


def _with_sink(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, sink: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """One more key, with a value of 0, whose product with a query is its sink: a column in which other keys have 0."""
    lead = broadcast_shapes(q.shape[:-1], sink.shape[:-1])
    finite = sink.clamp(-_BEYOND, _BEYOND)  # times 0, no NaN
    q = torch.cat([q.expand(*lead, q.shape[-1]), finite.expand(*lead, 1)], -1)
    column = F.pad(k.new_zeros(*k.shape[:-1], 1), (0, 0, 0, 1), value=1.0)
    return (
        q,
        torch.cat([F.pad(k, (0, 0, 0, 1)), column], -1),
        F.pad(v, (0, 0, 0, 1)),
        None if bias is None else F.pad(bias, (0, 1)),
    )


def mask_bias(visible: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The bias under which only what is visible takes part."""
    return torch.zeros(visible.shape, device=visible.device, dtype=dtype).masked_fill_(~visible, _HIDDEN)


def causal_window_mask(
    rows: int,
    keys: int,
    is_causal: bool,
    window: int | None,
    device: torch.device,
    first: torch.Tensor | int = 0,
) -> torch.Tensor:
    """Which keys each query sees: none that follow it, none further off than the window.

    `first` is the position of the first query; as a tensor (*axes) it is another for each device.
    """
    start = first.reshape(*first.shape, 1, 1) if isinstance(first, torch.Tensor) else first
    at = torch.arange(rows, device=device).unsqueeze(-1) + start
    return within_window(torch.arange(keys, device=device) - at, is_causal, window)


def within_window(ahead: torch.Tensor, is_causal: bool, window: int | None) -> torch.Tensor:
    """Whether a query sees a key that stands so many places ahead of it."""
    if not is_causal:
        assert window is not None
        return ahead.abs() <= window // 2
    return ahead <= 0 if window is None else (ahead <= 0) & (ahead > -window)


@overload
def group(x: torch.Tensor, dim: int, grouped: tuple[int, int]) -> torch.Tensor: ...
@overload
def group(x: None, dim: int, grouped: tuple[int, int]) -> None: ...
def group(x: torch.Tensor | None, dim: int, grouped: tuple[int, int]) -> torch.Tensor | None:
    """Query heads as (key heads, queries for each); what all heads share stays one."""
    if x is None:
        return None
    return x.unflatten(dim, grouped if x.shape[dim] > 1 else (1, 1))


def joined_heads(out: torch.Tensor) -> torch.Tensor:
    """(..., heads, rows, width) as (..., 1, rows, heads * width)"""
    return out.transpose(-3, -2).flatten(-2).unsqueeze(-3)
