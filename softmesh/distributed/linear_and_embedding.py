"""matmul, linear and embedding with any placement of operands and result: weights may be split by rows or columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element, moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.plan import Local
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.layouts import Extents, is_whole
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, Labels, Split, broadcast_labels, by_labels
from softmesh.distributed.unified_op import Unified, own_operation
from softmesh.errors import MeshError
from softmesh.hardware.activation import UnaryOpType, UnaryWithParam
from softmesh.kinds import Kind
from softmesh.ops.elementwise.activations import Activation, activations
from softmesh.ops.embedding.embedding import EmbeddingsType, look_up
from softmesh.placement import dim_labels, rules
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import Layout


def describe_product(given: CallDescription) -> SplitOptions:
    """a @ b, with a bias and an activation behind it."""
    arguments = given.arguments
    transpose_a, transpose_b = arguments["transpose_a"], arguments["transpose_b"]
    config = arguments.get("program_config")
    fused = None if config is None else config.activation
    behind = _behind(arguments)
    shapes = [operand.shape for operand in given.operands]
    choices = product_choices(shapes, transpose_a, transpose_b, given.short_names)
    whole = given.plain()
    bare = whole
    if config is not None and fused is not None:
        bare = given.plain(activation=None, program_config=replace(config, fused_activation=None))
    elif behind:
        bare = given.plain(activation=None)

    def call(split: Split) -> Callable[..., Any]:
        return whole if is_whole(split.gives) else bare

    return SplitOptions(
        choices,
        call,
        after=(lambda tensor: _activated(tensor, behind)) if behind else None,
        behind=activations_of(arguments),
    )


def _behind(arguments: Mapping[str, Any]) -> tuple[Activation, ...]:
    config = arguments.get("program_config")
    both = (None if config is None else config.activation, arguments.get("activation"))
    return tuple(one for one in both if one is not None)


def activations_of(arguments: Mapping[str, Any]) -> tuple[UnaryWithParam, ...]:
    """The activations behind a product, as unary_chain takes them."""
    return in_a_chain(_behind(arguments))


def in_a_chain(several: Sequence[Activation]) -> tuple[UnaryWithParam, ...]:
    """Activations as unary_chain takes them; none where it has no number for one of them."""
    found = [UnaryOpType.__members__.get(one.upper()) if isinstance(one, str) else one for one in several]
    return tuple(UnaryWithParam.of(one) for one in found if one is not None) if None not in found else ()


def _shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    a, b, *bias = (operand.shape for operand in operands)
    m, n = a[-1 if arguments["transpose_a"] else -2], b[-2 if arguments["transpose_b"] else -1]
    return tuple(broadcast_shapes((*a[:-2], 1, 1), (*b[:-2], 1, 1), (m, n), *bias))


def product_choices(
    shapes: Sequence[Extents], transpose_a: bool, transpose_b: bool, names: Sequence[str] | None = None
) -> tuple[Choice, ...]:
    """a (..., m, k) @ b (..., k, n), leading dims broadcast; a third shape is that of the bias."""
    a, b = shapes[:2]
    m, n = a[-1 if transpose_a else -2], b[-2 if transpose_b else -1]
    rank = max(len(shape) for shape in shapes)
    lead = [1] * (rank - 2)
    for shape in shapes:
        for back in range(3, len(shape) + 1):
            lead[-back + 2] = max(lead[-back + 2], shape[-back])
    batch = tuple(f"batch {i}" for i in range(rank - 2))

    def labels(shape: Extents, last: Labels) -> Labels:
        return (*broadcast_labels(shape[:-2], batch, lead), *last)

    result = (*batch, "m", "n")
    of_a = labels(a, ("k", "m") if transpose_a else ("m", "k"))
    of_b = labels(b, ("n", "k") if transpose_b else ("k", "n"))
    operands = [of_a, of_b]
    operands += [broadcast_labels(bias, result, (*lead, m, n)) for bias in shapes[2:]]
    split = [label for label, extent in zip(batch, lead, strict=True) if extent > 1]
    return by_labels(
        operands,
        result,
        [*split, "m", "n", "k"],
        carries=(frozenset({0}), frozenset({1})),
        terms=frozenset(range(2, len(shapes))),
        names=names,
    )


@own_operation("activation", Kind.ELEMENTWISE, cost=flops_per_element(8))
def _activated(input_tensor: Operand, each: Sequence[Activation]) -> Local:
    """One after the other; there is one at least."""
    chain = activations(each, "activation")
    assert chain is not None
    return Local(chain, rules.elementwise)


_SHORT = {"a": "input_tensor_a", "b": "input_tensor_b"}
matmul = Unified("matmul", describe_product, _shape_of, _SHORT)
linear = Unified("linear", describe_product, _shape_of, _SHORT)


# Embedding: rows of a table by number. Of a table split by rows each device looks up what it has; the rest is zero.


def blocks_along(axes: Sequence[int], lead: Sequence[int], device: torch.device) -> torch.Tensor:
    """The number of each device's block of a dim that `axes` of the leading extents split, the first outermost."""
    number = torch.zeros([1] * len(lead), dtype=torch.long, device=device)
    for axis in axes:
        along = torch.arange(lead[axis], device=device)
        number = number * lead[axis] + along.reshape([-1 if at == axis else 1 for at in range(len(lead))])
    return number


@own_operation("embedding_of_rows", Kind.LOOKUP, cost=moves_bytes, precision="data", controls="dtype memory_config")
def embedding_of_rows(
    input_tensor: Operand,
    weight: Operand,
    axes: Sequence[int],
    whole: int,
    *,
    padding_idx: int | None = None,
    layout: Layout | None = None,
    embeddings_type: EmbeddingsType = EmbeddingsType.GENERIC,
) -> Local:
    """Each device's share of a look-up in a table of `whole` rows that is split by rows along `axes`."""
    plain = OPERATIONS["embedding"].definition.define(
        input_tensor, weight, padding_idx=padding_idx, layout=layout, embeddings_type=embeddings_type
    )
    table_rank, rows = weight.rank, weight.shape[-2]
    kept = [input_tensor.shape[dim] for dim in _kept_dims(input_tensor)]
    rank = len(kept)

    def compute(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        ids = ids.reshape(*ids.shape[: ids.dim() - input_tensor.rank], *kept)
        if ids.numel() and int(ids.max()) >= whole:
            raise MeshError(f"embedding: index {int(ids.max())} is outside the table of {whole} rows.")
        lead = table.shape[: table.dim() - table_rank]
        first = blocks_along(axes, lead, ids.device) * rows
        local = ids.long() - first.reshape(*first.shape, *[1] * rank)
        own = (local >= 0) & (local < rows)
        picked = look_up(local.where(own, 0), table.reshape(*lead, *table.shape[-2:]), rank)
        return picked * own.unsqueeze(-1)

    @rules.labelled_each(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> rules.Placement | Sequence[rules.Placement]:
        ids, table = at.words
        if isinstance(table, rules.Shard) and table.dim == table_rank - 2 and ids is rules.REPLICATE:
            return rules.Partial("sum")
        return plain.rule(at)

    return Local(compute, rule, plain.dtypes, plain.layouts, plain.memory_config)


def _kept_dims(ids: Operand) -> tuple[int, ...]:
    """Those of the result: the first and the last, between which are extents of 1 only."""
    return tuple(dict.fromkeys((0, ids.rank - 1)))


def describe_embedding(given: CallDescription) -> SplitOptions:
    ids, table = given.operands
    dims = _kept_dims(ids)
    of_ids = tuple(f"dim {dim} of the indices" if dim in dims else None for dim in range(ids.rank))
    tokens = tuple(label for label in of_ids if label is not None)
    of_table = (*(None,) * (table.rank - 2), "rows", "width")
    labels = (*tokens, "width") if given.is_spread else (*tokens, "width", "rows")
    choices = by_labels([of_ids, of_table], (*tokens, "width"), labels, names=given.short_names)
    plain, whole = given.plain(), table.shape[-2]

    def call(split: Split) -> Callable[..., Any]:
        axes = split.axes("split rows")
        if not axes:
            return plain
        return given.plain(embedding_of_rows, axes=axes, whole=whole)

    return SplitOptions(choices, call)


def _embedding_shape(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    ids, table = operands
    return (*(ids.shape[dim] for dim in _kept_dims(ids)), table.shape[-1])


embedding = Unified("embedding", describe_embedding, _embedding_shape)
