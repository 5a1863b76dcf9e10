"""The matrix engine's reductions: rows, columns or all of a tile together."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import torch

from softmesh.kernels.calls.inits import check_set_up
from softmesh.kernels.calls.operands import operand
from softmesh.kernels.calls.template import templated
from softmesh.kernels.engine.thread import computer
from softmesh.kernels.engine.tiles import faces, matrix


class PoolType(Enum):
    SUM = 0
    AVG = 1
    MAX = 2
    MIN = 3


class ReduceDim(Enum):
    """ROW takes each row together into column 0, COL each column into row 0, SCALAR everything into one value."""

    REDUCE_ROW = 0
    REDUCE_COL = 1
    REDUCE_SCALAR = 2


_ALONG = {
    ReduceDim.REDUCE_ROW: (-1,),
    ReduceDim.REDUCE_COL: (-2,),
    ReduceDim.REDUCE_SCALAR: (-2, -1),
}


@templated
def reduce_tile(
    icb: int,
    icb_scaler: int,
    itile: int,
    itile_scaler: int,
    idst: int,
    *,
    reduce_type: PoolType = PoolType.SUM,
    reduce_dim: ReduceDim = ReduceDim.REDUCE_SCALAR,
) -> None:
    """Rows, columns or all of a tile together, times the scaler, joined with what is in the register.

    The scaler is the first value of its tile: 1 for a sum or an extreme, 1/n for an average.
    """
    thread = computer("reduce_tile")
    check_set_up(thread, "reduce_tile", "reduce")
    values, tile = operand(thread, "reduce_tile", icb, itile)
    scaler, _ = operand(thread, "reduce_tile", icb_scaler, itile_scaler)
    result = _pooled(matrix(values, tile), reduce_type, _ALONG[reduce_dim]) * scaler[..., :1, None]
    whole = torch.zeros(*result.shape[:-2], tile.height, tile.width, device=result.device)
    whole[..., : result.shape[-2], : result.shape[-1]] = result
    values, before = faces(whole, tile), thread.registers.get("reduce_tile", idst)
    joined = values if before is None else _JOIN.get(reduce_type, torch.add)(before, values)
    thread.registers.put("reduce_tile", idst, joined, tile)


_JOIN: dict[PoolType, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    PoolType.MAX: torch.maximum,
    PoolType.MIN: torch.minimum,
}


def _pooled(values: torch.Tensor, kind: PoolType, dims: tuple[int, ...]) -> torch.Tensor:
    if kind is PoolType.MAX:
        return values.amax(dims, keepdim=True)
    if kind is PoolType.MIN:
        return values.amin(dims, keepdim=True)
    return values.sum(dims, keepdim=True)
