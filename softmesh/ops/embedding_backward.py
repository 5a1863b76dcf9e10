"""The gradient of an embedding's table."""

from __future__ import annotations

import math

import torch

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.placement import rules


@operation(cost=moves_bytes, controls="dtype memory_config output_tensor")
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
