"""Golden functions take arguments as TT-NN's own do: more by position than the op, and any keyword."""

from __future__ import annotations

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
