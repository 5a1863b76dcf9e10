"""Prepared weights, rows, transposed images and volumes: convolutions beside conv2d, against torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operands import R, S, random
from operands import put as put_tiled

import softmesh as ttnn
from softmesh.errors import MeshError

SUM = ttnn.Partial("sum")
put = partial(put_tiled, layout=ttnn.ROW_MAJOR_LAYOUT)


@pytest.fixture(scope="module")
def several() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as mesh:
        yield mesh


def close(result: ttnn.Tensor, expected: torch.Tensor) -> None:
    if SUM in ttnn.placements(result):
        with ttnn.lenient():
            result = ttnn.all_reduce(result, cluster_axis=ttnn.placements(result).index(SUM))
    torch.testing.assert_close(ttnn.compose(result), expected, rtol=1e-4, atol=1e-4)


def flat(images: torch.Tensor) -> torch.Tensor:
    """Channels first to [1, 1, N*H*W, C]."""
    return images.movedim(1, -1).reshape(1, 1, -1, images.shape[1])


# -- prepared weights ------------------------------------------------------------------------------

SIZES: dict[str, Any] = {
    "batch_size": 2,
    "input_height": 6,
    "input_width": 5,
    "kernel_size": (3, 2),
    "stride": (1, 1),
    "padding": (1, 0),
    "dilation": (1, 1),
}


def prepared(weight: ttnn.Tensor, mesh: ttnn.MeshDevice, **sizes: Any) -> ttnn.Tensor:
    return ttnn.prepare_conv_weights(
        weight_tensor=weight,
        input_memory_config=ttnn.DRAM_MEMORY_CONFIG,
        input_layout=ttnn.ROW_MAJOR_LAYOUT,
        weights_format="OIHW",
        has_bias=False,
        device=mesh,
        input_dtype=ttnn.float32,
        **sizes,
    )


@pytest.mark.parametrize(
    ("image_words", "weight_words", "expected"),
    [
        ((R, R), (R, R), (R, R)),
        ((R, R), (R, S(0)), (R, S(3))),
        ((S(0), R), (R, S(0)), (S(2), S(3))),
        ((S(3), R), (S(1), R), (SUM, R)),
    ],
    ids=str,
)
def test_prepared_weights_convolve_as_the_weights_themselves(
    image_words: Any, weight_words: Any, expected: Any, several: ttnn.MeshDevice
) -> None:
    images, weight = random(2, 6, 5, 4), random(8, 4, 3, 2)
    placed, raw = put(images, several, image_words), put(weight, several, weight_words)
    sizes = {
        **SIZES,
        "batch_size": placed.shape[0],
        "in_channels": placed.shape[3],
        "out_channels": raw.shape[0],
        "groups": 1,
    }
    matrix = prepared(raw, several, **sizes)
    assert tuple(matrix.shape) == (1, 1, raw.shape[1] * 6, raw.shape[0])
    result = ttnn.conv2d(input_tensor=placed, weight_tensor=matrix, device=several, **sizes)
    assert ttnn.placements(result) == expected
    wanted = F.conv2d(images.permute(0, 3, 1, 2), weight, padding=(1, 0))
    close(result, flat(wanted))


def test_prepared_weights_are_rounded_once(several: ttnn.MeshDevice) -> None:
    images, weight = put(random(2, 6, 5, 4), several), random(32, 4, 3, 2)
    config = ttnn.Conv2dConfig(weights_dtype=ttnn.bfloat8_b)
    sizes = {**SIZES, "in_channels": 4, "out_channels": 32, "groups": 1, "conv_config": config}
    matrix = prepared(ttnn.from_torch(weight), several, **sizes)
    assert matrix.dtype is ttnn.bfloat8_b
    assert matrix.layout is ttnn.TILE_LAYOUT
    host = ttnn.from_torch(weight)
    plain = ttnn.conv2d(input_tensor=images, weight_tensor=host, device=several, **sizes)
    early = ttnn.conv2d(input_tensor=images, weight_tensor=matrix, device=several, **sizes)
    assert torch.equal(ttnn.compose(plain), ttnn.compose(early))


def test_a_prepared_bias_is_added(several: ttnn.MeshDevice) -> None:
    images, weight, bias = random(2, 6, 5, 4), random(8, 2, 3, 2), random(1, 1, 1, 8)
    sizes = {**SIZES, "in_channels": 4, "out_channels": 8, "groups": 2}
    added = ttnn.prepare_conv_bias(
        bias_tensor=ttnn.from_torch(bias), device=several, input_layout=ttnn.ROW_MAJOR_LAYOUT, **sizes
    )
    matrix = prepared(ttnn.from_torch(weight), several, **sizes)
    result, size, (kept, kept_bias) = ttnn.conv2d(
        input_tensor=put(images, several),
        weight_tensor=matrix,
        bias_tensor=added,
        device=several,
        return_output_dim=True,
        return_weights_and_bias=True,
        **sizes,
    )
    assert size == (6, 4)
    assert kept is matrix
    assert kept_bias is added
    close(result, flat(F.conv2d(images.permute(0, 3, 1, 2), weight, bias.flatten(), padding=(1, 0), groups=2)))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"weights_format": "OHWI"}, ttnn.MeshError, "weights_format"),
        ({"out_channels": 7}, ttnn.MeshError, "must be"),
        ({"input_heigth": 3}, TypeError, "input_height"),
    ],
)
def test_weights_that_cannot_be_prepared_are_refused(
    change: Any, error: Any, message: str, several: ttnn.MeshDevice
) -> None:
    arguments = {"in_channels": 4, "out_channels": 8, "kernel_size": (3, 2), "device": several, **change}
    with pytest.raises(error, match=message):
        ttnn.prepare_conv_weights(weight_tensor=ttnn.from_torch(random(8, 4, 3, 2)), **arguments)


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(R, R), (S(0), R)], ids=str)
@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize(
    ("options", "padding"),
    [
        ({}, (0, 0)),
        ({"stride": 2, "padding": 2, "dilation": 2}, (2, 2)),
        ({"padding": (3, 1), "groups": 2}, (3, 1)),
    ],
)
def test_rows_convolve_as_images_of_one_column(
    options: Any, padding: Any, is_flat: bool, words: Any, several: ttnn.MeshDevice
) -> None:
    rows, weight, bias = random(2, 9, 4), random(6, 4 // options.get("groups", 1), 3), random(1, 1, 1, 6)
    given = rows.reshape(1, 1, 18, 4) if is_flat else rows
    own = tuple(S(2) if word is S(0) and is_flat else word for word in words)
    result, length = ttnn.conv1d(
        input_tensor=put(given, several, own),  # type: ignore[arg-type]
        weight_tensor=ttnn.from_torch(weight),
        bias_tensor=ttnn.from_torch(bias),
        device=several,
        in_channels=4,
        out_channels=6,
        batch_size=1 if S(0) in words else 2,
        input_length=9,
        kernel_size=3,
        return_output_dim=True,
        **options,
    )
    steps = {key: options[key] for key in ("stride", "dilation", "groups") if key in options}
    wanted = F.conv1d(F.pad(rows.transpose(1, 2), padding), weight, bias.flatten(), **steps)
    assert length == wanted.shape[-1]
    close(result, flat(wanted))


def test_an_output_extent_follows_from_window_and_stride() -> None:
    assert ttnn.get_conv_output_dim(224, 7, 2, 3) == 112
    assert ttnn.get_conv_output_dim(10, 3, dilation=2) == 6


# -- transposed ------------------------------------------------------------------------------------

TRANSPOSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    (
        {"stride": (2, 3), "padding": (1, 1), "output_padding": (1, 0)},
        {"stride": (2, 3), "padding": 1, "output_padding": (1, 0)},
    ),
    ({"dilation": (2, 1), "groups": 2}, {"dilation": (2, 1), "groups": 2}),
]


@pytest.mark.parametrize(
    ("image_words", "weight_words", "expected"),
    [
        ((R, R), (R, R), (R, R)),
        ((S(0), R), (R, R), (S(2), R)),
        ((S(0), R), (R, S(1)), (S(2), S(3))),
        ((S(3), R), (S(0), R), (SUM, R)),
    ],
    ids=str,
)
def test_pixels_spread_over_windows(
    image_words: Any, weight_words: Any, expected: Any, several: ttnn.MeshDevice
) -> None:
    for (options, torch_options), is_prepared in [(o, p) for o in TRANSPOSED for p in (False, True)]:
        groups = options.get("groups", 1)
        if groups > 1 and expected != (R, R):
            continue
        images, weight = random(2, 4, 5, 4), random(4, 6 // groups, 3, 2)
        placed, raw = put(images, several, image_words), put(weight, several, weight_words)
        sizes = {
            "in_channels": placed.shape[3],
            "out_channels": raw.shape[1] * groups,
            "batch_size": placed.shape[0],
            "input_height": 4,
            "input_width": 5,
            "kernel_size": (3, 2),
            **options,
        }
        given = (
            ttnn.prepare_conv_transpose2d_weights(weight_tensor=raw, device=several, **sizes) if is_prepared else raw
        )
        result, size = ttnn.conv_transpose2d(
            input_tensor=placed, weight_tensor=given, device=several, return_output_dim=True, **sizes
        )
        wanted = F.conv_transpose2d(images.permute(0, 3, 1, 2), weight, **torch_options)
        assert ttnn.placements(result) == expected
        assert size == tuple(wanted.shape[2:])
        close(result, flat(wanted))


def test_groups_split_over_devices_stay_groups(several: ttnn.MeshDevice) -> None:
    images, weight = random(2, 4, 5, 8), random(8, 3, 3, 2)
    result = ttnn.conv_transpose2d(
        input_tensor=put(images, several, (R, S(3))),
        weight_tensor=put(weight, several, (R, S(0))),
        device=several,
        in_channels=4,
        out_channels=6,
        batch_size=2,
        input_height=4,
        input_width=5,
        kernel_size=(3, 2),
        groups=2,
    )
    assert ttnn.placements(result) == (R, S(3))
    close(result, flat(F.conv_transpose2d(images.permute(0, 3, 1, 2), weight, groups=4)))


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_kernel_that_is_not_mirrored_is_turned(is_prepared: bool, several: ttnn.MeshDevice) -> None:
    images, weight, bias = random(1, 4, 5, 4), random(4, 6, 3, 2), random(1, 1, 1, 6)
    sizes: dict[str, Any] = {
        "in_channels": 4,
        "out_channels": 6,
        "batch_size": 1,
        "input_height": 4,
        "input_width": 5,
        "kernel_size": (3, 2),
        "mirror_kernel": False,
    }
    given = ttnn.from_torch(weight)
    if is_prepared:
        given = ttnn.prepare_conv_transpose2d_weights(weight_tensor=given, device=several, **sizes)
    result = ttnn.conv_transpose2d(
        input_tensor=put(images, several),
        weight_tensor=given,
        bias_tensor=ttnn.from_torch(bias),
        device=several,
        conv_config=ttnn.Conv2dConfig(activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)),
        **sizes,
    )
    wanted = F.conv_transpose2d(images.permute(0, 3, 1, 2), weight.flip(-1, -2), bias.flatten())
    close(result, flat(wanted).relu())


# -- volumes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "weight_words", "expected"),
    [((R, R), (R, R), (R, R)), ((S(0), R), (R, S(0)), (S(0), S(4))), ((S(1), R), (R, R), (ttnn.Local(), R))],
    ids=str,
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"C_in_block": 32, "stride": (1, 2, 1), "padding": (1, 0, 1)},
        {"padding": (1, 1, 1), "padding_mode": "replicate"},
    ],
    ids=str,
)
def test_volumes_convolve_with_prepared_weights(
    options: dict[str, Any], words: Any, weight_words: Any, expected: Any, several: ttnn.MeshDevice
) -> None:
    volumes, weight, bias = random(2, 4, 5, 6, 40), random(6, 40, 2, 3, 2), random(1, 6)
    steps = {key: value for key, value in options.items() if key != "C_in_block"}
    block = options.get("C_in_block", 0)
    raw = put(weight, several, weight_words)
    rows = ttnn.experimental.prepare_conv3d_weights(weight_tensor=raw, C_in_block=block, device=several)
    assert tuple(rows.shape) == (64 * 12, raw.shape[0])
    result = ttnn.experimental.conv3d(
        input_tensor=put(volumes, several, words),
        weight_tensor=rows,
        bias_tensor=put(bias, several, tuple(S(1) if word is S(0) else R for word in weight_words)),
        dtype=ttnn.float32,
        output_channels=raw.shape[0],
        kernel_size=(2, 3, 2),
        config=ttnn.Conv3dConfig(C_in_block=block),
        **steps,
    )
    assert ttnn.placements(result) == expected
    if ttnn.Local() in expected:
        return
    padding = steps.get("padding", (0, 0, 0))
    sides = [n for side in reversed(padding) for n in (side, side)]
    mode = "replicate" if "padding_mode" in steps else "constant"
    padded = F.pad(volumes.movedim(-1, 1), sides, mode=mode)
    wanted = F.conv3d(padded, weight, bias.flatten(), stride=steps.get("stride", 1))
    close(result, wanted.movedim(1, -1))


def test_plain_weights_and_groups_of_volumes(several: ttnn.MeshDevice) -> None:
    volumes, weight = random(1, 3, 4, 4, 8), random(6, 4, 2, 2, 2)
    result = ttnn.experimental.conv3d(
        input_tensor=put(volumes, several),
        weight_tensor=ttnn.from_torch(weight),
        dtype=ttnn.float32,
        output_channels=6,
        kernel_size=(2, 2, 2),
        dilation=(1, 2, 1),
        groups=2,
    )
    close(result, F.conv3d(volumes.movedim(-1, 1), weight, dilation=(1, 2, 1), groups=2).movedim(1, -1))


def test_a_config_of_volumes_has_its_defaults_and_takes_lists() -> None:
    config = ttnn.Conv3dConfig()
    assert (config.C_in_block, config.alignment, config.output_layout) == (0, 32, ttnn.ROW_MAJOR_LAYOUT)
    assert ttnn.Conv3dConfig(dilation=[1, 2, 1]) == ttnn.Conv3dConfig(dilation=(1, 2, 1))
    with pytest.raises(TypeError, match="C_in_block"):
        ttnn.Conv3dConfig(C_in_blok=32)


@pytest.mark.parametrize("masks", [(5, 0), (0, 7), (6, 3)], ids=str)
def test_padding_of_volumes_counts_as_zero_on_every_device(masks: tuple[int, int], several: ttnn.MeshDevice) -> None:
    """Rows split down the mesh, each part with its own start in the whole volume."""
    volumes, weight = random(1, 2, 8, 6, 32), random(6, 32, 1, 1, 1)
    down, height = several.shape[0], 8 // several.shape[0]
    starts = torch.tensor([[row * height, 2] for row in range(down)])
    given: dict[str, Any] = {
        "input_tensor": put(volumes, several, (S(2), R)),
        "weight_tensor": ttnn.from_torch(weight),
        "dtype": ttnn.float32,
        "output_channels": 6,
        "kernel_size": (1, 1, 1),
        "logical_h_mask": masks[0],
        "logical_w_mask": masks[1],
    }
    offsets = put(starts, several, (S(0), R), dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    result = ttnn.experimental.conv3d(**given, pad_offset_tensor=offsets)
    meant = volumes.clone()
    if masks[0]:
        meant[:, :, masks[0] :] = 0
    if masks[1]:
        meant[:, :, :, masks[1] - 2 :] = 0
    wanted = F.conv3d(meant.movedim(-1, 1), weight).movedim(1, -1)
    assert ttnn.placements(result)[0] is ttnn.Local()
    parts = [ttnn.to_torch(part) for part in ttnn.get_device_tensors(result)[:: several.shape[1]]]
    torch.testing.assert_close(torch.cat(parts, 2), wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(MeshError, match=r"must be \[1, 2\] UINT32 on each device"):
        ttnn.experimental.conv3d(**given, pad_offset_tensor=put(torch.zeros(1, 3), several))


@pytest.mark.parametrize("held", [12, 32])
def test_grouped_weights_of_volumes_know_their_channels(held: int, several: ttnn.MeshDevice) -> None:
    """12 channels in 4 groups, also where the volumes are padded to 32."""
    volumes, weight = random(1, 3, 4, 4, 12), random(8, 3, 2, 2, 2)
    rows = ttnn.experimental.prepare_conv3d_weights(weight_tensor=put(weight, several), groups=4, device=several)
    assert tuple(rows.shape) == (32 * 8, 8)
    padded = F.pad(volumes, (0, held - 12), value=7.0)
    result = ttnn.experimental.conv3d(
        input_tensor=put(padded, several),
        weight_tensor=rows,
        dtype=ttnn.float32,
        output_channels=8,
        kernel_size=(2, 2, 2),
        groups=4,
    )
    close(result, F.conv3d(volumes.movedim(-1, 1), weight, groups=4).movedim(1, -1))


def test_weights_of_rows_are_prepared_for_either_form_of_kernel(several: ttnn.MeshDevice) -> None:
    rows, weight = random(2, 9, 8), random(16, 8, 3)
    for kernel in ((3, 1), (1, 3)):
        matrix = ttnn.prepare_conv_weights(
            weight_tensor=ttnn.from_torch(weight), in_channels=8, out_channels=16, kernel_size=kernel, device=several
        )
        given: dict[str, Any] = {"batch_size": 2, "input_length": 9, "in_channels": 8, "out_channels": 16}
        given |= {"input_tensor": put(rows, several), "weight_tensor": matrix, "device": several, "kernel_size": 3}
        made = ttnn.conv1d(**given)
        wanted = F.conv1d(rows.movedim(-1, 1), weight).movedim(1, -1).reshape(1, 1, -1, 16)
        close(made, wanted)
    with pytest.raises(MeshError, match="DRAM_HEIGHT slices cut rows"):
        ttnn.conv1d(**given, slice_config=ttnn.Conv2dSliceConfig(slice_type=ttnn.Conv2dDRAMSliceHeight, num_slices=2))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"padding_mode": "replicate"}, "padding_mode"),
        ({"dilation": (1, 2, 2)}, "spatial reuse and no dilation"),
        ({"padding": (0, 1, 1)}, "holds 4 pages but the .* sections need 24"),
    ],
)
def test_a_halo_buffer_asks_for_plain_convolutions(more: Any, text: str, several: ttnn.MeshDevice) -> None:
    with pytest.raises(MeshError, match=text):
        ttnn.experimental.conv3d(
            input_tensor=put(random(1, 2, 2, 2, 32), several),
            weight_tensor=put(random(32, 8), several),
            dtype=ttnn.float32,
            output_channels=8,
            kernel_size=(1, 1, 1),
            halo_buffer=put(random(4, 32), several),
            **more,
        )
