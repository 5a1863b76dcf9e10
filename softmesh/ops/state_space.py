"""The steps of a state-space model (Mamba) whose state has 32 columns for each channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.placement import rules
from softmesh.tensor.dtype import TILE_SIZE

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


@operation(_SCAN, **_OPTIONS)
def prefix_scan(a: Operand, bx: Operand, h_prev: Operand) -> Local:
    """h[t] = a[t] * h[t - 1] + bx[t] down the rows of a and bx [1, 1, s, n], from h_prev [1, 1, 1, n] on."""
    _check_rows(_SCAN, a, bx, h_prev)
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


@operation(_SUM, **_OPTIONS)
def hc_sum_reduce(input: Operand) -> Local:
    """[1, 1, s, n * 32] -> [1, 1, s, n]: the sum of each 32 columns."""
    _check_rows(_SUM, input)
    if input.shape[3] % TILE_SIZE:
        raise MeshError(f"{_SUM}: the columns of {list(input.shape)} must be a multiple of {TILE_SIZE}.")
    return Local(lambda x: x.unflatten(-1, (-1, TILE_SIZE)).sum(-1), _summed_columns)


def _summed_columns(at: rules.Situation) -> rules.Placement:
    word = at.word
    if isinstance(word, rules.Partial):
        return rules.linear(at)
    uneven = isinstance(word, rules.Shard) and word.dim == 3 and word.size is not None
    return rules.LOCAL if uneven else word


@operation(_PRODUCT, **_OPTIONS)
def repeat_and_interleave_eltwise_mul(a: Operand, b: Operand) -> Local:
    """a [1, 1, s, 32], repeated n times, times b [1, 1, s, n], each column 32 times: [1, 1, s, n * 32].

    An operand that has n * 32 columns already is taken as it is: b beside an a that has, or where n is 5120, the
    size of the one model that TT-NN knows.
    """
    _check_rows(_PRODUCT, a, b)
    is_whole = b.shape[3] in (a.shape[3], _CHANNELS * TILE_SIZE)
    width = a.shape[3] if a.shape[3] != TILE_SIZE else b.shape[3] * (1 if is_whole else TILE_SIZE)
    channels = width // TILE_SIZE
    if (
        a.shape[2] != b.shape[2]
        or a.shape[3] not in (TILE_SIZE, width)
        or b.shape[3] not in (channels, width)
    ):
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
