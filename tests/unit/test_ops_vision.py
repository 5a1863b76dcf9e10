"""Ops on images against torch, channels last, on one device and on a mesh."""

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

LOCAL = ttnn.Local()
put = partial(put_tiled, layout=ttnn.ROW_MAJOR_LAYOUT)
F32: dict[str, Any] = {"dtype": ttnn.float32}


@pytest.fixture(scope="module")
def several() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 2)) as mesh:
        yield mesh


def first(images: torch.Tensor) -> torch.Tensor:
    return images.permute(0, 3, 1, 2)


def last(images: torch.Tensor) -> torch.Tensor:
    return images.permute(0, 2, 3, 1)


def flat(images: torch.Tensor) -> torch.Tensor:
    return images.reshape(1, 1, -1, images.shape[-1])


def close(result: ttnn.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ttnn.compose(result).float(), expected, rtol=1e-4, atol=1e-4)


# Images [N, H, W, C] as they come: apart by batch and channel, or flat and split by image.
FORMS: list[Any] = [
    (False, (R, R)),
    (False, (S(0), S(3))),
    (True, (R, R)),
    (True, (S(2), R)),
    (True, (S(2), S(3))),
]


def given(images: torch.Tensor, is_flat: bool, words: Any, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    return put(flat(images) if is_flat else images, mesh, words)


def pieces(words: Any, n: int, channels: int) -> tuple[int, int]:
    """Images and channels of each device of a 2x2 mesh."""
    by_image = 2 if S(0) in words or S(2) in words else 1
    return n // by_image, channels // (2 if S(3) in words else 1)


def flat_words(words: Any) -> Any:
    return tuple(S(2) if word is S(0) else word for word in words)


# -- pooling ---------------------------------------------------------------------------------------

WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0]},
    {"kernel_size": [3, 3], "stride": [2, 1], "padding": [1, 1]},
    {"kernel_size": [3, 2], "stride": [2, 2], "padding": [1, 0], "ceil_mode": True},
]


@pytest.mark.parametrize(("is_flat", "words"), FORMS, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_max_pooling_takes_the_largest(window: Any, is_flat: bool, words: Any, several: ttnn.MeshDevice) -> None:
    images = random(2, 7, 6, 4)
    n, channels = pieces(words, 2, 4)
    result = ttnn.max_pool2d(
        given(images, is_flat, words, several), n, 7, 6, channels, dilation=[1, 1], **window, **F32
    )
    assert ttnn.placements(result) == flat_words(words)
    assert result.layout is ttnn.ROW_MAJOR_LAYOUT
    close(result, flat(last(F.max_pool2d(first(images), **window))))


def test_places_of_the_largest_count_along_the_image(several: ttnn.MeshDevice) -> None:
    images = random(2, 7, 6, 4)
    window: dict[str, Any] = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}
    result, places = ttnn.max_pool2d(
        put(images, several, (S(0), R)), 1, 7, 6, 4, dilation=[2, 1], return_indices=True, **window, **F32
    )
    values, wanted = F.max_pool2d(first(images), dilation=[2, 1], return_indices=True, **window)
    close(result, flat(last(values)))
    assert places.dtype is ttnn.uint16
    assert torch.equal(ttnn.compose(places).long(), flat(last(wanted)))


def test_four_paddings_are_top_bottom_left_right(several: ttnn.MeshDevice) -> None:
    images = random(1, 6, 6, 4)
    arguments = [put(images, several), 1, 6, 6, 4, [3, 3], [1, 1], [1, 0, 0, 1]]
    padded = F.pad(first(images), (0, 1, 1, 0), value=float("-inf"))
    close(ttnn.max_pool2d(*arguments, [1, 1], **F32), flat(last(F.max_pool2d(padded, 3, 1))))
    zeros = F.pad(first(images), (0, 1, 1, 0))
    close(ttnn.avg_pool2d(*arguments, **F32), flat(last(F.avg_pool2d(zeros, 3, 1))))


def test_pooled_values_are_bfloat16_unless_asked_otherwise(several: ttnn.MeshDevice) -> None:
    images = put(random(1, 4, 4, 4), several)
    assert ttnn.max_pool2d(images, 1, 4, 4, 4, [2, 2], [2, 2], [0, 0], [1, 1]).dtype is ttnn.bfloat16
    assert ttnn.avg_pool2d(images, 1, 4, 4, 4, [2, 2], [2, 2], [0, 0]).dtype is ttnn.bfloat16


@pytest.mark.parametrize(("is_flat", "words"), FORMS, ids=str)
@pytest.mark.parametrize("more", [{}, {"count_include_pad": False}, {"divisor_override": 5}], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_average_pooling_takes_the_mean(
    window: Any, more: Any, is_flat: bool, words: Any, several: ttnn.MeshDevice
) -> None:
    images = random(2, 7, 6, 4)
    n, channels = pieces(words, 2, 4)
    result = ttnn.avg_pool2d(given(images, is_flat, words, several), n, 7, 6, channels, **window, **more, **F32)
    assert ttnn.placements(result) == flat_words(words)
    close(result, flat(last(F.avg_pool2d(first(images), **window, **more))))


@pytest.mark.parametrize(("is_flat", "words"), FORMS, ids=str)
def test_adaptive_pooling_makes_the_size_that_is_asked_for(is_flat: bool, words: Any, several: ttnn.MeshDevice) -> None:
    images = random(2, 8, 6, 4)
    n, channels = pieces(words, 2, 4)
    arguments = [given(images, is_flat, words, several), n, 8, 6, channels, [4, 3]]
    close(ttnn.adaptive_avg_pool2d(*arguments), flat(last(F.adaptive_avg_pool2d(first(images), (4, 3)))))
    close(ttnn.adaptive_max_pool2d(*arguments), flat(last(F.adaptive_max_pool2d(first(images), (4, 3)))))


def test_global_pooling_leaves_one_value_for_a_channel(several: ttnn.MeshDevice) -> None:
    images = random(2, 4, 6, 4)
    for words in ((R, R), (S(0), S(3))):
        result = ttnn.global_avg_pool2d(put(images, several, words))
        assert ttnn.placements(result) == words
        close(result, images.mean((1, 2), keepdim=True))
    by_rows = ttnn.global_avg_pool2d(put(images, several, (S(1), R)))
    assert ttnn.placements(by_rows) == (ttnn.Partial("avg"), R)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([2, 4, 4, 4, [2, 2], [2, 2], [0, 0]], "must be"),
        ([1, 4, 4, 4, [2, 2], [2, 2], [2, 2]], "at most half of kernel_size"),
        ([1, 4, 4, 4, [5, 5], [1, 1], [0, 0]], "does not fit"),
    ],
)
def test_windows_that_do_not_fit_are_refused(arguments: Any, message: str, several: ttnn.MeshDevice) -> None:
    with pytest.raises(ttnn.MeshError, match=message):
        ttnn.avg_pool2d(put(random(1, 4, 4, 4), several), *arguments)


# -- sampling --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(R, R), (S(0), S(3))], ids=str)
@pytest.mark.parametrize(
    ("scale", "mode"),
    [(2, "nearest"), ((3, 2), "nearest"), (1.5, "nearest"), (2, "bilinear"), ((2, 4), "bilinear")],
)
def test_upsampling_repeats_pixels_or_goes_between_them(
    scale: Any, mode: str, words: Any, several: ttnn.MeshDevice
) -> None:
    images = random(2, 4, 6, 4)
    result = ttnn.upsample(put(images, several, words), scale, mode=mode)
    assert ttnn.placements(result) == words
    wanted = last(F.interpolate(first(images), scale_factor=scale, mode=mode))
    close(result, wanted)
    assert torch.equal(ttnn.operations.pool.golden_upsample(images, scale, mode), wanted)


def test_rows_of_split_images_are_repeated_where_they_stand_and_mixed_with_none(several: ttnn.MeshDevice) -> None:
    images = random(2, 4, 6, 4)
    split = put(images, several, (S(1), R))
    repeated = ttnn.upsample(split, 2)
    assert ttnn.placements(repeated) == (S(1), R)
    close(repeated, last(F.interpolate(first(images), scale_factor=2, mode="nearest")))
    for scale, mode in ((1.5, "nearest"), (2, "bilinear")):
        assert ttnn.placements(ttnn.upsample(split, scale, mode=mode))[0] is LOCAL


@pytest.mark.parametrize(
    ("words", "grid_words", "expected"),
    [
        ((R, R), (R, R), (R, R)),
        ((S(0), R), (S(0), R), (S(0), R)),
        ((R, S(3)), (R, R), (R, S(3))),
        ((R, R), (S(1), R), (S(1), R)),
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"mode": "nearest"}], ids=str)
def test_images_are_sampled_at_points(
    options: Any, words: Any, grid_words: Any, expected: Any, several: ttnn.MeshDevice
) -> None:
    images, grid = random(2, 5, 6, 4), random(2, 4, 3, 2) * 0.8
    result = ttnn.grid_sample(put(images, several, words), put(grid, several, grid_words), **options)
    assert ttnn.placements(result) == expected
    chosen = {"mode": "bilinear", "align_corners": False, **options}
    close(result, last(F.grid_sample(first(images), grid, **chosen)))


def test_several_points_in_a_row_become_columns_or_channels(several: ttnn.MeshDevice) -> None:
    images, grid = random(1, 5, 6, 4), random(1, 3, 2, 6) * 0.5
    wanted = last(F.grid_sample(first(images), grid.reshape(1, 3, 6, 2), align_corners=False))
    placed = put(images, several), put(grid, several)
    close(ttnn.grid_sample(*placed), wanted)
    close(ttnn.grid_sample(*placed, batch_output_channels=True), wanted.reshape(1, 3, 2, 12))
    golden = ttnn.operations.pool.golden_grid_sample(images, grid, batch_output_channels=True)
    torch.testing.assert_close(golden, wanted.reshape(1, 3, 2, 12))
    with pytest.raises(ttnn.NotModelled, match="use_precomputed_grid"):
        ttnn.grid_sample(*placed, use_precomputed_grid=True)


def test_a_quarter_turn_moves_the_right_side_to_the_top(several: ttnn.MeshDevice) -> None:
    images = random(2, 5, 5, 4)
    result = ttnn.rotate(put(images, several, (S(0), R)), 90.0)
    assert ttnn.placements(result) == (S(0), R)
    assert torch.equal(ttnn.compose(result), torch.rot90(images, 1, (1, 2)))
    tilted = ttnn.compose(ttnn.rotate(put(torch.ones(1, 5, 5, 1), several), 45.0, fill=7.0))
    assert float(tilted[0, 0, 0, 0]) == 7.0
    assert float(tilted[0, 2, 2, 0]) == 1.0
    around_corner = ttnn.rotate(put(images, several), 180.0, center=(0.0, 0.0), interpolation_mode="bilinear")
    assert not ttnn.compose(around_corner).any()
    with pytest.raises(ttnn.MeshError, match="expand=True"):
        ttnn.rotate(put(images, several), 10.0, expand=True)


@pytest.mark.parametrize("words", [(R, R), (S(0), R)], ids=str)
def test_deformable_attention_weighs_samples(words: Any, several: ttnn.MeshDevice) -> None:
    images, grid, weights = random(2, 5, 6, 32), random(2, 3, 2, 2) * 0.5, random(2, 3, 2).softmax(-1)
    result = ttnn.experimental.multi_scale_deformable_attn(
        put(images, several, words),
        put(grid.reshape(2, 6, 1, 2), several, words),
        put(weights, several, words),
    )
    assert ttnn.placements(result) == words
    samples = last(F.grid_sample(first(images), grid, align_corners=False))
    close(result, (samples * weights.unsqueeze(-1)).sum(2))


# -- order of pixels -------------------------------------------------------------------------------


def folded(images: torch.Tensor, height: int, width: int) -> torch.Tensor:
    n, rows, columns, channels = images.shape
    apart = images.reshape(n, rows // height, height, columns // width, width, channels)
    return apart.permute(0, 1, 3, 2, 4, 5).reshape(n, rows // height, columns // width, -1)


@pytest.mark.parametrize("words", [(R, R), (S(0), R)], ids=str)
def test_windows_fold_into_channels(words: Any, several: ttnn.MeshDevice) -> None:
    images = random(2, 4, 6, 3)
    placed = put(images, several, words)
    close(ttnn.fold(placed, 2, 3), folded(images, 2, 3))
    together = ttnn.fold(placed, 2, 3, collapse_output=True)
    assert ttnn.placements(together) == flat_words(words)
    close(together, flat(folded(images, 2, 3)))
    padded = F.pad(images, (0, 1, 0, 0, 1, 1))
    close(ttnn.fold(placed, 2, 2, padding=[1, 1, 0, 0, 0, 1]), folded(padded, 2, 2))
    transposed = put(first(images), several, words)
    close(ttnn.fold(transposed, 2, 2, use_transpose_as_fold=True), folded(images, 2, 2))
    close(ttnn.experimental.quasar.fold(placed, 2, 2, True, input_is_nhwc=True), folded(images, 2, 2))
    with pytest.raises(ttnn.MeshError, match="must divide"):
        ttnn.fold(placed, 3, 2)


def test_channels_go_to_the_front_and_back(several: ttnn.MeshDevice) -> None:
    rows = random(1, 1, 12, 4)
    for words, swapped in (((R, R), (R, R)), ((S(2), S(3)), (S(3), S(2)))):
        result = ttnn.experimental.convert_to_chw(put(rows, several, words))
        assert ttnn.placements(result) == swapped
        close(result, rows.transpose(2, 3))
        close(ttnn.experimental.convert_to_hwc(result), rows)
    batch = random(1, 2, 4, 6)
    result = ttnn.experimental.convert_to_hwc(put(batch, several, (S(1), R)))
    assert ttnn.placements(result) == (S(2), R)
    close(result, batch.transpose(2, 3).reshape(1, 1, 12, 4))


def test_columns_of_pixels_on_cores_become_rows_of_them_on_the_same_cores(several: ttnn.MeshDevice) -> None:
    grid = ttnn.num_cores_to_corerangeset(2, ttnn.CoreCoord(8, 8), True)
    values = random(1, 2, 5, 32)

    def placed(where: ttnn.BufferType) -> ttnn.Tensor:
        shards = ttnn.ShardSpec(grid, [10, 16], ttnn.ShardOrientation.ROW_MAJOR)
        config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, where, shards)
        return ttnn.from_torch(values, ttnn.bfloat16, device=several, memory_config=config)

    result = ttnn.experimental.convert_to_hwc(placed(ttnn.BufferType.L1), dtype=ttnn.bfloat16)
    rows = ttnn.ShardSpec(grid, [32, 8], ttnn.ShardOrientation.ROW_MAJOR)
    in_rows = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, rows)
    assert result.memory_config() == in_rows
    far = placed(ttnn.BufferType.DRAM)
    assert ttnn.experimental.convert_to_hwc(far, memory_config=in_rows).memory_config() == in_rows
    with pytest.raises(RuntimeError, match="When input tensor is in DRAM, output memory_config must be explicitly"):
        ttnn.experimental.convert_to_hwc(far)
    narrow = ttnn.ShardSpec(grid, [32, 5], ttnn.ShardOrientation.ROW_MAJOR)
    bare = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, narrow)
    with pytest.raises(RuntimeError, match="hold 8 channels"):
        ttnn.experimental.convert_to_hwc(far, memory_config=bare)


# -- norms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(R, R), (S(0), R), (R, S(3)), (S(0), S(3))], ids=str)
def test_groups_of_channels_are_normalised(words: Any, several: ttnn.MeshDevice) -> None:
    x, weight, bias = random(2, 1, 32, 128), random(128), random(1, 128)[0]
    share = S(3) in words
    own = tuple(S(2) if word is S(3) else R for word in words)
    affine = [put(t.reshape(1, 1, 4, 32), several, own) for t in (weight, bias)]  # type: ignore[arg-type]
    result = ttnn.group_norm(
        put(x, several, words), num_groups=4 if share else 8, epsilon=1e-5, weight=affine[0], bias=affine[1]
    )
    assert ttnn.placements(result) == words
    wanted = F.group_norm(x.permute(0, 3, 1, 2), 8, weight, bias, 1e-5).permute(0, 2, 3, 1)
    close(result, wanted)


def test_weights_spread_over_columns_of_cores_are_read_back(several: ttnn.MeshDevice) -> None:
    x, weight = random(1, 1, 32, 320), random(320)
    spread = ttnn.create_group_norm_weight_bias_rm(weight, 320, 8)
    assert spread.shape == (1, 1, 16, 32)
    result = ttnn.group_norm(
        put(x, several),
        num_groups=32,
        weight=put(spread, several),
        core_grid=ttnn.CoreGrid(x=8, y=4),
        epsilon=1e-5,
    )
    close(result, F.group_norm(x.permute(0, 3, 1, 2), 32, weight, None, 1e-5).permute(0, 2, 3, 1))
    with pytest.raises(ttnn.MeshError, match="must hold 320 values"):
        ttnn.group_norm(put(x, several), num_groups=32, weight=put(random(1, 1, 3, 32), several))


def test_parameters_come_to_the_device_with_their_mask(several: ttnn.MeshDevice) -> None:
    x, weight, bias = random(1, 1, 32, 128), random(128), random(1, 128)[0]
    grid = ttnn.CoreGrid(x=4, y=2)
    (w, b), mask = ttnn.dram_group_norm_params_from_torch(
        [weight, bias], 64, 4, several, mesh_axis=1, core_grid=grid, dtype=ttnn.float32
    )
    assert ttnn.placements(w) == (R, S(2))
    assert tuple(mask.shape) == (1, 4, 32, 32)
    placed = put(x, several, (R, S(3)))
    result = ttnn.group_norm(placed, num_groups=4, epsilon=1e-5, weight=w, bias=b, input_mask=mask, core_grid=grid)
    close(result, F.group_norm(x.permute(0, 3, 1, 2), 8, weight, bias, 1e-5).permute(0, 2, 3, 1))
    only = ttnn.dram_group_norm_params_from_torch(weight[:64], 64, 4, several, return_mask=False)
    assert len(only) == 1


def test_a_mask_says_where_each_group_lies() -> None:
    mask = ttnn.to_torch(ttnn.create_group_norm_input_mask(80, 8, 2)).float()
    assert mask.shape == (1, 8, 32, 64)
    columns = [mask[0, group, 0].nonzero().flatten().tolist() for group in range(4)]
    assert columns == [[*range(10)], [*range(10, 20)], [*range(20, 30)], [*range(30, 40)]]
    assert torch.equal(mask[:, :4], mask[:, 4:])
    negative = ttnn.to_torch(ttnn.create_group_norm_input_negative_mask(80, 8, 2)).float()
    assert torch.equal(negative, 1 - mask)
    assert ttnn.operations.normalization.find_max_tile_span(80, 10, 32) == 2
    with pytest.raises(ttnn.MeshError, match="must divide"):
        ttnn.create_group_norm_input_mask(80, 3, 1)


def test_grids_divide_channels_and_pixels(several: ttnn.MeshDevice) -> None:
    sizes: dict[str, Any] = {"device": several, "num_channels": 320, "num_groups": 32, "input_nhw": 1024}
    grid = ttnn.determine_expected_group_norm_dram_grid_size(**sizes)
    assert 320 // 32 % grid.x == 0
    assert 32 % grid.x == 0
    assert 1024 // 32 % grid.y == 0
    for is_high in (True, False):
        config, grid = ttnn.determine_expected_group_norm_sharded_config_and_grid_size(
            **sizes, is_height_sharded=is_high
        )
        rows, columns = config.shard_spec.shape
        assert 1024 % rows == 0
        assert 320 % columns == 0
        assert columns % 10 == 0
        assert config.shard_spec.grid.num_cores() == grid.num_cores
    assert ttnn.operations.normalization.dram_group_norm_virtual_columns(ttnn.CoreGrid(x=8, y=8), 320, 32) == 2
    height = ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    assert ttnn.get_group_norm_cores_across_channel(height, ttnn.CoreGrid(x=8, y=4)) == 1


@pytest.mark.parametrize("words", [(R, R), (S(0), R), (R, S(1))], ids=str)
def test_batches_are_normalised_by_running_statistics(words: Any, several: ttnn.MeshDevice) -> None:
    x, weight, bias, mean = random(4, 6, 3, 5), random(6), random(1, 6)[0], random(2, 3).flatten()
    variance = random(3, 2).flatten().abs() + 0.5
    own = tuple(word if word is S(1) else R for word in words)
    channels = [put(t.reshape(1, 6, 1, 1), several, own) for t in (mean, variance, weight, bias)]  # type: ignore[arg-type]
    result = ttnn.batch_norm(
        put(x, several, words),
        running_mean=channels[0],
        running_var=channels[1],
        weight=channels[2],
        bias=channels[3],
        eps=1e-4,
    )
    assert ttnn.placements(result) == words
    close(result, F.batch_norm(x, mean, variance, weight, bias, eps=1e-4))


def test_training_moves_the_running_statistics_in_place(several: ttnn.MeshDevice) -> None:
    x = random(4, 6, 3, 5)
    mean, variance = (put(torch.full((1, 6, 1, 1), n), several) for n in (0.5, 2.0))
    result = ttnn.batch_norm(put(x, several), running_mean=mean, running_var=variance, training=True, momentum=0.25)
    close(result, F.batch_norm(x, None, None, training=True))
    dims = (0, 2, 3)
    close(mean, 0.75 * 0.5 + 0.25 * x.mean(dims, keepdim=True))
    close(variance, 0.75 * 2.0 + 0.25 * x.var(dims, correction=0, keepdim=True))
    by_device = put(torch.zeros(1, 6, 1, 1), several)
    ttnn.batch_norm(put(x, several, (S(0), R)), running_mean=by_device, training=True, momentum=1.0)
    assert ttnn.placements(by_device) == (LOCAL, R)
    torch.testing.assert_close(by_device.pieces()[0], x[:2].mean(dims, keepdim=True))
    with pytest.raises(ttnn.MeshError, match="must be defined in evaluation mode"):
        ttnn.batch_norm(put(x, several), running_mean=mean)


def in_shards(images: torch.Tensor, device: ttnn.MeshDevice, shard: tuple[int, int], cores: int) -> ttnn.Tensor:
    """Images channels last, in rows of L1 on so many cores."""
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(cores - 1, 0))})
    spec = ttnn.ShardSpec(grid, shard, ttnn.ShardOrientation.ROW_MAJOR)
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, spec)
    return ttnn.from_torch(images, ttnn.bfloat16, device=device, memory_config=config)


def test_images_in_shards_are_folded_and_enlarged_by_the_cores_that_have_them(device: ttnn.MeshDevice) -> None:
    images = random(4, 8, 8, 16)
    rows = in_shards(images, device, (64, 16), 4)
    for result, shard in (
        (ttnn.fold(rows, 2, 2), [16, 64]),
        (ttnn.fold(rows, 4, 1, collapse_output=True), [16, 64]),
        (ttnn.upsample(rows, 2), [256, 16]),
        (ttnn.upsample(rows, (2, 1), mode="bilinear"), [128, 16]),
    ):
        config = result.memory_config()
        assert (config.memory_layout, config.buffer_type) == (
            ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
            ttnn.BufferType.L1,
        )
        assert config.shard_spec.shape == shard
    whole = ttnn.from_torch(images, ttnn.bfloat16, device=device, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert torch.equal(ttnn.to_torch(ttnn.upsample(rows, 2)), ttnn.to_torch(ttnn.upsample(whole, 2)))
    elsewhere = ttnn.upsample(rows, 2, memory_config=ttnn.DRAM_MEMORY_CONFIG).memory_config()
    assert elsewhere == ttnn.DRAM_MEMORY_CONFIG
    assert not ttnn.fold(rows, 2, 2, padding=[0, 0, 2, 2]).memory_config().is_sharded()  # rows from beyond the shard


POOLED = {"batch_size": 2, "input_h": 8, "input_w": 16, "channels": 64}
WINDOWS = {**POOLED, "kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0]}
POOLS = {
    "max_pool2d": {**WINDOWS, "dilation": [1, 1]},
    "avg_pool2d": WINDOWS,
    "adaptive_avg_pool2d": {**POOLED, "output_size": [4, 8]},
    "adaptive_max_pool2d": {**POOLED, "output_size": [4, 8]},
}


def pooled(device, name, images, where, **more):
    placed = ttnn.from_torch(images, ttnn.bfloat16, device=device, memory_config=where)
    return getattr(ttnn, name)(placed, **POOLS[name], **more)


@pytest.mark.parametrize("name", POOLS)
def test_pools_of_images_in_l1_are_shards_there(device, name):
    images = random(1, 1, 256, 64)
    whole = pooled(device, name, images, ttnn.DRAM_MEMORY_CONFIG)
    assert whole.memory_config() == ttnn.DRAM_MEMORY_CONFIG
    for strategy, x, y, shard in (("HEIGHT", 4, 2, [8, 64]), ("BLOCK", 2, 4, [16, 32]), ("WIDTH", 2, 1, [64, 32])):
        held = ttnn.create_sharded_memory_config(
            (1, 1, 256, 64), ttnn.CoreGrid(x=x, y=y), getattr(ttnn.ShardStrategy, strategy)
        )
        made = pooled(device, name, images, held)
        assert made.memory_config().shard_spec.grid == held.shard_spec.grid
        assert made.memory_config().shard_spec.shape == shard
        assert torch.equal(ttnn.to_torch(made), ttnn.to_torch(whole))
        scheme = made.memory_config().memory_layout
        assert scheme is held.memory_layout
        chosen = pooled(device, name, images, ttnn.L1_MEMORY_CONFIG, applied_shard_scheme=scheme).memory_config()
        assert (chosen.memory_layout, chosen.buffer_type) == (scheme, ttnn.BufferType.L1)
        asked = pooled(device, name, images, held, memory_config=ttnn.L1_MEMORY_CONFIG)
        assert asked.memory_config() == ttnn.L1_MEMORY_CONFIG
        with pytest.raises(ttnn.MeshError, match="should not be specified for a sharded input"):
            pooled(device, name, images, held, applied_shard_scheme=scheme)
    in_slices = ttnn.Op2DSliceConfig(slice_type=ttnn.Op2DDRAMSliceWidth, num_slices=2)
    assert (
        pooled(device, name, images, ttnn.L1_MEMORY_CONFIG, dram_slice_config=in_slices).memory_config()
        == ttnn.DRAM_MEMORY_CONFIG
    )


def test_places_of_largest_values_lie_beside_them(device):
    made = pooled(device, "max_pool2d", random(1, 1, 256, 64), ttnn.L1_MEMORY_CONFIG, return_indices=True)
    assert [one.is_sharded() for one in made] == [True, True]
