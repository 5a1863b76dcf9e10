"""The matrix engine's products, which add to what is in the registers. Computed in float32."""

from __future__ import annotations

from functools import cache

import torch

from softmesh.kernels.calls.inits import check_set_up
from softmesh.kernels.calls.operands import operand_matrix
from softmesh.kernels.engine.thread import KernelThread, computer
from softmesh.kernels.engine.tiles import faces
from softmesh.tensor.tile import Tile


def matmul_tiles(
    in0_cb_id: int,
    in1_cb_id: int,
    in0_tile_index: int,
    in1_tile_index: int,
    idst: int,
    transpose: bool = False,
) -> None:
    """The product of two tiles, added to what is in the register."""
    thread = computer("matmul_tiles")
    check_set_up(thread, "matmul_tiles", "matmul")
    a = operand_matrix(thread, "matmul_tiles", in0_cb_id, in0_tile_index)
    b = operand_matrix(thread, "matmul_tiles", in1_cb_id, in1_tile_index)
    _accumulate(thread, "matmul_tiles", idst, a @ (b.mT if transpose else b))


def matmul_block(
    in0_cb_id: int,
    in1_cb_id: int,
    in0_tile_index: int,
    in1_tile_index: int,
    idst: int,
    transpose: bool,
    ct_dim: int,
    rt_dim: int,
    kt_dim: int,
) -> None:
    """One step of a product of blocks: a column of `rt_dim` tiles, `kt_dim` apart, times a row of `ct_dim` tiles.

    Adds to `rt_dim * ct_dim` registers from `idst` on, row by row.
    """
    call = "matmul_block"
    thread = computer(call)
    check_set_up(thread, call, "matmul")
    column = [operand_matrix(thread, call, in0_cb_id, in0_tile_index + r * kt_dim) for r in range(rt_dim)]
    row = [operand_matrix(thread, call, in1_cb_id, in1_tile_index + c) for c in range(ct_dim)]
    right = [tile.mT if transpose else tile for tile in row]
    product = torch.cat(column, dim=-2) @ torch.cat(right, dim=-1)
    for r, band in enumerate(product.split(column[0].shape[-2], dim=-2)):
        for c, part in enumerate(band.split(right[0].shape[-1], dim=-1)):
            _accumulate(thread, call, idst + r * ct_dim + c, part)


def _accumulate(thread: KernelThread, call: str, idst: int, product: torch.Tensor) -> None:
    tile = _tile(*product.shape[-2:])
    values, before = faces(product, tile), thread.registers.get(call, idst)
    thread.registers.put(call, idst, values if before is None else before + values, tile)


@cache
def _tile(height: int, width: int) -> Tile:
    return Tile((height, width))
