"""Tile layout calls: copy or transpose tiles into registers, tilize rows, untilize tiles."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.errors import MeshError
from softmesh.kernels.calls.circular_buffers import fifo_of
from softmesh.kernels.calls.engine_init import check_packs, check_set_up
from softmesh.kernels.calls.kernel_arguments import templated
from softmesh.kernels.calls.tile_registers import registers_to_pack, unpacked, write_page
from softmesh.kernels.data_formats import faces, matrix, pack_rows, unpack_rows
from softmesh.kernels.engine.fifo import Fifo
from softmesh.kernels.engine.page_contents import check_unpacked
from softmesh.kernels.engine.scheduler import KernelThread, compute_kernel
from softmesh.tensor.dtype import FACTS
from softmesh.tensor.tile import Tile


def transpose_tile(icb: int, itile: int, idst: int) -> None:
    thread = compute_kernel("transpose_tile")
    check_set_up(thread, "transpose_tile", "transpose", (icb,))
    values, tile = unpacked(thread, "transpose_tile", icb, itile)
    turned = Tile((tile.width, tile.height))
    thread.registers.put("transpose_tile", idst, faces(matrix(values, tile).mT, turned), turned)


transpose_wh_tile = transpose_tile


def copy_tile(in_cb_id: int, in_tile_index: int, dst_tile_index: int) -> None:
    """A tile into a register."""
    thread = compute_kernel("copy_tile")
    check_set_up(thread, "copy_tile", "copy", (in_cb_id,))
    values, tile = unpacked(thread, "copy_tile", in_cb_id, in_tile_index)
    thread.registers.put("copy_tile", dst_tile_index, values, tile)


def copy_block(in_cb_id: int, start_in_tile_index: int, start_dst_tile_index: int, ntiles: int) -> None:
    for i in range(ntiles):
        copy_tile(in_cb_id, start_in_tile_index + i, start_dst_tile_index + i)


copy_block_matmul_partials = copy_block


def tilize_block(icb: int, block: int, ocb: int) -> None:
    """Rows that are `block` tiles wide, as many as a tile is tall, become `block` tiles."""
    call = "tilize_block"
    thread = compute_kernel(call)
    check_set_up(thread, call, "tilize", (icb,))
    source, target = _row_major(thread, call, icb), fifo_of(thread, call, ocb)
    check_packs(thread, call, target)
    tile = target.format.tile
    size = block * tile.get_tile_size(source.format.dtype)
    source.page_to_read(call, -(-size // source.page_size) - 1)  # all of it must have been waited for
    check_unpacked(thread, call, source, source.read_pointer)
    band = unpack_rows(thread.core.read(source.read_pointer, size), source.format.dtype, block * tile.width)
    for part in band.split(tile.width, dim=-1):
        write_page(thread, target, target.page_to_pack(call, None), faces(part, tile))


def untilize_block(icb: int, block: int, ocb: int) -> None:
    """So many tiles, side by side, become rows."""
    call = "untilize_block"
    thread = compute_kernel(call)
    check_set_up(thread, call, "untilize", (icb,))
    bands = [matrix(*unpacked(thread, call, icb, i)) for i in range(block)]
    _write_rows(thread, call, _row_major(thread, call, ocb), bands, block, 0, 0)


@templated
def pack_untilize_block(
    icb: int,
    block_rt_dim: int,
    ocb: int,
    block_c_index: int = 0,
    *,
    block_ct_dim: int = 1,
    full_ct_dim: int = 0,
) -> None:
    """`block_rt_dim` rows of `block_ct_dim` tiles, into rows that are `full_ct_dim` tiles wide."""
    call = "pack_untilize_block"
    thread = compute_kernel(call)
    check_set_up(thread, call, "untilize", (icb,))
    target = _row_major(thread, call, ocb)
    for r in range(block_rt_dim):
        bands = [matrix(*unpacked(thread, call, icb, r * block_ct_dim + c)) for c in range(block_ct_dim)]
        _write_rows(thread, call, target, bands, full_ct_dim or block_ct_dim, block_c_index * block_ct_dim, r)


@templated
def pack_untilize_dest(
    ocb: int, block_rt_dim: int = 1, block_c_index: int = 0, *, block_ct_dim: int = 1, full_ct_dim: int = 0
) -> None:
    """The same from the tile registers, from the first on."""
    call = "pack_untilize_dest"
    thread = compute_kernel(call)
    target = _row_major(thread, call, ocb)
    for r in range(block_rt_dim):
        places = range(r * block_ct_dim, (r + 1) * block_ct_dim)
        bands = [matrix(registers_to_pack(thread, call, i), thread.registers.tile(i)) for i in places]
        _write_rows(thread, call, target, bands, full_ct_dim or block_ct_dim, block_c_index * block_ct_dim, r)


def _row_major(thread: KernelThread, call: str, cb_id: int) -> Fifo:
    fifo = fifo_of(thread, call, cb_id)
    if FACTS[fifo.format.dtype].is_block:
        raise MeshError(
            f"{call}: circular buffer {int(cb_id)} holds {fifo.format.dtype}, which has no rows, only tiles."
        )
    return fifo


def _write_rows(
    thread: KernelThread,
    call: str,
    fifo: Fifo,
    bands: Sequence[torch.Tensor],
    width: int,
    first: int,
    down: int,
) -> None:
    """Tiles side by side as rows of `width` tiles, from tile column `first` and tile row `down` on."""
    check_packs(thread, call, fifo)
    band = torch.cat(list(bands), dim=-1)
    height, columns = band.shape[-2:]
    dtype, tile = fifo.format.dtype, fifo.format.tile
    per_row = tile.get_tile_size(dtype) // tile.height  # bytes of one row of one tile
    last = (down * height + height) * width * per_row
    window = fifo.reserved * fifo.page_size
    if last > window:
        raise MeshError(
            f"{call}: {last} bytes of rows do not fit the {window} bytes that were reserved in circular buffer "
            f"{fifo.index}."
        )
    if columns == width * tile.width:
        start = fifo.write_pointer + down * height * width * per_row
        thread.core.write(start, pack_rows(band, dtype))
        return
    for i in range(height):
        start = fifo.write_pointer + ((down * height + i) * width + first) * per_row
        thread.core.write(start, pack_rows(band[..., i : i + 1, :], dtype))
