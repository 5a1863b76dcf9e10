"""Tensors allocated per core: each core of each chip fills up by itself, and what is alike on all stays apart."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh import CoreCoord, CoreRange, CoreRangeSet, MeshCoordinate

HERE, THERE = MeshCoordinate(0, 0), MeshCoordinate(0, 1)


@pytest.fixture
def mesh(idle_machine):
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as opened:
        yield opened


def config(core: CoreCoord, size: int, per_core: bool = True, cores: int = 1) -> ttnn.MemoryConfig:
    grid = CoreRangeSet([CoreRange(core, CoreCoord(core.x + cores - 1, core.y))])
    shards = ttnn.ShardSpec(grid, [1, size], ttnn.ShardOrientation.ROW_MAJOR)
    made = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shards)
    made.experimental_set_per_core_allocation(per_core)
    return made


def held(mesh: ttnn.MeshDevice, core: CoreCoord, size: int, per_core: bool = True, cores: int = 1) -> ttnn.Tensor:
    values = torch.zeros(cores, size, dtype=torch.uint8)
    return ttnn.from_torch(values, device=mesh, memory_config=config(core, size, per_core, cores))


def address(tensor: ttnn.Tensor, core: CoreCoord, chip: MeshCoordinate = HERE) -> int:
    return tensor.experimental_per_core_buffer_address(chip, core)


def test_each_core_fills_up_by_itself(mesh):
    first, second = CoreCoord(0, 0), CoreCoord(1, 0)
    low, other = held(mesh, first, 2048), held(mesh, second, 1024)
    assert address(low, first) + 2048 == address(other, second) + 1024  # both lie at the top
    wide = held(mesh, first, 512, cores=2)
    assert (address(wide, first), address(wide, second)) == (address(low, first) - 512, address(other, second) - 512)
    assert wide.buffer_address() == address(wide, first)
    with pytest.raises(RuntimeError, match="the tensor has no shards on core 2-0"):
        address(wide, CoreCoord(2, 0))


def test_each_chip_fills_up_by_itself(mesh):
    core = CoreCoord(0, 0)
    host = ttnn.from_torch(torch.arange(64, dtype=torch.uint8).reshape(1, 64))
    alone = ttnn._ttnn.tensor.experimental_to_single_device(host, mesh, THERE, config(core, 64))
    both = held(mesh, core, 1024)
    assert address(both, core, HERE) - address(both, core, THERE) == 64
    assert [address(part, core, at) for part, at in zip(ttnn.get_device_tensors(both), (HERE, THERE), strict=True)] == [
        address(both, core, at) for at in (HERE, THERE)
    ]
    assert ttnn.to_torch(alone).tolist() == ttnn.to_torch(host).tolist()


def test_what_is_freed_is_taken_again(mesh):
    core = CoreCoord(3, 2)
    gone, stays = held(mesh, core, 4096), held(mesh, core, 1024)
    was = address(gone, core)
    ttnn.deallocate(gone)
    again = held(mesh, core, 4096)
    assert address(again, core) == was
    del again
    gc.collect()
    alike = held(mesh, core, 4096, per_core=False)
    assert alike.buffer_address() == was
    assert address(stays, core) < was


def test_a_full_core_leaves_room_on_others(mesh):
    full, free = CoreCoord(0, 0), CoreCoord(1, 0)
    view = ttnn.get_memory_view(mesh, ttnn.BufferType.L1)
    most = view.largest_contiguous_bytes_free_per_bank // 1024 * 1024
    tensor = held(mesh, full, most)
    with pytest.raises(RuntimeError, match="Out of Memory"):
        held(mesh, full, 64 * 1024)
    with pytest.raises(RuntimeError, match="Out of Memory"):
        held(mesh, free, 64 * 1024, per_core=False)
    assert address(held(mesh, free, 64 * 1024), free) > address(tensor, full)


def test_ops_refuse_what_lies_at_many_addresses(mesh):
    tensor = held(mesh, CoreCoord(0, 0), 64)
    with pytest.raises(RuntimeError, match="has not opted in to per-core allocation"):
        ttnn.clone(tensor)
    assert ttnn.clone(held(mesh, CoreCoord(0, 0), 64, per_core=False)).shape == [1, 64]


steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(1, 40), st.sampled_from(["core", "alike", "free"])),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(steps)
def test_no_two_tensors_share_a_byte_of_a_bank(steps):
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        live: list[tuple[ttnn.Tensor, list[CoreCoord], int, bool]] = []
        before = ttnn.get_memory_view(mesh, ttnn.BufferType.L1).total_bytes_free_per_bank
        for x, wide, kib, kind in steps:
            if kind == "free":
                if live:
                    ttnn.deallocate(live.pop(x % len(live))[0])
                continue
            cores, size = [CoreCoord(x + i, 0) for i in range(wide)], kib * 1024
            tensor = held(mesh, cores[0], size, kind == "core", wide)
            live.append((tensor, cores, size, kind == "core"))
        for at in (CoreCoord(i, 0) for i in range(6)):
            spans = sorted(
                (address(tensor, at) if alone else tensor.buffer_address(), size)
                for tensor, cores, size, alone in live
                if at in cores or not alone
            )
            assert all(one + size <= other for (one, size), (other, _) in pairwise(spans))
        for tensor, *_ in live:
            ttnn.deallocate(tensor)
        assert ttnn.get_memory_view(mesh, ttnn.BufferType.L1).total_bytes_free_per_bank == before
