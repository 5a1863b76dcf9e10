"""Linear recurrences in place of attention: the gated delta rule (Gated DeltaNet) and state-space models (Mamba).

The delta rule keeps a state that decays, and is corrected by each new key and value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element, matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.placement import dim_labels, rules
from softmesh.tensor.dtype import TILE_SIZE, Layout

_CHUNKED = "transformer.chunk_gated_delta_rule"
_TUNING = "chunk_size program_config wy_inverse compute_kernel_config eye tril ones masks"
Data = torch.Tensor | None


def _with_state(op: str, made: Any, given: dict[str, Any]) -> Any:
    """(result, final state), or (result, None) where no state is asked for."""
    return made if given["output_final_state"] else (made[0], None)


@operation(
    _CHUNKED,
    kind=Kind.ATTENTION,
    part_work=part_work.BEGINS_ANEW,
    controls="memory_config",
    tuning=_TUNING,
    present=_with_state,
    results="tuple[Tensor, Tensor | None]",
)
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

    @rules.labelled_each(dim_labels.unlabelled)
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
            raise MeshError(f"{_CHUNKED}: {operand.name} must be [b, s, heads, width], got {list(operand.shape)}.")
    if q.shape != k.shape or q.shape[:2] != v.shape[:2] or v.shape[2] % q.shape[2] or not q.shape[1]:
        raise MeshError(
            f"{_CHUNKED}: q {list(q.shape)} and k {list(k.shape)} must be alike, of the batch and sequence of v "
            f"{list(v.shape)}, whose heads they share in equal groups."
        )
    for gate in gates:
        if gate.shape != v.shape[:3]:
            raise MeshError(f"{_CHUNKED}: {gate.name} {list(gate.shape)} must be {list(v.shape[:3])}, as v has heads.")
    wanted = (v.shape[0], v.shape[2], q.shape[3], v.shape[3])
    if state is not None and state.shape != wanted:
        raise MeshError(f"{_CHUNKED}: initial_state {list(state.shape)} must be {list(wanted)}.")


# -- state-space models (Mamba), whose state has 32 columns for each channel -------------------------


_SCAN = "experimental.prefix_scan"
_SUM = "experimental.hc_sum_reduce"
_PRODUCT = "experimental.repeat_and_interleave_eltwise_mul"
_CHANNELS = 5120
_OPTIONS: dict[str, Any] = {
    "cost": flops_per_element(2),
    "controls": "memory_config dtype",
    "tuning": "math_fidelity",
    "needs_tile": True,
    "floats_only": True,
}


def _check_rows(op: str, *operands: Operand) -> None:
    for operand in operands:
        if operand.rank != 4 or operand.shape[:2] != (1, 1):
            raise MeshError(f"{op}: {operand.name} must be [1, 1, rows, columns], got {list(operand.shape)}.")


@operation(_SCAN, kind=Kind.SCAN, rule=rules.along, **_OPTIONS | {"needs_tile": False})
def prefix_scan(a: Operand, bx: Operand, h_prev: Operand) -> Local:
    """h[t] = a[t] * h[t - 1] + bx[t] down the rows of a and bx [1, 1, s, n], from h_prev [1, 1, 1, n] on.

    h_prev is one row, which may lie in row-major order.
    """
    _check_rows(_SCAN, a, bx, h_prev)
    for operand in (a, bx):
        if operand.layout is not Layout.TILE:
            raise MeshError(
                f"Inputs to {_SCAN} must be tilized: {operand.name} is {operand.layout}. "
                "Use ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)."
            )
    if a.shape != bx.shape or h_prev.shape != (1, 1, 1, a.shape[3]):
        raise MeshError(
            f"{_SCAN}: a {list(a.shape)} and bx {list(bx.shape)} must be alike, h_prev {list(h_prev.shape)} one row."
        )

    def compute(a: torch.Tensor, bx: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        rows = []
        for t in range(a.shape[-2]):
            h = a[..., t : t + 1, :] * h + bx[..., t : t + 1, :]
            rows.append(h)
        return torch.cat(rows, -2)

    return Local(compute, rules.along({3: [(0, 3), (1, 3), (2, 3)]}))


@operation(_SUM, kind=Kind.REDUCTION, rule=rules.keeping, **_OPTIONS)
def hc_sum_reduce(input: Operand) -> Local:
    """[1, 1, s, n * 32] -> [1, 1, s, n]: the sum of each 32 columns."""
    _check_rows(_SUM, input)
    if input.shape[3] % TILE_SIZE:
        raise MeshError(f"{_SUM}: the columns of {list(input.shape)} must be a multiple of {TILE_SIZE}.")
    return Local(lambda x: x.unflatten(-1, (-1, TILE_SIZE)).sum(-1), _summed_columns)


@rules.labelled(dim_labels.moved(lambda dim: dim))
def _summed_columns(at: rules.Situation) -> rules.Placement:
    word = at.word
    if isinstance(word, rules.Partial):
        return rules.linear(at)
    uneven = isinstance(word, rules.Shard) and word.dim == 3 and word.size is not None
    return rules.LOCAL if uneven else word


@operation(_PRODUCT, kind=Kind.ELEMENTWISE, rule=rules.along, **_OPTIONS)
def repeat_and_interleave_eltwise_mul(a: Operand, b: Operand) -> Local:
    """a [1, 1, s, 32], repeated n times, times b [1, 1, s, n], each column 32 times: [1, 1, s, n * 32].

    An operand that has n * 32 columns already is taken as it is: b beside an a that has, or where n is 5120, the
    size of the one model that TT-NN knows.
    """
    _check_rows(_PRODUCT, a, b)
    is_whole = b.shape[3] in (a.shape[3], _CHANNELS * TILE_SIZE)
    width = a.shape[3] if a.shape[3] != TILE_SIZE else b.shape[3] * (1 if is_whole else TILE_SIZE)
    channels = width // TILE_SIZE
    if a.shape[2] != b.shape[2] or a.shape[3] not in (TILE_SIZE, width) or b.shape[3] not in (channels, width):
        raise MeshError(
            f"{_PRODUCT}: a {list(a.shape)} must have {TILE_SIZE} columns and b {list(b.shape)} n, or either of them "
            f"n * {TILE_SIZE}."
        )

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        whole_a = a if a.shape[-1] == width else a.repeat(*(1,) * (a.dim() - 1), channels)
        whole_b = b if b.shape[-1] == width else b.repeat_interleave(TILE_SIZE, -1)
        return whole_a * whole_b

    columns: Sequence[tuple[int, int]] = [(1, 3)] if a.shape[3] != width else [(0, 3), (1, 3)]
    return Local(compute, rules.along({2: [(0, 2), (1, 2)], 3: list(columns)}))
