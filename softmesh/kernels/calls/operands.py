"""What the matrix engine takes: tiles from circular buffers, as floats."""

from __future__ import annotations

import torch

from softmesh.errors import MeshError
from softmesh.kernels.calls.tile_registers import unpacked
from softmesh.kernels.engine.thread import KernelThread
from softmesh.kernels.engine.tiles import matrix
from softmesh.tensor.tile import Tile


def operand(thread: KernelThread, call: str, cb_id: int, index: int) -> tuple[torch.Tensor, Tile]:
    values, tile = unpacked(thread, call, cb_id, index)
    if not values.is_floating_point():
        raise MeshError(
            f"{call}: circular buffer {int(cb_id)} holds integers, and the matrix engine computes floats: copy_tile "
            "and the integer ops of the vector unit (add_int_tile, ...) take them."
        )
    return values, tile


def operand_matrix(thread: KernelThread, call: str, cb_id: int, index: int) -> torch.Tensor:
    return matrix(*operand(thread, call, cb_id, index))
