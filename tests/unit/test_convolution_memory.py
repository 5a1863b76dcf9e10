"""Where results of convolutions lie, and what of their operands comes back: prepared weights, padding left out."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operands import random

import softmesh as ttnn


def convolved(device: ttnn.MeshDevice, where: Any, out: int = 64, **more: Any) -> ttnn.Tensor:
    images = ttnn.from_torch(random(2, 8, 16, 32), layout=ttnn.ROW_MAJOR_LAYOUT)
    if where is not None:
        images = ttnn.to_device(images, device, memory_config=where)
    weight = ttnn.from_torch(random(out, 32, 3, 3))
    sizes = {"batch_size": 2, "input_height": 8, "input_width": 16, "in_channels": 32, "out_channels": out}
    given = {**sizes, "kernel_size": (3, 3), "padding": (1, 1), "device": device}
    return ttnn.conv2d(input_tensor=images, weight_tensor=weight, **given, **more)


SHARDED = ttnn.create_sharded_memory_config((1, 1, 256, 32), ttnn.CoreGrid(x=4, y=1), ttnn.ShardStrategy.HEIGHT)
L1_WHOLE = ttnn.Conv2dL1FullSliceConfig


@pytest.mark.parametrize("layout", [ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT])
@pytest.mark.parametrize("out", [24, 64, 2048])
@pytest.mark.parametrize("scheme", [None, "HEIGHT", "BLOCK", "WIDTH"])
def test_results_of_images_in_l1_are_shards_there(device, scheme, out, layout):
    asked = None if scheme is None else getattr(ttnn.TensorMemoryLayout, f"{scheme}_SHARDED")
    config = ttnn.Conv2dConfig(shard_layout=asked, output_layout=layout)
    made = convolved(device, ttnn.L1_MEMORY_CONFIG, out, conv_config=config)
    held = made.memory_config()
    assert held.buffer_type is ttnn.BufferType.L1
    assert held.is_sharded()
    assert asked in (None, held.memory_layout)
    torch.testing.assert_close(ttnn.to_torch(made), ttnn.to_torch(convolved(device, None, out)))


def test_results_stay_on_the_cores_of_their_images(device):
    images = ttnn.to_device(ttnn.from_torch(random(1, 1, 256, 32)), device, memory_config=SHARDED)
    sizes = {"batch_size": 2, "input_height": 8, "input_width": 16, "in_channels": 32, "out_channels": 64}
    made = ttnn.conv2d(
        input_tensor=images,
        weight_tensor=ttnn.from_torch(random(64, 32, 1, 1)),
        device=device,
        kernel_size=(1, 1),
        **sizes,
    )
    held = made.memory_config()
    assert held.memory_layout is ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    assert held.shard_spec.grid == SHARDED.shard_spec.grid
    assert held.shard_spec.shape == [64, 64]


def test_a_memory_config_counts_for_images_in_l1_alone(device):
    for where, more, expected in (
        (ttnn.L1_MEMORY_CONFIG, {}, ttnn.L1_MEMORY_CONFIG),
        (ttnn.DRAM_MEMORY_CONFIG, {"slice_config": L1_WHOLE}, ttnn.L1_MEMORY_CONFIG),
        (ttnn.DRAM_MEMORY_CONFIG, {}, ttnn.DRAM_MEMORY_CONFIG),
        (None, {}, ttnn.DRAM_MEMORY_CONFIG),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            made = convolved(device, where, memory_config=ttnn.L1_MEMORY_CONFIG, **more)
        assert made.memory_config() == expected
        assert ["memory_config is ignored" in str(one.message) for one in told] == [True] * (
            expected is ttnn.DRAM_MEMORY_CONFIG
        )


def test_channels_may_be_padded_and_no_groups_are_one(device):
    images, weight = random(1, 6, 6, 3), random(8, 3, 3, 3)
    sizes = {"batch_size": 1, "input_height": 6, "input_width": 6, "in_channels": 3, "out_channels": 8}
    wanted = F.conv2d(images.permute(0, 3, 1, 2), weight).permute(0, 2, 3, 1).reshape(1, 1, -1, 8)
    for held in (3, 8, 16, 32):
        padded = F.pad(images, (0, held - 3), value=5.0)
        made = ttnn.conv2d(
            input_tensor=ttnn.from_torch(padded.reshape(1, 1, 36, held)),
            weight_tensor=ttnn.from_torch(weight),
            device=device,
            kernel_size=(3, 3),
            groups=0,
            **sizes,
        )
        torch.testing.assert_close(ttnn.to_torch(made), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [None, ttnn.bfloat8_b])
@pytest.mark.parametrize("mirrored", [True, False])
def test_weights_handed_back_are_those_that_can_be_prepared(device, mirrored, dtype):
    images, weight = ttnn.from_torch(random(1, 4, 4, 16)), ttnn.from_torch(random(16, 32, 3, 3))
    bias, config = ttnn.from_torch(random(1, 1, 1, 32)), ttnn.Conv2dConfig(weights_dtype=dtype)
    sizes = {"batch_size": 1, "input_height": 4, "input_width": 4, "in_channels": 16, "out_channels": 32}
    given = {**sizes, "kernel_size": (3, 3), "device": device, "conv_config": config, "mirror_kernel": mirrored}
    _, (kept, kept_bias) = ttnn.conv_transpose2d(
        input_tensor=images, weight_tensor=weight, bias_tensor=bias, return_weights_and_bias=True, **given
    )
    prepared = ttnn.prepare_conv_transpose2d_weights(weight_tensor=weight, **given)
    assert torch.equal(ttnn.to_torch(kept), ttnn.to_torch(prepared))
    ready = ttnn.prepare_conv_transpose2d_bias(bias_tensor=bias, out_channels=32, device=device, conv_config=config)
    assert torch.equal(ttnn.to_torch(kept_bias), ttnn.to_torch(ready))


def test_weights_handed_back_make_the_same_bits(device):
    images, weight = ttnn.from_torch(random(2, 8, 8, 96), ttnn.bfloat16), ttnn.from_torch(random(89, 96, 3, 3))
    sizes = {"batch_size": 2, "input_height": 8, "input_width": 8, "in_channels": 96, "out_channels": 89}
    given = {**sizes, "kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 2, 2, 3), "device": device}
    first, (kept, _) = ttnn.conv2d(input_tensor=images, weight_tensor=weight, return_weights_and_bias=True, **given)
    again = ttnn.conv2d(input_tensor=images, weight_tensor=kept, **given)
    assert torch.equal(ttnn.to_torch(first), ttnn.to_torch(again))


@pytest.mark.parametrize("dtype", [None, ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b])
@pytest.mark.parametrize("op", [ttnn.conv2d, ttnn.conv_transpose2d, ttnn.conv1d])
def test_a_bias_counts_in_the_dtype_of_the_weights_in_every_form(device, op, dtype):
    is_1d = op is ttnn.conv1d
    images = ttnn.from_torch(random(1, 1 if is_1d else 4, 16, 32))
    weight = ttnn.from_torch(random(32, 32, 3) if is_1d else random(32, 32, 3, 3))
    bias, config = ttnn.from_torch(random(1, 1, 1, 32)), ttnn.Conv1dConfig(weights_dtype=dtype)
    sizes = {"input_length": 16} if is_1d else {"input_height": 4, "input_width": 16}
    sizes |= {"batch_size": 1, "in_channels": 32, "out_channels": 32, "kernel_size": 3 if is_1d else (3, 3)}
    given = {**sizes, "input_tensor": images, "device": device, "conv_config": config, "dtype": ttnn.float32}
    raw, (kept, kept_bias) = op(weight_tensor=weight, bias_tensor=bias, return_weights_and_bias=True, **given)
    held = ttnn.prepare_conv_bias(bias_tensor=bias, out_channels=32, device=device, conv_config=config)
    for ready in (kept_bias, held):
        again = op(weight_tensor=kept, bias_tensor=ready, **given)
        assert torch.equal(ttnn.to_torch(raw), ttnn.to_torch(again))
