"""Where results lie when nobody says: views in their shards, sums on the cores of their input."""

from __future__ import annotations

import pytest
import torch
from operands import put, random

import softmesh as ttnn
from softmesh.errors import MeshError

HEIGHT = ttnn.TensorMemoryLayout.HEIGHT_SHARDED


def by_rows(height: int, width: int, cores: int) -> ttnn.MemoryConfig:
    return ttnn.create_sharded_memory_config(
        (height, width),
        ttnn.CoreGrid(x=1, y=cores),
        ttnn.ShardStrategy.HEIGHT,
        use_height_and_width_as_shard_shape=True,
    )


VIEWS = {
    "reshape": lambda x: ttnn.reshape(x, (2, 64, 64)),
    "view": lambda x: ttnn.view(x, (128, 64)),
    "squeeze": lambda x: ttnn.squeeze(x, 0),
    "unsqueeze": lambda x: ttnn.unsqueeze(x, 0),
}


@pytest.mark.parametrize("layout", [ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT], ids=str)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_shards_is_in_these_shards(device, name, layout):
    values = random(1, 2, 64, 64)
    x = put(values, device, layout=layout, memory_config=by_rows(64, 64, 2))
    seen = VIEWS[name](x)
    assert (seen.memory_config(), seen.buffer_address()) == (x.memory_config(), x.buffer_address())
    assert torch.equal(ttnn.to_torch(seen).flatten(), values.flatten())
    ttnn.deallocate(x)
    with pytest.raises(MeshError, match=r"deallocated|not allocated"):
        ttnn.add(seen, seen)


def test_shards_that_do_not_fit_are_not_kept(device):
    x = put(random(1, 2, 64, 64), device, memory_config=by_rows(64, 64, 2))
    assert ttnn.reshape(x, (1, 2, 128, 32)).memory_config() == ttnn.DRAM_MEMORY_CONFIG
    assert ttnn.permute(x, (1, 0, 2, 3)).memory_config() == x.memory_config()  # as many rows and columns


def test_rows_in_shards_may_be_seen_as_shorter_rows(device):
    values = random(1, 2, 64, 64)
    x = put(values, device, layout=ttnn.ROW_MAJOR_LAYOUT, memory_config=by_rows(64, 64, 2))
    seen = ttnn.experimental.view(x, 1, 2, 128, 32)
    assert seen.memory_config().shard_spec.shape == [128, 32]
    assert torch.equal(ttnn.to_torch(seen), values.reshape(1, 2, 128, 32))


@pytest.mark.parametrize(
    ("dim", "keepdim", "shard"), [(-1, True, [32, 32]), (-1, False, [32, 128]), (-2, True, [32, 160])]
)
def test_a_sum_is_cut_anew_on_the_cores_of_its_input(device, dim, keepdim, shard):
    values = random(1, 100, 160)
    x = put(values, device, memory_config=by_rows(32, 160, 4))
    made = ttnn.mean(x, dim, keepdim)
    config = made.memory_config()
    assert (config.memory_layout, config.buffer_type) == (HEIGHT, ttnn.BufferType.L1)
    assert (config.shard_spec.shape, config.shard_spec.grid) == (shard, x.memory_config().shard_spec.grid)
    torch.testing.assert_close(ttnn.to_torch(made), values.mean(dim, keepdim), atol=1e-5, rtol=1e-5)
    assert ttnn.mean(x, dim, keepdim, memory_config=ttnn.DRAM_MEMORY_CONFIG).memory_config() == ttnn.DRAM_MEMORY_CONFIG


@pytest.mark.parametrize(
    ("rows", "shard"), [(slice(0, 64), [32, 64]), (slice(32, 114), [32, 64]), (slice(0, 128, 2), [32, 64])]
)
def test_a_slice_of_shards_is_cut_anew_on_their_cores(device, rows, shard):
    values = random(1, 1, 128, 64)
    x = put(values, device, memory_config=by_rows(32, 64, 4))
    made = x[:, :, rows]
    config = made.memory_config()
    assert (config.memory_layout, config.buffer_type, config.shard_spec.shape) == (HEIGHT, ttnn.BufferType.L1, shard)
    assert config.shard_spec.grid == x.memory_config().shard_spec.grid
    assert torch.equal(ttnn.to_torch(made), values[:, :, rows])


@pytest.mark.parametrize("op", [ttnn.addcmul, ttnn.addcdiv, ttnn.mac, ttnn.lerp, ttnn.where], ids=lambda op: op.name)
def test_of_three_operands_the_one_on_most_cores_says_where(device, op):
    several = [by_rows(128, 64, 2), by_rows(32, 64, 8), by_rows(64, 64, 4)]
    operands = [put(random(256, 64), device, memory_config=memory) for memory in several]
    assert op(*operands).memory_config() == several[1]
    assert op(*operands, memory_config=several[2]).memory_config() == several[2]


MISFIT = ttnn.create_sharded_memory_config(
    (32, 32), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
)
CUT_AS_TOLD = {
    "add": lambda x: ttnn.add(x, x, memory_config=MISFIT),
    "relu": lambda x: ttnn.relu(x, memory_config=MISFIT),
    "where": lambda x: ttnn.where(x, x, x, memory_config=MISFIT),
    "softmax": lambda x: ttnn.softmax(x, memory_config=MISFIT),
    "clone": lambda x: ttnn.clone(x, memory_config=MISFIT),
    "typecast": lambda x: ttnn.typecast(x, ttnn.bfloat16, memory_config=MISFIT),
    "zeros_like": lambda x: ttnn.zeros_like(x, memory_config=MISFIT),
    "to_memory_config": lambda x: ttnn.to_memory_config(x, MISFIT),
    "interleaved_to_sharded": lambda x: ttnn.interleaved_to_sharded(x, MISFIT),
}


@pytest.mark.parametrize("name", CUT_AS_TOLD)
def test_shards_that_a_result_cannot_have_are_refused(device, name):
    text = rf"Shard width 32 must match physical width 64 for height sharded.*{name}: \[1, 1, 64, 64\] does not fit"
    with pytest.raises(MeshError, match=text):
        CUT_AS_TOLD[name](put(random(1, 1, 64, 64), device))


@pytest.mark.parametrize("memory", [ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG], ids=["l1", "dram"])
@pytest.mark.parametrize("op", [ttnn.reallocate, ttnn.move], ids=lambda op: op.name)
def test_what_is_moved_makes_room_for_itself(device, op, memory):
    """Memory of L1 is given out from the top, that of DRAM from the bottom."""
    values = random(64, 64)
    before, x = (put(values, device, memory_config=memory) for _ in range(2))
    top = before.buffer_address()
    alone = op(put(values, device, memory_config=memory))
    at = x.buffer_address()
    ttnn.deallocate(before)
    moved = op(x)
    assert not x.is_allocated()
    assert moved.buffer_address() == top != at
    assert torch.equal(ttnn.to_torch(moved), values)
    assert torch.equal(ttnn.to_torch(alone), values)


def test_a_tensor_that_fills_most_of_l1_can_be_moved(device):
    x = put(torch.ones(32, 32 * 400), device, dtype=ttnn.bfloat16, memory_config=by_rows(32, 32 * 400, 1))
    with pytest.raises(MeshError, match="Out of Memory"):
        ttnn.clone(x)
    assert ttnn.reallocate(x).memory_config() == by_rows(32, 32 * 400, 1)
