"""Two sequences that attend to each other as one: the joint one stands behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.ops.attention.checks import TUNING, check_batch, check_keys, check_rank_4, own_keys
from softmesh.ops.attention.kernel import attend, group
from softmesh.placement import rules

_JOINT = "transformer.joint_scaled_dot_product_attention"


@operation(_JOINT, controls="", tuning=TUNING)
def joint_scaled_dot_product_attention(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    joint_tensor_q: Operand,
    joint_tensor_k: Operand,
    joint_tensor_v: Operand,
    *,
    joint_strategy: str,
    scale: float | None = None,
) -> Local:
    """[b, heads, n, width] and [b, heads, l, width]: every query sees all n + l keys. One result for each sequence."""
    own = (input_tensor_q, input_tensor_k, input_tensor_v)
    joint = (joint_tensor_q, joint_tensor_k, joint_tensor_v)
    check_strategy(_JOINT, joint_strategy)
    for q, k, v in (own, joint):
        check_rank_4(_JOINT, q, k, v)
        check_keys(_JOINT, k, v, heads=q.shape[1], width=q.shape[3])
        check_batch(_JOINT, q, k)
    check_alike(_JOINT, own, joint)
    q, k = own[:2]
    grouped = (k.shape[1], q.shape[1] // k.shape[1])
    factor = q.shape[3] ** -0.5 if scale is None else scale
    rows = (q.shape[2], joint_tensor_q.shape[2])

    def compute(*data: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = (_joined(data[i], data[i + 3]) for i in range(3))
        out = attend(group(q, -3, grouped), k, v, None, None, scale=factor)
        return out.flatten(-4, -3).split(rows, -2)

    keys = k.shape[2] + joint_tensor_k.shape[2]
    return Local(compute, _rule(), memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * keys))


def _joined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return torch.cat([x.expand(*lead, *x.shape[-2:]) for x in (a, b)], -2)


def _rule() -> rules.Rule:
    batch, heads = [(i, 0) for i in range(6)], [(i, 1) for i in range(6)]
    inner = own_keys(rules.along({0: batch, 1: heads}, outputs=2), 1)

    def rule(at: rules.Situation) -> Sequence[rules.Placement]:
        """All heads of both sequences, or queries of one beside keys of all would be mixed."""
        answer = cast(Sequence[rules.Placement], inner(at))
        is_split = {isinstance(word, rules.Shard) for word in at.words}
        return answer if len(is_split) == 1 else [rules.LOCAL] * len(answer)

    return rule


def check_strategy(op: str, strategy: str) -> None:
    if strategy != "rear":
        raise MeshError(f"{op}: joint_strategy must be 'rear', the only one there is; got {strategy!r}.")


def check_alike(op: str, own: Sequence[Operand], joint: Sequence[Operand]) -> None:
    for one, other in zip(own, joint, strict=True):
        if one.shape[:2] != other.shape[:2] or one.shape[3] != other.shape[3]:
            raise MeshError(
                f"{op}: {one.name} {list(one.shape)} and {other.name} {list(other.shape)} must agree in batch, heads "
                "and width."
            )
