"""What one core holds of a sharded tensor, and semaphores that lie side by side in the L1 of their cores."""

from __future__ import annotations

import gc

import pytest
import torch

import softmesh as ttnn

BANK = ttnn._ttnn.operations.experimental.FusionSemaphoreBank


def cores(*ranges: tuple[int, int, int, int]) -> ttnn.CoreRangeSet:
    return ttnn.CoreRangeSet([ttnn.CoreRange((a, b), (c, d)) for a, b, c, d in ranges])


def sharded(
    device: ttnn.MeshDevice,
    values: torch.Tensor,
    layout: str,
    grid: ttnn.CoreRangeSet,
    shard: list[int],
    orientation: ttnn.ShardOrientation = ttnn.ShardOrientation.ROW_MAJOR,
) -> ttnn.Tensor:
    spec = ttnn.ShardSpec(grid, shard, orientation)
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout[f"{layout}_SHARDED"], ttnn.BufferType.L1, spec)
    return ttnn.from_torch(values, ttnn.float32, device=device, memory_config=config)


def test_a_core_holds_its_rows_its_columns_or_its_block(device: ttnn.MeshDevice):
    values = torch.arange(96.0).reshape(8, 12)
    rows = sharded(device, values, "HEIGHT", cores((0, 0, 1, 1)), [2, 12])
    assert torch.equal(ttnn.to_torch(rows.extract_shard(ttnn.CoreCoord(1, 0))), values[2:4])
    assert torch.equal(ttnn.to_torch(rows.extract_shard(3)), values[6:8])
    columns = sharded(device, values, "WIDTH", cores((2, 3, 4, 3)), [8, 4])
    assert torch.equal(ttnn.to_torch(columns.extract_shard(core_id=2)), values[:, 8:])
    blocks = sharded(device, values, "BLOCK", cores((0, 0, 1, 2)), [4, 4], ttnn.ShardOrientation.COL_MAJOR)
    assert torch.equal(ttnn.to_torch(blocks.extract_shard(ttnn.CoreCoord(1, 2))), values[4:, 8:])


def test_the_last_shard_is_filled_up(device: ttnn.MeshDevice):
    last = sharded(device, torch.ones(5, 4), "HEIGHT", cores((0, 0, 1, 0)), [3, 4]).extract_shard(1)
    assert ttnn.to_torch(last).tolist() == [[1.0] * 4, [1.0] * 4, [0.0] * 4]


def test_what_holds_no_shard_is_refused(device: ttnn.MeshDevice):
    rows = sharded(device, torch.ones(4, 4), "HEIGHT", cores((0, 0, 1, 0)), [2, 4])
    with pytest.raises(RuntimeError, match="core 5-0 holds no shard; these do: 0-0, 1-0"):
        rows.extract_shard(ttnn.CoreCoord(5, 0))
    with pytest.raises(RuntimeError, match="core_id=2 is not one of the 2 cores"):
        rows.extract_shard(2)
    with pytest.raises(RuntimeError, match="must be sharded over cores of one device"):
        ttnn.ones((4, 4), device=device).extract_shard(0)


def test_a_bank_holds_every_semaphore_on_every_core(device: ttnn.MeshDevice):
    bank = BANK(device, [cores((0, 0, 0, 0)), cores((2, 0, 2, 0))], [3, 7])
    first = bank.tensor.buffer_address()
    assert bank.addresses == [first, first + 16]
    assert not bank.tensor.is_per_core_allocated()
    assert not bank.tensor.is_range_lockstep_allocated()
    assert ttnn.to_torch(bank.tensor).tolist() == [[3, 0, 0, 0, 7, 0, 0, 0]] * 2


def test_a_bank_gives_its_memory_back(device: ttnn.MeshDevice):
    gc.collect()
    before = len(ttnn._ttnn.reports.get_buffer_pages(device))
    bank = BANK(device, [cores((0, 0, 0, 0))], [0])
    assert len(ttnn._ttnn.reports.get_buffer_pages(device)) > before
    del bank
    gc.collect()
    assert len(ttnn._ttnn.reports.get_buffer_pages(device)) == before


def test_a_bank_without_sense_is_refused(device: ttnn.MeshDevice):
    with pytest.raises(RuntimeError, match="must match"):
        BANK(device, [cores((0, 0, 0, 0))], [0, 1])
    with pytest.raises(RuntimeError, match="at least one semaphore"):
        BANK(device, [], [])


def test_both_routes_of_untilize_give_its_result(device: ttnn.MeshDevice):
    x = ttnn.from_torch(torch.rand(40, 70), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    routes = ttnn._ttnn.operations.data_movement
    for route in (routes.untilize_force_native, routes.untilize_force_codegen):
        made = route(x, memory_config=ttnn.L1_MEMORY_CONFIG)
        assert made.layout is ttnn.ROW_MAJOR_LAYOUT
        assert torch.equal(ttnn.to_torch(made), ttnn.to_torch(x))
