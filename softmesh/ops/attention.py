"""softmax(q k^T) v, for whole sequences and for one new token of each user.

Grouped heads, and mesh axes along which the keys are stored once, are folded beside the queries: keys
and values are never copied for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast, overload

import torch
import torch.nn.functional as F

from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.ops.cost import matmul_cost
from softmesh.ops.operand import Operand, Value
from softmesh.ops.plan import Local
from softmesh.ops.registry import operation
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.memory import DRAM_MEMORY_CONFIG

_HIDDEN = float("-inf")
_TUNING = "program_config compute_kernel_config"
_WINDOWED = "windowed_q_token_offset windowed_q_token_offset_tensor"
_PREFILL = "transformer.scaled_dot_product_attention"
_DECODE = "transformer.scaled_dot_product_attention_decode"


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
    scaling. Any extent may be 1 where another operand has more.
    """
    if sink is not None:
        k, v, bias = _with_sink(k, v, bias, sink * scale)
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
    spread = out.reshape(*(extents[i] for i in order), *out.shape[2:])
    back = [order.index(i) for i in range(len(order))]
    return spread.permute(*back, len(order), len(order) + 1)


def _folded(
    x: torch.Tensor, batch: Sequence[int], heads: Sequence[int], extents: Sequence[int]
) -> torch.Tensor:
    """(batch, heads, rows, columns): each side whole, or 1 where `x` has nothing of it."""
    sizes = [
        [extents[i] if any(x.shape[j] > 1 for j in side) else 1 for i in side] for side in (batch, heads)
    ]
    last = x.dim() - 2
    ordered = x.permute(*batch, *heads, last, last + 1)
    spread = ordered.expand(*sizes[0], *sizes[1], *x.shape[-2:])
    return spread.reshape(math.prod(sizes[0]), math.prod(sizes[1]), *x.shape[-2:])


def _with_sink(
    k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, sink: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One more key with a score of its own and a value of 0."""
    if bias is None:
        bias = torch.zeros(*(1,) * (sink.dim() - 1), k.shape[-2], device=k.device)
    shape = torch.broadcast_shapes(bias.shape[:-1], sink.shape[:-1])
    scores = torch.cat([bias.expand(*shape, bias.shape[-1]), sink.expand(*shape, 1)], -1)
    return F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), scores


def _hide(visible: torch.Tensor) -> torch.Tensor:
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, _HIDDEN)


def _check_keys(op: str, k: Operand, v: Operand, heads: int, width: int) -> None:
    if k.shape != v.shape:
        raise MeshError(f"{op}: {k.name} {list(k.shape)} and {v.name} {list(v.shape)} must have one shape.")
    if k.shape[3] != width:
        raise MeshError(f"{op}: the heads of q have width {width}, those of {k.name} {k.shape[3]}.")
    if heads % k.shape[1]:
        raise MeshError(
            f"{op}: Q num_heads must be divisible by K num_heads: {heads} query heads cannot share {k.shape[1]} "
            "key heads in equal groups on each device. Split both over the same mesh axis, or replicate keys."
        )


def _check_rank_4(op: str, *operands: Operand) -> None:
    for operand in operands:
        if operand.rank != 4:
            raise MeshError(f"{op}: {operand.name} must have 4 dims, got {list(operand.shape)}.")
        if operand.layout is not Layout.TILE:
            raise MeshError(
                f"Inputs to {op} must be tilized: {operand.name} is {operand.layout}. "
                "Use ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)."
            )


def _check_mask(op: str, mask: Operand | None, full: Sequence[int]) -> None:
    """Each dim as in `full`, or 1; the keys, in the last dim, one by one."""
    if mask is None:
        return
    _check_rank_4(op, mask)
    fits = all(n in (1, whole) for n, whole in zip(mask.shape, full, strict=True))
    if not fits or mask.shape[-1] != full[-1]:
        raise MeshError(
            f"{op}: attn_mask {list(mask.shape)} does not fit {list(full)}, the shape of all scores on each device "
            "(an extent of 1 is repeated, but for the last)."
        )


def _check_sink(op: str, sink: Operand | None, wanted: tuple[int, ...]) -> None:
    if sink is not None and sink.shape != wanted:
        raise MeshError(
            f"{op}: attention_sink {list(sink.shape)} must hold a score for each head: {list(wanted)}."
        )


def _check_window(op: str, window: int | None) -> None:
    if window is not None and window < 1:
        raise MeshError(f"{op}: sliding_window_size={window} must be at least 1, or None for no window.")


# -- whole sequences -------------------------------------------------------------------------------


@operation(_PREFILL, controls="memory_config", tuning=f"{_TUNING} attn_mask_block_map {_WINDOWED}")
def scaled_dot_product_attention(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    *,
    attn_mask: Operand | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Operand | None = None,
    cu_window_seqlens: object = None,
    output_concat_heads: bool = False,
) -> Local:
    """q [b, heads, s, width] over k, v [b, kv_heads, s, width], on each device.

    A causal window reaches back over `sliding_window_size` keys, the query's own included; any other
    is centred on the query. `attention_sink` [1, heads, 1, 1] joins the softmax as one more product
    q.k, scaled like the others. `output_concat_heads` gives [b, 1, s, heads * width].
    """
    q, k = input_tensor_q, input_tensor_k
    if cu_window_seqlens is not None:
        raise NotModelled(f"{_PREFILL}: cu_window_seqlens is not modelled: pass the windows as attn_mask.")
    _check_prefill(q, k, input_tensor_v, attn_mask, is_causal)
    _check_window(_PREFILL, sliding_window_size)
    _check_sink(_PREFILL, attention_sink, (1, q.shape[1], 1, 1))
    (heads, rows, width), (kv_heads, keys) = q.shape[1:], k.shape[1:3]
    grouped = (kv_heads, heads // kv_heads)
    factor = width**-0.5 if scale is None else scale
    has_band = sliding_window_size is not None or (is_causal and attention_sink is not None)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        sink: torch.Tensor | None,
    ) -> torch.Tensor:
        bias, score = _group(mask, -3, grouped), _group(sink, -3, grouped)
        if has_band:
            band = _hide(_band(rows, keys, is_causal, sliding_window_size, q.device))
            band = band.reshape(*(1,) * (q.dim() - 1), rows, keys)
            bias = band if bias is None else bias + band
        queries, by_order = _group(q, -3, grouped), is_causal and not has_band
        out = attend(queries, k, v, bias, score, scale=factor, is_causal=by_order).flatten(-4, -3)
        return out.transpose(-3, -2).flatten(-2).unsqueeze(-3) if output_concat_heads else out

    ordered = is_causal or sliding_window_size is not None
    rule = _prefill_rule(q, attn_mask, ordered, output_concat_heads)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * keys))


@overload
def _group(x: torch.Tensor, dim: int, grouped: tuple[int, int]) -> torch.Tensor: ...
@overload
def _group(x: None, dim: int, grouped: tuple[int, int]) -> None: ...
def _group(x: torch.Tensor | None, dim: int, grouped: tuple[int, int]) -> torch.Tensor | None:
    """Query heads as (key heads, queries for each); what all heads share stays one."""
    if x is None:
        return None
    return x.unflatten(dim, grouped if x.shape[dim] > 1 else (1, 1))


def _band(rows: int, keys: int, is_causal: bool, window: int | None, device: torch.device) -> torch.Tensor:
    """Which keys each query sees: none that follow it, none further off than the window."""
    ahead = torch.arange(keys, device=device) - torch.arange(rows, device=device).unsqueeze(-1)
    if not is_causal:
        assert window is not None
        return ahead.abs() <= window // 2
    return ahead <= 0 if window is None else (ahead <= 0) & (ahead > -window)


def _check_prefill(q: Operand, k: Operand, v: Operand, mask: Operand | None, is_causal: bool) -> None:
    _check_rank_4(_PREFILL, q, k, v)
    _check_keys(_PREFILL, k, v, heads=q.shape[1], width=q.shape[3])
    if q.shape[0] != k.shape[0]:
        raise MeshError(f"{_PREFILL}: {q.name} has batch {q.shape[0]}, {k.name} {k.shape[0]}.")
    if is_causal and mask is not None:
        raise MeshError(f"{_PREFILL}: attn_mask is given and is_causal=True: pass is_causal=False with it.")
    if is_causal and q.shape[2] != k.shape[2]:
        raise MeshError(
            f"{_PREFILL}: causal attention needs as many queries as keys, got {q.shape[2]} and {k.shape[2]} on each "
            "device: pass is_causal=False and an attn_mask."
        )
    _check_mask(_PREFILL, mask, (*q.shape[:3], k.shape[2]))


def _prefill_rule(q: Operand, mask: Operand | None, ordered: bool, concat: bool) -> rules.Rule:
    """Queries may be split by batch and heads with their keys, and by rows where order plays no part."""
    batch, heads = [(0, 0), (1, 0), (2, 0)], [(0, 1), (1, 1), (2, 1), (4, 1)]
    rows: list[tuple[int, int]] = [] if ordered else [(0, 2)]
    if mask is not None:
        for dim, pairs in enumerate((batch, heads, rows)):
            pairs += [(3, dim)] if mask.shape[dim] == q.shape[dim] else []
    if not concat:
        return _own_keys(rules.along({0: batch, 1: heads, 2: rows, 3: [(2, 3)]}), 1)
    return _joining(_own_keys(rules.along({0: batch, 3: heads, 2: rows}), 1))


def _own_keys(rule: rules.Rule, query_heads: int) -> rules.Rule:
    """Query heads are split only together with their key heads, or beside a single one that all share."""

    def checked(at: rules.Situation) -> Sequence[rules.Placement]:
        answer = cast(Sequence[rules.Placement], rule(at))
        key_shape = at.shapes[1]
        assert key_shape is not None
        splits_queries = isinstance(at.word, rules.Shard) and at.word.dim == query_heads
        for keys in at.words[1:3]:
            splits_keys = isinstance(keys, rules.Shard) and keys.dim == 1
            if splits_keys != splits_queries and not (splits_queries and key_shape[1] == 1):
                return [rules.LOCAL] * len(answer)
        return answer

    return checked


def _joining(rule: rules.Rule) -> rules.Rule:
    """Heads split unevenly end in filler, which would stand within the joined row."""

    def joined(at: rules.Situation) -> Sequence[rules.Placement]:
        (word,) = cast(Sequence[rules.Placement], rule(at))
        return [rules.LOCAL if isinstance(word, rules.Shard) and word.dim == 3 and word.size else word]

    return joined


# -- one new token of each user --------------------------------------------------------------------


@operation(_DECODE, precision="data", controls="memory_config", tuning=_TUNING)
def scaled_dot_product_attention_decode(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    *,
    is_causal: bool = True,
    attn_mask: Operand | None = None,
    cur_pos_tensor: Operand | None = None,
    attention_sink: Operand | None = None,
    cur_pos: Value | Sequence[int] | None = (),
    scale: float | None = None,
    sliding_window_size: int | None = None,
    share_cache: bool | None = None,
) -> Local:
    """q [1, users, heads, width] over caches k, v [users, kv_heads, length, width], on each device.

    User b sees positions up to and with `cur_pos[b]`; -1 skips the user, whose result is 0. With
    `is_causal=False` attn_mask [users, 1, heads, length] decides, or all is seen.
    `attention_sink` [heads, 32] has each head's score in its first column. With `share_cache` all users
    read one cache of batch 1.
    """
    q, k = input_tensor_q, input_tensor_k
    listed: list[Any] = list(cur_pos) if isinstance(cur_pos, Sequence) else []
    _check_decode(q, k, input_tensor_v, bool(share_cache))
    _check_window(_DECODE, sliding_window_size)
    _check_positions(q.shape[1], listed, cur_pos_tensor, attn_mask, is_causal)
    (users, heads, width), (kv_heads, length) = q.shape[1:], k.shape[1:3]
    _check_mask(_DECODE, attn_mask, (users, 1, heads, length))
    _check_sink(_DECODE, attention_sink, (heads, 32))
    grouped = (kv_heads, heads // kv_heads)
    factor = width**-0.5 if scale is None else scale

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        current: torch.Tensor | None,
        sink: torch.Tensor | None,
        *numbers: int,
    ) -> torch.Tensor:
        lead = q.dim() - 4
        bias = None if mask is None else _by_group(mask.select(-3, 0), grouped)
        score = None if sink is None else _by_group(sink[..., :1], grouped).unsqueeze(lead)
        if is_causal:
            current = _positions(numbers, lead, q.device) if current is None else current
            reach = _reach(current, length, sliding_window_size)
            bias = _unseen(current, reach, sliding_window_size)
            k, v = k[..., reach, :], v[..., reach, :]
        queries = _by_group(q.select(-4, 0), grouped)
        out = attend(queries, k.float(), v.float(), bias, score, scale=factor)
        if current is not None:
            out = torch.where((current < 0).reshape(*current.shape, 1, 1, 1, 1), 0.0, out)
        return out.reshape(*out.shape[:lead], 1, users, heads, width)

    rule = _decode_rule(q, k, attn_mask)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * length))


def _by_group(x: torch.Tensor, grouped: tuple[int, int]) -> torch.Tensor:
    """(..., heads, n) as (..., key heads, 1, queries for each, n): the queries of a group become rows."""
    return _group(x, -2, grouped).unsqueeze(-3).float()


def _positions(numbers: Sequence[int], lead: int, device: torch.device) -> torch.Tensor:
    return torch.tensor(numbers, device=device).reshape(*(1,) * lead, len(numbers))


def _reach(current: torch.Tensor, length: int, window: int | None) -> slice:
    """The part of the cache that any user sees."""
    last = int(current.max())
    if last >= length:
        raise MeshError(f"{_DECODE}: cur_pos {last} lies outside the cache, which holds {length} positions.")
    earliest = int(current.clamp(min=0).min())
    return slice(0 if window is None else max(0, earliest - window + 1), max(last, 0) + 1)


def _unseen(current: torch.Tensor, reach: slice, window: int | None) -> torch.Tensor | None:
    """The bias that hides what follows each user's position, or lies before its window."""
    at = torch.arange(reach.start, reach.stop, device=current.device)
    latest = current.unsqueeze(-1)
    visible = at <= latest if window is None else (at <= latest) & (at > latest - window)
    if bool(visible.all()):
        return None
    return _hide(visible).reshape(*current.shape, 1, 1, 1, len(at))


def _check_decode(q: Operand, k: Operand, v: Operand, share_cache: bool) -> None:
    _check_rank_4(_DECODE, q, k, v)
    if q.shape[0] != 1:
        raise MeshError(f"{_DECODE}: {q.name} must be [1, users, heads, width], got {list(q.shape)}.")
    _check_keys(_DECODE, k, v, heads=q.shape[2], width=q.shape[3])
    caches = 1 if share_cache else q.shape[1]
    if k.shape[0] != caches:
        why = "share_cache=True" if share_cache else f"{q.name} holds {q.shape[1]} users"
        raise MeshError(f"{_DECODE}: {why}, so {k.name} must have batch {caches}, got {list(k.shape)}.")


def _check_positions(
    users: int, numbers: Sequence[int], tensor: Operand | None, mask: Operand | None, is_causal: bool
) -> None:
    if not is_causal:
        if numbers or tensor is not None:
            raise MeshError(
                f"{_DECODE}: positions play no part with is_causal=False: pass an attn_mask instead."
            )
        return
    if mask is not None:
        raise MeshError(f"{_DECODE}: attn_mask is given and is_causal=True: pass is_causal=False with it.")
    if tensor is None and len(numbers) != users:
        raise MeshError(
            f"{_DECODE}: cur_pos has {len(numbers)} positions for {users} users on each device: pass one for each, "
            "or a cur_pos_tensor."
        )
    if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
        raise ArgumentError(f"{_DECODE}: cur_pos must hold ints, got {list(numbers)!r}")
    if tensor is not None:
        if tensor.dtype is not DataType.INT32 or tensor.layout is not Layout.ROW_MAJOR:
            raise MeshError(
                f"Expect cur_pos to be INT32 and ROW_MAJOR: {_DECODE}: cur_pos_tensor is {tensor.dtype}, "
                f"{tensor.layout}."
            )
        if tensor.shape != (users,):
            raise MeshError(f"{_DECODE}: cur_pos_tensor {list(tensor.shape)} must be [{users}], the users.")


def _decode_rule(q: Operand, k: Operand, mask: Operand | None) -> rules.Rule:
    """Users and heads may be split along with their caches."""
    users, heads = [(0, 1), (4, 0)], [(0, 2), (1, 1), (2, 1), (5, 0)]
    users += [(1, 0), (2, 0)] if k.shape[0] == q.shape[1] else []
    if mask is not None:
        users += [(3, 0)] if mask.shape[0] == q.shape[1] else []
        heads += [(3, 2)] if mask.shape[2] == q.shape[2] else []
    return _own_keys(rules.along({0: [(0, 0)], 1: users, 2: heads, 3: [(2, 3)]}), 2)
