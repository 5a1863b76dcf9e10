"""softmax in place and masked, norms of split rows in one call, fp8 casts, and small ops of the LLM families."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from llm_operands import assert_close, ints
from operands import LOCAL, R, S, put, random

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError, NotModelled, SoftmeshWarning

prefill = ttnn.experimental.deepseek_prefill


def softmax(x: torch.Tensor, scale: float = 1.0, mask: torch.Tensor | float = 0.0) -> torch.Tensor:
    return torch.softmax(x.double() * scale + mask, -1).float()


# -- softmax ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
@pytest.mark.parametrize("dim", [-1, 1])
def test_softmax_in_place_writes_over_its_operand(pair, dtype, dim):
    x = random(2, 4, 3, 40)
    target = put(x, pair, (R, S(0)), dtype=dtype)
    views = ttnn.get_device_tensors(target)
    assert ttnn.softmax_in_place(target, dim) is target
    expected = torch.softmax(ttnn.compose(put(x, pair, dtype=dtype)).double(), dim)
    assert ttnn.placements(target) == (R, S(0))
    assert_close(target, expected, 1e-6 if dtype is ttnn.float32 else 4e-3)
    torch.testing.assert_close(ttnn.to_torch(views[1]), ttnn.compose(target)[1:])


def test_of_a_mask_that_is_not_causal_the_first_row_counts(device):
    """A mask padded to a tile by hand has 31 more rows, which are not read; in row-major layout it lies in blocks."""
    x, row = random(2, 4, 40, 64), random(2, 1, 1, 64) * 3
    padded = torch.cat([row, torch.full((2, 1, 31, 64), 9.0)], 2)
    expected = softmax(x, 0.5, row)
    run = ttnn.scale_mask_softmax
    assert_close(run(put(x, device), 0.5, put(row, device)), expected)
    assert_close(run(put(x, device), 0.5, put(padded, device)), expected)
    blocks = put(row.reshape(2, 1, 2, 32), device, layout=ttnn.ROW_MAJOR_LAYOUT)
    assert_close(run(put(x, device), scale=0.5, mask=blocks), expected)
    assert_close(run(put(x, device)), softmax(x))


@pytest.mark.parametrize("op", [ttnn.transformer.attention_softmax, ttnn.transformer.attention_softmax_])
def test_a_mask_of_many_rows_that_is_not_called_causal_is_told(device, op):
    x, row = put(random(1, 2, 32, 32), device), random(1, 1, 1, 32)
    op(x, head_size=4, attention_mask=put(row.expand(1, 1, 32, 32), device))  # one row for all: nothing is lost
    lower = torch.full((1, 1, 32, 32), -1e9).triu(1)
    with pytest.warns(SoftmeshWarning, match="the chip reads the first row for all.*causal_mask=True"):
        op(x, head_size=4, attention_mask=put(lower, device))


def test_a_causal_mask_has_a_row_for_each_row(device):
    x, mask = random(2, 4, 40, 64), random(1, 1, 40, 64) * 3
    expected = softmax(x, 0.5, mask)
    assert_close(ttnn.scale_mask_softmax(put(x, device), 0.5, put(mask, device), is_causal_mask=True), expected)
    for in_place in (
        lambda t, m: ttnn.scale_mask_softmax_in_place(t, 0.5, m, is_causal_mask=True),
        lambda t, m: ttnn.scale_causal_mask_hw_dims_softmax_in_place(t, 0.5, m),
        lambda t, m: ttnn.transformer.attention_softmax_(t, head_size=4, attention_mask=m, causal_mask=True),
    ):
        target = put(x, device)
        assert in_place(target, put(mask, device)) is target
        assert_close(target, expected)
    result = ttnn.transformer.attention_softmax(
        put(x, device), head_size=4, attention_mask=put(mask, device), causal_mask=True
    )
    assert_close(result, expected)


@pytest.mark.parametrize("words", [(S(0), S(1)), (S(1), R), (R, S(2))])
def test_masked_softmax_in_place_keeps_splits(mesh, words):
    x, row = random(2, 8, 8, 64), random(2, 1, 1, 64)
    mask = put(row, mesh, tuple(S(0) if word is S(0) else R for word in words))
    target = put(x, mesh, words)
    ttnn.scale_mask_softmax_in_place(target, 0.5, mask)
    assert ttnn.placements(target) == words
    assert_close(target, softmax(x, 0.5, row))
    target = put(x, mesh, words)
    ttnn.transformer.attention_softmax_(target, attention_mask=mask)
    assert ttnn.placements(target) == words
    assert_close(target, softmax(x, 1.0, row))
    causal = random(1, 1, 8, 64)
    target = put(x, mesh, words)
    ttnn.scale_causal_mask_hw_dims_softmax_in_place(
        target, None, put(causal, mesh, tuple(word if word is S(2) else R for word in words))
    )
    assert ttnn.placements(target) == words
    assert_close(target, softmax(x, 1.0, causal))


def test_softmax_over_a_split_row_is_each_devices_own(pair):
    target = put(random(1, 1, 4, 64), pair, (R, S(3)))
    ttnn.softmax_in_place(target)
    assert ttnn.placements(target) == (R, LOCAL)


def test_masks_that_do_not_fit_are_refused(device):
    x = put(random(2, 4, 40, 64), device)
    with pytest.raises(MeshError, match=r"must be \[2, 4, 1, 64\]"):
        ttnn.scale_mask_softmax(x, 1.0, put(random(2, 1, 1, 32), device))
    with pytest.raises(MeshError, match=r"the causal mask .* must be \[2, 4, 40, 64\]"):
        ttnn.scale_mask_softmax(x, 1.0, put(random(2, 1, 1, 64), device), is_causal_mask=True)
    with pytest.raises(MeshError, match="rows and columns"):
        ttnn.scale_mask_softmax(put(random(32), device))
    with pytest.raises(MeshError, match="must be tilized"):
        ttnn.scale_mask_softmax_in_place(ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT))
    with pytest.raises(ArgumentError, match="Did you mean 'head_size'"):
        ttnn.transformer.attention_softmax(x, head_sizes=4)


# -- norms -----------------------------------------------------------------------------------------


@pytest.fixture
def ring(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def rms(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


@pytest.mark.parametrize("persistent", [False, True])
def test_fused_rms_norms_a_split_row_and_keeps_the_sum_with_its_residual(ring, persistent):
    x, residual, weight = random(1, 1, 32, 256), random(1, 1, 32, 256).flip(3), random(256)
    words = (R, S(3))
    held = put(residual, ring, words)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
    more = {}
    if persistent:
        more["persistent_output_tensor"] = put(torch.zeros(1, 1, 32, 256), ring, words)
    result = ttnn.fused_rms_minimal(
        put(x, ring, words),
        ttnn.LayerNormDefaultProgramConfig(),
        1,
        ring,
        ttnn.create_global_semaphore(ring, cores, 0),
        residual_input_tensor=held,
        epsilon=0.01,
        stats=put(torch.zeros(1, 1, 32, 96), ring),
        weight=put(weight.reshape(1, 1, 8, 32), ring, (R, S(2)), layout=ttnn.ROW_MAJOR_LAYOUT),
        topology=ttnn.Topology.Linear,
        **more,
    )
    assert ttnn.placements(result) == words
    assert_close(result, rms(x + residual, weight, 0.01))
    assert_close(held, x + residual)
    if persistent:
        assert result is more["persistent_output_tensor"]


def test_fused_rms_without_a_residual_leaves_its_operand_alone(ring):
    x = random(1, 1, 32, 256)
    operand = put(x, ring, (S(3), R))
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
    given = ttnn.LayerNormDefaultProgramConfig(), 0, ring, ttnn.create_global_semaphore(ring, cores, 0)
    stats = put(torch.zeros(1, 1, 32, 32), ring)
    result = ttnn.fused_rms_minimal(operand, *given, stats=stats)
    assert_close(result, rms(x, torch.ones(256), 0.0))
    with pytest.raises(RuntimeError, match="requires a pre-allocated stats tensor"):
        ttnn.fused_rms_minimal(operand, *given)
    narrow = ttnn.WormholeComputeKernelConfig(fp32_dest_acc_en=False)
    with pytest.raises(RuntimeError, match="must match the compute accumulation format"):
        ttnn.fused_rms_minimal(operand, *given, stats=stats, compute_kernel_config=narrow)
    assert torch.equal(ttnn.compose(operand), x)


@pytest.mark.parametrize("activation", [None, "silu", ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)])
def test_a_norm_may_end_in_an_activation(device, activation):
    x, weight, residual = random(2, 3, 64), random(64), random(2, 3, 64).flip(0)
    result = ttnn.experimental.dit_rms_norm_unary_fused(
        put(x, device), 0.01, put(weight, device), None, put(residual, device), activation=activation
    )
    function = {None: lambda x: x, "silu": torch.nn.functional.silu}.get(activation, torch.relu)
    assert_close(result, function(rms(x + residual, weight, 0.01)))


def test_the_two_halves_of_a_diffusion_layer_norm_make_a_whole(device):
    x, weight, bias = random(2, 3, 128), random(128), random(128).flip(0)
    recip = put(1 / torch.arange(1, 65).float(), device)
    stats = [
        ttnn.experimental.dit_layernorm_pre_allgather(put(part, device), recip, dtype=ttnn.float32)
        for part in x.chunk(2, -1)
    ]
    whole = ttnn.concat(stats, -1)
    parts = [
        ttnn.experimental.dit_layernorm_post_allgather(
            put(part, device), whole, epsilon=0.01, weight=put(w, device), bias=put(b, device)
        )
        for part, w, b in zip(x.chunk(2, -1), weight.chunk(2), bias.chunk(2), strict=True)
    ]
    expected = torch.nn.functional.layer_norm(x, (128,), weight, bias, 0.01)
    torch.testing.assert_close(torch.cat([ttnn.to_torch(p) for p in parts], -1), expected, rtol=1e-3, atol=1e-4)


def test_layer_norm_programs_fit_the_input(device):
    x = put(random(1, 1, 64, 128), device, dtype=ttnn.bfloat16)
    params, inputs = ttnn.LayerNormParams(), ttnn.LayerNormInputs(x)
    operation = ttnn.LayerNormDeviceOperation
    assert isinstance(operation.select_program_factory(params, inputs), ttnn.LayerNormMultiCoreProgramFactory)
    assert operation.compute_output_specs(params, inputs) == x.spec
    assert operation.create_output_tensors(params, inputs).spec == x.spec
    same = operation.compute_program_hash(
        params, ttnn.LayerNormInputs(put(random(1, 1, 64, 128), device, dtype=ttnn.bfloat16))
    )
    assert operation.compute_program_hash(params, inputs) == same
    params.distributed_norm_stage = ttnn.DistributedLayerNormStage.PRE_ALL_GATHER
    assert tuple(operation.compute_output_specs(params, inputs).shape) == (1, 1, 64, 64)
    params.norm_type = ttnn.LayerNormType.RMSNORM
    assert tuple(operation.compute_output_specs(params, inputs).shape) == (1, 1, 64, 32)
    assert operation.compute_program_hash(params, inputs) != same
    grid = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 1))])
    spec = ttnn.ShardSpec(grid, [64, 192], ttnn.ShardOrientation.ROW_MAJOR)
    config = ttnn.create_layernorm_program_config(spec)
    assert (config.block_h, config.block_w, config.subblock_w, config.inplace) == (2, 6, 3, False)
    assert config.compute_with_storage_grid_size == ttnn.CoreCoord(4, 2)
    assert ttnn.create_layernorm_program_config() == ttnn.LayerNormDefaultProgramConfig()
    cores = ttnn.LayerNormMultiCoreProgramFactory.default_core_range(device)
    assert cores.num_cores() == device.compute_with_storage_grid_size().x * device.compute_with_storage_grid_size().y
    for default in (ttnn.layernorm_default_compute_config, ttnn.rmsnorm_default_compute_config):
        assert default(device.arch()).math_fidelity is ttnn.MathFidelity.HiFi4
    recip = ttnn.create_layer_norm_reciprocals(device, grid, 64)
    assert torch.equal(ttnn.to_torch(recip), (1 / torch.arange(1, 65).float()).expand(8, 64))
    assert recip.memory_config().is_sharded()
    with pytest.raises(MeshError, match="at least 1"):
        ttnn.create_layer_norm_reciprocals(device, grid, 0)


# -- fp8 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
def test_each_128_columns_have_a_scale_that_takes_their_largest_to_the_largest_of_fp8(pair, power):
    x = random(2, 3, 256) * torch.tensor([1e-3, 1.0, 50.0]).reshape(1, 3, 1)
    x[0, 0, :128] = 0
    small, scales = prefill.per_token_cast_to_fp8(put(x, pair, (R, S(0))), round_scale_to_power_of_two=power)
    assert (small.dtype, scales.dtype) == (ttnn.fp8_e4m3, ttnn.float32)
    assert ttnn.placements(small) == ttnn.placements(scales) == (R, S(0))
    expected = x.unflatten(-1, (2, 128)).abs().amax(-1) / 448
    expected = torch.where(expected == 0, 1.0, expected)
    if power:
        expected = torch.exp2(torch.ceil(torch.log2(expected)))
    torch.testing.assert_close(ttnn.compose(scales), expected)
    back = prefill.per_token_cast_back(small, scales)
    assert back.dtype is ttnn.bfloat16
    torch.testing.assert_close(ttnn.compose(back).float(), x, rtol=0.07, atol=1e-6)
    exact = prefill.per_token_cast_back(small, scales, ttnn.float32)
    again = ttnn.compose(small).float().unflatten(-1, (2, 128)) * expected.unsqueeze(-1)
    torch.testing.assert_close(ttnn.compose(exact), again.flatten(-2))
    plain = prefill.per_token_cast_back(small, output_dtype=ttnn.float32)
    assert torch.equal(ttnn.compose(plain), ttnn.compose(small).float())


def test_columns_split_between_scales_stay_split_and_packed_rows_by_rows(pair):
    x = random(2, 512)
    small, scales = prefill.per_token_cast_to_fp8(put(x, pair, (R, S(1))))
    assert ttnn.placements(small) == ttnn.placements(scales) == (R, S(1))
    back = prefill.per_token_cast_back(small, scales, ttnn.float32)
    assert ttnn.placements(back) == (R, S(1))
    torch.testing.assert_close(ttnn.compose(back), x, rtol=0.07, atol=1e-3)
    operands = [
        put(random(4, n), pair, (R, S(0)), dtype=d)
        for n, d in ((512, ttnn.float32), (4, ttnn.float32), (64, ttnn.bfloat16))
    ]
    packed = prefill.pack_scaled_fp8_kv_cache(*operands)
    assert (ttnn.placements(packed), packed.dtype) == ((R, S(0)), ttnn.uint8)
    held = ttnn.compose(packed).to(torch.uint8)
    assert torch.equal(held[:, 512:528].contiguous().view(torch.float32), random(4, 4))
    assert torch.equal(held[:, 528:].contiguous().view(torch.bfloat16), random(4, 64).bfloat16())


def test_casts_name_what_does_not_fit(device):
    with pytest.raises(MeshError, match="must be a multiple of 128"):
        prefill.per_token_cast_to_fp8(put(random(2, 100), device))
    small, scales = prefill.per_token_cast_to_fp8(put(random(2, 256), device))
    with pytest.raises(MeshError, match=r"must be \[2, 2\]"):
        prefill.per_token_cast_back(small, put(random(2, 3), device))
    with pytest.raises(NotModelled, match="token_count_aware"):
        prefill.per_token_cast_back(small, scales, token_count_aware=True)
    with pytest.raises(MeshError, match="rows of 512 latent values, 4 scales and 64"):
        prefill.pack_scaled_fp8_kv_cache(small, scales, small)


# -- sums, fills, scans ----------------------------------------------------------------------------


def test_fast_reduce_sums_over_batches_and_writes_where_it_is_told(device):
    x = random(3, 4, 5, 32)
    assert_close(ttnn.experimental.fast_reduce_nc(put(x, device), dims=[0, 1]), x.sum((0, 1), keepdim=True))
    out = put(torch.zeros(3, 1, 5, 32), device)
    assert ttnn.experimental.fast_reduce_nc(put(x, device), dims=[1], output=out) is out
    assert_close(out, x.sum(1, keepdim=True))
    with pytest.raises(MeshError, match="fast_reduce_nc dims should not be empty"):
        ttnn.experimental.fast_reduce_nc(put(x, device))
    with pytest.raises(MeshError, match="must lie in front of the last two"):
        ttnn.experimental.fast_reduce_nc(put(x, device), dims=[2])


def test_a_sum_over_a_split_batch_is_a_contribution(pair):
    x = random(4, 2, 3, 32)
    total = ttnn.experimental.fast_reduce_nc(put(x, pair, (R, S(0))), dims=[0])
    assert ttnn.placements(total) == (R, ttnn.Partial("sum"))


@pytest.mark.parametrize("dim", [0, 2])
def test_indexed_fill_replaces_the_entries_that_are_named(device, dim):
    a, ids = random(5, 2, 6, 32), torch.tensor([4, 1, 3])
    b = random(*(3 if d == dim else n for d, n in enumerate(a.shape))) * 7
    result = ttnn.indexed_fill(
        put(ids.reshape(1, 1, 1, 3), device, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT),
        put(a, device),
        put(b, device),
        dim=dim,
    )
    assert torch.equal(ttnn.to_torch(result), a.index_copy(dim, ids, b))
    with pytest.raises(MeshError, match="batch_id names 5"):
        ttnn.indexed_fill(ints([[[[5]]]], device), put(a, device), put(a[:1].contiguous(), device))
    with pytest.raises(MeshError, match="with 1 entries along dim 0"):
        ttnn.indexed_fill(ints([[[[1]]]], device), put(a, device), put(a[:1, :1].contiguous(), device))


def test_the_steps_of_a_state_space_model(device, mesh):
    a, bx, h = random(1, 1, 6, 64), random(1, 1, 6, 64).flip(2), random(1, 1, 1, 64)
    state, rows = h, []
    for t in range(6):
        state = a[:, :, t : t + 1] * state + bx[:, :, t : t + 1]
        rows.append(state)
    scanned = torch.cat(rows, 2)
    assert_close(ttnn.experimental.prefix_scan(*(put(x, device) for x in (a, bx, h))), scanned, 1e-4)
    row = put(h, device, layout=ttnn.ROW_MAJOR_LAYOUT)
    from_a_row = ttnn.experimental.prefix_scan(put(a, device), put(bx, device), row)
    assert from_a_row.layout == ttnn.TILE_LAYOUT
    assert_close(from_a_row, scanned, 1e-4)
    split = ttnn.experimental.prefix_scan(*(put(x, mesh, (R, S(3))) for x in (a, bx, h)))
    assert ttnn.placements(split) == (R, S(3))
    assert_close(split, scanned, 1e-4)
    wide, narrow, repeated = random(1, 1, 6, 128), random(1, 1, 6, 4), random(1, 1, 6, 32)
    sums = wide.unflatten(-1, (4, 32)).sum(-1)
    assert_close(ttnn.experimental.hc_sum_reduce(put(wide, device)), sums, 1e-4)
    split = ttnn.experimental.hc_sum_reduce(put(wide, mesh, (R, S(3))))
    assert ttnn.placements(split) == (R, S(3))
    assert_close(split, sums, 1e-4)
    times = ttnn.experimental.repeat_and_interleave_eltwise_mul
    product = repeated.repeat(1, 1, 1, 4) * narrow.repeat_interleave(32, -1)
    assert_close(times(put(repeated, device), put(narrow, device)), product)
    assert_close(times(put(wide, device), put(narrow, device)), wide * narrow.repeat_interleave(32, -1))
    assert_close(times(put(wide, device), put(wide, device)), wide * wide)
    huge = random(1, 1, 1, 32 * 5120)
    one = repeated[:, :, :1].contiguous()
    assert_close(times(put(one, device), put(huge, device)), one.repeat(1, 1, 1, 5120) * huge)
    split = times(put(repeated, mesh), put(narrow, mesh, (R, S(3))))
    assert ttnn.placements(split) == (R, S(3))
    assert_close(split, product)
    with pytest.raises(MeshError, match="must be alike"):
        ttnn.experimental.prefix_scan(put(a, device), put(wide, device), put(h, device))
    with pytest.raises(MeshError, match="must be tilized: bx"):
        ttnn.experimental.prefix_scan(put(a, device), put(bx, device, layout=ttnn.ROW_MAJOR_LAYOUT), row)


def test_topk_may_be_told_what_its_values_stand_for(device):
    x, names = random(1, 1, 4, 64), torch.randperm(256).reshape(1, 1, 4, 64)
    places = put(names, device, dtype=ttnn.uint32)
    values, indices = ttnn.topk(put(x, device), 5, indices_tensor=places)
    expected = x.topk(5, -1)
    assert torch.equal(ttnn.to_torch(values), expected.values)
    assert indices.dtype is ttnn.uint32
    assert torch.equal(ttnn.to_torch(indices).long(), names.gather(3, expected.indices))
    narrow = put(x, device, dtype=ttnn.bfloat16)
    with pytest.raises(MeshError, match="must hold whole numbers"):
        ttnn.topk(narrow, 5, indices_tensor=narrow)
