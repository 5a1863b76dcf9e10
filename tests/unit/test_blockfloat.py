"""Block-float rounding against the rules written out one element at a time."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh.tensor.convert import round_blocks

BF8, BF4 = 7, 3
WIDTHS = pytest.mark.parametrize("mantissa_bits", [BF8, BF4])


def float_of(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def round_group(group: list[int], width: int, on_chip: bool = False) -> list[float]:
    """Steps 1 to 6 of the reference, on the float32 bits of 16 elements; a chip rounds halves away from zero."""
    shared = max((bits >> 23) & 0xFF for bits in group)
    return [round_element(bits, shared, width, on_chip) for bits in group]


def round_element(bits: int, shared: int, width: int, on_chip: bool) -> float:
    sign, exponent, fraction = bits >> 31, (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if exponent == 255:
        return math.nan if fraction else math.copysign(math.inf, -sign)
    if exponent == 0:
        return 0.0
    mantissa = ((1 << 23) | fraction) >> (shared - exponent)
    dropped = 24 - width
    q, remainder, half = mantissa >> dropped, mantissa & ((1 << dropped) - 1), 1 << (dropped - 1)
    q += remainder > half or (remainder == half and (on_chip or q & 1))
    q = min(q, 2**width - 1)
    value = math.ldexp(q, shared - 127 - (width - 1))
    if value >= 2.0**128:
        value = math.inf
    return -value if sign and q else value


def tensor_of(rows: list[list[int]]) -> torch.Tensor:
    signed = [[bits - (1 << 32) if bits >> 31 else bits for bits in row] for row in rows]
    return torch.tensor(signed, dtype=torch.int32).view(torch.float32)


def bits_of(values: torch.Tensor) -> list[int]:
    """The bits, with every NaN counted as the same one."""
    return torch.where(values.isnan(), torch.nan, values).view(torch.int32).flatten().tolist()


def expected(rows: list[list[int]], width: int, on_chip: bool = False) -> torch.Tensor:
    return torch.tensor([round_group(row, width, on_chip) for row in rows], dtype=torch.float64).to(torch.float32)


any_float = st.integers(0, 2**32 - 1)
special_float = st.sampled_from(
    [0, 1 << 31, 1, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF]
)


@st.composite
def groups(draw: st.DrawFn) -> list[int]:
    """Sixteen float32 whose exponents lie near each other, so that small shifts are common."""
    centre = draw(st.integers(0, 255) | st.sampled_from([0, 1, 8, 24, 254, 255]))
    exponents = st.integers(max(centre - 26, 0), min(centre + 2, 255))
    near = st.builds(lambda s, e, m: s << 31 | e << 23 | m, st.integers(0, 1), exponents, st.integers(0, 2**23 - 1))
    # fractions with few bits set make the ties that random ones never hit
    ties = st.builds(lambda s, e, m: s << 31 | e << 23 | m << 15, st.integers(0, 1), exponents, st.integers(0, 255))
    return draw(st.lists(near | ties | special_float | any_float, min_size=16, max_size=16))


@WIDTHS
@given(rows=st.lists(groups(), min_size=1, max_size=2), on_chip=st.booleans())
def test_rounding_agrees_bit_for_bit_with_the_rules_element_by_element(mantissa_bits, rows, on_chip):
    rounded = round_blocks(tensor_of(rows), mantissa_bits, on_chip=on_chip)
    assert bits_of(rounded) == bits_of(expected(rows, mantissa_bits, on_chip))


@WIDTHS
@pytest.mark.parametrize("on_chip", [False, True])
def test_rounding_agrees_with_the_rules_for_every_shared_exponent(mantissa_bits, on_chip):
    generator = torch.Generator().manual_seed(0)
    rows = []
    for shared in range(256):
        fractions = torch.randint(0, 2**23, (16,), generator=generator).tolist()
        rows.append([max(shared - 2 * i, 0) << 23 | m | (i & 1) << 31 for i, m in enumerate(fractions)])
    rounded = round_blocks(tensor_of(rows), mantissa_bits, on_chip=on_chip)
    assert bits_of(rounded) == bits_of(expected(rows, mantissa_bits, on_chip))


@WIDTHS
@given(rows=st.lists(groups(), min_size=1, max_size=2))
def test_rounding_a_second_time_changes_nothing(mantissa_bits, rows):
    once = round_blocks(tensor_of(rows), mantissa_bits)
    assert bits_of(round_blocks(once, mantissa_bits)) == bits_of(once)


@WIDTHS
@given(rows=st.lists(groups(), min_size=1, max_size=2), on_chip=st.booleans())
def test_no_result_is_a_negative_zero(mantissa_bits, rows, on_chip):
    rounded = round_blocks(tensor_of(rows), mantissa_bits, on_chip=on_chip)
    assert not (rounded.signbit() & (rounded == 0)).any()


@pytest.mark.parametrize(
    ("row", "mantissa_bits", "rounded"),
    [
        ([1.6, 2.5], BF8, [1.59375, 2.5]),
        ([-3.5, 300.7], BF8, [-4.0, 300.0]),
        ([-3.5, 300.7], BF4, [0.0, 320.0]),
        ([1.6, 2.5], BF4, [1.5, 2.5]),
        ([math.inf, 1.0], BF8, [math.inf, 0.0]),
        ([math.inf, 1.0], BF4, [math.inf, 0.0]),
        ([3.4e38, 1.0], BF8, [3.3762391e38, 0.0]),
        ([1.9999], BF8, [1.984375]),
        ([1.9999], BF4, [1.75]),
    ],
)
def test_vectors_of_the_reference(row, mantissa_bits, rounded):
    assert torch.equal(round_blocks(torch.tensor(row), mantissa_bits), torch.tensor(rounded))


def test_a_large_value_zeroes_only_its_own_sixteen_columns_of_its_own_row():
    values = torch.ones(2, 32)
    values[0, 0] = 1000.0
    rounded = round_blocks(values, BF4)
    assert rounded[0, 0] == 1024.0 - 128.0
    assert torch.equal(rounded[0, 1:16], torch.zeros(15))
    assert torch.equal(rounded[0, 16:], torch.ones(16))
    assert torch.equal(rounded[1], torch.ones(32))


def test_the_pad_value_takes_part_in_the_shared_exponent():
    values = torch.full((1, 3), 0.01)
    assert torch.equal(round_blocks(values, BF8, pad_value=1000.0), torch.zeros(1, 3))


def test_the_pad_value_does_not_matter_where_no_column_is_missing():
    values = torch.full((1, 16), 0.01)
    assert torch.equal(round_blocks(values, BF8, pad_value=1000.0), round_blocks(values, BF8))


@WIDTHS
def test_the_smallest_normal_values_are_exact_and_denormals_count_as_zero(mantissa_bits):
    values = torch.tensor([2.0**-126, -(2.0**-126), 2.0**-127, 2.0**-149, -0.0])
    assert round_blocks(values, mantissa_bits).tolist() == [2.0**-126, -(2.0**-126), 0.0, 0.0, 0.0]


def test_nan_stays_nan_and_zeroes_its_neighbours():
    rounded = round_blocks(torch.tensor([math.nan, 1.0]), BF8)
    assert rounded[0].isnan()
    assert rounded[1] == 0.0


def test_a_neighbour_of_infinity_can_still_be_a_number():
    assert round_blocks(torch.tensor([math.inf, 2.0**127]), BF8).tolist() == [math.inf, 2.0**127]


@pytest.mark.parametrize("shape", [(), (1,), (5,), (16,), (40,), (3, 5), (2, 3, 32), (0,), (0, 32), (2, 0)])
def test_any_shape_keeps_its_shape_and_leaves_its_input_alone(shape):
    values = torch.full(shape, 1.6)
    rounded = round_blocks(values, BF8)
    assert torch.equal(rounded, torch.full(shape, 1.59375 if values.numel() else 0.0))
    assert torch.equal(values, torch.full(shape, 1.6))


def test_groups_follow_the_last_dim_of_a_transposed_or_expanded_tensor():
    values = torch.randn(48, 32, generator=torch.Generator().manual_seed(0))
    turned = values.t()
    assert torch.equal(round_blocks(turned, BF4), round_blocks(turned.contiguous(), BF4))
    expanded = values[:1].expand(4, 32)
    assert torch.equal(round_blocks(expanded, BF4), round_blocks(expanded.contiguous(), BF4))


def test_a_half_goes_to_even_on_the_host_and_away_from_zero_on_a_chip(device):
    row = torch.tensor([[64.0, 0.5, 2.5, -2.5, 3.5]])
    on_host = ttnn.from_torch(row, dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=device)
    assert ttnn.to_torch(on_host).tolist() == [[64.0, 0.0, 2.0, -2.0, 4.0]]
    exact = ttnn.from_torch(row, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    for made in (ttnn.typecast(exact, ttnn.bfloat8_b), ttnn.add(exact, 0.0, dtype=ttnn.bfloat8_b)):
        assert ttnn.to_torch(made).tolist() == [[64.0, 1.0, 3.0, -3.0, 4.0]]
    host = ttnn.from_torch(row, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    for made in (ttnn.typecast(host, ttnn.bfloat8_b), ttnn.to_dtype(host, ttnn.bfloat8_b)):
        assert ttnn.to_torch(made).tolist() == [[64.0, 0.0, 2.0, -2.0, 4.0]]
