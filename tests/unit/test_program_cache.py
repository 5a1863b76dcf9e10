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


def test_a_residual_is_added_within_the_program_of_the_statistics(pair: ttnn.MeshDevice):
    shards = ttnn.create_sharded_memory_config((1, 1, 32, 64), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.WIDTH)
    x, residual = (
        ttnn.from_torch(torch.ones(1, 1, 32, 64), layout=ttnn.TILE_LAYOUT, device=pair, memory_config=shards)
        for _ in range(2)
    )
    before = pair.num_program_cache_entries()
    ttnn.rms_norm_pre_all_gather(x, residual_input_tensor=residual)
    assert pair.num_program_cache_entries() == before + 1
    assert set(ttnn.to_torch(ttnn.get_device_tensors(x)[0]).flatten().tolist()) == {2.0}


def test_statistics_of_a_batch_norm_are_one_program_for_each_choice_of_them(pair: ttnn.MeshDevice):
    x = ttnn.from_torch(torch.randn(2, 4, 8, 8), layout=ttnn.TILE_LAYOUT, device=pair)

    def entries(*names: str) -> int:
        ones = ttnn.ones((1, 4, 1, 1), ttnn.float32, ttnn.TILE_LAYOUT, pair)
        ttnn.batch_norm(x, training=True, **{name: ttnn.clone(ones) for name in names})
        return pair.num_program_cache_entries()

    counts = [entries(), entries("running_mean", "running_var"), entries("running_mean"), entries("running_var")]
    assert [after - counts[1] for after in counts[1:]] == [0, 1, 2]
    assert entries("running_mean") == entries() == counts[-1]


def test_every_program_config_is_compiled_for(pair: ttnn.MeshDevice):
    q, k, v = (ttnn.from_torch(torch.rand(1, 2, 64, 32), layout=ttnn.TILE_LAYOUT, device=pair) for _ in range(3))
    before = pair.num_program_cache_entries()
    for size in (32, 64, 32):
        config = ttnn.SDPAProgramConfig(compute_with_storage_grid_size=(2, 2), q_chunk_size=32, k_chunk_size=size)
        ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True, program_config=config)
    assert pair.num_program_cache_entries() == before + 2
    for precise in (True, False, True):
        kernels = ttnn.WormholeComputeKernelConfig(fp32_dest_acc_en=precise)
        ttnn.softmax(q, compute_kernel_config=kernels)
    assert pair.num_program_cache_entries() == before + 4


def test_fast_reduce_nc_sums_one_dim_after_another(pair):
    x = ttnn.ones((2, 3, 32, 32), device=pair, layout=ttnn.TILE_LAYOUT)
    pair.clear_program_cache()
    for _ in range(2):
        ttnn.experimental.fast_reduce_nc(x, dims=[0, 1])
        assert pair.num_program_cache_entries() == 2
