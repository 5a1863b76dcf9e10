"""Linear attention by the gated delta rule: a state that forgets, and is corrected by each new key and value."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.placement import rules

_CHUNKED = "transformer.chunk_gated_delta_rule"
_TUNING = "chunk_size program_config wy_inverse memory_config compute_kernel_config eye tril ones masks"
Data = torch.Tensor | None


def _with_state(op: str, made: Any, given: dict[str, Any]) -> Any:
    """(result, final state), or (result, None) where no state is asked for."""
    return made if given["output_final_state"] else (made[0], None)


@operation(_CHUNKED, controls="", tuning=_TUNING, present=_with_state)
def chunk_gated_delta_rule(
    q: Operand,
    k: Operand,
    v: Operand,
    g: Operand,
    beta: Operand,
    *,
    initial_state: Operand | None = None,
    scale: float | None = None,
    output_final_state: bool = False,
    use_qk_l2norm: bool = False,
    output_head_major: bool = False,
) -> Local:
    """q, k [b, s, heads, width], v [b, s, value_heads, value_width], g and beta [b, s, value_heads].

    For each position: state *= exp(g); state += k (beta * (v - k state)); result = q state * scale. The state is
    [b, value_heads, width, value_width]; the result is like v, or [b, value_heads, s, value_width] head by head.
    """
    _check(q, k, v, (g, beta), initial_state)
    heads, value_heads = q.shape[2], v.shape[2]
    factor = q.shape[3] ** -0.5 if scale is None else scale

    def compute(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, state: Data
    ) -> tuple[torch.Tensor, ...]:
        if use_qk_l2norm:
            q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        q, k = (x.repeat_interleave(value_heads // heads, -2) for x in (q * factor, k))
        made, last = _in_order(q, k, v, g, beta, state)
        out = made.transpose(-3, -2) if output_head_major else made
        return (out, last) if output_final_state else (out,)

    heads_at = 1 if output_head_major else 2
    splits = {(0,) * 6: (0, 0), (2, 2, 2, 2, 2, 1): (heads_at, 1), (None, None, 3, None, None, 3): (3, 3)}

    def rule(at: rules.Situation) -> list[rules.Placement]:
        """By batch, by heads of all operands, or by columns of the values and the state."""
        rules.refuse_partial(at)
        for dims, places in splits.items():
            wanted = [rules.REPLICATE if dim is None else rules.Shard(dim) for dim in dims]
            if all(word in (None, want) for word, want in zip(at.words, wanted, strict=True)):
                return [rules.Shard(place) for place in places[: len(at.out_shapes)]]
        return [rules.LOCAL] * len(at.out_shapes)

    return Local(compute, rule, cost=matmul_cost(4 * q.shape[3]))


def _in_order(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, state: Data
) -> tuple[torch.Tensor, torch.Tensor]:
    """One position after the other, for all users, heads and devices at once."""
    made = []
    for t in range(v.shape[-3]):
        now_q, now_k, now_v = (x.select(-3, t) for x in (q, k, v))
        decay, rate = (x.select(-2, t).unsqueeze(-1) for x in (g, beta))
        if state is None:
            known = torch.zeros_like(now_v)
            state = torch.zeros(1, device=v.device)
        else:
            state = state * decay.unsqueeze(-1).exp()
            known = (now_k.unsqueeze(-2) @ state).squeeze(-2)
        state = state + now_k.unsqueeze(-1) * (rate * (now_v - known)).unsqueeze(-2)
        made.append((now_q.unsqueeze(-2) @ state).squeeze(-2))
    assert state is not None
    return torch.stack(made, -3), state


def _check(q: Operand, k: Operand, v: Operand, gates: tuple[Operand, ...], state: Operand | None) -> None:
    for operand in (q, k, v):
        if operand.rank != 4:
            raise MeshError(
                f"{_CHUNKED}: {operand.name} must be [b, s, heads, width], got {list(operand.shape)}."
            )
    if q.shape != k.shape or q.shape[:2] != v.shape[:2] or v.shape[2] % q.shape[2] or not q.shape[1]:
        raise MeshError(
            f"{_CHUNKED}: q {list(q.shape)} and k {list(k.shape)} must be alike, of the batch and sequence of v "
            f"{list(v.shape)}, whose heads they share in equal groups."
        )
    for gate in gates:
        if gate.shape != v.shape[:3]:
            raise MeshError(
                f"{_CHUNKED}: {gate.name} {list(gate.shape)} must be {list(v.shape[:3])}, as v has heads."
            )
    wanted = (v.shape[0], v.shape[2], q.shape[3], v.shape[3])
    if state is not None and state.shape != wanted:
        raise MeshError(f"{_CHUNKED}: initial_state {list(state.shape)} must be {list(wanted)}.")
