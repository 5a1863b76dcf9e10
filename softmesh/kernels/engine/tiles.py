"""What the unpackers and the packer do: bytes of a data format to numbers the engines compute with, and back.

Numbers are float32, or int64 for integer formats. A tile is `(*mesh, elements)` in the order of memory, face
after face, as long as an op does not care; `matrix` and `faces` lead to `(*mesh, height, width)` and back.
"""

from __future__ import annotations

import torch

from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import FACTS, DataType
from softmesh.tensor.tile import Tile
from softmesh.tensor.tile_bytes import by_faces, element_bytes, from_faces, pack_faces, unpack_faces

matrix, faces = from_faces, by_faces


def unpack(data: torch.Tensor, dtype: DataType, tile: Tile) -> torch.Tensor:
    """The tile in these bytes."""
    if FACTS[dtype].is_block:
        return unpack_faces(data, dtype, tile)
    return _numbers(data, dtype)


def pack(values: torch.Tensor, dtype: DataType, tile: Tile) -> torch.Tensor:
    """The bytes of a tile, its values rounded to the format."""
    return pack_faces(round_to(values, dtype), dtype, tile)


def unpack_rows(data: torch.Tensor, dtype: DataType, width: int) -> torch.Tensor:
    """Rows of so many elements."""
    return _numbers(data, dtype).unflatten(-1, (-1, width))


def pack_rows(values: torch.Tensor, dtype: DataType) -> torch.Tensor:
    return element_bytes(round_to(values, dtype), dtype).flatten(-3)


def _numbers(data: torch.Tensor, dtype: DataType) -> torch.Tensor:
    known = FACTS[dtype]
    size = known.bits // 8
    if any(step % size for step in (data.storage_offset(), *data.stride()[:-1])):
        data = data.contiguous()
    values = data.view(known.torch)
    return values.float() if known.is_float else values.to(torch.int64)
