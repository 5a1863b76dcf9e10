"""Golden functions take arguments as TT-NN's own do: more by position than the op, and any keyword."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operands import put, random
from test_fused_activations import line_blocks

import softmesh as ttnn

golden = ttnn.get_golden_function


def test_references_take_their_own_parameters_by_position():
    x, w = random(4, 8).abs() + 1, random(8).abs() + 1
    assert torch.equal(golden(ttnn.rms_norm)(torch.ones(2, 4), torch.ones(4)), torch.ones(2, 4))
    torch.testing.assert_close(golden(ttnn.rms_norm)(x, w, epsilon=1e-5), F.rms_norm(x, (8,), w, 1e-5))
    assert torch.equal(golden(ttnn.div)(x, w, "floor"), torch.floor(x / w))
    assert torch.equal(golden(ttnn.round)(x, 2), torch.round(x, decimals=2))
    assert torch.equal(golden(ttnn.matmul)(x, x, False, True), x @ x.T)
    assert torch.equal(golden(ttnn.linear)(x, x, True, False, bias=w), x.T @ x + w)
    assert torch.equal(
        golden(ttnn.addmm)(x, random(4, 2), random(2, 8), 2.0, 0.5), x / 2 + 2 * random(4, 2) @ random(2, 8)
    )
    runs = golden(ttnn.concat)([torch.arange(4), 10 + torch.arange(4)], 0, 2)
    assert runs.tolist() == [0, 1, 10, 11, 2, 3, 12, 13]


def test_gradients_take_their_parameters_by_position():
    grad, x = random(4, 8), random(8, 4).T
    (slope,) = golden(ttnn.hardtanh_bw)(grad, x, -0.5, 0.5)
    assert torch.equal(slope, torch.where(x.abs() < 0.5, grad, 0))
    (slope,) = golden(ttnn.softplus_bw)(grad, x, 2.0, 20.0)
    torch.testing.assert_close(slope, grad * torch.sigmoid(2 * x))


def test_keywords_that_nobody_knows_are_left_aside(device):
    x = random(4, 8)
    assert torch.equal(golden(ttnn.exp)(x, device=device, anything=1), torch.exp(x))


def test_a_golden_function_in_place_keeps_the_dtype_of_what_it_writes():
    a, b = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 1.0])
    for op, expected in ((ttnn.logical_and_, [0.0, 1.0]), (ttnn.logical_or_, [1.0, 1.0])):
        made = golden(op)(a, b)
        assert made.dtype is torch.float32
        assert made.tolist() == expected


def test_activations_of_program_configs_are_part_of_the_reference():
    x, w = random(32, 64), random(64, 32)
    config = line_blocks(fused_activation=[ttnn.UnaryOpType.GELU, True])
    assert torch.equal(golden(ttnn.linear)(x, w, program_config=config), golden(ttnn.gelu)(x @ w))
    tanh = ttnn.operations.activations.get_golden_function_for_activation("gelu_tanh")
    torch.testing.assert_close(tanh(x), F.gelu(x, approximate="tanh"))


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("padding", [(1, 1), (1, 0, 0, 1)])
def test_pooling_agrees_with_its_golden_functions(device, ceil, padding):
    x = random(1, 1, 2 * 7 * 9, 32)
    sizes, windows = (2, 7, 9, 32), ((3, 3), (2, 2), padding)
    given = put(x, device, layout=ttnn.ROW_MAJOR_LAYOUT, dtype=ttnn.bfloat16)
    exact = x.bfloat16().float()
    pools = ttnn.operations.pool
    made = ttnn.max_pool2d(given, *sizes, *windows, (1, 1), ceil_mode=ceil)
    assert torch.equal(ttnn.to_torch(made).float(), pools.golden_maxpool2d(exact, *sizes, *windows, (1, 1), ceil))
    assert golden(ttnn.max_pool2d)(exact, *sizes, *windows, (1, 1), ceil_mode=ceil).shape == made.shape
    made = ttnn.avg_pool2d(given, *sizes, *windows, ceil_mode=False, count_include_pad=ceil)
    expected = pools.golden_avg_pool2d(exact, *sizes, *windows, count_include_pad=ceil)
    torch.testing.assert_close(ttnn.to_torch(made).float(), expected, rtol=2**-7, atol=1e-2)


def test_adaptive_pools_and_turns_agree_with_their_golden_functions(device):
    x, pools = random(1, 1, 2 * 8 * 8, 32), ttnn.operations.pool
    given = put(x, device, layout=ttnn.ROW_MAJOR_LAYOUT)
    for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
        made = getattr(ttnn, name)(given, 2, 8, 8, 32, (4, 2))
        expected = getattr(pools, f"golden_{name}")(x, 2, 8, 8, 32, (4, 2))
        torch.testing.assert_close(ttnn.to_torch(made).float(), expected, rtol=2**-7, atol=1e-2)
    images = x.reshape(2, 8, 8, 32)
    placed = put(images, device, layout=ttnn.ROW_MAJOR_LAYOUT)
    pooled = ttnn.to_torch(ttnn.global_avg_pool2d(put(images, device)))
    torch.testing.assert_close(pooled, pools.golden_global_avg_pool2d(images), rtol=1e-4, atol=1e-4)
    for mode in ("nearest", "bilinear"):
        turned = ttnn.to_torch(ttnn.rotate(placed, 30.0, fill=2.0, interpolation_mode=mode))
        expected = pools.golden_rotate(images, 30.0, fill=2.0, interpolation_mode=mode)
        torch.testing.assert_close(turned, expected, rtol=1e-4, atol=1e-4)


def held_alike(op: Any, *args: Any, device: ttnn.MeshDevice, **kwargs: Any) -> None:
    """The op, on tensors made of the torch ones, makes what its golden function makes of these."""

    def placed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        dtype = ttnn.float32 if value.is_floating_point() else ttnn.int32
        return ttnn.from_torch(value, dtype, layout=ttnn.TILE_LAYOUT, device=device)

    wanted = golden(op)(*args, **kwargs)
    made = op(*map(placed, args), **{name: placed(value) for name, value in kwargs.items()})
    assert tuple(made.shape) == tuple(wanted.shape)
    torch.testing.assert_close(ttnn.to_torch(made).to(wanted.dtype), wanted, rtol=1e-4, atol=1e-4)


def test_ops_that_move_and_combine_agree_with_their_golden_functions(device):
    a, b, index = random(2, 4, 32), random(2, 4, 32).flip(0), torch.arange(32).flip(0).expand(2, 4, 32)
    held_alike(ttnn.scatter, a, 2, index, b, device=device)
    held_alike(ttnn.scatter, a, 2, index // 2, b, reduce="add", device=device)
    held_alike(ttnn.scatter_add, a, 2, index // 2, b, device=device)
    held_alike(ttnn.move, a, device=device)
    held_alike(ttnn.reallocate, a, device=device)
    held_alike(ttnn.nextafter, a, b, device=device)
    held_alike(ttnn.bcast, a, b[:, :1], ttnn.BcastOpMath.SUB, ttnn.BcastOpDim.H, device=device)
    held_alike(ttnn.plus_one, torch.tensor([[3, -1, 0]]), skip_negative_entries=True, device=device)
    like = random(1, 1, 32, 32)
    held_alike(ttnn.fill_rm, 1, 2, 32, 64, 5, 40, like, 2.0, -1.0, device=device)
    held_alike(ttnn.fill_ones_rm, 1, 2, 32, 64, 5, 40, like, device=device)
    assert golden(ttnn.to_dtype)(a, ttnn.bfloat16).dtype is torch.bfloat16


def test_ops_that_make_tensors_agree_with_their_golden_functions(device):
    for op, args in (
        (ttnn.zeros, [(2, 3)]),
        (ttnn.ones, [(2, 3)]),
        (ttnn.full, [(2, 3), 2.5]),
        (ttnn.arange, [7]),
        (ttnn.arange, [2, 11, 3]),
    ):
        for dtype in (ttnn.float32, ttnn.bfloat16, ttnn.int32):
            made = ttnn.to_torch(op(*args, dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=device))
            wanted = golden(op)(*args, dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)
            assert (made.dtype, made.tolist()) == (wanted.dtype, wanted.tolist())
    nothing = golden(ttnn.empty)((2, 3), dtype=ttnn.int32, device=device)
    assert (tuple(nothing.shape), nothing.dtype) == ((2, 3), torch.int32)


@pytest.mark.parametrize("padding", [(1, 2), (0, 1, 2, 0)])
def test_images_and_caches_agree_with_their_golden_functions(device, padding):
    images, weight, bias = random(2, 6, 8, 8), random(16, 4, 3, 3), random(1, 1, 1, 16)
    sizes = {"batch_size": 2, "input_height": 6, "input_width": 8, "in_channels": 8, "out_channels": 16}
    config = ttnn.Conv2dConfig(activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU))
    given = {**sizes, "kernel_size": (3, 3), "stride": (1, 2), "padding": padding, "groups": 2, "conv_config": config}
    wanted = golden(ttnn.conv2d)(
        input_tensor=images, weight_tensor=weight, bias_tensor=bias, device=device, return_output_dim=False, **given
    )
    made = ttnn.conv2d(
        input_tensor=put(images, device, layout=ttnn.ROW_MAJOR_LAYOUT),
        weight_tensor=ttnn.from_torch(weight),
        bias_tensor=ttnn.from_torch(bias),
        device=device,
        **given,
    )
    torch.testing.assert_close(ttnn.to_torch(made), wanted, rtol=1e-4, atol=1e-4)
    rows, weight = random(2, 1, 64, 96), random(96)
    held_alike(
        ttnn.group_norm,
        rows,
        num_groups=3,
        inplace=False,
        epsilon=1e-5,
        weight=weight,
        bias=weight.flip(0),
        device=device,
    )
    held_alike(ttnn.fold, images, 3, 2, device=device)
    held_alike(ttnn.fold, images, 3, 2, False, None, (3, 3, 1, 1), collapse_output=True, device=device)
    cache, new = random(3, 2, 64, 32), random(1, 2, 32, 32)
    held_alike(ttnn.fill_cache, cache, new, 1, device=device)
    held_alike(ttnn.update_cache, cache, new, 7, batch_offset=2, device=device)
