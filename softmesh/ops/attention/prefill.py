"""scaled_dot_product_attention, flash_mla_prefill and joint attention: attention over whole sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from softmesh.dispatch.argument_forms import named_by_position
from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.kinds import Kind
from softmesh.ops.attention.key_ranges import KeyRanges, overlap, ranges_between, ranges_in_order
from softmesh.ops.attention.sdpa_core import (
    TUNING,
    attend,
    attend_ranges,
    check_batch,
    check_groups,
    check_ints,
    check_key_heads,
    check_keys,
    check_mask,
    check_rank_4,
    check_sink,
    check_value_width,
    check_window,
    concat_heads_rule,
    group,
    joined_heads,
    split_with_key_heads,
)
from softmesh.ops.golden import golden_attention as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import rules
from softmesh.tensor.broadcasting import concat_on_mesh

_PREFILL = "transformer.scaled_dot_product_attention"
_LATENT = "transformer.flash_mla_prefill"
Data = torch.Tensor | None


@operation(
    _PREFILL,
    kind=Kind.ATTENTION,
    rule=split_with_key_heads,
    native="SDPAOperation",
    precision="data",
    controls="memory_config",
    tuning=f"{TUNING} attn_mask_block_map",
)
@with_reference(golden.prefill)
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
    cu_window_seqlens: Operand | None = None,
    windowed_q_token_offset: Value = 0,
    windowed_q_token_offset_tensor: Operand | None = None,
    output_concat_heads: bool = False,
) -> Local:
    """q [b, heads, s, width] over k, v [b, kv_heads, s, width], on each device.

    A causal window reaches back over `sliding_window_size` keys, the query's own included; any other
    is centred on the query. `attention_sink` [1, heads, 1, 1] joins the softmax as one more product
    q.k, scaled like the others. `cu_window_seqlens` [n + 1] cuts the keys into n windows, and queries, the first of
    which has position `windowed_q_token_offset`, see their own only. `output_concat_heads` gives
    [b, 1, s, heads * width].

    >>> q, k, v = (split(1, 8, 32, 64, dim=1) for _ in range(3))
    >>> y = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> y.shape, ttnn.placements(y)
    (Shape([1, 2, 32, 64]), (Replicate, Shard(1)))
    """
    q, k = input_tensor_q, input_tensor_k
    check_rank_4(_PREFILL, q, k, input_tensor_v)
    check_keys(_PREFILL, k, input_tensor_v, heads=q.shape[1], width=q.shape[3])
    _check_order(_PREFILL, q, k, attn_mask, is_causal)
    check_window(_PREFILL, sliding_window_size)
    check_sink(_PREFILL, attention_sink, (1, q.shape[1], 1, 1))
    _check_windows(cu_window_seqlens, windowed_q_token_offset_tensor, is_causal)
    rows, keys = q.shape[2], k.shape[2]
    in_bands = sliding_window_size is not None or (is_causal and attention_sink is not None)
    inner = _whole_sequences(q, k, scale, is_causal and not in_bands)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Data,
        sink: Data,
        windows: Data,
        offset: int,
        offsets: Data,
    ) -> torch.Tensor:
        places = torch.arange(rows, device=q.device)
        seen = ranges_in_order(places, keys, is_causal, sliding_window_size) if in_bands else None
        if windows is not None:
            own = ranges_between(windows.long(), places + (offset if offsets is None else offsets), keys)
            seen = own if seen is None else overlap(seen, own)
        out = inner(q, k, v, mask, sink, seen)
        return joined_heads(out) if output_concat_heads else out

    ordered = is_causal or sliding_window_size is not None or cu_window_seqlens is not None
    rule = _prefill_rule(q, attn_mask, ordered, output_concat_heads)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * keys))


def _whole_sequences(
    q: Operand, k: Operand, scale: float | None, by_order: bool
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Data, Data, KeyRanges | None], torch.Tensor]:
    """Attention of grouped heads, given operands of TT-NN's shapes and what queries see of the keys."""
    kv_heads = k.shape[1]
    grouped = (kv_heads, q.shape[1] // kv_heads)
    factor = q.shape[3] ** -0.5 if scale is None else scale

    def compute(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Data, sink: Data, seen: KeyRanges | None
    ) -> torch.Tensor:
        queries, added, score = (group(x, -3, grouped) for x in (q, mask, sink))
        assert queries is not None
        if seen is None:
            out = attend(queries, k, v, added, score, scale=factor, is_causal=by_order)
        else:
            out = attend_ranges(queries, k, v, seen, added, score, scale=factor)
        return out.flatten(-4, -3)

    return compute


def _check_windows(windows: Operand | None, offsets: Operand | None, is_causal: bool) -> None:
    if windows is None:
        return
    if is_causal:
        raise MeshError(f"{_PREFILL}: cu_window_seqlens is given and is_causal=True: pass is_causal=False with it.")
    check_ints(_PREFILL, windows, (windows.spec.logical_volume(),), "the bounds of the windows")
    check_ints(_PREFILL, offsets, (1,), "the position of the first query")


def _check_order(op: str, q: Operand, k: Operand, mask: Operand | None, is_causal: bool) -> None:
    check_batch(op, q, k)
    if is_causal and mask is not None:
        raise MeshError(f"{op}: attn_mask is given and is_causal=True: pass is_causal=False with it.")
    if is_causal and q.shape[2] != k.shape[2]:
        raise MeshError(
            f"{op}: causal attention needs as many queries as keys, got {q.shape[2]} and {k.shape[2]} on each "
            "device: pass is_causal=False and an attn_mask."
        )
    check_mask(op, mask, (*q.shape[:3], k.shape[2]))


def _prefill_rule(q: Operand, mask: Operand | None, ordered: bool, concat: bool) -> rules.Rule:
    """Queries may be split by batch and heads with their keys, and by rows where order plays no part."""
    batch, heads = [(0, 0), (1, 0), (2, 0)], [(0, 1), (1, 1), (2, 1), (4, 1)]
    rows: list[tuple[int, int]] = [] if ordered else [(0, 2)]
    if mask is not None:
        for dim, pairs in enumerate((batch, heads, rows)):
            pairs += [(3, dim)] if mask.shape[dim] == q.shape[dim] else []
    if not concat:
        return split_with_key_heads(rules.along({0: batch, 1: heads, 2: rows, 3: [(2, 3)]}), 1)
    return concat_heads_rule(split_with_key_heads(rules.along({0: batch, 3: heads, 2: rows}), 1))


# -- keys that hold the values too -----------------------------------------------------------------


@operation(
    _LATENT,
    kind=Kind.ATTENTION,
    rule=split_with_key_heads,
    precision="data",
    controls="memory_config",
    tuning=TUNING,
    rearrange=named_by_position(2, "input_tensor_q input_tensor_k input_tensor_v"),
    forms=("input_tensor_q input_tensor_k input_tensor_v",),
)
@with_reference(golden.latent_prefill)
def flash_mla_prefill(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    head_dim_v: int | None = None,
    *,
    input_tensor_v: Operand | None = None,
    attn_mask: Operand | None = None,
    is_causal: bool = True,
    scale: float | None = None,
) -> Local:
    """Latent attention: q [b, heads, s, width] over k [b, kv_heads, s, width], whose first `head_dim_v` columns are v.

    A tensor in the third place is v itself; its heads may be more than those of k.
    """
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    check_rank_4(_LATENT, q, k, *([] if v is None else [v]))
    check_key_heads(_LATENT, k, heads=q.shape[1], width=q.shape[3])
    _check_order(_LATENT, q, k, attn_mask, is_causal)
    width = _value_width(k, v, head_dim_v)
    inner = _whole_sequences(q, k, scale, is_causal)

    if v is not None and v.shape[1] != k.shape[1]:
        check_groups(_LATENT, q.shape[1], v.shape[1])
        inner = _whole_sequences(q, q, scale, is_causal)  # a key for each query

    def compute(q: torch.Tensor, k: torch.Tensor, v: Data, mask: Data) -> torch.Tensor:
        values = k[..., :width] if v is None else v
        if values.shape[-3] != k.shape[-3]:
            k, values = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, values))
        return inner(q, k, values, mask, None, None)

    rule = _prefill_rule(q, attn_mask, is_causal, concat=False)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * k.shape[2]))


def _value_width(k: Operand, v: Operand | None, head_dim_v: int | None) -> int:
    if (v is None) == (head_dim_v is None):
        raise ArgumentError(
            f"{_LATENT}(): incompatible function arguments: the third argument is head_dim_v (an int) or "
            "input_tensor_v (a ttnn.Tensor): pass one of them."
        )
    if v is not None:
        if (v.shape[0], v.shape[2]) != (k.shape[0], k.shape[2]):
            raise MeshError(
                f"{_LATENT}: {v.name} {list(v.shape)} must agree with {k.name} {list(k.shape)} but for heads and width."
            )
        return v.shape[3]
    assert head_dim_v is not None
    check_value_width(_LATENT, head_dim_v, k.shape[3])
    return head_dim_v


# -- joint attention: two sequences that attend to each other as one, the joint one behind -----------


_JOINT = "transformer.joint_scaled_dot_product_attention"


@operation(
    _JOINT,
    kind=Kind.ATTENTION,
    rule=split_with_key_heads,
    precision="data",
    controls="",
    tuning=TUNING,
    results="tuple[Tensor, Tensor]",
)
@with_reference(golden.joint)
def joint_scaled_dot_product_attention(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    joint_tensor_q: Operand,
    joint_tensor_k: Operand,
    joint_tensor_v: Operand,
    *,
    joint_strategy: str,
    scale: float | None = None,
) -> Local:
    """[b, heads, n, width] and [b, heads, l, width]: every query sees all n + l keys. One result for each sequence."""
    own = (input_tensor_q, input_tensor_k, input_tensor_v)
    joint = (joint_tensor_q, joint_tensor_k, joint_tensor_v)
    check_strategy(_JOINT, joint_strategy)
    for q, k, v in (own, joint):
        check_rank_4(_JOINT, q, k, v)
        check_keys(_JOINT, k, v, heads=q.shape[1], width=q.shape[3])
        check_batch(_JOINT, q, k)
    check_alike(_JOINT, own, joint)
    q, k = own[:2]
    grouped = (k.shape[1], q.shape[1] // k.shape[1])
    factor = q.shape[3] ** -0.5 if scale is None else scale
    rows = (q.shape[2], joint_tensor_q.shape[2])

    def compute(*data: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = (concat_on_mesh((data[i], data[i + 3]), -2) for i in range(3))
        out = attend(group(q, -3, grouped), k, v, None, None, scale=factor)
        return out.flatten(-4, -3).split(rows, -2)

    keys = k.shape[2] + joint_tensor_k.shape[2]
    return Local(compute, _rule(), memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * keys))


def _rule() -> rules.Rule:
    batch, heads = [(i, 0) for i in range(6)], [(i, 1) for i in range(6)]
    inner = split_with_key_heads(rules.along({0: batch, 1: heads}), 1)

    @rules.labelled(inner.labels)
    def rule(at: rules.Situation) -> rules.Placement:
        """All heads of both sequences, or queries of one beside keys of all would be mixed."""
        answer = inner(at)
        is_split = {isinstance(word, rules.Shard) for word in at.words}
        return answer if len(is_split) == 1 else rules.LOCAL

    return rule


def check_strategy(op: str, strategy: str) -> None:
    if strategy != "rear":
        raise MeshError(f"{op}: joint_strategy must be 'rear', the only one there is; got {strategy!r}.")


def check_alike(op: str, own: Sequence[Operand], joint: Sequence[Operand]) -> None:
    for one, other in zip(own, joint, strict=True):
        if one.shape[:2] != other.shape[:2] or one.shape[3] != other.shape[3]:
            raise MeshError(
                f"{op}: {one.name} {list(one.shape)} and {other.name} {list(other.shape)} must agree in batch, heads "
                "and width."
            )
