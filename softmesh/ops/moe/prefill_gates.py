"""Gates of DeepSeek's prefill: experts by the best groups, or by a table of token ids; and how often each is chosen."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.errors import MeshError, NotModelled
from softmesh.ops.moe.gates import EPSILON, Grouping, check_grouping, normalized, within_best_groups
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType, Layout

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


@operation(_TOPK, cost=flops_per_element(8), controls="memory_config", needs_tile=True)
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
    check_grouping(_TOPK, scores.shape[-1], grouping, n_activated_experts)
    check_broadcast(_TOPK, [("scores", scores.shape), ("bias", bias.shape)])

    def compute(x: torch.Tensor, b: torch.Tensor, *_: None) -> list[torch.Tensor]:
        plain = score(x)
        allowed = within_best_groups(plain + b, grouping)
        if stable_sort:
            best = allowed.argsort(dim=-1, descending=True, stable=True)[..., :n_activated_experts]
        else:
            best = allowed.topk(n_activated_experts, -1).indices
        weights = plain.expand(allowed.shape).gather(-1, best)
        return [normalized(weights, epsilon, route_scale), best]

    return Local(
        compute,
        rules.within(-1),
        dtypes=(scores.dtype, DataType.UINT16),
        layouts=(weights_layout, scores.layout),
        broadcast_rank=max(scores.rank, bias.rank),
    )


@operation(_HASH, cost=flops_per_element(8), controls="memory_config", precision="data")
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

    along = rules.along({scores.rank - 2: [(0, scores.rank - 2), (1, rank - 1)]}, outputs=2)
    return Local(compute, along, dtypes=(scores.dtype, DataType.UINT16))


@operation(_COUNT, cost=flops_per_element(1), controls="", precision="data")
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
