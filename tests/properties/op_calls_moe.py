"""Generated calls of mixture-of-experts ops; those that write, or read indices, have tests/unit/test_moe*.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from op_calls import APPROXIMATE, TESTED_ELSEWHERE, Call, _entry, _given, _minimal_matmul, extents
from strategies import Extents, Like

import softmesh as ttnn
from softmesh.dispatch.operation import Operation

APPROXIMATE.update(
    {
        "moe",
        "experimental.deepseek_grouped_gate",
        "experimental.deepseek_prefill.moe_grouped_topk",
        "experimental.deepseek_prefill.post_combine_reduce",
        "experimental.minimal_matmul_split",
    }
)
TESTED_ELSEWHERE.update(
    {
        "experimental.deepseek.moe.deepseek_moe_gate",
        "experimental.deepseek.moe.generalized_moe_gate",
        "experimental.deepseek_prefill.extract",
        "experimental.deepseek_prefill.insert",
        "experimental.deepseek_prefill.masked_bincount",
        "experimental.deepseek_prefill.moe_hash_gate",
        "experimental.halo_scatter",
        "sparse_matmul",
    }
)


@_entry("moe")
def _moe(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    rows, experts = (draw(extents), 1, draw(extents)), draw(st.integers(2, 4))
    k = draw(st.integers(1, experts))
    likes = (
        Like((*rows, experts), ttnn.float32),
        Like((1, 1, 1, experts), ttnn.float32),
        Like((1, 1, 1, k), ttnn.float32),
    )
    return Call(likes, _given(k), {d: (d, None, None) for d in range(3)})


@_entry("experimental.deepseek_grouped_gate", "experimental.deepseek_prefill.moe_grouped_topk")
def _grouped_gate(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    rows, groups = (draw(extents), 1, draw(extents)), draw(st.integers(1, 3))
    experts = groups * draw(st.integers(2, 3))
    options = {"n_groups": groups, "topk_groups": 1, "n_activated_experts": 2}
    likes = (Like((*rows, experts), ttnn.float32), Like((1, 1, 1, experts), ttnn.float32))
    return Call(likes, _given(**options), {d: (d, None) for d in range(3)})


@_entry("experimental.deepseek_moe_fast_reduce_nc")
def _fast_reduce(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = (draw(extents), draw(extents), draw(extents), draw(st.sampled_from([2, 4])))
    dim, is_cut = draw(st.sampled_from([0, 1, -4])), shape[-1] > 2

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return op(*tensors, dim, split_size=2 if is_cut else tensors[0].shape[-1])

    return Call((Like(shape, dtype, values="whole"),), run)


@_entry("experimental.deepseek_moe_post_combine_tilize")
def _post_combine(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = (draw(extents), draw(extents), draw(extents))
    run = _given(output_memory_config=ttnn.DRAM_MEMORY_CONFIG)
    return Call((Like(shape, ttnn.float32, ttnn.ROW_MAJOR_LAYOUT),), run, {d: (d,) for d in range(3)})


@_entry("experimental.minimal_matmul_split")
def _split_product(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    """As minimal_matmul, in two pieces where the columns of one device allow, else in one."""
    call = _minimal_matmul(draw, dtype)
    chunks = 2 if call.operands[1].shape[-1] % 4 == 0 and draw(st.booleans()) else 1
    inner = call.run

    def cut(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return inner(lambda *args, **kwargs: op(*args, chunks=chunks, **kwargs), tensors, wanted)  # type: ignore[arg-type]

    return replace(call, run=cut)


@_entry("experimental.deepseek_prefill.post_combine_reduce")
def _post_combine_reduce(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = (1, draw(extents), draw(extents), draw(extents), draw(extents))
    likes = (Like(shape, ttnn.float32, values="whole"), Like(shape[:-1], ttnn.float32, values="whole"))
    return Call(likes, splits={d: (d, d) for d in range(3)})
