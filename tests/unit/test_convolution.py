"""conv2d against torch, on one device and on meshes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operands import LOCAL, R, S, Words, random
from operands import put as put_tiled

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError, PartialWarning
from softmesh.ops.conv.conv2d import conv2d

put = partial(put_tiled, layout=ttnn.ROW_MAJOR_LAYOUT)


def sizes(n: int, height: int, width: int, channels: int, out: int, **more: Any) -> dict[str, Any]:
    return {
        "batch_size": n,
        "input_height": height,
        "input_width": width,
        "in_channels": channels,
        "out_channels": out,
        "kernel_size": (3, 3),
        **more,
    }


def torch_conv(
    images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **more: Any
) -> torch.Tensor:
    """Channels-last images in, [1, 1, N*OH*OW, out] out."""
    result = F.conv2d(images.permute(0, 3, 1, 2), weight, None if bias is None else bias.flatten(), **more).permute(
        0, 2, 3, 1
    )
    return result.reshape(1, 1, -1, weight.shape[0])


def flat(images: torch.Tensor) -> torch.Tensor:
    return images.reshape(1, 1, -1, images.shape[-1])


def assert_close(result: ttnn.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ttnn.compose(result), expected, rtol=1e-4, atol=1e-4)


# -- one device ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize(
    ("options", "torch_options"),
    [
        ({}, {}),
        ({"stride": (2, 1), "padding": (1, 2)}, {"stride": (2, 1), "padding": (1, 2)}),
        ({"dilation": [2, 2], "padding": [2, 2]}, {"dilation": 2, "padding": 2}),
        ({"groups": 4}, {"groups": 4}),
    ],
)
def test_images_come_flat_or_apart_and_results_flat_in_tiles(device, is_flat, options, torch_options):
    images, bias = random(2, 7, 9, 8), random(1, 1, 1, 12)
    weight = random(12, 8 // options.get("groups", 1), 3, 3)
    result = conv2d(
        input_tensor=put(flat(images) if is_flat else images, device),
        weight_tensor=ttnn.from_torch(weight),
        bias_tensor=ttnn.from_torch(bias),
        device=device,
        **sizes(2, 7, 9, 8, 12, **options),
    )
    assert result.layout is ttnn.TILE_LAYOUT
    assert_close(result, torch_conv(images, weight, bias, **torch_options))


@pytest.mark.parametrize("filled", [8, 16, 32])
def test_channels_that_fill_up_a_row_are_not_read(device, filled):
    images, weight = random(1, 4, 5, filled), random(6, 3, 3, 3)
    made = conv2d(
        input_tensor=put(flat(images), device), weight_tensor=put(weight, device), device=device, **sizes(1, 4, 5, 3, 6)
    )
    assert_close(made, torch_conv(images[..., :3], weight))
    with pytest.raises(MeshError, match="with 3 channels"):
        conv2d(
            input_tensor=put(flat(images[..., :5]), device),
            weight_tensor=put(weight, device),
            device=device,
            **sizes(1, 4, 5, 3, 6),
        )


def test_four_paddings_are_top_bottom_left_right(device):
    images, weight = random(1, 5, 6, 4), random(8, 4, 3, 3)
    result, size = conv2d(
        input_tensor=put(images, device),
        weight_tensor=ttnn.from_torch(weight),
        device=device,
        return_output_dim=True,
        **sizes(1, 5, 6, 4, 8, padding=(0, 1, 2, 3)),
    )
    padded = F.pad(images.permute(0, 3, 1, 2), (2, 3, 0, 1)).permute(0, 2, 3, 1)
    assert size == (4, 9)
    assert_close(result, torch_conv(padded, weight))


def test_images_may_be_padded_by_their_border(device):
    images, weight = random(1, 5, 6, 4), random(8, 4, 3, 3)
    config = ttnn.Conv2dConfig(padding_mode=ttnn.PaddingMode.Replicate)
    result = conv2d(
        input_tensor=put(images, device),
        weight_tensor=ttnn.from_torch(weight),
        device=device,
        conv_config=config,
        **sizes(1, 5, 6, 4, 8, padding=(1, 1)),
    )
    padded = F.pad(images.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="replicate").permute(0, 2, 3, 1)
    assert_close(result, torch_conv(padded, weight))


def test_the_config_gives_activation_and_output_layout(device):
    images, weight = random(1, 5, 6, 4), random(8, 4, 3, 3)
    config = ttnn.Conv2dConfig(
        activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU), output_layout=ttnn.ROW_MAJOR_LAYOUT
    )
    result = conv2d(
        input_tensor=put(images, device),
        weight_tensor=ttnn.from_torch(weight),
        device=device,
        conv_config=config,
        **sizes(1, 5, 6, 4, 8),
    )
    assert result.layout is ttnn.ROW_MAJOR_LAYOUT
    assert_close(result, torch_conv(images, weight).relu())


def test_bfloat16_is_summed_in_float32_and_rounded_to_the_dtype_asked_for(device):
    images, weight = random(2, 8, 8, 16), random(16, 16, 3, 3)
    arguments: dict[str, Any] = {
        "input_tensor": put(images, device, dtype=ttnn.bfloat16),
        "weight_tensor": ttnn.from_torch(weight, dtype=ttnn.bfloat16),
        "device": device,
        **sizes(2, 8, 8, 16, 16),
    }
    exact = torch_conv(images.bfloat16().float(), weight.bfloat16().float())
    plain, wide = conv2d(**arguments), conv2d(**arguments, dtype=ttnn.float32)
    assert plain.dtype is ttnn.bfloat16
    torch.testing.assert_close(ttnn.to_torch(wide), exact, rtol=1e-4, atol=1e-4)
    stacked = torch.stack([ttnn.to_torch(plain).flatten().float(), exact.flatten()])
    assert torch.corrcoef(stacked)[0, 1] > 0.99


def test_weights_are_rounded_as_a_matrix_with_output_channels_last(device):
    images, weight = random(1, 5, 5, 4), random(32, 4, 3, 3)
    result = conv2d(
        input_tensor=put(images, device),
        weight_tensor=ttnn.from_torch(weight),
        device=device,
        conv_config=ttnn.Conv2dConfig(weights_dtype=ttnn.bfloat8_b),
        **sizes(1, 5, 5, 4, 32),
    )
    matrix = ttnn.from_torch(weight.permute(2, 3, 1, 0).reshape(36, 32), dtype=ttnn.bfloat8_b)
    rounded = ttnn.to_torch(matrix).reshape(3, 3, 4, 32).permute(3, 2, 0, 1)
    assert_close(result, torch_conv(images, rounded))


def test_weights_handed_back_are_on_the_device_and_serve_again(device):
    images, weight, bias = random(1, 5, 5, 4), random(8, 4, 3, 3), random(1, 1, 1, 8)
    arguments: dict[str, Any] = {
        "input_tensor": put(images, device),
        "device": device,
        **sizes(1, 5, 5, 4, 8),
    }
    first, size, (weights, biases) = conv2d(
        weight_tensor=ttnn.from_torch(weight),
        bias_tensor=ttnn.from_torch(bias),
        return_output_dim=True,
        return_weights_and_bias=True,
        **arguments,
    )
    assert size == (3, 3)
    assert weights.device() is device
    assert biases.device() is device
    again, (_, none) = conv2d(weight_tensor=weights, return_weights_and_bias=True, **arguments)
    assert none is None
    assert_close(again, torch_conv(images, weight))
    assert_close(first, torch_conv(images, weight, bias))


@pytest.mark.parametrize("op", [conv2d, ttnn.conv_transpose2d])
@pytest.mark.parametrize("dtype", [None, ttnn.bfloat8_b])
def test_one_call_is_enough_before_the_weights_it_handed_back_are_captured(op, dtype):
    """On a chip the first call prepares the weights and compiles the program that takes them."""
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1), trace_region_size=1 << 20) as device:
        arguments: dict[str, Any] = {
            "input_tensor": put(random(1, 5, 5, 4), device),
            "device": device,
            "conv_config": ttnn.Conv2dConfig(weights_dtype=dtype),
            **sizes(1, 5, 5, 4, 4),
        }
        weight, bias = ttnn.from_torch(random(4, 4, 3, 3)), ttnn.from_torch(random(1, 1, 1, 4))
        options = {"weight_tensor": weight, "bias_tensor": bias, "return_weights_and_bias": True}
        first, (weights, biases) = op(**options, **arguments)
        trace = ttnn.begin_trace_capture(device, cq_id=0)
        again = op(weight_tensor=weights, bias_tensor=biases, **arguments)
        ttnn.end_trace_capture(device, trace, cq_id=0)
        ttnn.execute_trace(device, trace, cq_id=0)
        torch.testing.assert_close(ttnn.compose(again), ttnn.compose(first), rtol=0.01, atol=0.02)
        trace = ttnn.begin_trace_capture(device, cq_id=0)
        with pytest.raises(RuntimeError, match="runs here for the first time"):
            op(weight_tensor=weights, **arguments)  # without a bias it is another program
        ttnn.end_trace_capture(device, trace, cq_id=0)


@pytest.mark.parametrize("where", [ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG])
def test_an_activation_in_l1_is_deallocated_on_request(device, where):
    images = put(random(1, 5, 5, 4), device, memory_config=where)
    conv2d(
        input_tensor=images,
        weight_tensor=ttnn.from_torch(random(8, 4, 3, 3)),
        device=device,
        conv_config=ttnn.Conv2dConfig(deallocate_activation=True),
        **sizes(1, 5, 5, 4, 8),
    )
    assert images.is_allocated() is (where is ttnn.DRAM_MEMORY_CONFIG)


def test_an_observer_sees_the_arithmetic(device):
    class Recorder:
        costs: dict[str, ttnn.Cost] = {}

        def on_command(self, command: ttnn.Command) -> None:
            self.costs[command.name] = command.cost

    images = put(random(2, 5, 5, 4), device)
    with ttnn.observe(Recorder()) as recorder:
        conv2d(
            input_tensor=images,
            weight_tensor=ttnn.from_torch(random(8, 2, 3, 3)),
            device=device,
            **sizes(2, 5, 5, 4, 8, groups=2),
        )
    assert isinstance(recorder, Recorder)
    assert recorder.costs["conv2d"].flops == 2 * (2 * 3 * 3 * 8) * (2 * 3 * 3)


# -- meshes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_flat", [True, False])
def test_a_batch_split_over_devices_stays_split(mesh, is_flat):
    images, weight, bias = random(8, 5, 6, 4), random(8, 4, 3, 3), random(1, 1, 1, 8)
    split = S(2) if is_flat else S(0)
    result = conv2d(
        input_tensor=put(flat(images) if is_flat else images, mesh, (split, split)),
        weight_tensor=ttnn.from_torch(weight),
        bias_tensor=ttnn.from_torch(bias),
        device=mesh,
        **sizes(1, 5, 6, 4, 8),
    )
    assert ttnn.placements(result) == (S(2), S(2))
    assert_close(result, torch_conv(images, weight, bias))


def test_a_replicated_convolution_is_computed_and_stored_once(mesh):
    images, weight = random(2, 5, 6, 4), random(8, 4, 3, 3)
    result = conv2d(
        input_tensor=put(images, mesh),
        weight_tensor=ttnn.from_torch(weight),
        device=mesh,
        **sizes(2, 5, 6, 4, 8),
    )
    assert ttnn.placements(result) == (R, R)
    assert result.storage.data.numel() == 2 * 3 * 4 * 8
    assert_close(result, torch_conv(images, weight))


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_split_by_output_channels_split_the_result(mesh, groups):
    """Each of four devices has `groups` groups over all channels of its own copy of the images."""
    images = random(4, 5, 6, 4)
    weight, bias = random(32, 4 // groups, 3, 3), random(1, 1, 1, 32)
    result = conv2d(
        input_tensor=put(images, mesh, (S(0), R)),
        weight_tensor=put(weight, mesh, (R, S(0))),
        bias_tensor=put(bias, mesh, (R, S(3))),
        device=mesh,
        **sizes(2, 5, 6, 4, 8, groups=groups),
    )
    assert ttnn.placements(result) == (S(2), S(3))
    parts = zip(weight.chunk(4), bias.chunk(4, -1), strict=True)
    assert_close(result, torch.cat([torch_conv(images, w, b, groups=groups) for w, b in parts], -1))


def test_groups_split_over_devices_split_the_result(mesh):
    images, weight = random(2, 5, 6, 16), random(32, 2, 3, 3)
    result = conv2d(
        input_tensor=put(images, mesh, (S(0), S(3))),
        weight_tensor=put(weight, mesh, (R, S(0))),
        device=mesh,
        **sizes(1, 5, 6, 4, 8, groups=2),
    )
    assert ttnn.placements(result) == (S(2), S(3))
    assert_close(result, torch_conv(images, weight, groups=8))


def test_split_input_channels_leave_addends(pair):
    images, weight = random(2, 5, 6, 8), random(12, 8, 3, 3)
    arguments: dict[str, Any] = {
        "input_tensor": put(images, pair, (R, S(3))),
        "weight_tensor": put(weight, pair, (R, S(1))),
        "device": pair,
        **sizes(2, 5, 6, 4, 12),
    }
    result = conv2d(**arguments)
    assert ttnn.placements(result) == (R, ttnn.Partial())
    pieces = [ttnn.to_torch(piece) for piece in ttnn.get_device_tensors(result)]
    torch.testing.assert_close(sum(pieces), torch_conv(images, weight), rtol=1e-4, atol=1e-4)
    with pytest.warns(PartialWarning, match="the plain result is still Partial"):
        conv2d(**arguments, bias_tensor=ttnn.from_torch(random(1, 1, 1, 12)))
    config = ttnn.Conv2dConfig(activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU))
    with pytest.warns(PartialWarning, match="the plain result is still Partial"):
        conv2d(**arguments, conv_config=config)


def test_every_device_may_have_weights_of_its_own(mesh):
    """Images differ along rows, weights along both axes: each device gets what it would compute alone."""
    images, weight = random(2, 5, 6, 4), random(8 * 8, 4, 3, 3)
    result = conv2d(
        input_tensor=put(images, mesh, (S(0), R)),
        weight_tensor=put(weight, mesh, (S(0), S(0))),
        device=mesh,
        **sizes(1, 5, 6, 4, 8),
    )
    for at, piece in enumerate(ttnn.get_device_tensors(result)):
        row = at // 4
        own = torch_conv(images[row : row + 1], weight[8 * at : 8 * at + 8])
        torch.testing.assert_close(ttnn.to_torch(piece), own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("word", [S(1), S(2), S(3)])
def test_images_split_within_or_by_channels_alone_give_a_local_result(pair, word):
    images = random(2, 6, 6, 4)
    local = [n // 2 if dim == word.dim else n for dim, n in enumerate(images.shape)]
    result = conv2d(
        input_tensor=put(images, pair, (R, word)),
        weight_tensor=ttnn.from_torch(random(8, local[3], 3, 3)),
        device=pair,
        **sizes(*local, 8),
    )
    assert ttnn.placements(result) == (R, LOCAL)


def test_images_split_unevenly_give_a_local_result(pair):
    with ttnn.lenient():
        images = put(random(3, 5, 5, 4), pair, (R, S(0)))
    weight = ttnn.from_torch(random(8, 4, 3, 3))
    result = conv2d(input_tensor=images, weight_tensor=weight, device=pair, **sizes(2, 5, 5, 4, 8))
    assert ttnn.placements(result) == (R, LOCAL)


def words_for(rank: int) -> st.SearchStrategy[Words]:
    word = st.one_of(st.just(R), st.integers(0, rank - 1).map(S))
    return st.tuples(word, word)


def spread(local: tuple[int, ...], mesh: ttnn.MeshDevice, words: Words) -> ttnn.Tensor:
    """Random values of which each device has a piece of the shape `local`."""
    shape = list(local)
    for word, extent in zip(words, mesh.shape, strict=True):
        if isinstance(word, ttnn.Shard):
            shape[word.dim] *= extent
    return put(random(*shape), mesh, words)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words_for(4), words_for(4), st.sampled_from([1, 2]))
def test_a_convolution_on_a_mesh_is_one_on_each_device(mesh, image_words, weight_words, groups):
    images = spread((2, 4, 5, 4), mesh, image_words)
    weight = spread((6, 4 // groups, 3, 3), mesh, weight_words)
    result = conv2d(input_tensor=images, weight_tensor=weight, device=mesh, **sizes(2, 4, 5, 4, 6, groups=groups))
    for parts in zip(*map(ttnn.get_device_tensors, (images, weight, result)), strict=True):
        own_images, own_weight, own_result = (ttnn.to_torch(part) for part in parts)
        expected = torch_conv(own_images, own_weight, groups=groups)
        torch.testing.assert_close(own_result, expected, rtol=1e-4, atol=1e-4)


# -- bad input -------------------------------------------------------------------------------------


def test_conv2d_names_what_does_not_fit(device):
    images, weight = put(random(1, 5, 5, 4), device), put(random(8, 4, 3, 3), device)

    def refuse(message: str, error: type[Exception] = MeshError, **changed: Any) -> None:
        arguments = {
            "input_tensor": images,
            "weight_tensor": weight,
            "device": device,
            **sizes(1, 5, 5, 4, 8),
        }
        with pytest.raises(error, match=message):
            conv2d(**(arguments | changed))

    refuse(r"must be \[1, 1, 50, 4\] or \[2, 5, 5, 4\]", batch_size=2)
    refuse(r"input_tensor \[25, 4\] must be", input_tensor=put(random(25, 4), device))
    refuse(r"must be \[8, 4, 2, 3\]", kernel_size=(2, 3))
    refuse("groups=3 must divide in_channels=4", groups=3)
    refuse("bias_tensor", bias_tensor=put(random(1, 1, 1, 4), device))
    refuse("does not fit into 5x5 images", dilation=(3, 3))
    refuse("padding=.* must be 2 or 4 numbers of 0 or more", padding=(1, 1, 1))
    refuse("padding=.* must be 2 or 4 numbers of 0 or more", padding=(-1, 1))
    refuse("stride=.* must be 2 numbers of 1 or more", stride=(0, 1))
    refuse("kernel_size must be a sequence of ints", ArgumentError, kernel_size=3)
    refuse("must be 6 numbers of 1 or more", out_channels=0)
    refuse("device must be a ttnn.MeshDevice", ArgumentError, device=None)
    refuse("Did you mean 'dilation'", ArgumentError, dilaton=(1, 1))
    refuse("weight_tensor must be a ttnn.Tensor", ArgumentError, weight_tensor="weights")
    with pytest.raises(TypeError, match="device"):
        conv2d(input_tensor=images, weight_tensor=weight, **sizes(1, 5, 5, 4, 8))


def test_addends_that_nobody_summed_are_named(pair):
    a = put(random(1, 1, 25, 64), pair, (R, S(3)), layout=ttnn.TILE_LAYOUT)
    b = put(random(1, 1, 64, 4), pair, (R, S(2)), layout=ttnn.TILE_LAYOUT)
    addends = ttnn.matmul(a, b)
    assert ttnn.placements(addends) == (R, ttnn.Partial())
    with pytest.warns(PartialWarning, match="input_tensor is still Partial"):
        conv2d(
            input_tensor=addends,
            weight_tensor=ttnn.from_torch(random(8, 4, 3, 3)),
            device=pair,
            **sizes(1, 5, 5, 4, 8),
        )
