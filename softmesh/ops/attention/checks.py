"""What operands of attention must look like, and how a split of them splits the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType, Layout

TUNING = "program_config compute_kernel_config"


def check_keys(op: str, k: Operand, v: Operand, heads: int, width: int) -> None:
    if k.shape != v.shape:
        raise MeshError(f"{op}: {k.name} {list(k.shape)} and {v.name} {list(v.shape)} must have one shape.")
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
        if operand.rank != 4:
            raise MeshError(f"{op}: {operand.name} must have 4 dims, got {list(operand.shape)}.")
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
        raise MeshError(
            f"{op}: attention_sink {list(sink.shape)} must hold a score for each head: {list(wanted)}."
        )


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


def own_keys(rule: rules.Rule, query_heads: int) -> rules.Rule:
    """Query heads are split only together with their key heads, or beside a single one that all share."""

    def checked(at: rules.Situation) -> Sequence[rules.Placement]:
        answer = cast(Sequence[rules.Placement], rule(at))
        key_shape = at.shapes[1]
        assert key_shape is not None
        splits_queries = isinstance(at.word, rules.Shard) and at.word.dim == query_heads
        for keys in at.words[1:3]:
            if keys is None:
                continue
            splits_keys = isinstance(keys, rules.Shard) and keys.dim == 1
            if splits_keys != splits_queries and not (splits_queries and key_shape[1] == 1):
                return [rules.LOCAL] * len(answer)
        return answer

    return checked


def joining(rule: rules.Rule) -> rules.Rule:
    """Heads split unevenly end in filler, which would stand within the joined row."""

    def joined(at: rules.Situation) -> Sequence[rules.Placement]:
        (word,) = cast(Sequence[rules.Placement], rule(at))
        return [rules.LOCAL if isinstance(word, rules.Shard) and word.dim == 3 and word.size else word]

    return joined
