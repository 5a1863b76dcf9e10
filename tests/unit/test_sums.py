"""However fast, a sum is the sum: in fp32, rounded once."""

from __future__ import annotations

import pytest
import torch

from softmesh.collectives import sum_kernels
from softmesh.collectives.sum_kernels import adder, summed_over


def exact(data: torch.Tensor, axes: list[int]) -> torch.Tensor:
    return data.double().sum(axes, keepdim=True)


@pytest.mark.usefixtures("any_machine")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((8, 1, 64, 512), [0]),
        ((2, 4, 64, 512), [1]),
        ((2, 4, 64, 512), [0]),
        ((2, 4, 64, 512), [0, 1]),
        ((2, 2, 2, 32, 640), [0, 2]),
        ((3, 5, 96, 96), [0, 1]),
        ((4, 33, 499), [0]),
        ((200, 1, 32, 256), [0]),
        ((2, 160, 8, 1024), [1]),
        ((8, 4, 4), [0]),
    ],
)
def test_whole_numbers_come_out_exactly(dtype, shape, axes):
    data = torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    if dtype is torch.bfloat16:
        data = data.clamp(-1, 1)  # 200 of them still fit its 8 bits
    found = summed_over(data, axes)
    assert found.dtype is dtype
    assert torch.equal(found.double(), exact(data, axes))


@pytest.mark.usefixtures("any_machine")
@pytest.mark.parametrize("devices", [2, 7, 8, 32, 65, 256])
def test_bfloat16_is_rounded_once_to_nearest_even(devices):
    data = torch.randn(devices, 64, 1024, generator=torch.Generator().manual_seed(devices)).to(torch.bfloat16)
    once = exact(data, [0]).float().to(torch.bfloat16)
    found = summed_over(data, [0])
    assert (found != once).float().mean() < 1e-3  # where fp32 itself rounds to the middle of two bfloat16


@pytest.mark.usefixtures("any_machine")
def test_halves_between_two_bfloat16_go_to_the_even_one():
    data = torch.full((2, 64, 512), 1.0, dtype=torch.bfloat16)
    data[0] = 256.0
    assert summed_over(data, [0]).unique().tolist() == [256.0]
    data[0] = 258.0
    assert summed_over(data, [0]).unique().tolist() == [260.0]


@pytest.mark.usefixtures("any_machine")
def test_infinities_and_nans_pass_through():
    data = torch.ones(8, 64, 512, dtype=torch.bfloat16)
    data[3, 0, 0], data[5, 0, 1] = float("inf"), float("nan")
    found = summed_over(data, [0])
    assert found[0, 0, 0] == float("inf")
    assert found[0, 0, 1].isnan()
    assert found[0, 1, 0] == 8


@pytest.mark.usefixtures("any_machine")
def test_gradients_flow():
    data = torch.ones(8, 64, 512, dtype=torch.bfloat16, requires_grad=True)
    summed_over(data, [0]).sum().backward()
    assert data.grad is not None
    assert torch.equal(data.grad, torch.ones_like(data))


@pytest.mark.usefixtures("any_machine")
@pytest.mark.parametrize(("shape", "axes"), [((8, 256, 512), [0]), ((2, 40, 131072), [1]), ((2, 100, 64, 96), [1])])
def test_large_or_many_pieces_of_float32_are_added_in_the_order_of_the_devices(shape, axes):
    data = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    data *= torch.logspace(-4, 4, shape[axes[0]]).view([-1 if axis in axes else 1 for axis in range(len(shape))])
    one_after_the_other = torch.zeros_like(data.select(axes[0], 0))
    for piece in data.unbind(axes[0]):
        one_after_the_other = one_after_the_other + piece
    assert torch.equal(summed_over(data, axes), one_after_the_other.unsqueeze(axes[0]))


def test_wide_tall_stacks_of_bfloat16_are_multiplied_some_columns_at_a_time(monkeypatch, adds_by_torch):
    adds_by_torch(multiplies_bfloat16=True)
    monkeypatch.setattr(sum_kernels, "_COLUMNS_AT_ONCE", 1 << 12)
    data = torch.randint(-2, 3, (2, 70, 5, 4099)).bfloat16()
    assert torch.equal(summed_over(data, [1]), data.float().sum(1, keepdim=True).bfloat16())


@pytest.mark.parametrize("shape", [(32, 1 << 18), (70, 3 << 14), (2, 70, 1 << 13)])
def test_tall_stacks_of_bfloat16_are_pooled_in_the_order_of_the_devices(shape, adds_by_torch):
    adds_by_torch(multiplies_bfloat16=False)
    data = (torch.randn(shape, generator=torch.Generator().manual_seed(4)) * 100).bfloat16()
    one_after_the_other = torch.zeros_like(data.select(-2, 0), dtype=torch.float32)
    for piece in data.unbind(-2):
        one_after_the_other = one_after_the_other + piece
    assert torch.equal(summed_over(data, [data.dim() - 2])[..., 0, :], one_after_the_other.bfloat16())


def test_data_of_another_shape_or_dtype_than_was_said_is_added_up_all_the_same():
    add = adder((8, 64, 512), torch.float32, (0,))
    assert torch.equal(add(torch.ones(2, 64, 512)), torch.full((1, 64, 512), 2.0))
    assert torch.equal(add(torch.ones(8, 64, 512, dtype=torch.float64)), torch.full((1, 64, 512), 8.0))


@pytest.mark.usefixtures("any_machine")
def test_data_that_is_not_contiguous_is_added_in_the_same_order():
    data = torch.randn(512, 256, 8, generator=torch.Generator().manual_seed(5)) * torch.logspace(-4, 4, 8)
    turned = data.permute(2, 0, 1)
    assert torch.equal(summed_over(turned, [0]), summed_over(turned.contiguous(), [0]))


def test_an_axis_of_extent_1_between_those_added_up_changes_nothing():
    data = torch.randn(8, 1, 8, 64, 64)
    assert torch.equal(summed_over(data, [0, 2]), summed_over(data.view(8, 8, 64, 64), [0, 1]).unsqueeze(1))
