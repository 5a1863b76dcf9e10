"""softmax(q k^T) v over whole sequences: split by batch, by heads, or along the sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import Local
from softmesh.distributed.derived import describe as describe_any
from softmesh.distributed.given import Given
from softmesh.distributed.layouts import Extents
from softmesh.distributed.operands import bits
from softmesh.distributed.patterns import Choice, Split, together
from softmesh.distributed.planned import Work
from softmesh.distributed.split_sequences import Sight, attention_of_rows, ring_attention
from softmesh.distributed.steps import RING, Step
from softmesh.distributed.unified import Unified
from softmesh.perf.chip_costs import matmul_seconds
from softmesh.perf.link_costs import LinkCost, passing_on
from softmesh.placement.words import REPLICATE, Placement, Shard

_ROWS, _RING = "split queries", "ring of keys"
_BATCH, _HEADS, _SEQUENCE = 0, 1, 2
_OPERANDS = {"input_tensor_q", "input_tensor_k", "input_tensor_v", "attn_mask", "attention_sink"}


def describe_attention(given: Given) -> Work:
    if not {*given.names} <= _OPERANDS:  # windows of their own are left to the plain op's rule
        return describe_any(given)
    arguments, chip = given.arguments, given.chip
    keys, width = given.operands[1].shape[2:]
    concat = bool(arguments["output_concat_heads"])
    sight = Sight(bool(arguments["is_causal"]), arguments["sliding_window_size"])
    choices = [c for c in _choices(given, concat) if not (given.is_spread and c.name in (_ROWS, _RING))]
    sizes = [*(value.bits for value in given.values), bits(given.result.dtype)]

    def seconds(operands: Sequence[Extents], result: Extents) -> float:
        batch, heads, rows, _ = operands[0]
        moved = sum(math.prod(s) * b for s, b in zip((*operands, result), sizes, strict=True)) // 8
        scores = matmul_seconds(chip, batch * heads, rows, width, keys, moved)
        return scores + matmul_seconds(chip, batch * heads, rows, keys, width, 0)

    def inside(split: Split) -> tuple[Step, ...]:
        """What the passing of blocks takes longer than the work on them."""
        steps = []
        for axis in split.axes(_RING):
            shapes = [value.local_shape(split.needs(i)) for i, value in enumerate(given.values)]
            block = 2 * math.prod(shapes[1]) * given.values[1].bits // 8
            cost = passing_on(given.lines[axis], block)
            work = seconds(shapes, given.values[0].local_shape(split.needs(0)))
            hidden = LinkCost(max(cost.seconds - work, 0.0), cost.bytes_per_link)
            steps.append(Step(RING, axis, _SEQUENCE, None, split.gives, hidden))
        return tuple(steps)

    def call(split: Split) -> Callable[..., Any]:
        axes = tuple(axis for axis, word in enumerate(split.needs(0)) if word is Shard(_SEQUENCE))
        ring = split.axes(_RING)
        if ring:
            return given.plain(ring_attention, axes=axes, rounds=split.mesh[ring[0]], cluster_axis=ring[0])
        if axes and not sight.is_all:
            return given.plain(attention_of_rows, axes=axes)
        return given.plain()

    return Work(choices, seconds, call, inside=inside, is_true=lambda split: len(split.axes(_RING)) <= 1)


def _choices(given: Given, concat: bool) -> list[Choice]:
    """Heads that are joined to a row afterwards are split along it."""
    made = [
        together(len(given.operands)),
        Choice("split batch", _needs(given, _BATCH), Shard(_BATCH)),
        Choice("split heads", _needs(given, _HEADS), Shard(3 if concat else _HEADS), takes_uneven=False),
    ]
    if concat:
        return made
    rows = _needs(given, _SEQUENCE)
    return [
        *made,
        Choice(_ROWS, (rows[0], REPLICATE, REPLICATE, *rows[3:]), Shard(_SEQUENCE), takes_uneven=False),
        Choice(_RING, rows, Shard(_SEQUENCE), takes_uneven=False),
    ]


def _needs(given: Given, dim: int) -> tuple[Placement, ...]:
    """Each operand split along `dim`, but for what is shared along it: a mask of extent 1, the one head of all keys."""
    words: list[Placement] = []
    for name, operand in zip(given.names, given.operands, strict=True):
        shared = operand.shape[dim] == 1 and (name in ("attn_mask", "attention_sink") or dim == _HEADS)
        words.append(REPLICATE if shared else Shard(dim))
    return tuple(words)


def _shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    batch, heads, rows, width = operands[0].shape
    return (batch, 1, rows, heads * width) if arguments["output_concat_heads"] else operands[0].shape


scaled_dot_product_attention = Unified(
    "transformer.scaled_dot_product_attention", describe_attention, _shape_of
)
