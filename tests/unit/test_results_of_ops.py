"""What TT-NN's ops hand back: the operand itself, an output tensor of another shape, shards that nobody described."""

from __future__ import annotations

import re

import pytest
import torch
from operands import R, S, put, random
from test_fused_activations import bank_blocks, line_blocks, plain_blocks

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError

ROW_MAJOR = ttnn.ROW_MAJOR_LAYOUT


# -- reshape with a padded shape ---------------------------------------------------------------------


def test_a_padded_shape_moves_the_bounds_between_values_and_padding(device):
    x = random(1, 1, 32, 64)
    one = ttnn.reshape(put(x, device), (1, 1, 1, 64), (1, 1, 32, 64))
    assert (list(one.shape), list(one.padded_shape)) == ([1, 1, 1, 64], [1, 1, 32, 64])
    assert torch.equal(ttnn.to_torch(one), x[:, :, :1])
    back = ttnn.reshape(one, ttnn.Shape([1, 1, 32, 64]), ttnn.Shape([1, 1, 32, 64]))
    assert torch.equal(ttnn.to_torch(back)[:, :, :1], x[:, :, :1])
    folded = ttnn.reshape(put(random(1, 4, 20, 64), device), (1, 1, 100, 64), (1, 1, 128, 64))
    assert torch.equal(ttnn.to_torch(folded)[0, 0, 32:52], random(1, 4, 20, 64)[0, 1])


@pytest.mark.parametrize(
    ("shape", "padded"),
    [((1, 1, 1, 32), (1, 1, 64, 32)), ((1, 1, 1, 64), (1, 1, 30, 64)), ((1, 1, 40, 64), (1, 1, 64, 64))],
)
def test_padded_shapes_must_be_the_same_tiles(device, shape, padded):
    with pytest.raises(MeshError, match="Attempting to reshape between two shapes with different volumes"):
        ttnn.reshape(put(random(1, 1, 32, 64), device), shape, padded)


def test_a_split_that_a_padded_shape_leaves_alone_stays(pair):
    x = random(2, 1, 32, 64)
    cut = ttnn.reshape(put(x, pair, (R, S(0))), (1, 1, 1, 64), (1, 1, 32, 64))
    assert ttnn.placements(cut) == (R, S(0))
    assert torch.equal(ttnn.compose(cut), x[:, :, :1])


# -- embedding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "expected"),
    [((8,), (8, 64)), ((2, 8), (2, 8, 64)), ((2, 1, 8), (2, 8, 64)), ((1, 1, 1, 8), (1, 8, 64))],
)
def test_embeddings_have_the_first_and_the_last_extent_of_their_indices(device, ids, expected):
    table, rows = random(16, 64), torch.arange(torch.Size(ids).numel()).reshape(ids) % 16
    found = ttnn.embedding(put(rows, device, dtype=ttnn.uint32, layout=ROW_MAJOR), put(table, device, layout=ROW_MAJOR))
    assert tuple(found.shape) == expected
    assert torch.equal(ttnn.to_torch(found), table[rows].reshape(expected))


def test_indices_of_embeddings_keep_their_split(pair):
    table, rows = random(16, 64), torch.arange(16).reshape(2, 1, 1, 8)
    placed = put(table, pair, layout=ROW_MAJOR)
    for dim, kept in ((0, 0), (3, 1)):
        ids = put(rows, pair, (R, S(dim)), dtype=ttnn.uint32, layout=ROW_MAJOR)
        found = ttnn.embedding(ids, placed)
        assert ttnn.placements(found) == (R, S(kept))
        assert torch.equal(ttnn.compose(found), table[rows].reshape(2, 8, 64))
    with pytest.raises(MeshError, match="may have extents of 1 only"):
        ttnn.embedding(put(rows.reshape(1, 2, 8), pair, dtype=ttnn.uint32, layout=ROW_MAJOR), placed)


# -- slice -------------------------------------------------------------------------------------------


def test_a_slice_of_everything_is_the_tensor_itself(device):
    x = put(random(1, 1, 32, 64), device)
    assert ttnn.slice(x, [0, 0, 0, 0], [1, 1, 32, 64]) is x
    assert ttnn.slice(x, (0, 0, 0, 0), (1, 1, 32, 64), (1, 1, 1, 1), memory_config=ttnn.DRAM_MEMORY_CONFIG) is x
    assert ttnn.slice(x, starts=[0, 0, 0, 0], ends=[1, 1, 32, 64], steps=[1, 1, 1, 1]) is x
    moved = ttnn.slice(x, [0, 0, 0, 0], [1, 1, 32, 64], memory_config=ttnn.L1_MEMORY_CONFIG)
    assert moved is not x
    assert moved.memory_config() == ttnn.L1_MEMORY_CONFIG
    target = put(torch.zeros(1, 1, 32, 64), device)
    assert ttnn.slice(x, [0, 0, 0, 0], [1, 1, 32, 64], output_tensor=target) is target
    assert torch.equal(ttnn.to_torch(target), ttnn.to_torch(x))
    assert ttnn.slice(x, [0, 0, 0, 0], [1, 1, 32, 32]) is not x


# -- argmax ------------------------------------------------------------------------------------------


def test_argmax_fills_an_output_tensor_of_another_shape(device):
    x = random(1, 1, 32, 64)
    target = put(torch.zeros(1, 1, 1, 32), device, dtype=ttnn.uint32, layout=ROW_MAJOR)
    for _ in range(2):
        made = ttnn.argmax(put(x, device, layout=ROW_MAJOR), dim=-1, output_tensor=target, keepdim=False)
        assert made is target
        assert list(made.shape) == [1, 1, 1, 32]
        assert torch.equal(ttnn.to_torch(made).flatten(), x.argmax(-1).flatten().to(torch.uint32))
    small = put(torch.zeros(1, 1, 1, 8), device, dtype=ttnn.uint32, layout=ROW_MAJOR)
    with pytest.raises(MeshError, match="the output tensor has shape"):
        ttnn.argmax(put(x, device, layout=ROW_MAJOR), dim=-1, output_tensor=small)
    wrong = put(torch.zeros(1, 1, 32), device, dtype=ttnn.int32, layout=ROW_MAJOR)
    with pytest.raises(MeshError, match="Only UINT32 dtype is supported for outputs"):
        ttnn.argmax(put(x, device, layout=ROW_MAJOR), dim=-1, output_tensor=wrong)


def test_argmax_of_a_split_tensor_keeps_the_split_in_its_output(pair):
    x = random(2, 1, 32, 64)
    target = put(torch.zeros(2, 1, 1, 32), pair, (R, S(0)), dtype=ttnn.uint32, layout=ROW_MAJOR)
    made = ttnn.argmax(put(x, pair, (R, S(0)), layout=ROW_MAJOR), dim=-1, output_tensor=target)
    assert ttnn.placements(made) == (R, S(0))
    assert torch.equal(ttnn.compose(made).flatten(), x.argmax(-1).flatten().to(torch.uint32))


# -- shards that a memory config leaves to the op -----------------------------------------------------


def test_products_are_cut_into_the_blocks_of_their_program_config(device):
    x, w = put(random(64, 64), device), put(random(64, 96), device)
    blocks = {
        plain_blocks(): (ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG, (3, 2)),
        line_blocks(): (ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG, None),
    }
    for config, (memory, grid) in blocks.items():
        config.compute_with_storage_grid_size = (8, 8)
        made = ttnn.matmul(x, w, program_config=config, memory_config=memory)
        shards = made.memory_config().shard_spec
        assert made.memory_config().memory_layout is memory.memory_layout
        assert (shards.shape, shards.num_cores()) == ([32, 32], 6)
        assert grid is None or shards.grid.bounding_box().grid_size() == ttnn.CoreCoord(*grid)


def test_products_of_shards_stay_on_their_cores(device):
    memory = ttnn.create_sharded_memory_config((32, 128), ttnn.CoreGrid(x=4, y=1), ttnn.ShardStrategy.WIDTH)
    x, w = put(random(32, 128), device, memory_config=memory), put(random(128, 64), device)
    made = ttnn.linear(x, w, program_config=bank_blocks(), memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG)
    shards = made.memory_config().shard_spec
    assert (shards.shape, shards.num_cores()) == ([32, 32], 2)
    total = ttnn.add(x, x, memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG)
    assert total.memory_config() == memory


def test_heads_of_a_sharded_row_stay_on_its_cores(device):
    x = random(2, 32, 12 * 64)
    cores = ttnn.CoreGrid(x=4, y=2)
    memory = ttnn.create_sharded_memory_config(x.shape, cores, ttnn.ShardStrategy.BLOCK)
    q, k, v = ttnn.transformer.split_query_key_value_and_split_heads(
        put(x, device, memory_config=memory),
        num_heads=4,
        memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    )
    found = [made.memory_config().shard_spec for made in (q, k, v)]
    assert [(one.shape, one.num_cores()) for one in found] == [([32, 64], 8), ([64, 32], 8), ([32, 64], 8)]
    joined = ttnn.transformer.concatenate_heads(q, memory_config=ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG)
    assert joined.memory_config().shard_spec.shape == [32, 64]


def test_decode_heads_lie_a_user_on_each_core(device):
    fused = put(random(1, 1, 8, 12 * 64), device)
    for overlap in (True, False):
        made = ttnn.experimental.nlp_create_qkv_heads_decode(
            fused,
            num_heads=8,
            num_kv_heads=2,
            overlap_qk_coregrid=overlap,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )
        q, k, v = (one.memory_config().shard_spec for one in made)
        assert [one.shape for one in (q, k, v)] == [[32, 64]] * 3
        assert [one.num_cores() for one in (q, k, v)] == [8] * 3
        assert q.grid == v.grid
        assert (k.grid == q.grid) is overlap


# -- concat in groups ----------------------------------------------------------------------------------


def test_groups_of_two_tensors_take_turns(device):
    a, b = random(64, 64), random(64, 64) * 2
    memory = ttnn.create_sharded_memory_config((64, 64), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.HEIGHT)
    given = [put(x, device, layout=ROW_MAJOR, memory_config=memory) for x in (a, b)]
    made = ttnn.concat(given, dim=1, groups=2, memory_config=ttnn.DRAM_MEMORY_CONFIG)
    assert torch.equal(ttnn.to_torch(made), torch.cat([a[:, :32], b[:, :32], a[:, 32:], b[:, 32:]], 1))
    with pytest.raises(MeshError, match="Groups > 1 is only supported on height-sharded tensors"):
        ttnn.concat([put(a, device), put(b, device)], dim=1, groups=2)


# -- forms of calls --------------------------------------------------------------------------------------


def test_the_dtype_follows_a_sharded_memory_config(device):
    memory = ttnn.create_sharded_memory_config((64, 32), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.HEIGHT)
    x = put(random(64, 32), device)
    made = ttnn.interleaved_to_sharded(x, memory, ttnn.bfloat16)
    assert (made.dtype, made.memory_config()) == (ttnn.bfloat16, memory)
    assert ttnn.interleaved_to_sharded(x, memory).dtype is ttnn.float32


@pytest.mark.parametrize("grid", [(2, 1), [2, 1], ttnn.CoreCoord(2, 1)], ids=str)
def test_a_grid_of_cores_may_be_a_pair(device, grid):
    memory = ttnn.create_sharded_memory_config((64, 32), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.HEIGHT)
    x, scheme = put(random(64, 32), device), ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    whole = ttnn.interleaved_to_sharded(x, grid, [32, 32], scheme, ttnn.ShardOrientation.ROW_MAJOR)
    part = ttnn.interleaved_to_sharded_partial(x, grid, [32, 32], 1, 0, scheme, ttnn.ShardOrientation.ROW_MAJOR)
    assert whole.memory_config() == part.memory_config() == memory
    with pytest.raises(ArgumentError, match=re.escape("grid must be (x, y)")):
        ttnn.interleaved_to_sharded(x, [2], [32, 32], scheme, ttnn.ShardOrientation.ROW_MAJOR)


def test_padding_by_a_shape_takes_its_value_by_name(device):
    x = random(1, 1, 32, 32)
    made = ttnn.pad(put(x, device), [1, 1, 64, 32], [0, 0, 0, 0], value=2.0, use_multicore=False)
    assert torch.equal(ttnn.to_torch(made), torch.nn.functional.pad(x, (0, 0, 0, 32), value=2.0))
    with pytest.raises(MeshError, match=r"ttnn\.pad: on device tile padding does not support front padding"):
        ttnn.pad(put(x, device), [(0, 0), (0, 0), (32, 0), (0, 0)], value=0.0)
    rows = ttnn.pad(put(x, device, layout=ROW_MAJOR), [(0, 0), (0, 0), (1, 0), (0, 0)], value=0.0)
    assert list(rows.shape) == [1, 1, 33, 32]
