"""Ops at the edges of their values and arguments: infinite and equal values, signs of factors, what they refuse."""

from __future__ import annotations

import math

import pytest
import torch
from operands import put, random

import softmesh as ttnn
from softmesh.errors import MeshError


def numbers(values: list[float], device: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.bfloat16) -> ttnn.Tensor:
    return put(torch.tensor([values]), device, dtype=dtype)


def read(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.compose(tensor).float()


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
@pytest.mark.parametrize("variant", [ttnn.GeluVariant.Accurate, ttnn.GeluVariant.Tanh])
def test_gelu_of_infinity_is_infinite(device, dtype, variant):
    made = read(ttnn.gelu(numbers([math.inf, 1.0, math.nan, 0.0], device, dtype), variant=variant))[0]
    assert made[0] == math.inf
    assert made[1] == pytest.approx(0.841, abs=4e-3)
    assert made[2].isnan()
    assert made[3] == 0


def test_logit_of_bfloat16_is_rounded_at_every_step(device):
    assert read(ttnn.logit(numbers([0.49], device), eps=0.25)).item() == pytest.approx(-0.035889, abs=1e-6)
    exact = read(ttnn.logit(numbers([0.49], device, ttnn.float32), eps=0.25)).item()
    assert exact == pytest.approx(math.log(0.49 / 0.51), rel=1e-5)


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.float32])
def test_logit_looks_at_its_lower_bound_first_where_it_is_the_greater_one(device, dtype):
    low, high = read(ttnn.logit(numbers([0.3, 0.95], device, dtype), eps=0.85)).flatten().tolist()[:2]
    assert low == pytest.approx(1.7346, rel=1e-2)
    assert high == pytest.approx(-1.7346, rel=1e-2)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_nan_of_a_rounded_bfloat16_quotient_is_packed_as_infinity(device, mode):
    above, below = [0.0, 1.0, -1.0, 7.0, -7.0], [0.0, 0.0, 0.0, 2.0, 2.0]
    lower = -4.0 if mode == "floor" else -3.0
    made = ttnn.div(numbers(above, device), numbers(below, device), rounding_mode=mode)
    assert read(made).tolist() == [[math.inf, math.inf, -math.inf, 3.0, lower]]
    exact = ttnn.div(numbers(above, device, ttnn.float32), numbers(below, device, ttnn.float32), rounding_mode=mode)
    assert read(exact)[0, 0].isnan()


@pytest.mark.parametrize("scalar", [-2.5, 2.5])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "std", "var"])
def test_reductions_are_those_of_the_scaled_values(device, name, scalar):
    x = random(2, 8, 32)
    reference = {"max": torch.amax, "min": torch.amin}.get(name, getattr(torch, name))
    made = getattr(ttnn, name)(put(x, device), dim=-1, scalar=scalar)
    torch.testing.assert_close(read(made), reference(x * scalar, dim=-1), rtol=1e-5, atol=1e-5)


def test_the_fill_of_tile_padding_shows_in_the_padded_tensor(device):
    x = put(random(1, 16), device, dtype=ttnn.bfloat16)
    filled = ttnn.fill_implicit_tile_padding(x, 1.5)
    whole = ttnn.from_device(filled).to_torch_with_padded_shape()
    assert torch.equal(ttnn.to_torch(filled), ttnn.to_torch(x))
    assert set(whole[:, 16:].flatten().tolist()) == set(whole[1:].flatten().tolist()) == {1.5}
    tiles = put(random(32, 64), device)
    assert ttnn.fill_implicit_tile_padding(tiles, 1.5).buffer_address() == tiles.buffer_address()


def test_snake_beta_has_a_row_of_its_numbers(device):
    x, alpha, beta = random(2, 8, 64), random(1, 64), random(1, 64).abs() + 0.5
    made = ttnn.snake_beta(*(put(values, device) for values in (x, alpha, beta)))
    torch.testing.assert_close(read(made), x + torch.sin(alpha * x) ** 2 / beta, rtol=1e-4, atol=1e-5)


def test_snake_beta_refuses_shapes_in_words_of_tt_nn(device):
    def of(*shape: int) -> ttnn.Tensor:
        return put(torch.ones(shape), device)

    for shapes, text in (
        ([(32,), (32,), (32,)], r"snake_beta requires input rank >= 2, got rank 1 \(shape \[32\]\)"),
        ([(32, 32), (1, 32), (32, 32)], r"alpha.shape == beta.shape, got \[1, 32\] vs \[32, 32\]"),
        ([(32, 32), (1, 64), (1, 64)], "snake_beta requires input.W == alpha.W, got 32 vs"),
    ):
        with pytest.raises(MeshError, match=text):
            ttnn.snake_beta(*(of(*shape) for shape in shapes))


def test_topk_refuses_outputs_and_indices_that_do_not_fit(device):
    x = put(random(1, 1, 32, 64), device, dtype=ttnn.bfloat16)

    def like(dtype: ttnn.DataType, width: int = 32) -> ttnn.Tensor:
        return put(torch.zeros(1, 1, 32, width), device, dtype=dtype)

    for values, indices in ((ttnn.float32, ttnn.uint16), (ttnn.int32, ttnn.uint16), (ttnn.bfloat16, ttnn.bfloat16)):
        with pytest.raises(MeshError, match="Preallocated"):
            ttnn.topk(x, k=32, output_tensor=(like(values), like(indices)))
    with pytest.raises(MeshError, match="Indices tensor has incorrect shape"):
        ttnn.topk(x, k=32, indices_tensor=like(ttnn.uint16))
    with pytest.raises(MeshError, match="only supported for a reduction on the last dimension"):
        ttnn.topk(x, k=32, dim=2, indices_tensor=like(ttnn.uint16, 64))
    with pytest.raises(MeshError, match="Optional indices tensor must be UINT32 when input tensor is FLOAT32"):
        ttnn.topk(put(random(1, 1, 32, 64), device), k=32, indices_tensor=like(ttnn.uint16, 64))


def test_tiles_need_no_padding_to_tiles():
    tiles = ttnn.from_torch(random(32, 20), layout=ttnn.TILE_LAYOUT)
    assert tiles.pad_to_tile(0.0) is tiles


@pytest.mark.parametrize("shape", [(72,), (1, 1, 1, 96), (1, 1, 3, 32)])
def test_weights_of_norms_may_be_padded_to_whole_tiles(device, shape):
    x, weight, bias = random(2, 72), random(72), random(72).flip(0)
    rows = [torch.nn.functional.pad(row, (0, math.prod(shape) - 72), value=9.0) for row in (weight, bias)]
    held = [put(row.reshape(shape), device, layout=ttnn.ROW_MAJOR_LAYOUT) for row in rows]
    made = ttnn.layer_norm(put(x, device), weight=held[0], bias=held[1], epsilon=1e-5)
    wanted = torch.nn.functional.layer_norm(x, (72,), weight, bias, 1e-5)
    torch.testing.assert_close(read(made), wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(MeshError, match="must hold 72 values"):
        ttnn.rms_norm(put(x, device), weight=put(random(80), device))


@pytest.mark.parametrize("orientation", [ttnn.ShardOrientation.ROW_MAJOR, ttnn.ShardOrientation.COL_MAJOR])
def test_weights_of_group_norms_lie_over_the_cores_that_share_the_channels(device, orientation):
    """240 channels over 8 columns or 4 rows of cores: 30 in 32 each, or 60 in 64."""
    x, weight, bias = random(1, 1, 256, 240), random(240), random(240).flip(0)
    across = 8 if orientation is ttnn.ShardOrientation.ROW_MAJOR else 4
    grid, shard = ttnn.CoreGrid(x=8, y=4), [256 * across // 32, 240 // across]
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (7, 3))])
    config = ttnn.MemoryConfig(
        ttnn.TensorMemoryLayout.BLOCK_SHARDED, ttnn.BufferType.L1, ttnn.ShardSpec(cores, shard, orientation)
    )
    rows = [ttnn.create_group_norm_weight_bias_rm(row, 240, across) for row in (weight, bias)]
    held = [put(row, device, layout=ttnn.ROW_MAJOR_LAYOUT) for row in rows]
    images = ttnn.to_memory_config(put(x, device, layout=ttnn.ROW_MAJOR_LAYOUT), config)
    made = ttnn.group_norm(images, num_groups=8, epsilon=1e-5, weight=held[0], bias=held[1], core_grid=grid)
    wanted = torch.nn.functional.group_norm(x.permute(0, 3, 1, 2), 8, weight, bias, 1e-5).permute(0, 2, 3, 1)
    torch.testing.assert_close(read(made), wanted, rtol=1e-4, atol=1e-4)
    assert made is images
    with pytest.raises(MeshError, match="Negative mask is not supported with use_welford=True"):
        ttnn.group_norm(images, num_groups=8, negative_mask=held[0], use_welford=True)
    with pytest.raises(MeshError, match="Input mask must be on device"):
        ttnn.group_norm(images, num_groups=8, input_mask=ttnn.from_device(held[0]))
    with pytest.raises(MeshError, match="Tile layout requires non-inplace tensors"):
        ttnn.group_norm(put(x, device), num_groups=8)
    for rows, text in ((24, "divisible by the tile size"), (48, "multiple of the tile height")):
        with pytest.raises(MeshError, match=text):
            ttnn.group_norm(put(random(2, 1, rows, 32), device, layout=ttnn.ROW_MAJOR_LAYOUT), num_groups=8)


@pytest.mark.parametrize("norm", [ttnn.layer_norm, ttnn.rms_norm])
@pytest.mark.parametrize("is_in_place", [True, False])
def test_norms_of_shards_are_written_over_them_where_their_program_says_so(device, norm, is_in_place):
    x, weight = random(1, 1, 64, 256), random(256)
    config = ttnn.create_sharded_memory_config((1, 1, 64, 256), ttnn.CoreGrid(y=2, x=4), ttnn.ShardStrategy.BLOCK)
    program = ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=(4, 2), subblock_w=2, block_h=1, block_w=2, inplace=is_in_place
    )
    rows, scale = (put(values, device) for values in (x, weight.reshape(1, 1, 1, 256)))
    wanted = read(norm(rows, weight=scale, epsilon=1e-5))
    shards = ttnn.to_memory_config(rows, config)
    made = norm(shards, weight=scale, epsilon=1e-5, program_config=program, memory_config=config)
    assert (made is shards, torch.equal(read(shards), x)) == (is_in_place, not is_in_place)
    torch.testing.assert_close(read(made), wanted)
    assert (norm(rows, weight=scale, epsilon=1e-5, program_config=program) is rows) is False


def test_no_dims_are_all_and_one_value_is_its_own_running_sum(device):
    x = random(2, 8, 32)
    for name, reference in (("sum", torch.sum), ("var", torch.var), ("max", torch.amax)):
        made = getattr(ttnn, name)(put(x, device), dim=[], keepdim=True)
        torch.testing.assert_close(read(made), reference(x, dim=(0, 1, 2), keepdim=True), rtol=1e-4, atol=1e-4)
    one = put(torch.tensor(3.0), device)
    assert read(ttnn.cumsum(one, 0)).item() == read(ttnn.cumprod(one, -1)).item() == 3.0
    target = put(torch.zeros(2, 8, 32), device, dtype=ttnn.bfloat16)
    assert ttnn.cumprod(put(x, device), 1, dtype=ttnn.float32, out=target) is target
    assert torch.equal(ttnn.to_torch(target), x.cumprod(1).bfloat16())


def test_topk_is_in_order_also_where_that_is_not_asked_for(device):
    x = random(4, 64)
    values, places = ttnn.topk(put(x, device), 20, -1, False, False)
    assert torch.equal(read(values), x.topk(20, -1, False).values)
    assert torch.equal(x.gather(1, read(places).long()), read(values))


def test_grids_of_cores_may_be_pairs(device):
    x = put(random(1, 1, 64, 64), device)
    cut = (ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.ShardOrientation.ROW_MAJOR)
    part = ttnn.interleaved_to_sharded_partial(x, (8, 8), [32, 64], 2, 1, *cut)
    assert torch.equal(read(part), read(x)[:, :, 32:])
    assert ttnn.interleaved_to_sharded(x, (2, 1), [32, 64], *cut).is_sharded()


@pytest.mark.parametrize("op", [ttnn.cumsum, ttnn.cumprod])
def test_running_sums_and_products_want_tiles(device, op):
    rows = ttnn.from_torch(torch.ones(4, 8), dtype=ttnn.bfloat16, device=device)
    with pytest.raises(RuntimeError, match="The provided input tensor has a non-tile layout: "):
        op(rows, 1)


@pytest.mark.parametrize("op", [ttnn.sum, ttnn.mean, ttnn.max])
def test_a_reduction_of_block_floats_stays_in_tiles(device, op):
    x = ttnn.from_torch(torch.ones(32, 64), dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=device)
    assert op(x, dim=-1, output_layout=ttnn.TILE_LAYOUT).dtype is ttnn.bfloat8_b
    with pytest.raises(RuntimeError, match="block-float formats only exist in TILE layout"):
        op(x, dim=-1, output_layout=ttnn.ROW_MAJOR_LAYOUT)
