"""Columns that are added up apart get the bits that they get together."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.collectives.sum_kernels import adder, adds_in_order, part_adder

pytestmark = pytest.mark.usefixtures("any_machine")

DTYPES = [torch.bfloat16, torch.float32, torch.int32]


def stack(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=draw) * 100
    values[..., ::7] = -0.0
    return values.to(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    groups=st.integers(1, 3),
    devices=st.integers(2, 40),
    parts=st.sampled_from([2, 3, 4, 8]),
    columns=st.sampled_from([96, 256, 1024, 3072, 8192]),
    seed=st.integers(0, 9),
)
@settings(max_examples=30, deadline=None)
def test_parts_have_the_bits_of_the_whole(
    dtype: torch.dtype, groups: int, devices: int, parts: int, columns: int, seed: int
) -> None:
    data = stack((groups, devices, parts * columns), dtype, seed)
    together = adder(data.shape, dtype, (1,))(data)
    add = part_adder(data.shape, (groups, devices, columns), dtype, (1,))
    if add is None:
        return
    apart = torch.empty_like(together)
    for part, out in zip(data.split(columns, -1), apart.split(columns, -1), strict=True):
        add(part.contiguous(), out)
    assert torch.equal(bits(apart), bits(together))


@pytest.mark.parametrize("dtype", DTYPES)
@given(devices=st.integers(2, 40), columns=st.sampled_from([32, 96, 1000, 8192, 65536]), seed=st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_what_is_said_to_be_added_in_order_is(dtype: torch.dtype, devices: int, columns: int, seed: int) -> None:
    data = stack((devices, columns), dtype, seed)
    if not adds_in_order(data.shape, dtype, (0,)):
        return
    expected = torch.zeros(columns, dtype=dtype)
    for piece in data:
        expected = expected + piece
    assert torch.equal(bits(adder(data.shape, dtype, (0,))(data)[0]), bits(expected))


@pytest.mark.parametrize(("dtype", "devices"), [(torch.float32, 8), (torch.bfloat16, 8), (torch.int32, 8)])
def test_the_usual_sums_can_be_shared(dtype: torch.dtype, devices: int) -> None:
    whole, part = (devices, 1 << 16), (devices, 1 << 14)
    assert adds_in_order(whole, dtype, (0,)) or part_adder(whole, part, dtype, (0,)) is not None
