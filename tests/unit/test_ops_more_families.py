"""Quantization, losses, complex numbers, gradients of moves, random fills: against torch, and on a mesh."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operands import R, S

import softmesh as ttnn


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def put(x: torch.Tensor, device: ttnn.MeshDevice, dtype: Any = None, layout: Any = ttnn.TILE_LAYOUT) -> Any:
    return ttnn.from_torch(x, dtype, layout=layout, device=device)


def close(found: Any, expected: torch.Tensor) -> None:
    values = ttnn.to_torch(found)
    torch.testing.assert_close(values.reshape(expected.shape).double(), expected.double(), rtol=1e-4, atol=1e-5)


# -- whole numbers of a scale ------------------------------------------------------------------------


def test_values_are_quantized_and_come_back(device: ttnn.MeshDevice) -> None:
    x, scale, zero = rand(2, 3, 40), 0.013, -7
    whole = ttnn.quantize(put(x, device), scale, zero)
    assert whole.dtype is ttnn.int32
    assert torch.equal(ttnn.to_torch(whole), (torch.round(x / scale) + zero).int())
    again = ttnn.requantize(whole, scale, zero, 0.02, 3)
    expected = torch.round((ttnn.to_torch(whole) - zero) * scale / 0.02) + 3
    assert torch.equal(ttnn.to_torch(again), expected.int())
    assert ttnn.dequantize(whole, scale, zero).dtype is ttnn.bfloat16
    close(ttnn.dequantize(whole, scale, zero, dtype=ttnn.float32), torch.round(x / scale) * scale)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_each_channel_has_its_scale(axis: int, device: ttnn.MeshDevice) -> None:
    x = rand(2, 3, 40)
    scale = rand(x.shape[axis], seed=1).abs() / 50 + 0.01
    zero = torch.arange(x.shape[axis], dtype=torch.int32)
    sizes = [1, 1, 1]
    sizes[axis] = -1
    on = put(scale, device), put(zero, device, ttnn.int32)
    whole = ttnn.quantize(put(x, device), *on, axis=axis)
    assert torch.equal(ttnn.to_torch(whole), (torch.round(x / scale.reshape(sizes)) + zero.reshape(sizes)).int())
    close(
        ttnn.dequantize(whole, *on, axis=axis, dtype=ttnn.float32),
        torch.round(x / scale.reshape(sizes)) * scale.reshape(sizes),
    )
    with pytest.raises(RuntimeError, match="one for each place along axis"):
        ttnn.quantize(put(x, device), put(rand(5), device), put(zero, device, ttnn.int32), axis=axis)


# -- losses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", ["l1_loss", "mse_loss"])
def test_losses(name: str, mode: str, device: ttnn.MeshDevice, pair: ttnn.MeshDevice) -> None:
    a, b = rand(2, 3, 4, 40), rand(2, 3, 4, 40, seed=1)
    reduction = ttnn.LossReductionMode[mode.upper()]
    assert ttnn.operations.losses.LossReductionMode is ttnn.LossReductionMode
    expected = getattr(F, name)(a, b, reduction=mode)
    op = getattr(ttnn, name)
    close(op(put(a, device), put(b, device), reduction=reduction), expected)
    split = ttnn.ShardTensorToMesh(pair, dim=0)
    on = [ttnn.from_torch(v, layout=ttnn.TILE_LAYOUT, device=pair, mesh_mapper=split) for v in (a, b)]
    words = {"none": S(0), "mean": ttnn.Partial("avg"), "sum": ttnn.Partial("sum")}
    assert ttnn.placements(op(*on, reduction=reduction)) == (R, words[mode])


def test_matrices_and_tensors_are_normalized(device: ttnn.MeshDevice) -> None:
    x = rand(2, 3, 8, 40)
    close(ttnn.var_hw(put(x, device)), x.var((-2, -1), correction=0, keepdim=True))
    close(ttnn.std_hw(put(x, device)), x.std((-2, -1), correction=0, keepdim=True))
    dims = (-2, -1)
    close(ttnn.normalize_hw(put(x, device)), (x - x.mean(dims, True)) / x.std(dims, correction=0, keepdim=True))
    close(ttnn.normalize_global(put(x, device)), (x - x.mean()) / x.std(correction=0))


# -- complex numbers -----------------------------------------------------------------------------------


def both(z: torch.Tensor, device: ttnn.MeshDevice) -> Any:
    return ttnn.complex_tensor(put(z.real.contiguous(), device), put(z.imag.contiguous(), device))


def number(z: Any) -> torch.Tensor:
    return torch.complex(ttnn.to_torch(z.real), ttnn.to_torch(z.imag))


def test_parts_sizes_and_angles(device: ttnn.MeshDevice) -> None:
    z = torch.complex(rand(2, 40), rand(2, 40, seed=1))
    z[0, 0], z[0, 1] = 0.5, 0.5j
    on = both(z, device)
    config = {"memory_config": ttnn.DRAM_MEMORY_CONFIG}
    close(ttnn.real(on), z.real)
    close(ttnn.imag(on), z.imag)
    close(ttnn.angle(on), z.angle())
    close(ttnn.abs(on, **config), z.abs())
    close(ttnn.is_real(on), (z.imag == 0).float())
    close(ttnn.is_imag(on), (z.real == 0).float())
    torch.testing.assert_close(number(ttnn.conj(on)), z.conj().resolve_conj())
    torch.testing.assert_close(number(ttnn.reciprocal(on, **config)), 1 / z)
    torch.testing.assert_close(number(ttnn.polar(on)), torch.polar(z.real.contiguous(), z.imag.contiguous()))


@pytest.mark.parametrize("name", ["angle", "abs", "real", "imag", "conj", "reciprocal"])
def test_gradients_through_functions_of_complex_numbers(name: str, device: ttnn.MeshDevice) -> None:
    z = torch.complex(rand(2, 40), rand(2, 40, seed=1))
    function = {"conj": lambda v: v.conj().resolve_conj()}.get(name, getattr(torch, name))
    leaf = z.clone().requires_grad_()
    made = function(leaf)
    grad = torch.complex(rand(2, 40, seed=2), rand(2, 40, seed=3)) if made.is_complex() else rand(2, 40, seed=2)
    (expected,) = torch.autograd.grad(made, leaf, grad)
    given = both(grad, device) if grad.is_complex() else put(grad, device)
    (found,) = getattr(ttnn, f"{name}_bw")(given, both(z, device), memory_config=ttnn.DRAM_MEMORY_CONFIG)
    torch.testing.assert_close(number(found), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_gradients_of_sums_and_products_of_complex_numbers(name: str, device: ttnn.MeshDevice) -> None:
    a, b, grad = (torch.complex(rand(2, 40, seed=i), rand(2, 40, seed=i + 9)) for i in range(3))
    leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    number_of = {"add": [0.5], "sub": [0.5]}.get(name, [])
    made = getattr(torch, name)(leaves[0], leaves[1] * (number_of[0] if number_of else 1))
    expected = torch.autograd.grad(made, leaves, grad)
    found = getattr(ttnn, f"{name}_bw")(both(grad, device), both(a, device), both(b, device), *number_of)
    for one, known in zip(found, expected, strict=True):
        torch.testing.assert_close(number(one), known, rtol=1e-3, atol=1e-3)


def test_the_gradient_of_polar_is_that_of_size_and_angle(device: ttnn.MeshDevice) -> None:
    size, turn = rand(2, 40).requires_grad_(), rand(2, 40, seed=1).requires_grad_()
    grad = torch.complex(rand(2, 40, seed=2), rand(2, 40, seed=3))
    expected = torch.autograd.grad(torch.complex(size * turn.cos(), size * turn.sin()), (size, turn), grad)
    on = ttnn.complex_tensor(put(size.detach(), device), put(turn.detach(), device))
    (found,) = ttnn.polar_bw(both(grad, device), on, memory_config=ttnn.DRAM_MEMORY_CONFIG)
    close(found.real, expected[0])
    close(found.imag, expected[1])


# -- gradients of moves --------------------------------------------------------------------------------


def test_copies_joined_and_repeated_tensors_get_their_part_of_the_gradient(device: ttnn.MeshDevice) -> None:
    grad = rand(4, 6, 40)
    on = put(grad, device)
    close(ttnn.assign_bw(on, on)[0], grad)
    into = put(torch.zeros_like(grad), device)
    made = ttnn.assign_bw(on, on, on, are_required_outputs=[False, True], input_b_grad=into)
    assert made == [None, into]
    close(into, grad)
    a, b = put(grad[:, :2], device), put(grad[:, 2:], device)
    for found, expected in zip(ttnn.concat_bw(on, a, b, 1), (grad[:, :2], grad[:, 2:]), strict=True):
        close(found, expected)
    with pytest.raises(RuntimeError, match="along dim=0"):
        ttnn.concat_bw(on, a, b, 0)
    x = rand(2, 3, 40)
    (found,) = ttnn.repeat_bw(put(rand(4, 9, 40), device), put(x, device), [2, 3, 1])
    leaf = x.clone().requires_grad_()
    close(found, torch.autograd.grad(leaf.repeat(2, 3, 1), leaf, rand(4, 9, 40))[0])


@pytest.mark.parametrize("dim", [None, 0, -1])
def test_the_gradient_of_a_product_of_all(dim: int | None, device: ttnn.MeshDevice) -> None:
    x = rand(3, 5) + 2
    leaf = x.clone().requires_grad_()
    made = leaf.prod() if dim is None else leaf.prod(dim, keepdim=True)
    grad = rand(*made.shape, seed=1)
    (found,) = ttnn.prod_bw(put(grad.reshape(1, 1) if dim is None else grad, device), put(x, device), dim=dim)
    close(found, torch.autograd.grad(made, leaf, grad)[0])


# -- by index and by chance ------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_places_are_filled_by_index(dim: int, device: ttnn.MeshDevice) -> None:
    x, index = rand(4, 5, 40), torch.tensor([3, 0], dtype=torch.int32)
    at = put(index, device, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    found = ttnn.index_fill(put(x, device, layout=ttnn.ROW_MAJOR_LAYOUT), dim, at, 2.5)
    assert torch.equal(ttnn.to_torch(found), x.index_fill(dim, index.long(), 2.5))


def test_random_numbers_have_their_range_and_repeat_by_seed(device: ttnn.MeshDevice) -> None:
    x = put(torch.zeros(64, 64), device)
    assert ttnn.uniform(x, 2.0, 5.0, 7) is x
    first = ttnn.to_torch(x)
    assert 2 <= first.min() < 2.1 < 4.9 < first.max() <= 5
    assert torch.equal(
        ttnn.to_torch(ttnn.uniform(put(torch.zeros(64, 64), device), **{"from": 2.0, "to": 5.0, "seed": 7})), first
    )
    normal = ttnn.randn([64, 64], device, dtype=ttnn.float32, seed=3)
    values = ttnn.to_torch(normal)
    assert abs(values.mean()) < 0.1 < 0.9 < values.std() < 1.1
    assert torch.equal(ttnn.to_torch(ttnn.randn([64, 64], device, dtype=ttnn.float32, seed=3)), values)


@pytest.mark.parametrize(
    ("name", "rest"),
    [("concat_bw", (rand(2, 3), rand(2, 3), 1)), ("repeat_bw", (rand(2, 2), [1, 3])), ("assign_bw", (rand(2, 6),))],
)
def test_goldens_of_moves_take_what_the_ops_take(name: str, rest: tuple[Any, ...], device: ttnn.MeshDevice) -> None:
    op, grad = getattr(ttnn, name), rand(2, 6, seed=5)
    on = [put(value, device) if isinstance(value, torch.Tensor) else value for value in rest]
    for found, expected in zip(op(put(grad, device), *on), ttnn.get_golden_function(op)(grad, *rest), strict=True):
        close(found, expected)


def test_goldens_of_losses_and_of_complex_numbers() -> None:
    a, b = rand(2, 6), rand(2, 6, seed=1)
    golden = ttnn.get_golden_function(ttnn.mse_loss)
    assert golden(a, b, reduction=ttnn.LossReductionMode.MEAN) == F.mse_loss(a, b)
    z = torch.complex(a, b)
    assert torch.equal(ttnn.get_golden_function(ttnn.angle)(z), z.angle())
    (slope,) = ttnn.get_golden_function(ttnn.abs_bw)(a, z)
    torch.testing.assert_close(slope, a * z / z.abs())
    (slope,) = ttnn.get_golden_function(ttnn.real_bw)(a, z)
    assert torch.equal(slope, torch.complex(a, torch.zeros_like(a)))
