"""Tile register calls: acquire, commit, wait and release DST, and pack registers into circular buffers."""

from __future__ import annotations

import torch

from softmesh.errors import MeshError
from softmesh.kernels.calls.circular_buffers import fifo_of
from softmesh.kernels.calls.engine_init import check_packs
from softmesh.kernels.calls.kernel_arguments import templated
from softmesh.kernels.data_formats import pack, unpack
from softmesh.kernels.engine.dst_registers import RegisterOwner
from softmesh.kernels.engine.fifo import Fifo
from softmesh.kernels.engine.page_contents import Content, check_stored, check_unpacked
from softmesh.kernels.engine.scheduler import KernelThread, compute_kernel
from softmesh.tensor.tile import Tile


def _passes(call: str, expected: RegisterOwner, then: RegisterOwner) -> None:
    compute_kernel(call).registers.hand_over(call, expected, then)


def tile_regs_acquire() -> None:
    """Math takes the registers, all zero."""
    _passes("tile_regs_acquire", RegisterOwner.NOBODY, RegisterOwner.MATH)


def tile_regs_commit() -> None:
    """Math is done with them."""
    _passes("tile_regs_commit", RegisterOwner.MATH, RegisterOwner.BETWEEN)


def tile_regs_wait() -> None:
    """The packer takes them."""
    _passes("tile_regs_wait", RegisterOwner.BETWEEN, RegisterOwner.PACK)


def tile_regs_release() -> None:
    """The packer is done with them."""
    _passes("tile_regs_release", RegisterOwner.PACK, RegisterOwner.NOBODY)


def acquire_dst() -> None:
    """The older way: math and packer hold them together."""
    _passes("acquire_dst", RegisterOwner.NOBODY, RegisterOwner.BOTH)


def release_dst() -> None:
    _passes("release_dst", RegisterOwner.BOTH, RegisterOwner.NOBODY)


def unpacked(thread: KernelThread, call: str, cb_id: int, index: int) -> tuple[torch.Tensor, Tile]:
    """The values of a tile in the window at the front of a circular buffer."""
    fifo = fifo_of(thread, call, cb_id)
    dtype, tile = fifo.format.dtype, fifo.format.tile
    address = fifo.page_to_read(call, index)
    check_unpacked(thread, call, fifo, address)
    return unpack(thread.core.read(address, tile.get_tile_size(dtype)), dtype, tile), tile


def in_register(thread: KernelThread, call: str, index: int) -> torch.Tensor:
    """The values of a register that math goes on with; zero where nothing was put, which is told."""
    return _defined(thread, call, index, thread.registers.get(call, index))


def _defined(thread: KernelThread, call: str, index: int, values: torch.Tensor | None) -> torch.Tensor:
    if values is not None:
        return values
    chip = thread.core.chip
    thread.complain(
        f"register of {call}",
        f"{call}: nothing has been put into tile register {index} since tile_regs_acquire(): on a chip it holds zeros, "
        "or what was there before. Let an op or copy_tile fill it, fill_tile for a constant.",
    )
    tile = thread.registers.tile(index)
    return torch.zeros(*(1,) * chip.rank, tile.height * tile.width, device=chip.mesh.torch_device)


@templated
def pack_tile(
    ifrom_dst: int, icb: int, output_tile_index: int | None = None, *, out_of_order_output: bool = False
) -> None:
    """A register to the next page of the window at the back, or to the page that is given."""
    thread = compute_kernel("pack_tile")
    index = 0 if out_of_order_output and output_tile_index is None else output_tile_index
    _pack(thread, "pack_tile", ifrom_dst, fifo_of(thread, "pack_tile", icb), index)


def pack_tile_block(ifrom_dst: int, icb: int, ntiles: int) -> None:
    """So many registers, one after the other."""
    thread = compute_kernel("pack_tile_block")
    fifo = fifo_of(thread, "pack_tile_block", icb)
    for i in range(ntiles):
        _pack(thread, "pack_tile_block", ifrom_dst + i, fifo, None)


def registers_to_pack(thread: KernelThread, call: str, index: int) -> torch.Tensor:
    return _defined(thread, call, index, thread.registers.to_pack(call, index))


def _pack(thread: KernelThread, call: str, register: int, fifo: Fifo, index: int | None) -> None:
    check_packs(thread, call, fifo)
    fifo.check_pushed(thread)
    values = registers_to_pack(thread, call, register)
    made, tile = thread.registers.tile(register), fifo.format.tile
    if (made.height, made.width) != (tile.height, tile.width):
        raise MeshError(
            f"Circular buffer {fifo.index} holds tiles of {tile.height}x{tile.width}, the register one of "
            f"{made.height}x{made.width}."
        )
    write_page(thread, fifo, fifo.page_to_pack(call, index), values)


def write_page(thread: KernelThread, fifo: Fifo, address: int, values: torch.Tensor) -> None:
    """Round values to the format of a circular buffer and put them there, or add them to what is there."""
    dtype, tile = fifo.format.dtype, fifo.format.tile
    if thread.registers.adds_in_l1:
        values = values + unpack(thread.core.read(address, tile.get_tile_size(dtype)), dtype, tile)
    content = Content(dtype, is_packed=True)
    check_stored(thread, "pack_tile", content, thread.core.content_at(address) if fifo.is_aliased else None)
    packed = pack(values, dtype, tile)
    thread.core.write(address, packed)
    thread.core.note_content(address, packed.shape[-1], content)


def pack_reconfig_l1_acc(l1_acc_en: int) -> None:
    """Whether the packer adds to what is in memory (1) or overwrites it (0)."""
    compute_kernel("pack_reconfig_l1_acc").registers.adds_in_l1 = bool(l1_acc_en)
