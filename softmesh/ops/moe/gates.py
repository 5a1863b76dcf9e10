"""MoE gates (routers): which experts each token goes to, and with what weight.

Equal scores come in torch's order; TT-NN's order among equals is not documented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch.nn import functional

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.errors import MeshError, NotModelled
from softmesh.kinds import Kind
from softmesh.ops.golden import golden_matmul_and_moe as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import DataType, Layout

_COST = flops_per_element(8)
EPSILON = 9.999999682655225e-21  # 1e-20 as float32 has it


@operation(
    "moe", kind=Kind.ROUTING, rule=rules.within, cost=_COST, controls="memory_config output_tensor", needs_tile=True
)
@with_reference(golden.moe)
def moe(input_tensor: Operand, expert_mask_tensor: Operand, topk_mask_tensor: Operand, k: int = 32) -> Local:
    """The weight of expert 0, [..., 1]: 0 where it is not among the best.

    Scores plus the first mask, the `k` best of them, plus the second mask, softmax, and of that the share of
    expert 0.
    """
    width = input_tensor.shape[-1] if input_tensor.rank else 0
    if not 1 <= k <= width:
        raise MeshError(f"moe: k={k} must be between 1 and {width}, the number of experts of input_tensor.")
    check_broadcast("moe", [("input_tensor", input_tensor.shape), ("expert_mask_tensor", expert_mask_tensor.shape)])
    if topk_mask_tensor.shape[-1:] != (k,):
        raise MeshError(f"moe: topk_mask_tensor {list(topk_mask_tensor.shape)} must have k={k} columns.")

    def compute(scores: torch.Tensor, mask: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
        best = (scores + mask).topk(k, -1)
        shares = torch.softmax(best.values + among, -1)
        return (shares * (best.indices == 0)).sum(-1, keepdim=True)

    rank = max(operand.rank for operand in (input_tensor, expert_mask_tensor, topk_mask_tensor))
    return Local(compute, rules.within(-1), broadcast_rank=rank)


class Grouping(NamedTuple):
    """Only the `kept` groups whose best `counted` scores add up highest have a say."""

    groups: int
    counted: int
    kept: int


def check_grouping(op: str, experts: int, grouping: Grouping, chosen: int) -> None:
    groups, counted, kept = grouping
    if groups < 1 or experts % groups:
        raise MeshError(f"{op}: {experts} experts cannot form {groups} groups of one size.")
    size = experts // groups
    if not 1 <= counted <= size or not 1 <= kept <= groups or not 1 <= chosen <= kept * size:
        raise MeshError(
            f"{op}: of {groups} groups of {size} experts, {kept} groups by the sum of their best {counted}, and of "
            f"those {chosen} experts cannot be taken."
        )


def within_best_groups(scores: torch.Tensor, grouping: Grouping) -> torch.Tensor:
    """The scores (..., experts), minus infinity in the other groups."""
    apart = scores.unflatten(-1, (grouping.groups, -1))
    strength = apart.topk(grouping.counted, -1).values.sum(-1)
    best = strength.topk(grouping.kept, -1).indices
    is_out = torch.ones_like(strength, dtype=torch.bool).scatter(-1, best, False)
    return apart.masked_fill(is_out.unsqueeze(-1), -torch.inf).flatten(-2)


def normalized(weights: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
    return weights / (weights.sum(-1, keepdim=True) + eps) * scale


@operation(
    "experimental.deepseek_grouped_gate",
    kind=Kind.ROUTING,
    rule=rules.within,
    cost=_COST,
    controls="memory_config",
    needs_tile=True,
    results="list[Tensor]",
)
@with_reference(golden.grouped_gate)
def deepseek_grouped_gate(
    scores: Operand,
    bias: Operand,
    *,
    n_groups: int = 8,
    summed_experts_per_group: int = 2,
    topk_groups: int = 4,
    n_activated_experts: int = 8,
    route_scale: float = 1.0,
    epsilon: float = EPSILON,
) -> Local:
    """[weights, indices (uint16)] of the chosen experts: by sigmoid plus bias; the weights are the sigmoids' shares."""
    grouping = Grouping(n_groups, summed_experts_per_group, topk_groups)
    gate = (torch.sigmoid, grouping, n_activated_experts, epsilon, route_scale)
    return _grouped_gate("experimental.deepseek_grouped_gate", scores, bias, *gate)


def _grouped_gate(
    op: str,
    scores: Operand,
    bias: Operand,
    score: Callable[[torch.Tensor], torch.Tensor],
    grouping: Grouping,
    chosen: int,
    epsilon: float,
    scale: float,
    stable: bool = False,
) -> Local:
    check_grouping(op, scores.shape[-1], grouping, chosen)
    check_broadcast(op, [("scores", scores.shape), ("bias", bias.shape)])

    def compute(x: torch.Tensor, b: torch.Tensor, *_: None) -> list[torch.Tensor]:
        plain = score(x)
        allowed = within_best_groups(plain + b, grouping)
        if stable:
            best = allowed.argsort(dim=-1, descending=True, stable=True)[..., :chosen]
        else:
            best = allowed.topk(chosen, -1).indices
        return [normalized(plain.expand(allowed.shape).gather(-1, best), epsilon, scale), best]

    return Local(
        compute,
        rules.within(-1),
        dtypes=(scores.dtype, DataType.UINT16),
        broadcast_rank=max(scores.rank, bias.rank),
    )


# -- gates that write the chosen experts and their weights into given tensors ------------------------


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

    return Local(compute, rules.along(_token_dims(ranks)))


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
    kind=Kind.ROUTING,
    rule=rules.along,
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
    operands = [input_tensor, bias_tensor, input_indices_tensor]
    outputs = [output_tensor, output_indices_tensor]
    return _gate("experimental.deepseek.moe.deepseek_moe_gate", operands, outputs, choice)


@operation(
    "experimental.deepseek.moe.generalized_moe_gate",
    kind=Kind.ROUTING,
    rule=rules.along,
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
    choice = _Choice(eps, scaling_factor, enable_sigmoid, topk, output_softmax, _DEEPSEEK if grouped else None)
    operands = [input_tensor, bias_tensor, input_indices_tensor]
    outputs = [output_tensor, output_indices_tensor]
    return _gate("experimental.deepseek.moe.generalized_moe_gate", operands, outputs, choice)


# -- gates of DeepSeek's prefill: by the best groups, or by a table of token ids; and expert counts --


_TOPK = "experimental.deepseek_prefill.moe_grouped_topk"
_HASH = "experimental.deepseek_prefill.moe_hash_gate"
_COUNT = "experimental.deepseek_prefill.masked_bincount"
_SCORES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: torch.softmax(x, -1),
    "sqrtsoftplus": lambda x: functional.softplus(x).sqrt(),
}


def _score(op: str, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    if name not in _SCORES:
        raise MeshError(f"{op}: score_func={name!r} is none of {', '.join(sorted(_SCORES))}.")
    return _SCORES[name]


def _refuse(op: str, name: str, given: object) -> None:
    if given is not None:
        raise NotModelled(f"{op}: {name} is not modelled, its form is not documented: leave it out.")


@operation(
    _TOPK,
    kind=Kind.ROUTING,
    rule=rules.within,
    cost=_COST,
    controls="memory_config",
    needs_tile=True,
    results="list[Tensor]",
)
def moe_grouped_topk(
    scores: Operand,
    bias: Operand,
    *,
    padding_config: Operand | None = None,
    biased_scores: Operand | None = None,
    n_groups: int = 8,
    summed_experts_per_group: int = 2,
    topk_groups: int = 4,
    n_activated_experts: int = 8,
    route_scale: float = 1.0,
    epsilon: float = EPSILON,
    stable_sort: bool = False,
    score_func: str = "sigmoid",
    weights_layout: Layout = Layout.TILE,
) -> Local:
    """[weights, indices (uint16)]: as deepseek_grouped_gate; with `stable_sort` equal scores in the experts' order."""
    score = _score(_TOPK, score_func)
    _refuse(_TOPK, "padding_config", padding_config)
    _refuse(_TOPK, "biased_scores", biased_scores)
    grouping = Grouping(n_groups, summed_experts_per_group, topk_groups)
    gate = (score, grouping, n_activated_experts, epsilon, route_scale, stable_sort)
    return replace(_grouped_gate(_TOPK, scores, bias, *gate), layouts=(weights_layout, scores.layout))


@operation(
    _HASH,
    kind=Kind.ROUTING,
    rule=rules.along,
    cost=_COST,
    controls="memory_config",
    precision="data",
    results="list[Tensor]",
)
def moe_hash_gate(
    scores: Operand,
    input_ids: Operand,
    tid2eid: Operand,
    *,
    padding_config: Operand | None = None,
    n_activated_experts: int,
    route_scale: float = 1.0,
    epsilon: float = EPSILON,
    score_func: str = "sqrtsoftplus",
) -> Local:
    """[weights, indices (uint16)]: a token's experts stand in row `id` of the table tid2eid [ids, experts].

    The weights are the shares of the chosen scores [..., tokens, experts].
    """
    score = _score(_HASH, score_func)
    _refuse(_HASH, "padding_config", padding_config)
    if tid2eid.rank < 2 or tid2eid.shape[-1] != n_activated_experts or tid2eid.is_float or input_ids.is_float:
        raise MeshError(
            f"{_HASH}: tid2eid {list(tid2eid.shape)} {tid2eid.dtype} must be [ids, {n_activated_experts}] integers, "
            f"and input_ids integers, got {input_ids.dtype}."
        )
    tokens, experts = scores.shape[:-1], scores.shape[-1]
    ids, rank = tid2eid.shape[-2], input_ids.rank
    if scores.spec.logical_volume() // max(experts, 1) != input_ids.spec.logical_volume():
        raise MeshError(
            f"{_HASH}: input_ids {list(input_ids.shape)} must name one id for each row of scores {list(scores.shape)}."
        )

    def compute(x: torch.Tensor, names: torch.Tensor, table: torch.Tensor, _: None) -> list[torch.Tensor]:
        lead = names.dim() - rank
        numbers = names.reshape(*names.shape[:lead], -1).long()
        if numbers.numel() and int(numbers.max()) >= ids:
            raise MeshError(f"{_HASH}: input_ids names {int(numbers.max())}, and tid2eid has {ids} rows.")
        rows = table.reshape(*table.shape[:lead], ids, n_activated_experts).long()
        axes = broadcast_shapes(rows.shape[:lead], numbers.shape[:lead], x.shape[:lead])
        index = numbers.expand(*axes, -1).unsqueeze(-1).expand(*axes, numbers.shape[-1], n_activated_experts)
        chosen = rows.expand(*axes, -1, -1).gather(-2, index).reshape(*axes, *tokens, n_activated_experts)
        if chosen.numel() and int(chosen.max()) >= experts:
            raise MeshError(f"{_HASH}: tid2eid names expert {int(chosen.max())}, and scores has {experts}.")
        plain = score(x.float()).expand(*axes, *x.shape[lead:])
        return [normalized(plain.gather(-1, chosen), epsilon, route_scale), chosen]

    along = rules.along({scores.rank - 2: [(0, scores.rank - 2), (1, rank - 1)]})
    return Local(compute, along, dtypes=(scores.dtype, DataType.UINT16))


@operation(_COUNT, kind=Kind.ROUTING, cost=flops_per_element(1), controls="", precision="data")
def masked_bincount(
    input_tensor: Operand, expert_mask: Operand, n_routed_experts: int, num_experts_per_token: int
) -> Local:
    """How often each expert is chosen, [n_routed_experts] as uint32; 0 for those that the mask leaves out.

    `input_tensor` has the first `num_experts_per_token` columns for a token's experts. The form of TT-NN's result
    is not documented.
    """
    if input_tensor.is_float or not 1 <= num_experts_per_token <= input_tensor.shape[-1]:
        raise MeshError(
            f"{_COUNT}: input_tensor {list(input_tensor.shape)} {input_tensor.dtype} must hold integers, "
            f"num_experts_per_token={num_experts_per_token} in a row."
        )
    if n_routed_experts < 1 or expert_mask.spec.logical_volume() != n_routed_experts:
        raise MeshError(
            f"{_COUNT}: expert_mask {list(expert_mask.shape)} must have an entry for each of n_routed_experts="
            f"{n_routed_experts}."
        )

    def compute(chosen: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        lead = chosen.dim() - input_tensor.rank
        numbers = chosen[..., :num_experts_per_token].flatten(lead).long()
        if numbers.numel() and int(numbers.max()) >= n_routed_experts:
            raise MeshError(f"{_COUNT}: names expert {int(numbers.max())}, there are {n_routed_experts}.")
        counts = torch.zeros(*numbers.shape[:lead], n_routed_experts, dtype=torch.long, device=chosen.device)
        counts.scatter_add_(-1, numbers, torch.ones_like(numbers))
        return counts * (mask.reshape(*mask.shape[:lead], n_routed_experts) != 0)

    last = input_tensor.rank - 1

    @rules.labelled(dim_labels.moved(lambda dim: None, sums=dict.fromkeys(range(last), "sum"), passes=""))
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        word = at.words[0]
        is_split = isinstance(word, rules.Shard) and word.dim != last and at.words[1] is rules.REPLICATE
        if not is_split:
            return rules.LOCAL
        assert isinstance(word, rules.Shard)
        rules.refuse_uneven(word, "masked_bincount")
        return rules.Partial("sum")

    return Local(compute, rule, dtypes=(DataType.UINT32,), layouts=(Layout.ROW_MAJOR,))
