"""The facts of each dtype, as TT-NN states them."""

from __future__ import annotations

import pickle

import pytest
import torch

from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.tensor import dtype as d
from softmesh.tensor.dtype import DataType, Layout

TABLE = [
    # constant, name, value, bytes of an element, bytes of a tile, type on to_torch
    (d.bfloat16, "BFLOAT16", 0, 2, 2048, torch.bfloat16),
    (d.float32, "FLOAT32", 1, 4, 4096, torch.float32),
    (d.uint32, "UINT32", 2, 4, 4096, torch.uint32),
    (d.bfloat8_b, "BFLOAT8_B", 3, None, 1088, torch.float32),
    (d.bfloat4_b, "BFLOAT4_B", 4, None, 576, torch.float32),
    (d.uint8, "UINT8", 5, 1, 1024, torch.uint8),
    (d.uint16, "UINT16", 6, 2, 2048, torch.uint16),
    (d.int32, "INT32", 7, 4, 4096, torch.int32),
    (d.fp8_e4m3, "FP8_E4M3", 8, 1, 1024, torch.float8_e4m3fn),
    (d.int8, "INT8", 9, 1, 1024, torch.int8),
]
BLOCK_FORMATS = [d.bfloat8_b, d.bfloat4_b]


@pytest.mark.parametrize(("dtype", "name", "value", "element", "tile", "torch_dtype"), TABLE)
def test_each_dtype_has_the_name_value_and_sizes_of_the_table(dtype, name, value, element, tile, torch_dtype):
    assert dtype is DataType(value) is DataType[name]
    assert str(dtype) == repr(dtype) == f"DataType.{name}"
    assert d.tile_size(dtype) == tile
    assert d.FACTS[dtype].torch is torch_dtype
    if element is not None:
        assert d.element_size(dtype) == element


def test_every_dtype_but_invalid_has_facts():
    assert set(d.FACTS) == set(DataType) - {DataType.INVALID}
    assert DataType.INVALID.value == 10


def test_exactly_the_block_formats_are_block_formats():
    assert [dtype for dtype, facts in d.FACTS.items() if facts.is_block] == BLOCK_FORMATS


def test_layouts_print_as_their_names():
    assert [Layout(0), Layout(1)] == [d.ROW_MAJOR_LAYOUT, d.TILE_LAYOUT]
    assert str(Layout.TILE) == repr(Layout.TILE) == "Layout.TILE"


def test_an_enum_member_is_not_an_int():
    with pytest.raises(TypeError):
        int(DataType.BFLOAT16)


def test_an_enum_member_stays_itself_through_pickle_and_works_as_a_key():
    assert pickle.loads(pickle.dumps(d.uint16)) is d.uint16
    assert {d.uint16: 1}[DataType.UINT16] == 1


@pytest.mark.parametrize("dtype", BLOCK_FORMATS)
def test_a_block_format_has_no_element_size_and_the_error_names_the_tile_size(dtype):
    with pytest.raises(ArgumentValueError, match=str(d.tile_size(dtype))):
        d.element_size(dtype)


@pytest.mark.parametrize("size", [d.element_size, d.tile_size])
def test_sizes_are_refused_for_what_is_no_usable_dtype(size):
    with pytest.raises(ArgumentValueError, match=r"DataType\.INVALID"):
        size(DataType.INVALID)
    with pytest.raises(ArgumentError, match="expected a DataType"):
        size(torch.float32)


def test_the_torch_dtype_of_fp8_is_not_listed():
    assert d.ttnn_dtype_to_torch_dtype(d.bfloat8_b) is torch.float32
    assert d.ttnn_dtype_to_torch_dtype(d.uint32) is torch.uint32
    with pytest.raises(KeyError):
        d.ttnn_dtype_to_torch_dtype(d.fp8_e4m3)


@pytest.mark.parametrize(
    ("torch_dtype", "dtype"),
    [
        (torch.float32, d.float32),
        (torch.bfloat16, d.bfloat16),
        (torch.float16, d.bfloat16),
        (torch.int32, d.int32),
        (torch.int64, d.uint32),
        (torch.int16, d.uint16),
        (torch.uint8, d.uint8),
        (torch.int8, d.int8),
        (torch.bool, d.uint8),
        (torch.uint16, d.uint16),
        (torch.uint32, d.uint32),
    ],
)
def test_a_torch_dtype_has_its_default(torch_dtype, dtype):
    assert d.default_dtype_for(torch_dtype) is dtype


def test_float64_asks_for_an_explicit_dtype():
    with pytest.raises(ArgumentError, match=r"torch\.float64.*pass one.*dtype=ttnn\.float32"):
        d.default_dtype_for(torch.float64)


def test_an_unsupported_torch_dtype_is_refused_with_the_supported_ones():
    with pytest.raises(MeshError, match=r"torch\.complex64.*torch\.float32, torch\.bfloat16"):
        d.default_dtype_for(torch.complex64)
