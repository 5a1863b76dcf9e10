"""Sequence-parallel (ring) attention of one device's queries, over keys and values that were gathered already.

Parts follow each other in the order of devices; balanced, the sequence is cut into twice as many chunks as there
are devices, and device i of n holds chunks i and 2n - 1 - i, so that causal work is shared out evenly. The
collectives that gather the keys are in `softmesh.collectives`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.ops.attention.sdpa_core import check_groups, check_rank_4, check_window, group, mask_bias
from softmesh.placement import rules
from softmesh.tensor.broadcasting import concat_on_mesh

Data = torch.Tensor | None
JOINT = "transformer.ring_joint_scaled_dot_product_attention"
LATENT = "transformer.ring_mla"
DISTRIBUTED = "transformer.ring_distributed_scaled_dot_product_attention"


@dataclass(frozen=True)
class SequenceOrder:
    """Where the rows of a sequence of `length` lie that `devices` hold in parts."""

    devices: int
    length: int
    is_balanced: bool

    def of_part(self, place: torch.Tensor) -> torch.Tensor:
        """(*axes, rows): the positions that the device at `place` (*axes, 1) holds."""
        rows = self.length // self.devices
        at = torch.arange(rows, device=place.device)
        if not self.is_balanced:
            return place * rows + at
        half = rows // 2
        return torch.where(at < half, place * half + at, (2 * self.devices - 1 - place) * half + at - half)

    def of_all(self, device: torch.device) -> torch.Tensor:
        """(length,): the positions of all parts, side by side."""
        return self.of_part(torch.arange(self.devices, device=device).unsqueeze(-1)).flatten()


def attention_and_weight(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: Data, scale: float, kv_heads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q k^T) v, and the logarithm of what it was divided by: (*axes, b, heads, rows, width) and (..., 1)."""
    queries = group(q, -3, (kv_heads, q.shape[-3] // kv_heads))
    scores = queries @ k.unsqueeze(-3).transpose(-2, -1) * scale
    if bias is not None:
        scores = scores + bias
    weight = scores.logsumexp(-1, keepdim=True)
    out = torch.exp(scores - weight) @ v.unsqueeze(-3)
    return out.flatten(-4, -3), weight.flatten(-4, -3)


def hidden_keys(
    asking: Data, keys: torch.Tensor, end: torch.Tensor | int, window: int | None, joint: int
) -> torch.Tensor:
    """The bias (..., 1, 1, 1, rows, keys + joint) that hides keys from `end` on, and those after the one asking."""
    visible = (keys < end).unsqueeze(-2)
    if asking is not None:
        ahead = keys - asking.unsqueeze(-1)
        visible = visible & (ahead <= 0)
        if window is not None:
            visible = visible & (ahead > -window)
    seen = torch.nn.functional.pad(visible, (0, joint), value=True)
    return mask_bias(seen).reshape(*seen.shape[:-2], 1, 1, 1, *seen.shape[-2:])


@operation(JOINT, controls="", tuning="")
def ring_joint_attention(
    q: Operand,
    k: Operand,
    v: Operand,
    place: Operand,
    joint_q: Operand | None = None,
    joint_k: Operand | None = None,
    joint_v: Operand | None = None,
    logical_n: Value = 0,
    *,
    devices: int,
    scale: float | None = None,
    is_causal: bool = False,
    is_balanced: bool = False,
    window: int | None = None,
) -> Local:
    """The part of one device, after the gathering: k and v are whole, `place` is the device's index among them.

    Three results: of the device's queries, of the joint ones, and the logarithms of the sums that both were
    divided by, [b, heads, rows + joint rows, 1]; how TT-NN lays those out is not known.
    """
    check_rank_4(JOINT, q, k, v)
    check_groups(JOINT, q.shape[1], k.shape[1])
    check_window(JOINT, window)
    has_joint = joint_q is not None and joint_k is not None and joint_v is not None
    if is_causal and has_joint:
        raise MeshError(
            f"{JOINT}: a causal sequence has no joint one: pass is_causal=False, or no joint tensors."
        )
    rows, joint = q.shape[2], joint_q.shape[2] if joint_q is not None else 0
    order = SequenceOrder(devices, k.shape[2], is_balanced)
    factor = q.shape[3] ** -0.5 if scale is None else scale
    kv_heads = k.shape[1]

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        place: torch.Tensor,
        joint_q: Data,
        joint_k: Data,
        joint_v: Data,
        end: torch.Tensor | int,
    ) -> tuple[torch.Tensor, ...]:
        if joint_q is not None and joint_k is not None and joint_v is not None:
            q, k, v = (concat_on_mesh(pair, -2) for pair in ((q, joint_q), (k, joint_k), (v, joint_v)))
        asking = order.of_part(place) if is_causal else None
        bias = hidden_keys(asking, order.of_all(q.device), end, window, joint)
        both, weight = attention_and_weight(q, k, v, bias, factor, kv_heads)
        return both[..., :rows, :], both[..., rows:, :], weight

    rule = _ring_rule(outputs=3, joint=True)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * k.shape[2]))


@operation(LATENT, controls="", tuning="")
def ring_latent_attention(
    q: Operand,
    kv: Operand,
    place: Operand,
    *,
    head_dim_v: int,
    logical_n: int,
    devices: int,
    scale: float | None = None,
    is_balanced: bool = False,
) -> Local:
    """The causal part of one device over gathered keys, whose first `head_dim_v` columns are the values."""
    check_rank_4(LATENT, q, kv)
    check_groups(LATENT, q.shape[1], kv.shape[1])
    order = SequenceOrder(devices, kv.shape[2], is_balanced)
    factor = q.shape[3] ** -0.5 if scale is None else scale
    kv_heads = kv.shape[1]

    def compute(q: torch.Tensor, kv: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        bias = hidden_keys(order.of_part(place), order.of_all(q.device), logical_n, None, 0)
        return attention_and_weight(q, kv, kv[..., :head_dim_v], bias, factor, kv_heads)

    rule = _ring_rule(outputs=2, place_at=2)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * kv.shape[2]))


def _ring_rule(outputs: int, joint: bool = False, place_at: int = 3) -> rules.Rule:
    """Along the ring: queries are split by rows, and so is their result; what joint queries see is the same for all.

    Along another axis: batch or heads, of all operands alike.
    """

    def rule(at: rules.Situation) -> list[rules.Placement]:
        rules.refuse_partial(at)
        tensors = [word for i, word in enumerate(at.words) if i != place_at and word is not None]
        if isinstance(at.words[place_at], rules.Shard):
            others = [word for i, word in enumerate(at.words) if i not in (0, place_at) and word is not None]
            is_ring = at.word is rules.Shard(2) and all(word is rules.REPLICATE for word in others)
            if joint and is_ring:
                return [at.word, rules.REPLICATE, rules.LOCAL]
            return [at.word if is_ring else rules.LOCAL] * outputs
        kinds = set(tensors)
        is_alike = len(kinds) == 1 and at.word in (rules.Shard(0), rules.Shard(1))
        return [at.word if is_alike else rules.LOCAL] * outputs

    return rule


@operation(DISTRIBUTED, controls="memory_config", tuning="program_config compute_kernel_config")
def ring_distributed_attention(
    q: Operand, k: Operand, v: Operand, place: Value, *, devices: int, scale: float | None = None
) -> Local:
    """Causal attention of one device's share of the queries: of 2n chunks of the sequence, i and 2n - 1 - i.

    All devices hold all of q, k and v; the result has the device's two chunks, one behind the other.
    """
    check_rank_4(DISTRIBUTED, q, k, v)
    check_groups(DISTRIBUTED, q.shape[1], k.shape[1])
    if q.shape[2] % (2 * devices) or k.shape[2] != q.shape[2]:
        raise MeshError(
            f"{DISTRIBUTED}: q {list(q.shape)} and k {list(k.shape)} must have one sequence, cut into "
            f"{2 * devices} chunks: two for each of ring_size={devices}."
        )
    order = SequenceOrder(devices, q.shape[2], is_balanced=True)
    factor = q.shape[3] ** -0.5 if scale is None else scale
    kv_heads, length = k.shape[1:3]

    def compute(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, place: torch.Tensor | int) -> torch.Tensor:
        lead = q.dim() - 4
        where = torch.full((1,) * (lead + 1), place) if isinstance(place, int) else place.long()
        asking = order.of_part(where.to(q.device))
        mine = torch.take_along_dim(q, asking.reshape(*asking.shape[:-1], 1, 1, -1, 1), -2)
        bias = hidden_keys(asking, torch.arange(length, device=q.device), length, None, 0)
        return attention_and_weight(mine, k, v, bias, factor, kv_heads)[0]

    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        kinds = set(at.words[:3])
        is_alike = len(kinds) == 1 and at.word in (rules.Shard(0), rules.Shard(1))
        return at.word if is_alike and not isinstance(at.words[3], rules.Shard) else rules.LOCAL

    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * length))
