"""Every row of the table of host conversions, and what an op's result becomes."""

from __future__ import annotations

import math

import pytest
import torch

from softmesh.errors import ArgumentError
from softmesh.tensor.convert import from_storage, round_to, to_storage
from softmesh.tensor.dtype import (
    FACTS,
    DataType,
    bfloat4_b,
    bfloat8_b,
    bfloat16,
    float32,
    fp8_e4m3,
    int8,
    int32,
    uint8,
    uint16,
    uint32,
)

INTEGERS = {uint8: (0, 255), uint16: (0, 65535), uint32: (0, 2**32 - 1), int8: (-128, 127)}
INTEGERS[int32] = (-(2**31), 2**31 - 1)
TORCH_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def from_torch(values: object, dtype: DataType, torch_dtype: torch.dtype | None = None) -> list[float]:
    """As `ttnn.from_torch` converts; sixty-four equal copies so that vector code runs too."""
    t = torch.tensor(values, dtype=torch_dtype)
    rows = to_storage(t.expand(64, -1), dtype)
    assert rows.dtype is FACTS[dtype].storage
    assert all(row == rows[0].tolist() for row in rows.tolist())
    return rows[0].tolist()


def wrapped(value: int, dtype: DataType) -> int:
    low, high = INTEGERS[dtype]
    return (value - low) % (high - low + 1) + low


def test_float_to_bfloat16_rounds_to_nearest_even_like_torch():
    values = torch.tensor([1.00390625, 1.01171875, -3.1415927, 1e-40, math.inf])
    stored = to_storage(values, bfloat16)
    assert torch.equal(stored.view(torch.int16), values.to(torch.bfloat16).view(torch.int16))
    assert stored[:2].tolist() == [1.0, 1.015625]


def float32_of(*bits: int) -> torch.Tensor:
    return torch.tensor([b - (1 << 32) if b >> 31 else b for b in bits], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize("width", [1, 64])
def test_any_nan_becomes_the_plain_one_of_bfloat16(width: int):
    nans = float32_of(0x7F800001, 0xFFC12345, 0x7FFFFFFF, 0xFF800001).repeat_interleave(width)
    stored = to_storage(torch.cat([nans, torch.ones(3)]), bfloat16).view(torch.int16)
    assert stored.tolist() == [0x7FC0] * (4 * width) + [0x3F80] * 3


@pytest.mark.parametrize(
    ("dtype", "kept", "vanishing"),
    [
        (bfloat8_b, (0x7F810001, 0xFF81FFFF, 0x7FC00000), (0x7F810000, 0x7F800001)),
        (bfloat4_b, (0x7F900001, 0x7FA00000), (0x7F900000, 0x7F800001)),
    ],
)
def test_block_formats_round_nans_like_numbers(dtype: DataType, kept: tuple[int, ...], vanishing: tuple[int, ...]):
    assert to_storage(float32_of(*kept), dtype).isnan().all()
    assert (to_storage(float32_of(*vanishing), dtype) == math.inf).all()
    assert (to_storage(float32_of(*(bits | 1 << 31 for bits in vanishing)), dtype) == -math.inf).all()


def test_from_torch_float32_to_uint16_truncates_then_clamps():
    values = [300.7, -3.5, -0.5, 65535.9, 70000.0, math.inf, -math.inf, math.nan]
    assert from_torch(values, uint16) == [300, 0, 0, 65535, 65535, 0, 0, 0]


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (uint8, [255, 0, 0, 0, 0]),
        (int8, [127, -3, -128, -128, -128]),
        (uint16, [300, 0, 0, 0, 0]),
        (uint32, [300, 4294967293, 3_000_000_000, 2**31, 2**31]),
        (int32, [300, -3, -(2**31), -(2**31), -(2**31)]),
    ],
)
@pytest.mark.parametrize("torch_dtype", [torch.float32, torch.bfloat16])
def test_from_torch_float_to_integers_goes_through_int32_and_is_bounded(dtype, stored, torch_dtype):
    values = [300.7, -3.5, 3e9, math.inf, math.nan]
    exact = torch.tensor(values, dtype=torch_dtype)[2].item()
    if dtype is uint32:
        stored = [*stored[:2], int(exact), *stored[3:]]
    assert from_torch(values, dtype, torch_dtype) == stored


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("value", [2.5, -2.2, 40000.0, -70000.0, 3e9, -1e12, 2.0**60, 2.0**100, -(2.0**127)])
def test_results_of_ops_are_truncated_and_wrap_for_all_integers(dtype, value):
    data = torch.tensor([value])
    assert round_to(data, dtype).tolist() == [wrapped(int(data.item()), dtype)]


@pytest.mark.parametrize("torch_dtype", [torch.float64, torch.float16])
def test_what_torch_converts_wraps(torch_dtype):
    assert from_torch([-2.2, 3.7], uint16, torch_dtype) == [65534, 3]


@pytest.mark.parametrize("torch_dtype", [torch.float64, torch.float16])
def test_what_torch_converts_is_bfloat16_before_it_is_a_block_format(torch_dtype):
    assert from_torch([63.875], bfloat8_b, torch_dtype) == [64.0]
    assert from_torch([63.875], bfloat8_b, torch.float32) == [63.5]
    assert to_storage(torch.tensor([63.875]), bfloat8_b, torch_converts=True).tolist() == [64.0]


@pytest.mark.parametrize(
    ("torch_dtype", "pad_value", "stored"),
    [
        (torch.uint8, -1, [0, 2, 4]),
        (torch.uint8, 1000, [0, 2, 4]),
        (torch.uint8, math.inf, [1, 2, 3]),
        (torch.uint8, 1.5, [1, 2, 3]),
        (torch.uint32, -1, [0, 0, 0]),
        (torch.float32, 1000, [0, 0, 0]),
        (torch.float32, math.inf, [0, 0, 0]),
        (torch.int32, math.inf, [0, 0, 0]),
    ],
)
def test_the_pad_value_is_one_of_the_source_type(torch_dtype, pad_value, stored):
    values = torch.tensor([[1, 2, 3]]).to(torch_dtype)
    assert to_storage(values, bfloat8_b, pad_value=pad_value).tolist() == [stored]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_become_the_lowest_int32(value):
    assert from_torch([value], int32) == [-2147483648]


@pytest.mark.parametrize("dtype", [uint8, int8, uint16, uint32])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_wrap_to_zero_in_other_integers(dtype, value):
    assert round_to(torch.tensor([value]), dtype).tolist() == [0]


def test_int64_keeps_its_low_thirty_two_bits():
    values = [-1, 2**32 + 5, 2**31, -(2**63)]
    assert from_torch(values, int32) == [-1, 5, -(2**31), 0]
    assert from_torch(values, uint32) == [2**32 - 1, 5, 2**31, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("torch_dtype", [torch.int16, torch.int32, torch.int64])
def test_integers_wrap_into_narrower_integers(dtype, torch_dtype):
    values = [-1, -32768, 32767, 300, -129]
    assert from_torch(values, dtype, torch_dtype) == [wrapped(v, dtype) for v in values]


@pytest.mark.parametrize("dtype", FACTS)
@pytest.mark.parametrize("torch_dtype", TORCH_DTYPES)
def test_zero_and_one_survive_every_pair_of_types(dtype, torch_dtype):
    values = torch.tensor([0, 1]).to(torch_dtype)
    stored = to_storage(values, dtype)
    assert stored.dtype is FACTS[dtype].storage
    assert stored.tolist() == [0, 1]
    returned = from_storage(stored, dtype)
    assert returned.dtype is FACTS[dtype].torch
    assert returned.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_extremes_of_an_integer_type_survive_the_way_in_and_out(dtype):
    extremes = list(INTEGERS[dtype])
    original = torch.tensor(extremes).to(FACTS[dtype].torch)
    stored = to_storage(original, dtype)
    assert stored.tolist() == extremes
    assert from_storage(stored, dtype).tolist() == extremes


def test_a_block_format_rounds_float32_without_passing_through_bfloat16():
    values = torch.tensor([1.6, 2.5])
    assert to_storage(values, bfloat8_b).tolist() == [1.59375, 2.5]
    assert round_to(values, bfloat4_b).tolist() == [1.5, 2.5]
    # through bfloat16 it would become 1.0078125, a tie, and then 1.0
    assert round_to(torch.tensor([1.008]), bfloat8_b).tolist() == [1.015625]


def test_bfloat16_is_widened_before_it_becomes_a_block_format():
    values = torch.tensor([1.6, 2.5], dtype=torch.bfloat16)
    assert round_to(values, bfloat8_b).tolist() == [1.59375, 2.5]


def test_the_pad_value_reaches_the_block_rounding():
    values = torch.full((1, 3), 0.01)
    stored = to_storage(values, bfloat8_b, pad_value=1000.0)
    assert stored.tolist() == [[0.0, 0.0, 0.0]]


def test_fp8_rounds_as_torch_does_and_leaves_as_torch_fp8():
    values = torch.tensor([1.06, -0.3, 448.0])
    stored = round_to(values, fp8_e4m3)
    assert stored.dtype is torch.float32
    assert stored.tolist() == [1.0, -0.3125, 448.0]
    assert from_storage(stored, fp8_e4m3).dtype is torch.float8_e4m3fn


def test_fp8_has_no_denormals():
    assert round_to(torch.tensor([2.0**-6, 0.0156, -0.0156, 19, 1.0625]), fp8_e4m3).tolist() == [
        2.0**-6,
        0,
        0,
        20,
        1,
    ]


def test_fp8_has_no_infinity_and_saturates():
    values = torch.tensor([465.0, -1e30, torch.inf, -torch.inf])
    assert round_to(values, fp8_e4m3).tolist() == [448.0, -448.0, 448.0, -448.0]
    assert round_to(torch.tensor([torch.nan]), fp8_e4m3).isnan().all()


@pytest.mark.parametrize("dtype", [bfloat16, float32, uint8, int8, int32])
def test_a_tensor_that_needs_no_change_is_returned_itself(dtype):
    data = torch.zeros(4, dtype=FACTS[dtype].storage)
    assert round_to(data, dtype) is data
    assert to_storage(data, dtype) is data
    assert from_storage(data, dtype) is data


def test_an_op_result_beyond_an_unsigned_range_wraps_back_into_it():
    assert round_to(torch.tensor([65536, -1], dtype=torch.int32), uint16).tolist() == [0, 65535]
    assert round_to(torch.tensor([2**32, -1]), uint32).tolist() == [0, 2**32 - 1]


def test_a_complex_tensor_is_refused():
    with pytest.raises(ArgumentError, match=r"torch\.complex64"):
        to_storage(torch.zeros(2, dtype=torch.complex64), float32)
