"""scaled_dot_product_attention over whole sequences: split by batch, heads, or along the sequence (ring attention)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group
from softmesh.cost.link_costs import LinkCost, ring_passes
from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import Local
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.generic_ops import describe as describe_any
from softmesh.distributed.layouts import Extents, Layout, with_word
from softmesh.distributed.linear_and_embedding import blocks_along
from softmesh.distributed.redistribution import RING, Step
from softmesh.distributed.redistribution_ops import move
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, Split, together
from softmesh.distributed.split_prices import split_price
from softmesh.distributed.unified_op import Unified, own_operation
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.kinds import Kind
from softmesh.ops.attention.sdpa_core import attend, group, mask_bias, within_window
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import REPLICATE, Placement, Shard

# The attention of queries that are split along the sequence: with all keys on each device, or with blocks of keys and
# values passed on around the ring and merged by the online softmax, so that no device holds more than two blocks.


_HIDDEN = float("-inf")


class KeyVisibility(NamedTuple):
    """Which keys a query sees: by their places in the whole sequence."""

    is_causal: bool
    window: int | None

    @property
    def is_all(self) -> bool:
        return not self.is_causal and self.window is None

    def bias(self, rows: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
        """0 where a query at a place of `rows` (..., r) sees the key at one of `keys` (..., k), -inf elsewhere."""
        if self.is_all:
            return None
        ahead = keys.unsqueeze(-2) - rows.unsqueeze(-1)
        return mask_bias(within_window(ahead, self.is_causal, self.window))


def _places(axes: Sequence[int], lead: Sequence[int], extent: int, like: torch.Tensor) -> torch.Tensor:
    """(*lead, extent): where in the whole sequence the rows of each device stand."""
    first = blocks_along(axes, lead, like.device) * extent
    return first.unsqueeze(-1) + torch.arange(extent, device=like.device)


def _over_heads(bias: torch.Tensor | None) -> torch.Tensor | None:
    """(*lead, rows, keys) for every batch, key head and query of a group."""
    return None if bias is None else bias.unsqueeze(-3).unsqueeze(-3).unsqueeze(-3)


# -- all keys on every device ----------------------------------------------------------------------


@own_operation("attention_of_rows", Kind.ATTENTION, controls="memory_config")
def attention_of_rows(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    axes: Sequence[int],
    *,
    attn_mask: Operand | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Operand | None = None,
) -> Local:
    """Each device's queries, which are rows of a sequence that `axes` split, over all keys."""
    (heads, rows, width), (kv_heads, keys) = input_tensor_q.shape[1:], input_tensor_k.shape[1:3]
    factor, grouped = width**-0.5 if scale is None else scale, (kv_heads, heads // kv_heads)
    visibility = KeyVisibility(is_causal, sliding_window_size)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        sink: torch.Tensor | None,
    ) -> torch.Tensor:
        lead = q.shape[:-4]
        band = visibility.bias(_places(axes, lead, rows, q), torch.arange(keys, device=q.device))
        bias, own = _over_heads(band), group(mask, -3, grouped)
        bias = own if bias is None else bias if own is None else bias + own
        queries, score = group(q, -3, grouped), group(sink, -3, grouped)
        return attend(queries, k, v, bias, score, scale=factor).flatten(-4, -3)

    return Local(compute, _as_queries, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * keys))


@rules.labelled(dim_labels.unlabelled)
def _as_queries(at: rules.Situation) -> rules.Placement:
    """The result lies as the queries do: the plan has brought the others to fit."""
    rules.refuse_partial(at)
    return at.word


# -- blocks of keys that travel --------------------------------------------------------------------


@move("ring_attention", Kind.ATTENTION, precision="float32")
def ring_attention(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    axes: Sequence[int],
    rounds: int,
    *,
    cluster_axis: int,
    attn_mask: Operand | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Operand | None = None,
) -> CollectiveSpec:
    """As many rounds as devices along the axis: in each a device meets the block that its neighbour had before."""
    (heads, rows, width), (kv_heads, keys) = input_tensor_q.shape[1:], input_tensor_k.shape[1:3]
    factor, grouped = width**-0.5 if scale is None else scale, (kv_heads, heads // kv_heads)
    visibility = KeyVisibility(is_causal, sliding_window_size)

    def ring(members: Group) -> GroupComputation:
        (axis,) = members.axes

        def compute(
            q: torch.Tensor,
            k: torch.Tensor,
            v: torch.Tensor,
            mask: torch.Tensor | None,
            sink: torch.Tensor | None,
        ) -> torch.Tensor:
            lead = members.dist.extents
            own, queries = group(mask, -3, grouped), group(q, -3, grouped)
            merged = _OnlineSoftmax(group(sink, -3, grouped), factor)
            block = blocks_along((axis,), lead, q.device)
            for turn in range(rounds):
                held = (block - turn) % rounds  # whose block a device has now
                places = (held * keys).unsqueeze(-1) + torch.arange(keys, device=q.device)
                bias = _over_heads(visibility.bias(_places(axes, lead, rows, q), places))
                scores = queries @ k.unsqueeze(-3).transpose(-2, -1) * factor
                if own is not None:
                    scores = scores + _columns(own, held, keys, axis)
                merged.add(scores if bias is None else scores + bias, v.unsqueeze(-3))
                k, v = k.roll(1, axis), v.roll(1, axis)
            return merged.result().flatten(-4, -3)

        return GroupComputation(compute, (members.dist,))

    return CollectiveSpec(cluster_axis, ring, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * keys * rounds))


def _columns(mask: torch.Tensor, held: torch.Tensor, keys: int, axis: int) -> torch.Tensor:
    """The columns of the mask that belong to the block each device along the axis holds."""
    blocks = mask.unflatten(-1, (-1, keys))
    numbers = held.flatten()
    spread = blocks.expand(*(len(numbers) if at == axis else n for at, n in enumerate(blocks.shape)))
    devices = torch.arange(len(numbers), device=mask.device)
    return spread.movedim((axis, -2), (0, 1))[devices, numbers].movedim(0, axis)


class _OnlineSoftmax:
    """softmax(scores) @ values, with the scores coming in block by block; a sink is one more score, of no value."""

    def __init__(self, sink: torch.Tensor | None, scale: float) -> None:
        self._top = None if sink is None else sink * scale
        self._total: torch.Tensor | None = None if sink is None else torch.ones_like(sink)
        self._output: torch.Tensor | None = None

    def add(self, scores: torch.Tensor, values: torch.Tensor) -> None:
        top = scores.amax(-1, keepdim=True)
        top = top if self._top is None else torch.maximum(self._top, top)
        finite = top.masked_fill(top == _HIDDEN, 0.0)  # a row that sees nothing yet
        weights = torch.exp(scores - finite)
        total, output = weights.sum(-1, keepdim=True), weights @ values
        if self._top is not None and self._total is not None:
            rescale = torch.exp(self._top - finite)
            total = total + self._total * rescale
            output = output if self._output is None else output + self._output * rescale
        self._top, self._total, self._output = top, total, output

    def result(self) -> torch.Tensor:
        assert self._output is not None
        assert self._total is not None
        return self._output / self._total


_ROWS, _RING = "split queries", "ring of keys"
_FREE_ROWS = "split queries that see all keys"
_BATCH, _HEADS, _SEQUENCE = 0, 1, 2
_OPERANDS = {"input_tensor_q", "input_tensor_k", "input_tensor_v", "attn_mask", "attention_sink"}


def describe_attention(given: CallDescription) -> SplitOptions:
    if not {*given.names} <= _OPERANDS:  # windows of their own are left to the plain op's rule
        return describe_any(given)
    arguments = given.arguments
    concat = bool(arguments["output_concat_heads"])
    visibility = KeyVisibility(bool(arguments["is_causal"]), arguments["sliding_window_size"])
    rows = _FREE_ROWS if visibility.is_all else _ROWS
    choices = [c for c in _choices(given, rows, concat) if not (given.is_spread and c.name in (rows, _RING))]

    def works_on(split: Split) -> list[Layout]:
        """All blocks of keys and values, of a ring: they pass by."""
        needs = [split.needs(i) for i in range(len(given.operands))]
        for axis in split.axes(_RING):
            needs[1:3] = [with_word(layout, axis, REPLICATE) for layout in needs[1:3]]
        return needs

    def inside(split: Split) -> tuple[Step, ...]:
        """What the passing of blocks takes longer than the work on them."""
        steps = []
        for axis in split.axes(_RING):
            shapes = [value.local_shape(split.needs(i)) for i, value in enumerate(given.values)]
            block = 2 * math.prod(shapes[1]) * given.values[1].bits // 8
            cost = ring_passes(given.lines[axis], block)
            work = split_price(given, split, works_on=works_on)
            hidden = LinkCost(max(cost.seconds - work.seconds, 0.0), cost.bytes_per_link)
            steps.append(Step(RING, axis, _SEQUENCE, None, split.gives, hidden))
        return tuple(steps)

    def call(split: Split) -> Callable[..., Any]:
        axes = tuple(axis for axis, word in enumerate(split.needs(0)) if word is Shard(_SEQUENCE))
        ring = split.axes(_RING)
        if ring:
            return given.plain(ring_attention, axes=axes, rounds=split.mesh[ring[0]], cluster_axis=ring[0])
        if axes and not visibility.is_all:
            return given.plain(attention_of_rows, axes=axes)
        return given.plain()

    return SplitOptions(
        choices, call, inside=inside, is_true=lambda split: len(split.axes(_RING)) <= 1, works_on=works_on
    )


def _choices(given: CallDescription, of_rows: str, concat: bool) -> list[Choice]:
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
        Choice(of_rows, (rows[0], REPLICATE, REPLICATE, *rows[3:]), Shard(_SEQUENCE), takes_uneven=False),
        Choice(_RING, rows, Shard(_SEQUENCE), takes_uneven=False),
    ]


def _needs(given: CallDescription, dim: int) -> tuple[Placement, ...]:
    """Each operand split along `dim`, but for what is shared along it: a mask of extent 1, the one head of all keys."""
    words: list[Placement] = []
    for name, operand in zip(given.names, given.operands, strict=True):
        shared = operand.shape[dim] == 1 and (name in ("attn_mask", "attention_sink") or dim == _HEADS)
        words.append(REPLICATE if shared else Shard(dim))
    return tuple(words)


def _shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    batch, heads, rows, width = operands[0].shape
    return (batch, 1, rows, heads * width) if arguments["output_concat_heads"] else operands[0].shape


scaled_dot_product_attention = Unified("transformer.scaled_dot_product_attention", describe_attention, _shape_of)
