"""Every op computes what its golden function computes in torch; those without one are tested in a file of their own."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_calls import CALLS, calls, operation_names
from strategies import LAWS, draw_values, one_device, placed, quietly, seeds

import softmesh as ttnn
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware import UnaryOpType, UnaryWithParam
from softmesh.placement.placements import REPLICATE

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")  # of one element
TESTS = Path(__file__).parent.parent

# Arguments of ops that have a golden function and no generated call: their operands are tensors of one shape.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "addcdiv_bw": {"alpha": 0.5},
    "addcmul_bw": {"alpha": 0.5},
    "clamp_bw": {"min": 0.4, "max": 0.7},
    "clip_bw": {"min": 0.4, "max": 0.7},
    "div_no_nan_bw": {"scalar": 2.0},
    "experimental.typecast": {"dtype": ttnn.float32},
    "experimental.quasar.typecast": {"dtype": ttnn.float32},
    "fill_implicit_tile_padding": {"fill_value": 0.0},
    "heaviside": {"value": 0.5},
    "leaky_relu_bw": {"negative_slope": 0.1},
    "logiteps_bw": {"eps": 0.1},
    "moreh_cumsum": {"dim": 1},
    "polygamma": {"k": 2},
    "polygamma_bw": {"n": 2},
    "polyval": {"coeffs": [1.0, -2.0, 0.5]},
    "pow_bw": {"exponent": 2.5},
    "rdiv_bw": {"scalar": 2.0},
    "relu_max": {"upper_limit": 0.5},
    "relu_min": {"lower_limit": 0.5},
    "rpow": {"exponent": 2.0},
    "rpow_bw": {"exponent": 2.0},
    "softcap": {"beta": 0.5},
    "subalpha": {"alpha": 0.5},
    "threshold": {"threshold": 0.5, "value": 2.0},
    "threshold_bw": {"min": 0.5, "max": 2.0},
    "unary_chain": {"ops_chain": [UnaryWithParam(UnaryOpType.EXP), UnaryWithParam(UnaryOpType.POWER, 2.0)]},
}
SHAPES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("geglu", "glu", "reglu", "swiglu"), (1, 1, 32, 128)),
    "experimental.intimg": (1, 4, 4, 8),
    "transformer.concatenate_heads": (2, 3, 32, 32),
}
LARGER = {"acosh_bw": 1.0, "multigammaln": 2.0, "multigammaln_bw": 2.0}  # where the values must lie higher


class Covered(NamedTuple):
    """Ops that a test file compares with torch: each is named there, or runs over a `table` of them."""

    file: str
    names: str
    table: str = ""


COVERED_BY = [
    Covered("unit/test_attention_ops.py", """
        experimental.nlp_concat_heads experimental.nlp_concat_heads_decode experimental.nlp_create_qkv_heads
        experimental.nlp_create_qkv_heads_decode transformer.scaled_dot_product_attention
        transformer.scaled_dot_product_attention_decode
    """),
    Covered("unit/test_cache_ops.py", "fill_cache update_cache"),
    Covered("unit/test_convolution.py", "conv2d"),
    Covered("unit/test_convolutions_more.py", """
        conv_transpose2d experimental.conv3d experimental.prepare_conv3d_weights prepare_conv_transpose2d_weights
        prepare_conv_weights
    """),
    Covered("unit/test_fused_collectives.py", "experimental.halo_scatter"),
    Covered("unit/test_moe.py", """
        experimental.deepseek.moe.deepseek_moe_gate experimental.deepseek.moe.generalized_moe_gate
        experimental.deepseek_grouped_gate experimental.deepseek_moe_fast_reduce_nc
        experimental.deepseek_moe_post_combine_tilize moe sparse_matmul
    """),
    Covered("unit/test_moe_prefill.py", """
        experimental.deepseek_prefill.extract experimental.deepseek_prefill.insert
        experimental.deepseek_prefill.masked_bincount experimental.deepseek_prefill.moe_grouped_topk
        experimental.deepseek_prefill.moe_hash_gate experimental.deepseek_prefill.post_combine_reduce
    """),
    Covered("unit/test_ops_against_torch.py", "sharded_to_interleaved"),
    Covered("unit/test_ops_backward.py", "embedding_bw fill_bw"),
    Covered("unit/test_ops_backward.py", "fill_zero_bw", table="fill_zero"),
    Covered("unit/test_ops_elementwise_more.py", "bcast nextafter"),
    Covered("unit/test_ops_llm_attention.py", """
        experimental.attn_matmul experimental.attn_matmul_from_cache experimental.group_attn_matmul
        experimental.indexer_score_dsa experimental.topk_large_indices transformer.chunk_gated_delta_rule
        transformer.chunked_flash_mla_prefill transformer.chunked_scaled_dot_product_attention
        transformer.flash_mla_prefill transformer.flash_multi_latent_attention_decode
        transformer.joint_scaled_dot_product_attention transformer.paged_flash_multi_latent_attention_decode
        transformer.paged_scaled_dot_product_attention_decode transformer.sparse_sdpa transformer.sparse_sdpa_msa
    """),
    Covered("unit/test_ops_llm_caches.py", """
        experimental.deepseek_prefill.rotary_embedding_indexed experimental.deepseek_prefill.update_padded_kv_cache
        experimental.deepseek_prefill.zero_padded_kv_cache experimental.paged_fill_cache
        experimental.paged_fused_update_cache experimental.paged_update_cache kv_cache.fill_cache_for_user_
        kv_cache.update_cache_for_token_ plus_one
    """),
    Covered("unit/test_ops_llm_heads.py", """
        experimental.concatenate_heads experimental.create_qkv_heads
        experimental.create_qkv_heads_from_separate_tensors experimental.nlp_create_qkv_heads_falcon7b
        experimental.nlp_create_qkv_heads_segformer experimental.nlp_create_qkv_heads_vit
        experimental.split_query_key_value_and_split_heads transformer.split_query_key_value_and_split_heads
    """),
    Covered("unit/test_ops_llm_norms.py", """
        experimental.deepseek_prefill.pack_scaled_fp8_kv_cache experimental.deepseek_prefill.per_token_cast_back
        experimental.deepseek_prefill.per_token_cast_to_fp8 experimental.dit_layernorm_post_allgather
        experimental.dit_layernorm_pre_allgather experimental.dit_rms_norm_unary_fused experimental.hc_sum_reduce
        experimental.prefix_scan experimental.repeat_and_interleave_eltwise_mul
        scale_causal_mask_hw_dims_softmax_in_place scale_mask_softmax_in_place transformer.attention_softmax_
    """),
    Covered("unit/test_ops_llm_rotary.py", """
        experimental.rotary_embedding experimental.rotary_embedding_hf experimental.rotary_embedding_llama
        experimental.rotary_embedding_llama_fused_qk
    """),
    Covered("unit/test_ops_llm_sampling.py", "manual_seed sampling"),
    Covered("unit/test_ops_movement_more.py", """
        bernoulli bitcast ema experimental.dropout experimental.padded_slice experimental.slice_write fill_ones_rm
        fill_rm interleaved_to_sharded_partial nonzero reshard scatter scatter_add sharded_to_interleaved_partial
        tosa_gather tosa_scatter
    """),
    Covered("unit/test_ops_vision.py", """
        adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d batch_norm experimental.convert_to_chw
        experimental.convert_to_hwc experimental.multi_scale_deformable_attn experimental.quasar.fold fold
        global_avg_pool2d grid_sample group_norm max_pool2d rotate upsample
    """),
    Covered("unit/test_ops_vision.py", "prim.batch_statistics prim.running_statistics", table="batch_norm"),
    Covered("unit/test_ring_attention.py", """
        transformer.ring_distributed_scaled_dot_product_attention transformer.ring_joint_scaled_dot_product_attention
        transformer.ring_mla
    """),
    Covered("unit/test_ops_more_families.py", """
        assign_bw concat_bw dequantize index_fill l1_loss mse_loss normalize_global normalize_hw prod_bw quantize
        repeat_bw requantize std_hw var_hw
    """),
    Covered("unit/test_ops_more_families.py", "index_fill_new", "index_fill"),
    Covered("unit/test_ops_moreh.py", """
        moreh_bmm moreh_bmm_backward moreh_cumsum_backward moreh_dot_backward moreh_fold moreh_getitem moreh_group_norm
        moreh_group_norm_backward moreh_layer_norm moreh_layer_norm_backward moreh_linear moreh_linear_backward
        moreh_matmul moreh_matmul_backward moreh_mean moreh_mean_backward moreh_nll_loss moreh_nll_loss_backward
        moreh_nll_loss_unreduced_backward moreh_norm moreh_norm_backward moreh_sgd moreh_sum moreh_sum_backward
        moreh_abs_pow
    """),
    Covered("unit/test_ops_moreh.py", """
        moreh_logsoftmax moreh_logsoftmax_backward moreh_softmax moreh_softmax_backward moreh_softmin
        moreh_softmin_backward
    """, "softmax"),
    Covered("unit/test_ops_moreh.py", "moreh_adam moreh_adamw", "adamw"),
]  # fmt: skip
COVERED = {name: covered for covered in COVERED_BY for name in covered.names.split()}


def own_ops() -> list[str]:
    """Collectives compare themselves with their schedules, hop by hop."""
    return [name for name in operation_names() if not is_collective(OPERATIONS[name])]


def with_golden() -> list[str]:
    return [n for n in own_ops() if OPERATIONS[n].golden_function is not None and n not in COVERED]


def generated() -> list[str]:
    return [name for name in with_golden() if name in CALLS]


def written_out() -> list[str]:
    return [name for name in with_golden() if name not in CALLS]


def as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]


def widened(tensor: ttnn.Tensor) -> torch.Tensor:
    """Its values, in a dtype wide enough for a reference."""
    values = ttnn.to_torch(tensor)
    return values.double() if values.is_floating_point() else values.long()


def agree(found: torch.Tensor, golden: torch.Tensor) -> bool:
    expected = golden.double().broadcast_to(found.shape) if golden.numel() == found.numel() else golden.double()
    finite = expected[expected.isfinite()].abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return found.shape == golden.shape and torch.allclose(
        found.double(), expected, rtol=1e-4, atol=2e-6 * scale, equal_nan=True
    )


@pytest.mark.filterwarnings("ignore:.*nothing was written to since ttnn.empty_like")
@pytest.mark.parametrize("name", generated())
@settings(LAWS, max_examples=3)
@given(data=st.data())
def test_an_op_computes_what_its_golden_function_computes(name: str, data: st.DataObject) -> None:
    op = OPERATIONS[name]
    call = data.draw(calls(name, [ttnn.float32]))
    mesh = one_device()
    tensors = [placed(mesh, like, (REPLICATE, REPLICATE), data.draw(seeds)) for like in call.operands]
    values = [widened(tensor) for tensor in tensors]
    with quietly():
        results: Sequence[ttnn.Tensor] = as_list(call.run(op, tensors, call.shape))
        goldens = as_list(call.run(op.golden_function, values, call.shape))  # type: ignore[arg-type]
    assert len(results) == len(goldens)
    for result, golden in zip(results, goldens, strict=True):
        found = widened(result)
        assert agree(found, golden), f"{name} {found} is not {golden}"


@pytest.mark.parametrize("name", written_out())
def test_an_op_without_a_generated_call_does_so_too(name: str) -> None:
    op = OPERATIONS[name]
    given, signature = ARGUMENTS.get(name, {}), op.definition.signature
    operands = [
        operand
        for operand, at in zip(signature.operand_names, signature.operand_at, strict=True)
        if operand not in given and (signature.defaults[at] is inspect.Parameter.empty)
    ]
    values = {
        operand: draw_values(SHAPES.get(name, (4, 8)), "real", seed) / 10 + 0.6 + LARGER.get(name, 0.0)
        for seed, operand in enumerate(operands)
    }
    on_device = {"layout": ttnn.TILE_LAYOUT, "device": one_device()}
    tensors = {operand: ttnn.from_torch(value, **on_device) for operand, value in values.items()}
    assert op.golden_function is not None
    goldens = as_list(op.golden_function(**{o: v.double() for o, v in values.items()}, **given))
    results = as_list(op(**tensors, **given))
    assert len(results) == len(goldens)
    for result, golden in zip(results, goldens, strict=True):
        found = widened(result)
        assert agree(found, golden), f"{name} {found} is not {golden}"


def test_every_op_is_compared_with_torch() -> None:
    untested = sorted(set(own_ops()) - set(with_golden()) - set(COVERED))
    assert not untested, (
        f"{untested}: give each a golden function (softmesh.ops.golden) and a generated call (op_calls), or name here "
        "the test file that compares it with torch"
    )


@pytest.mark.parametrize("name", sorted(COVERED))
def test_the_file_that_stands_for_a_golden_function_calls_the_op(name: str) -> None:
    file, _, table = COVERED[name]
    assert name in operation_names(), "there is no such op any more"
    assert (table or name.rpartition(".")[2]) in (TESTS / file).read_text()
