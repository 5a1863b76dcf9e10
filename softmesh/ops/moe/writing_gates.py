"""Gates that write the chosen experts and their weights into tensors that are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.ops.moe.gates import EPSILON, Grouping, check_grouping, normalized, within_best_groups
from softmesh.placement import rules

_COST = flops_per_element(8)
_DEEPSEEK = Grouping(groups=8, counted=2, kept=4)


def _rows(x: torch.Tensor, rank: int) -> torch.Tensor:
    """(mesh..., tokens, experts): what one token has is spread over the last two dims."""
    lead = x.dim() - rank
    return x.reshape(*x.shape[:lead], -1, x.shape[-2] * x.shape[-1])


def _check_gate(op: str, operands: list[Operand], outputs: list[Operand], k: int) -> None:
    scores = operands[0]
    for operand in (*operands, *outputs):
        if operand.rank < 2 or operand.rank > 4:
            raise MeshError(f"{op}: {operand.name} must have 2 to 4 dims, got {list(operand.shape)}.")
    for operand in operands[1:]:
        if operand.shape[-2:] != scores.shape[-2:]:
            raise MeshError(
                f"{op}: {operand.name} {list(operand.shape)} must have the experts of input_tensor "
                f"{list(scores.shape)} in its last two dims."
            )
    for output in outputs:
        if output.shape[:-2] != scores.shape[:-2] or output.shape[-2] * output.shape[-1] < k:
            raise MeshError(
                f"{op}: {output.name} {list(output.shape)} must have room for {k} values for each token of "
                f"input_tensor {list(scores.shape)}."
            )
    if outputs[1].is_float or operands[2].is_float:
        raise MeshError(f"{op}: the tensors of indices hold integers: make them ttnn.uint16.")


class _Choice(NamedTuple):
    eps: float
    scale: float
    sigmoid: bool
    k: int
    softmax: bool = False
    grouping: Grouping | None = None


def _gate(op: str, operands: list[Operand], outputs: list[Operand], choice: _Choice) -> Local:
    """`operands`: scores, biases, indices. A bias belongs to the expert that stands in its place in the indices."""
    _check_gate(op, operands, outputs, choice.k)
    experts = operands[0].shape[-2] * operands[0].shape[-1]
    check_grouping(op, experts, choice.grouping or Grouping(1, 1, 1), choice.k)
    ranks = [operand.rank for operand in (*operands, *outputs)]

    def compute(*data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores, bias, numbers = (_rows(x, rank) for x, rank in zip(data[:3], ranks[:3], strict=True))
        weights, chosen = _chosen(scores.float(), bias.float(), numbers.long(), choice)
        for target, values, rank in zip(data[3:], (weights, chosen), ranks[3:], strict=True):
            _write(target, values, rank)
        return data[3], data[4]

    return Local(compute, rules.along(_token_dims(ranks), outputs=2))


def _token_dims(ranks: list[int]) -> dict[int, Sequence[tuple[int, int | None]]]:
    """All that stands in front of the last two dims counts tokens, in every operand."""
    return {d: [(i, d) for i, rank in enumerate(ranks) if d < rank - 2] for d in range(max(ranks) - 2)}


def _chosen(
    scores: torch.Tensor, bias: torch.Tensor, numbers: torch.Tensor, choice: _Choice
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = broadcast_shapes(scores.shape, bias.shape, numbers.shape)
    order = numbers.expand(shape).argsort(-1)
    plain = torch.sigmoid(scores) if choice.sigmoid else scores
    biased = plain + bias.expand(shape).gather(-1, order)
    if choice.grouping is not None:
        biased = within_best_groups(biased, choice.grouping)
    best = biased.topk(choice.k, -1).indices
    weights = plain.expand(shape).gather(-1, best)
    if choice.softmax:
        return torch.softmax(weights, -1) * choice.scale, best
    return normalized(weights, choice.eps, choice.scale), best


def _write(target: torch.Tensor, values: torch.Tensor, rank: int) -> None:
    lead = target.dim() - rank
    padded = torch.nn.functional.pad(values, (0, target.shape[-2] * target.shape[-1] - values.shape[-1]))
    target.copy_(padded.reshape(*padded.shape[:lead], *target.shape[lead:]))


@operation(
    "experimental.deepseek.moe.deepseek_moe_gate",
    cost=_COST,
    controls="",
    precision="data",
    writes="output_tensor output_indices_tensor",
)
def deepseek_moe_gate(
    input_tensor: Operand,
    *,
    bias_tensor: Operand,
    input_indices_tensor: Operand,
    output_tensor: Operand,
    output_indices_tensor: Operand,
    eps: float = EPSILON,
    scaling_factor: float = 2.5,
    enable_sigmoid: bool = False,
) -> Local:
    """The 8 best of a token's experts, in 8 groups of which the best 4 count, into the two output tensors.

    A token's scores fill the last two dims of `input_tensor`, experts in order. The weights come first in the
    outputs, best first; what TT-NN leaves behind them is not documented, here it is 0.
    """
    choice = _Choice(eps, scaling_factor, enable_sigmoid, k=8, grouping=_DEEPSEEK)
    operands, outputs = (
        [input_tensor, bias_tensor, input_indices_tensor],
        [output_tensor, output_indices_tensor],
    )
    return _gate("experimental.deepseek.moe.deepseek_moe_gate", operands, outputs, choice)


@operation(
    "experimental.deepseek.moe.generalized_moe_gate",
    cost=_COST,
    controls="",
    precision="data",
    writes="output_tensor output_indices_tensor",
)
def generalized_moe_gate(
    input_tensor: Operand,
    *,
    bias_tensor: Operand,
    input_indices_tensor: Operand,
    output_tensor: Operand,
    output_indices_tensor: Operand,
    eps: float = EPSILON,
    scaling_factor: float = 2.5,
    enable_sigmoid: bool = False,
    topk: int = 8,
    output_softmax: bool = False,
    grouped: bool = False,
) -> Local:
    """As deepseek_moe_gate, for any number of experts; in groups only with `grouped`.

    With `output_softmax` the weights are a softmax of the chosen scores; that `scaling_factor` applies to it too
    is not documented.
    """
    choice = _Choice(
        eps, scaling_factor, enable_sigmoid, topk, output_softmax, _DEEPSEEK if grouped else None
    )
    operands, outputs = (
        [input_tensor, bias_tensor, input_indices_tensor],
        [output_tensor, output_indices_tensor],
    )
    return _gate("experimental.deepseek.moe.generalized_moe_gate", operands, outputs, choice)
