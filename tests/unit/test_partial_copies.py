"""Shards of single cores that are written, tensors from flat numbers, aligned shards, and flags of memory configs."""

from __future__ import annotations

import json

import pytest
import torch

import softmesh as ttnn
from softmesh.runtime.traces import allocation_tracking


def cores(*corners: tuple[int, int]) -> ttnn.CoreRangeSet:
    first, last = corners[0], corners[-1]
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(*first), ttnn.CoreCoord(*last))])


def sharded(layout: str, shard: tuple[int, int], grid: ttnn.CoreRangeSet, kind: str = "L1") -> ttnn.MemoryConfig:
    spec = ttnn.ShardSpec(grid, shard, ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout[layout], ttnn.BufferType[kind], spec)


SHARDINGS = {
    "height": (
        sharded("HEIGHT_SHARDED", (32, 64), cores((0, 0), (0, 1))),
        cores((0, 1)),
        (slice(32, 64), slice(0, 64)),
    ),
    "width": (
        sharded("WIDTH_SHARDED", (64, 32), cores((0, 0), (1, 0))),
        cores((1, 0)),
        (slice(0, 64), slice(32, 64)),
    ),
    "block": (
        sharded("BLOCK_SHARDED", (32, 32), cores((0, 0), (1, 1))),
        cores((1, 0)),
        (slice(0, 32), slice(32, 64)),
    ),
    "dram": (
        sharded("HEIGHT_SHARDED", (32, 64), cores((0, 0), (1, 0)), "DRAM"),
        cores((0, 0)),
        (slice(0, 32), slice(0, 64)),
    ),
    "nd": (
        ttnn.MemoryConfig(ttnn.BufferType.L1, ttnn.NdShardSpec([32, 32], cores((0, 0), (1, 0)))),
        cores((1, 0)),
        (slice(0, 64), slice(32, 64)),
    ),
}


@pytest.mark.parametrize("layout", [ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT])
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_only_the_shards_of_the_given_cores_are_written(device, sharding, layout):
    config, chosen, written = SHARDINGS[sharding]
    old, new = torch.rand(64, 64), torch.rand(64, 64)
    target = ttnn.from_torch(old, layout=layout, device=device, memory_config=config)
    ttnn.copy_host_to_device_tensor_partial(ttnn.from_torch(new, layout=layout), target, chosen)
    expected = old.clone()
    expected[written] = new[written]
    assert torch.equal(ttnn.to_torch(target), expected)
    ttnn.copy_host_to_device_tensor_partial(ttnn.from_torch(new, layout=layout), target, ttnn.CoreRangeSet([]))
    assert torch.equal(ttnn.to_torch(target), expected)


def test_a_partial_copy_needs_shards_and_the_same_spec(device):
    x = ttnn.ones((32, 32), device=device, layout=ttnn.TILE_LAYOUT)
    with pytest.raises(RuntimeError, match="logical_core_filter is only supported for sharded buffer layouts"):
        ttnn.copy_host_to_device_tensor_partial(
            ttnn.from_torch(torch.ones(32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT),
            x,
            cores((0, 0)),
        )
    with pytest.raises(RuntimeError, match="Host tensor has different shape"):
        ttnn.copy_host_to_device_tensor_partial(ttnn.from_torch(torch.ones(3, 32)), x, cores((0, 0)))


def test_flat_numbers_become_a_tensor(device):
    x = ttnn.from_buffer(list(range(6)), [2, 3], ttnn.uint16, device)
    assert (x.layout, x.dtype) == (ttnn.ROW_MAJOR_LAYOUT, ttnn.uint16)
    assert ttnn.to_torch(x).tolist() == [[0, 1, 2], [3, 4, 5]]
    y = ttnn.from_buffer(
        [0.5] * 64, ttnn.Shape([2, 32]), ttnn.bfloat16, device, ttnn.TILE_LAYOUT, ttnn.L1_MEMORY_CONFIG
    )
    assert y.memory_config() == ttnn.L1_MEMORY_CONFIG
    with pytest.raises(RuntimeError, match="Unreachable"):
        ttnn.from_buffer([1.0] * 4, [4], ttnn.bfloat8_b, device)
    with pytest.raises(RuntimeError, match=r"3 numbers do not make a tensor of \[4\]"):
        ttnn.from_buffer([1.0] * 3, [4], ttnn.float32, device)
    with pytest.raises(TypeError, match="buffer must hold numbers"):
        ttnn.from_buffer(["a"], [1], ttnn.float32, device)


def test_shards_are_rounded_up_as_their_alignment_says():
    kind, grid = ttnn.ShardShapeAlignment, cores((0, 0), (3, 3))
    tiled = ttnn.TensorSpec((2, 3, 40, 50), ttnn.float32, ttnn.TILE_LAYOUT)
    rows = ttnn.TensorSpec((2, 3, 40, 50), ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)

    def shape(spec: ttnn.TensorSpec) -> list[int]:
        return list(spec.memory_config.nd_shard_spec.shard_shape)

    assert shape(tiled.sharded((1, 37, 37), grid, kind.RECOMMENDED)) == [1, 64, 64]
    assert shape(tiled.sharded((1, 37, 37), grid, kind.REQUIRED)) == [1, 64, 64]
    assert shape(rows.sharded((1, 37, 37), grid)) == [1, 37, 48]  # 64 bytes
    assert shape(rows.sharded((1, 37, 37), grid, kind.REQUIRED)) == [1, 37, 37]
    assert shape(rows.sharded(ttnn.NdShardSpec([1, 37, 37], grid), kind.REQUIRED)) == [1, 37, 37]
    with pytest.raises(RuntimeError, match=r"a shard of \[1, 37, 37\] is not made of whole"):
        tiled.sharded((1, 37, 37), grid, kind.NONE)


@pytest.mark.parametrize("grid", [cores((0, 0), (1, 1)), cores((0, 1), (3, 1))])
def test_shards_in_dram_lie_in_one_row_of_banks(device, grid):
    config = ttnn.MemoryConfig(ttnn.BufferType.DRAM, ttnn.NdShardSpec([1, 32, 64], grid))
    with pytest.raises(RuntimeError, match="DRAM banks are 1D"):
        ttnn.from_torch(torch.ones(3, 64, 64), layout=ttnn.TILE_LAYOUT, device=device, memory_config=config)


def test_how_memory_is_allocated_is_part_of_a_memory_config(device):
    lockstep = sharded("HEIGHT_SHARDED", (32, 32), cores((0, 0)))
    per_core = sharded("HEIGHT_SHARDED", (32, 32), cores((0, 0)))
    per_core.experimental_set_per_core_allocation(True)
    assert per_core != lockstep
    assert hash(per_core) != hash(lockstep)
    assert "per_core_allocation=1" in repr(per_core)
    assert json.loads(per_core.to_json())["per_core_allocation"] is True
    assert ttnn.MemoryConfig.from_json(per_core.to_json()) == per_core
    plain = {key: value for key, value in json.loads(lockstep.to_json()).items() if "allocation" not in key}
    assert ttnn.MemoryConfig.from_json(json.dumps(plain)) == lockstep
    x = ttnn.from_torch(torch.ones(32, 32), layout=ttnn.TILE_LAYOUT, device=device, memory_config=per_core)
    at = ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0)
    assert x.is_per_core_allocated()
    assert x.experimental_per_core_buffer_address(*at) == x.buffer_address()
    y = ttnn.from_torch(torch.ones(32, 32), layout=ttnn.TILE_LAYOUT, device=device, memory_config=lockstep)
    assert y.buffer_unique_id() != x.buffer_unique_id()
    with pytest.raises(RuntimeError, match="is not allocated per core"):
        y.experimental_per_core_buffer_address(*at)


@pytest.mark.parametrize(
    ("layout", "shard", "expected"),
    [
        ("HEIGHT_SHARDED", (32, 64), [(0, 0), (1, 0)]),
        ("WIDTH_SHARDED", (64, 32), [(0, 0), (1, 0)]),
        ("BLOCK_SHARDED", (32, 32), [(0, 0), (1, 0), (0, 1), (1, 1)]),
    ],
)
def test_only_cores_with_shards_are_worth_reading(device, layout, shard, expected):
    config = sharded(layout, shard, cores((0, 0), (3, 3)))
    x = ttnn.from_torch(torch.ones(64, 64), layout=ttnn.TILE_LAYOUT, device=device, memory_config=config)
    found = ttnn.get_optimal_worker_cores_for_sharded_tensor(x)
    assert [(core.x, core.y) for core in found] == expected
    with pytest.raises(RuntimeError, match="Tensor must be sharded to compute optimal worker cores"):
        ttnn.get_optimal_worker_cores_for_sharded_tensor(ttnn.ones((32, 32), device=device))
    with pytest.raises(RuntimeError, match="Tensor must be on device to compute optimal worker cores"):
        ttnn.get_optimal_worker_cores_for_sharded_tensor(ttnn.ones((32, 32)))


def test_the_trackers_of_allocations_have_the_names_suites_import():
    assert ttnn.trace_allocation_config.TRACE_ALLOC_TRACKING is ttnn.TRACE_ALLOC_TRACKING
    assert ttnn.trace_allocation_config.TRACE_ALLOC_DIAGNOSTICS is False
    assert ttnn.trace_allocation_config.TRACE_ALLOC_REFERRER_DEPTH == 10
    assert [allocation_tracking.depth_of(text) for text in ("4", "", "deep")] == [4, 10, 10]
    assert ttnn._ttnn.operations.trace.get_unsafe_tracked_ids is (
        ttnn.tools.trace_allocation_tracker.get_unsafe_tracked_ids
    )


@pytest.mark.parametrize("dtype", [ttnn.bfloat8_b, ttnn.bfloat4_b])
def test_block_floats_on_the_host_stay_in_tiles(dtype):
    x = ttnn.from_torch(torch.ones(32, 32), dtype=dtype, layout=ttnn.TILE_LAYOUT)
    same = x.to(ttnn.ROW_MAJOR_LAYOUT)
    assert (same.layout, same.dtype) == (ttnn.TILE_LAYOUT, dtype)
    assert torch.equal(ttnn.to_torch(same), ttnn.to_torch(x))
