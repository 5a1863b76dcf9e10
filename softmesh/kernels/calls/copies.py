"""Tiles into registers, as they are or transposed; of every format, integers included."""

from __future__ import annotations

from softmesh.kernels.calls.inits import check_set_up
from softmesh.kernels.calls.tile_registers import unpacked
from softmesh.kernels.engine.thread import computer
from softmesh.kernels.engine.tiles import faces, matrix
from softmesh.tensor.tile import Tile


def transpose_tile(icb: int, itile: int, idst: int) -> None:
    thread = computer("transpose_tile")
    check_set_up(thread, "transpose_tile", "transpose")
    values, tile = unpacked(thread, "transpose_tile", icb, itile)
    turned = Tile((tile.width, tile.height))
    thread.registers.put("transpose_tile", idst, faces(matrix(values, tile).mT, turned), turned)


transpose_wh_tile = transpose_tile


def copy_tile(in_cb_id: int, in_tile_index: int, dst_tile_index: int) -> None:
    """A tile into a register."""
    thread = computer("copy_tile")
    check_set_up(thread, "copy_tile", "copy")
    values, tile = unpacked(thread, "copy_tile", in_cb_id, in_tile_index)
    thread.registers.put("copy_tile", dst_tile_index, values, tile)


def copy_block(in_cb_id: int, start_in_tile_index: int, start_dst_tile_index: int, ntiles: int) -> None:
    for i in range(ntiles):
        copy_tile(in_cb_id, start_in_tile_index + i, start_dst_tile_index + i)


copy_block_matmul_partials = copy_block
