"""Tiles that a data movement kernel makes itself: the scaler of a reduction."""

from __future__ import annotations

import torch

from softmesh.kernels.calls.circular_buffers import cb_push_back, cb_reserve_back, fifo_of
from softmesh.kernels.engine.thread import here
from softmesh.kernels.engine.tiles import pack


def generate_reduce_scaler(cb_id: int, scaler: int) -> None:
    """Push one tile whose values are the upper half of `scaler`, a bfloat16 packed twice into a word."""
    thread = here("generate_reduce_scaler")
    cb_reserve_back(cb_id, 1)
    fifo = fifo_of(thread, "generate_reduce_scaler", cb_id)
    tile, chip = fifo.format.tile, thread.core.chip
    value = torch.tensor([scaler >> 16], dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    values = value.to(chip.mesh.torch_device).expand(*(1,) * chip.rank, tile.height * tile.width)
    thread.core.write(fifo.write_pointer, pack(values, fifo.format.dtype, tile))
    cb_push_back(cb_id, 1)
