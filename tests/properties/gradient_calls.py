"""A call by name of each op that has no generated one: its operands, and the arguments beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from strategies import Like

import softmesh as ttnn
from softmesh.ops.attention.sparse_attention import SparseKVFormat

_ROWS = ttnn.ROW_MAJOR_LAYOUT


class Given(NamedTuple):
    """`operands` by name: values to be drawn, or whole numbers as they stand, which all devices share."""

    operands: dict[str, Like | torch.Tensor]
    options: dict[str, Any] = {}
    before: Callable[[ttnn.Tensor], ttnn.Tensor] = lambda tensor: tensor  # what makes the first operand fit


def tiles(*shape: int, values: str = "real") -> Like:
    return Like(shape, values=values)


def rows(*shape: int, values: str = "real") -> Like:
    return Like(shape, layout=_ROWS, values=values)


def below(limit: int, *shape: int, dtype: ttnn.DataType = ttnn.uint32) -> Like:
    return Like(shape, dtype, _ROWS, f"below {limit}")


def ints(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


_QUERIES = {
    "input_tensor_q": tiles(2, 4, 6, 8),
    "input_tensor_k": tiles(2, 2, 6, 8),
    "input_tensor_v": tiles(2, 2, 6, 8),
}
_IMAGE = {"batch_size": 2, "input_height": 4, "input_width": 4, "kernel_size": (2, 2)}
_POOLED = {"batch_size": 2, "input_h": 4, "input_w": 4, "channels": 3, "output_size": [2, 2]}
_PAGES = ints([2, 0], [3, 1])  # of two users
_CACHE = tiles(4, 1, 32, 8)  # blocks of 32 positions
_ONE_CORE = ttnn.create_sharded_memory_config(
    (32, 32), ttnn.CoreGrid(x=1, y=1), ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
)

ATTENTION: dict[str, Given] = {
    "transformer.scaled_dot_product_attention": Given(
        {**_QUERIES, "attention_sink": tiles(1, 4, 1, 1)}, {"sliding_window_size": 3}
    ),
    "transformer.scaled_dot_product_attention_decode": Given(
        {
            "input_tensor_q": tiles(1, 2, 4, 8),
            "input_tensor_k": tiles(2, 2, 32, 8),
            "input_tensor_v": tiles(2, 2, 32, 8),
        },
        {"cur_pos": [3, 17]},
    ),
    "transformer.paged_scaled_dot_product_attention_decode": Given(
        {
            "input_tensor_q": tiles(1, 2, 4, 8),
            "input_tensor_k": _CACHE,
            "input_tensor_v": _CACHE,
            "page_table_tensor": _PAGES,
            "cur_pos_tensor": ints(40, 3),
        }
    ),
    "transformer.flash_multi_latent_attention_decode": Given(
        {"input_tensor_q": tiles(1, 2, 4, 8), "input_tensor_k": tiles(2, 1, 32, 8)},
        {"head_dim_v": 4, "cur_pos": [3, 17]},
    ),
    "transformer.paged_flash_multi_latent_attention_decode": Given(
        {
            "input_tensor_q": tiles(1, 2, 4, 8),
            "input_tensor_k": _CACHE,
            "page_table_tensor": _PAGES,
            "cur_pos_tensor": ints(40, 3),
        },
        {"head_dim_v": 4},
    ),
    "transformer.chunked_scaled_dot_product_attention": Given(
        {
            "input_tensor_q": tiles(2, 2, 32, 8),
            "input_tensor_k": _CACHE,
            "input_tensor_v": _CACHE,
            "page_table_tensor": _PAGES,
        },
        {"chunk_start_idx": 32},
    ),
    "transformer.chunked_flash_mla_prefill": Given(
        {"input_tensor_q": tiles(2, 2, 32, 8), "input_tensor_k": _CACHE, "page_table_tensor": _PAGES},
        {"head_dim_v": 4, "chunk_start_idx": 32},
    ),
    "transformer.flash_mla_prefill": Given(
        {"input_tensor_q": tiles(2, 4, 6, 8), "input_tensor_k": tiles(2, 1, 6, 8)}, {"head_dim_v": 4}
    ),
    "transformer.joint_scaled_dot_product_attention": Given(
        {
            **{f"input_tensor_{x}": tiles(1, 2, 4, 8) for x in "qkv"},
            **{f"joint_tensor_{x}": tiles(1, 2, 3, 8) for x in "qkv"},
        },
        {"joint_strategy": "rear"},
    ),
    "transformer.ring_distributed_scaled_dot_product_attention": Given(
        {x: tiles(1, 2, 8, 8) for x in "qkv"}, {"place": 1, "devices": 2}
    ),
    "transformer.ring_joint_scaled_dot_product_attention": Given(
        {
            "q": tiles(1, 2, 4, 8),
            "k": tiles(1, 2, 8, 8),
            "v": tiles(1, 2, 8, 8),
            "place": ints(1),
            **{f"joint_{x}": tiles(1, 2, 3, 8) for x in "qkv"},
        },
        {"devices": 2, "logical_n": 7},
    ),
    "transformer.ring_mla": Given(
        {"q": tiles(1, 2, 4, 8), "kv": tiles(1, 1, 8, 8), "place": ints(1)},
        {"head_dim_v": 4, "logical_n": 8, "devices": 2},
    ),
    "transformer.sparse_sdpa": Given(
        {"q": rows(1, 2, 4, 8), "kv": rows(1, 1, 6, 8), "indices": below(6, 1, 1, 4, 3)},
        {"v_dim": 4, "kv_format": SparseKVFormat.BF16},
    ),
    "transformer.sparse_sdpa_msa": Given(
        {
            "q": rows(1, 2, 4, 8),
            "k": rows(1, 1, 64, 8),
            "v": rows(1, 1, 64, 8),
            "indices": below(2, 1, 1, 4, 1),
        },
        {"block_size": 32},
    ),
    "transformer.chunk_gated_delta_rule": Given(
        {
            "q": tiles(1, 4, 2, 8),
            "k": tiles(1, 4, 2, 8),
            "v": tiles(1, 4, 2, 8),
            "g": tiles(1, 4, 2, values="-1 to 0"),
            "beta": tiles(1, 4, 2, values="0.1 to 0.9"),
            "initial_state": tiles(1, 2, 8, 8),
        },
        {"output_final_state": True, "use_qk_l2norm": True},
    ),
    "experimental.indexer_score_dsa": Given(
        {"q": tiles(1, 2, 4, 8), "k": tiles(1, 1, 6, 8), "weights": tiles(1, 1, 4, 2)}
    ),
    "experimental.attn_matmul_from_cache": Given(
        {"input_tensor_a": tiles(1, 2, 32, 32), "input_tensor_b": tiles(32, 1, 64, 32)},
        {"num_tokens": 32, "transpose_hw": True},
    ),
}

_FUSED = {"input": tiles(2, 1, 32, 6 * 32)}
HEADS: dict[str, Given] = {
    "experimental.concatenate_heads": Given({"input_tensor": tiles(1, 16, 32, 64)}),
    "experimental.nlp_concat_heads": Given({"input_tensor": tiles(2, 3, 4, 8)}),
    "experimental.nlp_concat_heads_decode": Given({"input_tensor": tiles(1, 2, 32, 32)}, {"num_heads": 3}),
    "experimental.create_qkv_heads": Given({"input": tiles(2, 1, 32, 4 * 32)}, {"num_heads": 2, "num_kv_heads": 1}),
    "experimental.create_qkv_heads_from_separate_tensors": Given(
        {"input": tiles(2, 1, 32, 64), "input_kv": tiles(2, 1, 32, 64)}, {"num_heads": 2, "num_kv_heads": 1}
    ),
    "experimental.nlp_create_qkv_heads": Given({"input": tiles(2, 1, 4, 4 * 8)}, {"num_heads": 2, "num_kv_heads": 1}),
    "experimental.nlp_create_qkv_heads_decode": Given(
        {"input_tensor": tiles(1, 1, 2, 4 * 32)}, {"num_heads": 2, "num_kv_heads": 1}
    ),
    "experimental.nlp_create_qkv_heads_falcon7b": Given({"input": tiles(1, 1, 4, 73 * 64)}),
    "experimental.nlp_create_qkv_heads_segformer": Given({"input": tiles(2, 1, 4, 64)}),
    "experimental.nlp_create_qkv_heads_vit": Given({"input": tiles(2, 1, 4, 2304)}),
    "experimental.split_query_key_value_and_split_heads": Given(
        {"input_tensor": tiles(1, 1, 32, 3072)}, {"num_heads": 16}
    ),
    "transformer.split_query_key_value_and_split_heads": Given({"input_tensor": tiles(2, 4, 3 * 64)}, {"num_heads": 2}),
    "experimental.rotary_embedding_llama_fused_qk": Given(
        {
            "q_input_tensor": tiles(1, 2, 4, 32),
            "k_input_tensor": tiles(1, 2, 1, 32),
            "cos_cache": tiles(1, 4, 1, 32, values="unit"),
            "sin_cache": tiles(1, 4, 1, 32, values="unit"),
            "trans_mat": tiles(1, 1, 32, 32, values="unit"),
        }
    ),
    "experimental.deepseek_prefill.rotary_embedding_indexed": Given(
        {
            "input": tiles(1, 2, 32, 64),
            "cos": tiles(1, 1, 96, 64, values="unit"),
            "sin": tiles(1, 1, 96, 64, values="unit"),
            "trans_mat": tiles(1, 1, 32, 32, values="unit"),
        },
        {"kv_actual_global": 0, "cluster_axis": 0},
    ),
}

VISION: dict[str, Given] = {
    "adaptive_avg_pool2d": Given({"input_tensor": rows(1, 1, 32, 3)}, _POOLED),
    "adaptive_max_pool2d": Given({"input_tensor": rows(1, 1, 32, 3)}, _POOLED),
    "conv2d": Given(
        {
            "input_tensor": rows(1, 1, 32, 2),
            "weight_tensor": rows(3, 2, 2, 2),
            "bias_tensor": rows(1, 1, 1, 3),
        },
        {**_IMAGE, "in_channels": 2, "out_channels": 3, "padding": (1, 0)},
    ),
    "conv_transpose2d": Given(
        {
            "input_tensor": rows(1, 1, 32, 2),
            "weight_tensor": rows(2, 3, 2, 2),
            "bias_tensor": rows(1, 1, 1, 3),
        },
        {**_IMAGE, "in_channels": 2, "out_channels": 3, "stride": (2, 1)},
    ),
    "experimental.conv3d": Given(
        {
            "input_tensor": rows(1, 3, 4, 4, 32),
            "weight_tensor": tiles(8 * 32, 32),
            "bias_tensor": tiles(1, 32),
        },
        {"dtype": ttnn.float32, "output_channels": 32, "kernel_size": (2, 2, 2)},
    ),
    "experimental.prepare_conv3d_weights": Given({"weight_tensor": rows(4, 2, 2, 2, 2)}),
    "prepare_conv_weights": Given({"weight_tensor": rows(3, 2, 2, 2)}),
    "prepare_conv_transpose2d_weights": Given({"weight_tensor": rows(2, 3, 2, 2)}),
    "experimental.convert_to_chw": Given({"input": tiles(1, 1, 32, 4)}),
    "experimental.quasar.fold": Given({"input": rows(1, 2, 4, 4)}, {"stride_h": 2, "stride_w": 2}),
    "experimental.multi_scale_deformable_attn": Given(
        {
            "value": rows(2, 4, 4, 32),
            "grid": rows(2, 6, 1, 2, values="unit"),
            "attn": rows(2, 3, 2, values="unit"),
        }
    ),
    "group_norm": Given(
        {"input_tensor": rows(1, 1, 32, 4), "weight": rows(1, 1, 1, 4), "bias": rows(1, 1, 1, 4)},
        {"num_groups": 2, "epsilon": 0.1, "inplace": False},
    ),
    "prim.batch_statistics": Given({"input": tiles(2, 3, 4, 5)}),
    "rotate": Given({"input_tensor": rows(1, 5, 5, 2)}, {"angle": 30.0, "interpolation_mode": "bilinear"}),
}

MOVEMENT: dict[str, Given] = {
    "bcast": Given(
        {"input_a": tiles(2, 1, 3, 4), "input_b": tiles(2, 1, 1, 4)},
        {"math_op": ttnn.BcastOpMath.MUL, "dim": ttnn.BcastOpDim.H},
    ),
    "embedding_bw": Given(
        {
            "input_tensor": below(5, 1, 32),
            "weight_tensor": rows(5, 8),
            "output_gradient_tensor": tiles(1, 1, 32, 8),
        }
    ),
    "experimental.dropout": Given(
        {"input_tensor": tiles(3, 4), "draws": tiles(3, 4, values="unit")}, {"probability": 0.1, "scale": 2.0}
    ),
    "experimental.halo_scatter": Given(
        {"compact_buffer": rows(1, 20, 4), "interior_src": rows(1, 4, 4, 4)},
        {"np_padding_h": 1, "np_padding_w": 1},
    ),
    "experimental.padded_slice": Given(
        {"input_tensor": rows(1, 4, 4, 8)},
        {"padded_slice_start": [0, 1, 0, 0], "padded_slice_end": [1, 3, 4, 8], "memory_config": _ONE_CORE},
    ),
    "experimental.dit_layernorm_pre_allgather": Given(
        {"input_tensor": tiles(1, 1, 4, 32), "recip_tensor": tiles(1, 32, values="positive")},
        {"dtype": ttnn.float32},
    ),
    "experimental.repeat_and_interleave_eltwise_mul": Given({"a": tiles(1, 1, 32, 32), "b": tiles(1, 1, 32, 3)}),
    "interleaved_to_sharded_partial": Given(
        {"input_tensor": tiles(1, 1, 64, 32)},
        {
            "grid": ttnn.CoreCoord(1, 1),
            "shard_shape": [32, 32],
            "num_slices": 2,
            "slice_index": 1,
            "shard_scheme": ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
            "shard_orientation": ttnn.ShardOrientation.ROW_MAJOR,
        },
    ),
    "alt_complex_rotate90": Given({"input_tensor": tiles(3, 4)}),
    "reshard": Given(
        {"input_tensor": tiles(32, 32)},
        {"output_memory_config": _ONE_CORE},
        lambda tensor: ttnn.interleaved_to_sharded(tensor, _ONE_CORE),
    ),
    "scatter_add": Given({"input": tiles(3, 4), "index": below(4, 3, 4), "src": tiles(3, 4)}, {"dim": 1}),
    "tosa_scatter": Given({"input": tiles(1, 4, 8), "index": ints([2, 0]), "src": tiles(1, 2, 8)}),
}

EXPERTS: dict[str, Given] = {
    "experimental.deepseek_prefill.extract": Given(
        {
            "global_tensor": rows(64, 32),
            "start": ints(0, 32),
            "counts": ints(20, 7),
            "global_expert_idx_table": ints(0, 1),
        },
        {"local_expert_id": 1, "max_dispatched_tokens_per_expert": 32},
    ),
    "experimental.deepseek_prefill.moe_hash_gate": Given(
        {
            "scores": tiles(1, 1, 4, 8),
            "input_ids": below(3, 1, 1, 1, 4),
            "tid2eid": ints([0, 1], [2, 3], [4, 5]),
        },
        {"n_activated_experts": 2},
    ),
    "sparse_matmul": Given(
        {
            "input_tensor_a": tiles(1, 2, 3, 4),
            "input_tensor_b": tiles(1, 3, 4, 5),
            "sparsity": rows(1, 2, 1, 3, values="0.5 to 1"),
        }
    ),
}
_MATRICES = tiles(1, 2, 4, 6)
FAMILIES: dict[str, Given] = {
    "index_fill": Given({"input": rows(2, 4), "index": ints(0, 2)}, {"dim": 1, "value": 2.0}),
    "index_fill_new": Given({"input": rows(2, 4), "index": ints(0, 2)}, {"dim": 1, "value": 2.0}),
    "l1_loss": Given({"input_reference": tiles(2, 4), "input_prediction": tiles(2, 4)}),
    "mse_loss": Given({"input_reference": tiles(2, 4), "input_prediction": tiles(2, 4)}),
    "moreh_abs_pow": Given({"input": tiles(2, 4)}, {"p": 2.0}),
    "moreh_bmm": Given({"input": tiles(2, 3, 4), "mat2": tiles(2, 4, 2)}),
    "moreh_linear": Given({"input": tiles(2, 4), "weight": tiles(3, 4)}),
    "moreh_logsoftmax": Given({"input_tensor": _MATRICES}, {"dim": 3}),
    "moreh_matmul": Given({"input": tiles(3, 4), "other": tiles(4, 2)}),
    "moreh_mean": Given({"input": _MATRICES}, {"dim": 3}),
    "moreh_softmax": Given({"input_tensor": _MATRICES}, {"dim": 3}),
    "moreh_softmin": Given({"input_tensor": _MATRICES}, {"dim": 3}),
    "moreh_sum": Given({"input": _MATRICES}, {"dim": 3}),
    "normalize_global": Given({"input_tensor": _MATRICES}),
    "normalize_hw": Given({"input_tensor": _MATRICES}),
    "std_hw": Given({"input_tensor": _MATRICES}),
    "var_hw": Given({"input_tensor": _MATRICES}),
}


GIVEN = ATTENTION | HEADS | VISION | MOVEMENT | EXPERTS
