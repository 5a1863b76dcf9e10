"""The program cache: one entry for each program that ran, none for what runs nothing on a chip."""

from __future__ import annotations

import torch

import softmesh as ttnn


def test_an_entry_is_a_program_that_ran(pair: ttnn.MeshDevice):
    x = ttnn.from_torch(torch.rand(32, 64), layout=ttnn.TILE_LAYOUT, device=pair)
    pair.clear_program_cache()
    for _ in range(2):
        ttnn.softmax(x)
    assert pair.num_program_cache_entries() == 1
    mapper = ttnn.ShardTensorToMesh(pair, dim=1)
    ttnn.softmax(ttnn.from_torch(torch.rand(32, 128), layout=ttnn.TILE_LAYOUT, device=pair, mesh_mapper=mapper))
    assert pair.num_program_cache_entries() == 1  # how a tensor is distributed is no part of a program
    ttnn.softmax(ttnn.from_torch(torch.rand(64, 64), layout=ttnn.TILE_LAYOUT, device=pair))
    assert pair.num_program_cache_entries() == 2


def test_views_transfers_and_waits_are_no_programs(pair: ttnn.MeshDevice):
    x = ttnn.from_torch(torch.rand(32, 64), layout=ttnn.TILE_LAYOUT, device=pair)
    pair.clear_program_cache()
    for _ in range(2):
        ttnn.unsqueeze(x, 0)
        ttnn.reshape(x, (1, 32, 64))
        ttnn.view(x, (1, 32, 64))
        ttnn.to_layout(x, ttnn.TILE_LAYOUT)
        ttnn.from_device(x)
        ttnn.synchronize_device(pair)
    assert pair.num_program_cache_entries() == 0


def test_a_cache_that_is_off_stays_empty(pair: ttnn.MeshDevice):
    x = ttnn.from_torch(torch.rand(32, 64), layout=ttnn.TILE_LAYOUT, device=pair)
    pair.disable_and_clear_program_cache()
    ttnn.exp(x)
    assert pair.num_program_cache_entries() == 0
    pair.enable_program_cache()
    ttnn.exp(x)
    assert pair.num_program_cache_entries() == 1


def test_a_dry_run_compiles_nothing(pair: ttnn.MeshDevice):
    x = ttnn.from_torch(torch.rand(32, 64), layout=ttnn.TILE_LAYOUT, device=pair)
    pair.clear_program_cache()
    ttnn.graph.begin_graph_capture(ttnn.graph.RunMode.NO_DISPATCH)
    ttnn.sin(x)
    ttnn.graph.end_graph_capture()
    assert pair.num_program_cache_entries() == 0
    ttnn.sin(x)
    assert pair.num_program_cache_entries() == 1


def test_a_delay_is_a_program_for_each_set_of_delays(pair: ttnn.MeshDevice):
    pair.clear_program_cache()
    rows, columns = pair.shape
    for cycles in (1, 1, 2):
        ttnn.apply_device_delay(pair, [[cycles] * columns] * rows)
    assert pair.num_program_cache_entries() == 2
