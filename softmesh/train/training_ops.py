"""Ops that training has and TT-NN has not, with placement rules like any other op.

Losses and vocabulary-split tables computed on each device, splitting and joining of attention heads, and two
collectives: `ring_shift` passes each device's piece on to its neighbour along an axis, around the end; `scatter`
keeps each device's slice of what all hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from softmesh.collectives.collective_operation import NOTHING_IS_SENT, unlisted_collective
from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import (
    Group,
    local_placement,
    scattered_placement,
    shares_one_value,
    ttnn_label,
)
from softmesh.collectives.torch_expressions import partitioned
from softmesh.dispatch.cost_rules import flops_per_element, moves_bytes
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.plan import CostRule, Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.embedding.embedding import rows_of_each
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import LOCAL, Partial, Placement, Shard
from softmesh.tensor.broadcasting import broadcast_shapes

_LOSS_COST = flops_per_element(8)


def local_operation(
    kind: Kind, precision: str = "float32", cost: CostRule = _LOSS_COST, same_as: str = ""
) -> Callable[[Callable[..., Local]], Operation]:
    """An op that is called here and is no name of TT-NN's."""

    def make(define: Callable[..., Local]) -> Operation:
        name = f"train.{define.__name__}"
        signature = Signature(name, define, ["memory_config", "dtype"], [], [])
        return Operation(Definition(name, kind, define, signature, cost, precision, same_as=same_as))

    return make


def _check_targets(op: str, logits: Operand, targets: Operand) -> None:
    if targets.is_float:
        raise MeshError(f"{op}: targets are indices (ttnn.uint32 or int32), got {targets.dtype}.")
    tokens = math.prod(logits.shape[:-1])
    if targets.spec.logical_volume() != tokens:
        raise MeshError(
            f"{op}: {list(targets.shape)} targets for logits {list(logits.shape)}: one for each of the {tokens} rows."
        )


def _ids(targets: torch.Tensor, logits: torch.Tensor, rank: int) -> torch.Tensor:
    """Targets under the shape of the rows of logits, mesh dims in front of both."""
    lead = targets.dim() - rank
    return targets.long().reshape(*targets.shape[:lead], *logits.shape[lead:-1])


@rules.labelled(dim_labels.unlabelled)
def _own_rows(at: rules.Situation) -> Placement:
    """Rows split alike in logits and targets are each device's own; a split vocabulary is refused."""
    rules.refuse_partial(at)
    logits = at.words[0]
    assert at.shapes[0] is not None
    if isinstance(logits, Shard) and logits.dim == len(at.shapes[0]) - 1:
        raise MeshError(
            "cross_entropy: the vocabulary is split over devices; use vocab_parallel_cross_entropy(logits, targets, "
            "axis), or gather the logits first."
        )
    return LOCAL


@local_operation(Kind.LOSS)
def cross_entropy(logits: Operand, targets: Operand) -> Local:
    """The mean over the rows of each device."""
    _check_targets("cross_entropy", logits, targets)
    width = logits.shape[-1]

    def compute(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        lead = x.dim() - logits.rank
        extents = broadcast_shapes(x.shape[:lead], y.shape[:lead])
        rows = x.expand(*extents, *x.shape[lead:]).reshape(-1, width)
        ids = y.expand(*extents, *y.shape[lead:]).reshape(-1).long()
        _check_ids("cross_entropy: a target", ids, width)
        losses = torch.nn.functional.cross_entropy(rows, ids, reduction="none")
        return losses.reshape(*extents, -1).mean(-1)

    return Local(compute, _own_rows)


@local_operation(Kind.LOSS, same_as="mse_loss")
def mean_square(a: Operand, b: Operand) -> Local:
    """The mean of (a - b)**2 on each device."""
    if a.shape != b.shape:
        raise MeshError(f"mse_loss: shapes differ: {list(a.shape)} and {list(b.shape)}.")
    dims = tuple(range(-a.rank, 0))

    @rules.labelled(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> Placement:
        rules.refuse_partial(at)
        return LOCAL

    return Local(lambda x, y: (x - y).square().mean(dims), rule)


@rules.labelled(dim_labels.unlabelled)
def _over_vocabulary(at: rules.Situation) -> Placement:
    """Along an axis that splits the vocabulary each device has a contribution; rows stay split as they were."""
    rules.refuse_partial(at)
    word = at.words[0]
    assert at.shapes[0] is not None
    if isinstance(word, Shard) and word.dim == len(at.shapes[0]) - 1:
        return Partial("sum")
    return word if word is not None else LOCAL


@local_operation(Kind.REDUCTION)
def sum_of_exponentials(logits: Operand, largest: Operand) -> Local:
    return Local(lambda x, m: (x - m).exp().sum(-1, keepdim=True), _over_vocabulary)


@local_operation(Kind.LOOKUP)
def own_target_logit(logits: Operand, targets: Operand, first: Operand) -> Local:
    """The logit of each row's target where this device's slice of the vocabulary has it, else 0."""
    _check_targets("vocab_parallel_cross_entropy", logits, targets)
    rank = targets.rank

    def compute(x: torch.Tensor, y: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        ids, width = _ids(y, x, rank), x.shape[-1]
        _check_ids("vocab_parallel_cross_entropy: a target", ids, int(start.max()) + width)
        at, is_own = own_index(ids, start, width, x.dim() - logits.rank)
        extents = broadcast_shapes(x.shape[:-1], at.shape)
        picked = x.expand(*extents, x.shape[-1]).gather(-1, at.expand(extents).unsqueeze(-1))
        return picked * is_own.unsqueeze(-1)

    return Local(compute, _over_vocabulary)


@local_operation(Kind.ELEMENTWISE)
def vocab_gradient(
    logits: Operand, total: Operand, largest: Operand, targets: Operand, first: Operand, gradient: Operand
) -> Local:
    """gradient * (softmax - one at the target) / rows: what the loss makes of this device's logits."""
    rank = targets.rank
    rows = max(1, targets.spec.logical_volume())

    def compute(
        x: torch.Tensor,
        s: torch.Tensor,
        m: torch.Tensor,
        y: torch.Tensor,
        start: torch.Tensor,
        g: torch.Tensor,
    ) -> torch.Tensor:
        at, is_own = own_index(_ids(y, x, rank), start, x.shape[-1], x.dim() - logits.rank)
        found = (x - m).exp() / s
        at, is_own = at.expand(found.shape[:-1]), is_own.expand(found.shape[:-1])
        found = found.scatter_add(-1, at.unsqueeze(-1), -is_own.unsqueeze(-1).to(found.dtype))
        return found * (g / rows).reshape(*g.shape, *(1,) * logits.rank)

    @rules.labelled(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> Placement:
        return at.words[0] or LOCAL

    return Local(compute, rule)


@local_operation(Kind.LOOKUP, "data")
def own_embedding(ids: Operand, table: Operand, first: Operand) -> Local:
    """Rows of this device's slice of the table; 0 for ids that other devices hold."""
    rank, rows, width = ids.rank, table.shape[-2], table.shape[-1]

    def compute(i: torch.Tensor, t: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        lead = i.dim() - rank
        _check_ids("VocabParallelEmbedding: an id", i, int(start.max()) + rows)
        at, is_own = own_index(i.long(), start, rows, lead)
        picked = rows_of_each(at, t.reshape(*t.shape[:lead], rows, width), lead)
        return picked * is_own.unsqueeze(-1).to(picked.dtype)

    @rules.labelled(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> Placement:
        indices, values = at.words[0], at.words[1]
        assert at.shapes[1] is not None
        if isinstance(values, Shard) and values.dim == len(at.shapes[1]) - 2 and indices is rules.REPLICATE:
            return Partial("sum")
        return indices if values is rules.REPLICATE and indices is not None else LOCAL

    return Local(compute, rule, dtypes=(table.dtype,), layouts=(table.layout,))


def _check_ids(what: str, ids: torch.Tensor, rows: int) -> None:
    if ids.numel() and not (int(ids.min()) >= 0 and int(ids.max()) < rows):
        outside = int(ids.max()) if int(ids.max()) >= rows else int(ids.min())
        raise MeshError(f"{what} is {outside}, and the vocabulary has the rows 0 to {rows - 1}.")


def own_index(ids: torch.Tensor, first: torch.Tensor, rows: int, lead: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where in a device's slice of `rows` an id is, and whether it is there."""
    start = first.long().reshape(*first.shape[:lead], *(1,) * (ids.dim() - lead))
    local = ids - start
    return local.clamp(0, rows - 1), (local >= 0) & (local < rows)


_PARTS = 3  # what a head asks of each token: a query, a key and a value
# where dims of (batch, 1, tokens, features) go in (batch, heads, tokens, width)
_HEADS_FROM_FEATURES = {3: 1, 2: 2, 0: 0}
_FEATURES_FROM_HEADS = {to: dim for dim, to in _HEADS_FROM_FEATURES.items()}


def _moved(dims: dict[int, int]) -> rules.SingleRule:
    @rules.labelled(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> Placement:
        word = at.word
        if not isinstance(word, Shard):
            return word
        return word.at(dims[word.dim]) if word.dim in dims and word.size is None else LOCAL

    return rule


@local_operation(Kind.HEADS, "data", moves_bytes)
def split_heads(x: Operand, heads: int) -> Local:
    """Queries, keys and values (batch, heads, tokens, width) from features that are, head by head, its three parts.

    Features dealt out are heads dealt out.
    """
    batch, _, tokens, features = x.shape
    shape = (batch, tokens, heads, _PARTS, features // (heads * _PARTS))

    def compute(data: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_head = data.reshape(*data.shape[:-4], *shape).transpose(-4, -3)
        return by_head.unbind(-2)

    return Local(compute, _moved(_HEADS_FROM_FEATURES))


@local_operation(Kind.HEADS, "data", moves_bytes)
def join_heads(x: Operand) -> Local:
    batch, heads, tokens, width = x.shape
    shape = (batch, 1, tokens, heads * width)
    return Local(lambda data: data.transpose(-3, -2).reshape(*data.shape[:-4], *shape), _moved(_FEATURES_FROM_HEADS))


# Collectives that training has and TT-NN has not.


def training_collective(kind: Kind, **options: Any) -> Callable[[Callable[..., CollectiveSpec]], Operation]:
    return lambda define: unlisted_collective(f"train.{define.__name__}", kind, define, "memory_config", **options)


@training_collective(Kind.SHIFT)
def ring_shift(input_tensor: Operand, steps: int, *, cluster_axis: int) -> CollectiveSpec:
    def move(group: Group) -> GroupComputation:
        (axis,) = group.axes

        def compute(data: torch.Tensor) -> torch.Tensor:
            return data if data.shape[axis] == 1 else torch.roll(data, steps, axis)

        is_same = group.dist.extents[axis] == 1
        return GroupComputation(compute, (group.dist if is_same else local_placement(group),))

    return CollectiveSpec(cluster_axis, move)


# As ttnn.mesh_partition, along any axis and also inside of tiles: features of a layer divide among devices, whether
# or not tiles do. Nothing is sent.


@training_collective(Kind.PARTITION, **NOTHING_IS_SENT)
def scatter(input_tensor: Operand, dim: int, *, cluster_axis: int) -> CollectiveSpec:
    at, shape = input_tensor.dim(dim, "dim"), input_tensor.shape

    def move(group: Group) -> GroupComputation:
        if shape[at] % group.size:
            raise MeshError(
                f"scatter: dim {at} of {list(shape)} does not divide among the {group.size} devices along mesh axis "
                f"{cluster_axis}. Pad it to a multiple of {group.size}."
            )
        dist = scattered_placement(group, at, from_one_value=shares_one_value(group))
        label = ttnn_label(group, dist, Shard(at), combines=False)
        return GroupComputation(lambda data: partitioned(data, group, at), (dist,), label)

    return CollectiveSpec(cluster_axis, move, needs_fabric=False)
