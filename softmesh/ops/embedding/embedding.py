"""embedding: rows looked up in a table; and the gradient of the table, embedding_bw."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.part_work import PartWork
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.kinds import Kind
from softmesh.ops import gradients
from softmesh.ops.golden import golden_data_movement as golden
from softmesh.ops.golden import golden_training
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.runtime.gpu_value_cache import is_graphed
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import DataType, Layout


class EmbeddingsType(NativeEnum):
    GENERIC = 0
    PADDED = 1
    BINARY = 2


def look_up(ids: torch.Tensor, table: torch.Tensor, ids_rank: int) -> torch.Tensor:
    """(..., *ids, width) from ids (..., *ids) and a table (..., rows, width), mesh dims in front of both."""
    lead = ids.dim() - ids_rank
    rows, width = table.shape[-2:]
    if is_graphed(ids):
        ids, least, greatest = ids.clamp(0, rows - 1), 0, 0  # a replay on a GPU must not read beyond the table
    else:
        least, greatest = map(int, ids.aminmax()) if ids.numel() else (0, 0)
    if least < 0 or (greatest >= rows and ids.numel()):
        outside = least if least < 0 else greatest
        raise MeshError(f"embedding: index {outside} is outside the table of {rows} rows on each device.")
    if all(extent == 1 for extent in table.shape[:-2]):
        return table.reshape(rows, width)[ids.long()]
    return rows_of_each(ids.long(), table.reshape(*table.shape[:lead], rows, width), lead)


def rows_of_each(ids: torch.Tensor, tables: torch.Tensor, lead: int) -> torch.Tensor:
    """Each device's rows of its own table, from all tables as one: `lead` mesh dims are in front of both."""
    rows, width = tables.shape[-2:]
    extents = [max(a, b) for a, b in zip(ids.shape[:lead], tables.shape[:lead], strict=True)]
    first = torch.arange(math.prod(extents), device=ids.device) * rows
    places = ids + first.reshape(*extents, *(1,) * (ids.dim() - lead))
    stacked = tables.expand(*extents, rows, width).reshape(-1, width)
    return torch.nn.functional.embedding(places, stacked)


@operation(
    kind=Kind.LOOKUP,
    gradient=gradients.of_embedding,
    part_work=PartWork("looks up numbers that count from the first row of the whole table in its own rows"),
    native="EmbeddingsDeviceOperation",
    cost=moves_bytes,
    precision="data",
    controls="dtype memory_config output_tensor queue_id",
    rows_by="input_tensor",
)
@placed("Split where the ids are, or in the last dim where the columns of the weight are; otherwise Local.")
@with_reference(golden.embedding)
def embedding(
    input_tensor: Operand,
    weight: Operand,
    *,
    padding_idx: int | None = None,
    layout: Layout | None = None,
    embeddings_type: EmbeddingsType = EmbeddingsType.GENERIC,
) -> Local:
    """Rows of `weight` (..., rows, width) by the indices in `input_tensor`.

    Indices [n] give [n, width], those of higher rank [first extent, last extent, width]. bfloat16 holds every index up
    to 256 only.

    >>> y = ttnn.embedding(ttnn.typecast(whole(1, 8), ttnn.uint32), split(16, 64, dim=1))
    >>> y.shape, ttnn.placements(y)
    (Shape([1, 8, 16]), (Replicate, Shard(2)))
    """
    if input_tensor.is_float and input_tensor.dtype is not DataType.BFLOAT16:
        raise ArgumentError(
            f"embedding: input_tensor must hold indices (ttnn.uint32, or ttnn.bfloat16), got {input_tensor.dtype}"
        )
    if weight.rank < 2 or any(n != 1 for n in weight.shape[:-2]):
        raise MeshError(f"embedding: weight must be (rows, width), 1s in front allowed; got {list(weight.shape)}.")
    rank = input_tensor.rank
    if any(n != 1 for n in input_tensor.shape[1:-1]):
        raise MeshError(
            f"embedding: input_tensor {list(input_tensor.shape)} may have extents of 1 only between its first dim and "
            "its last: the result is [first extent, last extent, width]. Reshape it to two dims."
        )
    kept = (input_tensor.shape[0], input_tensor.shape[-1])[:rank]
    extra = weight.rank - 2

    def compute(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        lead = table.dim() - 2 - extra
        ids = ids.reshape(*ids.shape[:lead], *kept)
        return look_up(ids, table.reshape(*table.shape[:lead], *table.shape[-2:]), len(kept))

    @rules.labelled(dim_labels.table({0: [(0, 0)], len(kept) - 1: [(0, rank - 1)], len(kept): [(1, extra + 1)]}))
    def rule(at: rules.Situation) -> rules.Placement:
        ids, table = at.words
        if any(isinstance(word, rules.Partial) for word in at.words):
            raise rules.UsesPartial(0 if isinstance(ids, rules.Partial) else 1)
        if table is rules.REPLICATE and isinstance(ids, rules.Shard):
            dim = {0: 0, rank - 1: len(kept) - 1}.get(ids.dim)
            return rules.LOCAL if dim is None else ids.at(dim)
        if ids is rules.REPLICATE and isinstance(table, rules.Shard) and table.dim == extra + 1:
            return table.at(len(kept))
        return rules.LOCAL

    return Local(
        compute,
        rule,
        dtypes=(weight.dtype,),
        layouts=(layout or weight.layout,),
        memory_config=DRAM_MEMORY_CONFIG,
    )


# -- the gradient of the table ----------------------------------------------------------------------


@operation(
    kind=Kind.LOOKUP,
    part_work=part_work.UNNOTICED,
    cost=moves_bytes,
    controls="dtype memory_config output_tensor",
    reads="output_gradient_tensor",
    unread="weight_tensor",
)
@with_reference(golden_training.embedding_gradient)
def embedding_bw(input_tensor: Operand, weight_tensor: Operand, output_gradient_tensor: Operand) -> Local:
    """[1, 1, rows, width]: for each row of the table the sum of the gradients of the tokens that picked it."""
    rows, width = weight_tensor.shape[-2:]
    tokens, rank = math.prod(input_tensor.shape), input_tensor.rank
    gradient = output_gradient_tensor
    if gradient.shape[-1] != width or math.prod(gradient.shape) != tokens * width:
        raise MeshError(
            f"embedding_bw: output_gradient_tensor {list(gradient.shape)} must hold {width} values for each of the "
            f"{tokens} tokens of input_tensor {list(input_tensor.shape)}."
        )

    def compute(ids: torch.Tensor, table: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        lead = broadcast_shapes(ids.shape[:-rank], grad.shape[: -gradient.rank])
        at = ids.long().reshape(*ids.shape[:-rank], tokens, 1).expand(*lead, tokens, width)
        addends = grad.reshape(*grad.shape[: -gradient.rank], tokens, width).expand(*lead, tokens, width)
        empty = addends.new_zeros(*lead, 1, 1, rows, width)
        return empty.scatter_add(-2, at[..., None, None, :, :], addends[..., None, None, :, :])

    return Local(compute, _embedding_rule, dtypes=(gradient.dtype,), layouts=(gradient.layout,))


def _embedding_labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
    """Label the width, and the tokens, over which contributions add up."""
    ids, table, grad = (shape or () for shape in shapes)
    own: list[list[str | None]] = [[None] * len(shape) for shape in (ids, table, grad)]
    for labels, shape in ((own[0], ids), (own[2], grad[:-1])):
        first = next((dim for dim, n in enumerate(shape) if n > 1), None)
        if first is not None:
            labels[first] = "tokens"
    own[1][-1] = own[2][-1] = "width"
    made = (None,) * (len(results[0]) - 1)
    return dim_labels.DimLabels(tuple(map(tuple, own)), (*made, "width"), {"tokens": "sum"}, (frozenset({2}),))


@rules.labelled(_embedding_labels)
def _embedding_rule(at: rules.Situation) -> rules.Placement:
    """Tokens split alike leave sums to be made; a split of the width stays."""
    ids, table, grad = at.words
    for index, word in enumerate((ids, table)):
        if isinstance(word, rules.Partial):
            raise rules.UsesPartial(index)
    if isinstance(grad, rules.Partial):
        shared = ids is rules.REPLICATE and table is rules.REPLICATE
        return grad if shared and grad.op in rules.LINEAR_OPS else _refuse_gradient()
    last = [len(shape) - 1 for shape in at.shapes if shape is not None]
    splits_width = (ids is rules.REPLICATE and isinstance(grad, rules.Shard) and grad.dim == last[2]) and (
        table is rules.REPLICATE or (isinstance(table, rules.Shard) and table.dim == last[1])
    )
    if splits_width:
        assert isinstance(grad, rules.Shard)
        return grad.at(3)
    return rules.Partial("sum") if _same_tokens(at) and table is rules.REPLICATE else rules.LOCAL


def _same_tokens(at: rules.Situation) -> bool:
    """Whether ids and gradients are split into the same runs of tokens."""
    for word, shape in ((at.words[0], at.shapes[0]), (at.words[2], at.shapes[2])):
        if not isinstance(word, rules.Shard) or shape is None or word.size is not None:
            return False
        if math.prod(shape[: word.dim]) != 1:
            return False
    grad, shape = at.words[2], at.shapes[2]
    assert isinstance(grad, rules.Shard)
    assert shape is not None
    return grad.dim < len(shape) - 1


def _refuse_gradient() -> rules.Placement:
    raise rules.UsesPartial(2)
