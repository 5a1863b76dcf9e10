"""Which dtypes ops take, what they make of whole numbers, and the shapes of outer and nonzero."""

from __future__ import annotations

import pytest
import torch
from operands import R, S, put, random

import softmesh as ttnn
from softmesh.errors import MeshError

ROW_MAJOR = ttnn.ROW_MAJOR_LAYOUT
WHOLE = torch.tensor([[7, -7, 3, 9]], dtype=torch.int32)


def whole(device: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.int32) -> ttnn.Tensor:
    return put(WHOLE.abs() if dtype is not ttnn.int32 else WHOLE, device, dtype=dtype)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("pow", ttnn.uint32),
        ("maximum", ttnn.uint16),
        ("fmod", ttnn.uint32),
        ("gcd", ttnn.uint32),
        ("add", ttnn.uint8),
        ("logaddexp", ttnn.int32),
        ("logical_right_shift", ttnn.uint16),
    ],
)
def test_binary_ops_name_a_dtype_that_they_do_not_take(device, op, dtype):
    x = whole(device, dtype)
    with pytest.raises(MeshError, match=f"Input tensor A dtype .* is not supported for binary operation {op}"):
        getattr(ttnn, op)(x, x)


@pytest.mark.parametrize("op", ["add", "maximum", "eq", "add_"])
def test_floats_and_whole_numbers_are_not_mixed(device, op):
    x, y = put(torch.ones(1, 4), device, dtype=ttnn.bfloat16), whole(device)
    with pytest.raises(MeshError, match=f"Mixed dtype is not supported for binary operation {op}, dtype A"):
        getattr(ttnn, op)(x, y)


def test_floats_of_two_kinds_mix_where_tt_nn_mixes_them(device):
    x, y = put(torch.ones(1, 4), device, dtype=ttnn.bfloat16), put(torch.ones(1, 4), device)
    assert ttnn.add(x, y).dtype is ttnn.bfloat16
    assert ttnn.to_torch(ttnn.isclose(x, y)).sum() == 4
    with pytest.raises(MeshError, match="Mixed dtype is not supported for binary operation hypot"):
        ttnn.hypot(x, y)


def test_products_and_quotients_make_floats_of_whole_numbers_beside_floats(device):
    halves, y = put(torch.full((1, 4), 0.5), device, dtype=ttnn.bfloat16), whole(device)
    for made in (ttnn.multiply(halves, y), ttnn.multiply(y, halves)):
        assert made.dtype is ttnn.bfloat16
        assert torch.equal(ttnn.to_torch(made).float(), WHOLE / 2)
    assert ttnn.div(y, put(torch.full((1, 4), 0.5), device)).dtype is ttnn.float32


def test_a_quotient_of_whole_numbers_is_a_float_unless_it_is_rounded(device):
    x = whole(device)
    for made in (ttnn.div(x, 2), ttnn.div(x, put(torch.full((1, 4), 2), device, dtype=ttnn.int32))):
        assert made.dtype is ttnn.float32
        assert ttnn.to_torch(made).tolist() == [[3.5, -3.5, 1.5, 4.5]]
    for mode, expected in (("floor", [[3, -4, 1, 4]]), ("trunc", [[3, -3, 1, 4]])):
        made = ttnn.div(x, 2, rounding_mode=mode)
        assert made.dtype is ttnn.int32
        assert ttnn.to_torch(made).tolist() == expected
    with pytest.raises(MeshError, match="For integer division, supported output dtype is FLOAT32"):
        ttnn.div(x, 2, dtype=ttnn.bfloat16)


def test_isclose_compares_whole_numbers(device):
    assert ttnn.to_torch(ttnn.isclose(whole(device), whole(device))).sum() == 4
    assert ttnn.to_torch(ttnn.isclose(whole(device), put(WHOLE.float(), device, dtype=ttnn.bfloat16))).sum() == 4


def test_squares_of_whole_numbers_keep_their_last_digit(device):
    a, b = torch.tensor([[65535, 40001]]), torch.tensor([[0, 2]])
    made = ttnn.squared_difference(put(a, device, dtype=ttnn.uint32), put(b, device, dtype=ttnn.uint32))
    assert ttnn.to_torch(made).tolist() == [[65535**2, 39999**2]]


def test_a_typecast_clamps_what_the_dtype_does_not_have(device):
    x = put(torch.tensor([[-5.0, 70000.0, 3.7, -2.5e9]]), device)
    assert ttnn.to_torch(ttnn.typecast(x, ttnn.uint16)).tolist() == [[0, 65535, 4, 0]]
    assert ttnn.to_torch(ttnn.typecast(x, ttnn.uint32)).tolist() == [[0, 70000, 3, 0]]
    assert ttnn.to_torch(ttnn.typecast(x, ttnn.int32)).tolist() == [[-5, 70000, 3, -(2**31)]]
    y = put(torch.tensor([[-5, 70000, 3]], dtype=torch.int32), device, dtype=ttnn.int32)
    assert ttnn.to_torch(ttnn.typecast(y, ttnn.uint16)).tolist() == [[0, 65535, 3]]


# -- outer, nonzero -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [((32,), (64,), (32, 64)), ((2, 32), (2, 16), (2, 32, 16)), ((2, 1, 8), (3, 4), (2, 3, 8, 4))],
)
def test_outer_multiplies_every_pair_of_the_last_dims(device, a, b, expected):
    x, y = random(*a), random(*b)
    made = ttnn.outer(put(x, device), put(y, device))
    assert tuple(made.shape) == expected
    torch.testing.assert_close(ttnn.to_torch(made), x.unsqueeze(-1) * y.unsqueeze(-2))


def test_outer_keeps_a_split_of_either_vector(pair):
    x, y = random(2, 8), random(2, 16)
    for first, second, word in (
        ((R, S(1)), (R, R), S(1)),
        ((R, R), (R, S(1)), S(2)),
        ((R, S(0)), (R, S(0)), S(0)),
    ):
        made = ttnn.outer(put(x, pair, first), put(y, pair, second))
        assert ttnn.placements(made) == (R, word)
        torch.testing.assert_close(ttnn.compose(made), x.unsqueeze(-1) * y.unsqueeze(-2))


@pytest.mark.parametrize("layout", [ROW_MAJOR, ttnn.TILE_LAYOUT])
def test_nonzero_lists_four_indices_of_each_value(device, layout):
    x = torch.zeros(2, 1, 3, 4)
    x[0, 0, 1, 2], x[1, 0, 2, 3], x[1, 0, 0, 0] = 1.0, 2.0, 3.0
    count, indices = ttnn.nonzero(put(x, device, layout=layout, dtype=ttnn.bfloat16))
    assert ttnn.to_torch(count).tolist() == [[[[3, 0, 0, 0, 0, 0, 0, 0]]]]
    assert list(indices.shape) == [1, 1, 1, 4 * 24]
    found = ttnn.to_torch(indices).flatten().tolist()
    assert found[:12] == x.nonzero().flatten().tolist()
    assert not any(found[12:])


# -- latent attention, distributed norms of shards --------------------------------------------------------


def test_values_of_latent_attention_may_have_more_heads_than_keys(device):
    q, k, v = random(1, 4, 32, 64), random(1, 1, 32, 64), random(1, 4, 32, 32)
    made = ttnn.transformer.flash_mla_prefill(put(q, device), put(k, device), put(v, device), scale=0.125)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k.expand(1, 4, 32, 64), v, is_causal=True, scale=0.125
    )
    torch.testing.assert_close(ttnn.to_torch(made), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_statistics_of_shards_are_means(device, kind):
    x = random(1, 1, 32, 128) + 0.5
    memory = ttnn.create_sharded_memory_config((1, 1, 32, 128), ttnn.CoreGrid(x=4, y=1), ttnn.ShardStrategy.WIDTH)
    given = put(x, device, memory_config=memory)
    before, after = getattr(ttnn, f"{kind}_pre_all_gather"), getattr(ttnn, f"{kind}_post_all_gather")
    stats = before(given, dtype=ttnn.float32)
    columns = ttnn.to_torch(stats)[..., ::32]
    means = [x.square().mean(-1)] if kind == "rms_norm" else [x.mean(-1), x.square().mean(-1)]
    torch.testing.assert_close(columns, torch.stack(means, -1), rtol=1e-4, atol=1e-4)
    whole_row = torch.nn.functional.rms_norm if kind == "rms_norm" else torch.nn.functional.layer_norm
    made = ttnn.to_torch(after(given, stats, epsilon=1e-5))
    torch.testing.assert_close(made, whole_row(x, (128,), eps=1e-5), rtol=1e-3, atol=1e-3)


def test_a_residual_is_added_to_shards_in_place(device):
    x, r = random(1, 1, 32, 64), random(1, 1, 32, 64) * 2
    memory = ttnn.create_sharded_memory_config((1, 1, 32, 64), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.WIDTH)
    given = put(x, device, memory_config=memory)
    stats = ttnn.rms_norm_pre_all_gather(
        given, residual_input_tensor=put(r, device, memory_config=memory), dtype=ttnn.float32
    )
    torch.testing.assert_close(ttnn.to_torch(given), x + r)
    torch.testing.assert_close(ttnn.to_torch(stats)[..., 0], (x + r).square().mean(-1), rtol=1e-4, atol=1e-4)


# -- programs -----------------------------------------------------------------------------------------------


def test_one_program_serves_tensors_of_any_shape(device):
    def programs(*calls: object) -> int:
        device.clear_program_cache()
        for call in calls:
            call()
        return device.num_program_cache_entries()

    small, large = put(random(32, 32), device), put(random(64, 64), device)
    row = put(random(1, 32), device)
    assert programs(lambda: ttnn.relu(small), lambda: ttnn.relu(large)) == 1
    assert programs(lambda: ttnn.relu(small), lambda: ttnn.relu(small, output_tensor=put(random(32, 32), device))) == 1
    assert programs(lambda: ttnn.add(small, small), lambda: ttnn.add(large, large)) == 1
    assert programs(lambda: ttnn.multiply(small, 2.0), lambda: ttnn.multiply(large, 3.0)) == 1
    assert programs(lambda: ttnn.add(small, small), lambda: ttnn.add(small, row)) == 2
    assert programs(lambda: ttnn.relu(small), lambda: ttnn.relu(small, memory_config=ttnn.L1_MEMORY_CONFIG)) == 2
    grids = [ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (x, 0))]) for x in (1, 3)]
    assert programs(*(lambda g=g: ttnn.add(small, small, sub_core_grids=g) for g in grids)) == 2
    assert programs(*(lambda g=g: ttnn.sum(small, sub_core_grids=g) for g in grids)) == 2
    assert programs(lambda: ttnn.matmul(small, small), lambda: ttnn.matmul(large, large)) == 2


def test_functions_stop_where_the_chip_does(device):
    made = ttnn.to_torch(ttnn.exp2(put(torch.tensor([[-127.0, -126.0, 3.0]]), device)))
    assert made.tolist() == [[0.0, 2.0**-126, 8.0]]
    made = ttnn.to_torch(ttnn.i1(put(torch.tensor([[88.5, 100.0, -100.0]]), device)))
    assert made[0, 0] == made[0, 1] == -made[0, 2]
