"""Data formats of circular buffers, by the names that TT-Metalium has for the data types of TT-NN."""

from __future__ import annotations

from enum import IntEnum

from softmesh.arguments import described, refused
from softmesh.errors import NotModelled
from softmesh.native_enum import NativeEnum
from softmesh.tensor.dtype import DataType


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
        raise refused(
            "datatype_to_dataformat_converter", f"datatype must be a DataType, got {described(datatype)}"
        )
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
