"""The golden functions of attention, heads and rotary embeddings say what the ops compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from llm_operands import some_pages
from operands import put, random

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS

TABLE = some_pages(4, 2, 10).to(torch.int32)
AT = torch.tensor([0, 40, 63, 5], dtype=torch.int32)
CACHE = (10, 4, 32, 32)

# op -> positional and named arguments, torch tensors for operands
CALLS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "transformer.scaled_dot_product_attention": (
        [random(2, 8, 16, 32), random(2, 4, 16, 32), random(2, 4, 16, 32) * 2],
        {"sliding_window_size": 7, "attention_sink": random(1, 8, 1, 1)},
    ),
    "transformer.flash_mla_prefill": ([random(2, 8, 16, 64), random(2, 1, 16, 64), 32], {"scale": 0.3}),
    "transformer.scaled_dot_product_attention_decode": (
        [random(1, 4, 8, 32), random(4, 4, 64, 32), random(4, 4, 64, 32) * 2],
        {"cur_pos": [0, 40, 63, 5], "sliding_window_size": 20, "attention_sink": random(8, 32)},
    ),
    "transformer.flash_multi_latent_attention_decode": (
        [random(1, 4, 8, 64), random(4, 1, 64, 64)],
        {"head_dim_v": 32, "cur_pos_tensor": AT},
    ),
    "transformer.paged_scaled_dot_product_attention_decode": (
        [random(1, 4, 8, 32), random(*CACHE), random(*CACHE) * 2, TABLE],
        {"cur_pos_tensor": AT},
    ),
    "transformer.chunked_scaled_dot_product_attention": (
        [random(4, 8, 32, 32), random(*CACHE), random(*CACHE) * 2, TABLE, 32],
        {"sliding_window_size": 40},
    ),
    "transformer.joint_scaled_dot_product_attention": (
        [random(1, 4, n, 32) * s for n in (16, 5) for s in (1, 2, 3)],
        {"joint_strategy": "rear", "program_config": None},
    ),
    "transformer.split_query_key_value_and_split_heads": (
        [random(2, 5, 8 * 32)],
        {"num_heads": 4, "num_kv_heads": 2},
    ),
    "experimental.nlp_create_qkv_heads": (
        [random(2, 1, 5, 4 * 32), random(2, 1, 5, 4 * 32)],
        {"num_heads": 4, "num_kv_heads": 2, "transpose_k_heads": False},
    ),
    "experimental.nlp_concat_heads": ([random(2, 4, 5, 32)], {}),
    "experimental.rotary_embedding": (
        [random(2, 4, 5, 64), random(1, 1, 9, 64), random(1, 1, 9, 64) * 2, 3],
        {},
    ),
    "experimental.rotary_embedding_hf": (
        [random(1, 4, 8, 64), random(1, 4, 1, 64), random(1, 4, 1, 64) * 2],
        {"is_decode_mode": True},
    ),
    "experimental.rotary_embedding_llama": (
        [random(1, 4, 8, 64), random(1, 1, 9, 64), random(1, 1, 9, 64) * 2, random(1, 1, 32, 32)],
        {},
    ),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_golden_function_takes_the_ops_arguments_and_gives_its_values(device, name):
    args, kwargs = CALLS[name]

    def on_device(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_floating_point():
            return put(value, device)
        return put(value, device, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT)

    op = OPERATIONS[name]
    golden: Callable[..., Any] = ttnn.get_golden_function(op)
    found = op(*map(on_device, args), **{key: on_device(value) for key, value in kwargs.items()})
    expected = golden(*args, **kwargs)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for result, reference in pairs:
        torch.testing.assert_close(ttnn.to_torch(result), reference, rtol=1e-4, atol=2e-5)
