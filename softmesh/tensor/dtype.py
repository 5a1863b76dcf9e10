"""Data types and layouts: their short names, their sizes, and the torch types that hold their values.

The enums themselves are hardware values (`hardware.enums`). Knows facts per dtype and nothing else: how values are
converted and block floats rounded is in `convert`, how tiles pad a shape is in `tile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import dtype as TorchDtype

from softmesh.arguments import checked
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.hardware.enums import DataType, Layout

TILE_SIZE = 32

bfloat16 = DataType.BFLOAT16
float32 = DataType.FLOAT32
uint32 = DataType.UINT32
bfloat8_b = DataType.BFLOAT8_B
bfloat4_b = DataType.BFLOAT4_B
uint8 = DataType.UINT8
uint16 = DataType.UINT16
int32 = DataType.INT32
fp8_e4m3 = DataType.FP8_E4M3
int8 = DataType.INT8

ROW_MAJOR_LAYOUT = Layout.ROW_MAJOR
TILE_LAYOUT = Layout.TILE


@dataclass(frozen=True, slots=True)
class DtypeFacts:
    """What the rest of softmesh asks about a dtype.

    `storage` is the torch type softmesh computes in: one with a full set of torch ops, wide enough
    for every value. `exact_storage` says that any value of that torch type is a value of the dtype,
    so nothing is left to round or wrap. `torch` is the type `to_torch` gives. `bits` counts the bits
    of an element, or of a block-float element without its share of the common exponent.
    """

    bits: int
    storage: TorchDtype
    torch: TorchDtype
    is_float: bool
    exact_storage: bool
    mantissa_bits: int | None = None  # of a block float
    is_block: bool = False


def _float(bits: int, storage: TorchDtype) -> DtypeFacts:
    return DtypeFacts(bits, storage, storage, is_float=True, exact_storage=True)


def _block_float(bits: int) -> DtypeFacts:
    """Held in bfloat16, whose eight bits of mantissa and whose exponents have room for all of their values."""
    stored, given = torch.bfloat16, torch.float32
    return DtypeFacts(bits, stored, given, is_float=True, exact_storage=False, mantissa_bits=bits - 1, is_block=True)


def _integer(bits: int, storage: TorchDtype, torch_dtype: TorchDtype) -> DtypeFacts:
    return DtypeFacts(bits, storage, torch_dtype, is_float=False, exact_storage=storage is torch_dtype)


# torch has few ops for uint16 and uint32: their values live, wrapped into range, in the next wider
# signed type.
FACTS: Mapping[DataType, DtypeFacts] = MappingProxyType(
    {
        DataType.BFLOAT16: _float(16, torch.bfloat16),
        DataType.FLOAT32: _float(32, torch.float32),
        DataType.UINT32: _integer(32, torch.int64, torch.uint32),
        DataType.BFLOAT8_B: _block_float(8),
        DataType.BFLOAT4_B: _block_float(4),
        DataType.UINT8: _integer(8, torch.uint8, torch.uint8),
        DataType.UINT16: _integer(16, torch.int32, torch.uint16),
        DataType.INT32: _integer(32, torch.int32, torch.int32),
        DataType.FP8_E4M3: DtypeFacts(8, torch.float32, torch.float8_e4m3fn, is_float=True, exact_storage=False),
        DataType.INT8: _integer(8, torch.int8, torch.int8),
    }
)

_TORCH_DTYPES: dict[DataType, TorchDtype] = {
    dtype: known.torch for dtype, known in FACTS.items() if dtype is not DataType.FP8_E4M3
}

_DEFAULT_DTYPES = {
    torch.float32: DataType.FLOAT32,
    torch.bfloat16: DataType.BFLOAT16,
    torch.float16: DataType.BFLOAT16,
    torch.int64: DataType.UINT32,
    torch.int32: DataType.INT32,
    torch.int16: DataType.UINT16,
    torch.int8: DataType.INT8,
    torch.uint8: DataType.UINT8,
    torch.uint16: DataType.UINT16,
    torch.uint32: DataType.UINT32,
    torch.bool: DataType.UINT8,
}

_FLOAT8_CODES = {
    torch.float8_e4m3fn: 10,
    torch.float8_e4m3fnuz: 11,
    torch.float8_e5m2: 12,
    torch.float8_e5m2fnuz: 13,
}


def facts(dtype: DataType) -> DtypeFacts:
    """The facts of a dtype that a caller handed in; inside softmesh, `FACTS[dtype]` is enough."""
    if not isinstance(dtype, DataType):
        raise ArgumentError(f"expected a DataType such as ttnn.bfloat16, got {dtype!r}")
    if dtype is DataType.INVALID:
        raise ArgumentValueError(f"{dtype} has no size and holds no values; choose a dtype such as bfloat16")
    return FACTS[dtype]


def block_bytes(dtype: DataType, elements: int, exponents: int) -> int:
    """Bytes of a tile; only the block formats store `exponents`, one byte each, beside the elements.

    >>> block_bytes(bfloat8_b, 32 * 32, exponents=64)
    1088
    """
    known = facts(dtype)
    return elements * known.bits // 8 + (exponents if known.is_block else 0)


def element_size(dtype: DataType) -> int:
    """Bytes of one element.

    >>> element_size(bfloat16)
    2
    """
    known = facts(dtype)
    if known.is_block:
        raise ArgumentValueError(
            f"{dtype} has no element size: elements share exponents, so only whole tiles have one; "
            f"a 32x32 tile takes tile_size({dtype}) == {tile_size(dtype)} bytes"
        )
    return known.bits // 8


def tile_size(dtype: DataType) -> int:
    """Bytes of a 32x32 tile.

    >>> tile_size(bfloat8_b)
    1088
    """
    return block_bytes(dtype, TILE_SIZE * TILE_SIZE, exponents=TILE_SIZE * TILE_SIZE // 16)


def ttnn_dtype_to_torch_dtype(dtype: DataType) -> TorchDtype:
    """The torch type `to_torch` gives for a dtype; TT-NN lists none for fp8_e4m3 (KeyError)."""
    checked("ttnn_dtype_to_torch_dtype", "dtype", dtype, DataType, "a ttnn.DataType such as ttnn.bfloat16")
    return _TORCH_DTYPES[dtype]


def default_dtype_for(torch_dtype: TorchDtype) -> DataType:
    """The dtype `from_torch` chooses when none is given.

    >>> default_dtype_for(torch.int64)
    DataType.UINT32
    """
    if torch_dtype in _DEFAULT_DTYPES:
        return _DEFAULT_DTYPES[torch_dtype]
    if torch_dtype is torch.float64:
        raise ArgumentError("torch.float64 has no dtype of its own; pass one, for example dtype=ttnn.float32")
    names = ", ".join(map(str, _DEFAULT_DTYPES))
    raise MeshError(
        f"get_ttnn_datatype_from_dtype: got unexpected dlpack dtype. code: {_dlpack_code(torch_dtype)}, bits: "
        f"{torch_dtype.itemsize * 8}: {torch_dtype} cannot become a tensor; convert it first to one of {names}"
    )


def _dlpack_code(torch_dtype: TorchDtype) -> int:
    """How DLPack numbers the kinds of numbers that no dtype is made of: complex ones, eight-bit floats, integers."""
    if torch_dtype.is_complex:
        return 5
    if not torch_dtype.is_floating_point:
        return 1 if torch_dtype is torch.uint64 else 0
    return _FLOAT8_CODES.get(torch_dtype, 2)
