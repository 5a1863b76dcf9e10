"""Data formats of circular buffers: TT-Metalium's names for TT-NN's data types, and packing and unpacking of tiles."""

from __future__ import annotations

from enum import IntEnum

import torch

from softmesh.arguments import described, refused
from softmesh.errors import NotModelled
from softmesh.hardware.enums import NativeEnum
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import FACTS, DataType
from softmesh.tensor.page_bytes import by_faces, element_bytes, from_faces, pack_faces, unpack_faces
from softmesh.tensor.tile import Tile


class DataFormat(NativeEnum):
    Float32 = 0
    Float16 = 1
    Bfp8 = 2
    Bfp4 = 3
    Tf32 = 4
    Float16_b = 5
    Bfp8_b = 6
    Bfp4_b = 7
    Int32 = 8
    UInt16 = 9
    Lf8 = 10
    Bfp2 = 11
    Int8 = 14
    Bfp2_b = 15
    UInt32 = 24
    Fp8_e4m3 = 26
    UInt8 = 30
    Invalid = 255


_DTYPES = {
    DataFormat.Float32: DataType.FLOAT32,
    DataFormat.Float16_b: DataType.BFLOAT16,
    DataFormat.Bfp8_b: DataType.BFLOAT8_B,
    DataFormat.Bfp4_b: DataType.BFLOAT4_B,
    DataFormat.Int32: DataType.INT32,
    DataFormat.UInt16: DataType.UINT16,
    DataFormat.UInt32: DataType.UINT32,
    DataFormat.UInt8: DataType.UINT8,
    DataFormat.Int8: DataType.INT8,
    DataFormat.Fp8_e4m3: DataType.FP8_E4M3,
}
_FORMATS = {dtype: format for format, dtype in _DTYPES.items()}

# The indexes of circular buffers, as C++ names them: CBIndex.c_0 and so on.
CBIndex = IntEnum("CBIndex", [(f"c_{i}", i) for i in range(64)])  # type: ignore[misc]


def datatype_to_dataformat_converter(datatype: DataType) -> DataFormat:
    if datatype not in _FORMATS:
        raise refused("datatype_to_dataformat_converter", f"datatype must be a DataType, got {described(datatype)}")
    return _FORMATS[datatype]


def dtype_of(where: str, format: object) -> DataType:
    """The data type that a format holds; data types themselves will do."""
    if isinstance(format, DataType) and format in _FORMATS:
        return format
    if not isinstance(format, DataFormat):
        raise refused(where, f"a data format is a DataFormat or a ttnn.DataType, got {described(format)}")
    if format not in _DTYPES:
        known = ", ".join(one.name for one in _DTYPES)
        raise NotModelled(f"{where}: {format} is not modelled; take one of {known}.")
    return _DTYPES[format]


# Unpacker and packer. Numbers are float32, or int64 for integer formats. A tile is `(*mesh, elements)` in the order
# of memory, face after face, as long as an op does not care; `matrix` and `faces` convert to `(*mesh, height, width)`
# and back.


matrix, faces = from_faces, by_faces


def unpack(data: torch.Tensor, dtype: DataType, tile: Tile) -> torch.Tensor:
    """The tile in these bytes."""
    if FACTS[dtype].is_block:
        return unpack_faces(data, dtype, tile).float()
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
