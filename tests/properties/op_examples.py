"""One call by name of every op, of a shape of one's choice where the op takes any: what the table of properties runs.

Most ops take tensors of one shape; the others have an entry in `EXAMPLES`, or in the tables of gradient_calls and
collective_calls, whose calls are of a fixed size.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import collective_calls
import torch
from gradient_calls import GIVEN, Given, below, ints
from op_calls import operation_names
from strategies import Extents, Like, draw_values, mesh_of, one_device, quietly
from test_golden_functions import ARGUMENTS, LARGER

import softmesh as ttnn
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.signature import listed
from softmesh.hardware import UnaryOpType
from softmesh.ops.reduction.reduction import REDUCTIONS

ALIGNED: Extents = (1, 2, 64, 64)
UNALIGNED: Extents = (1, 2, 40, 50)
WIDE: Extents = (1, 2, 40, 64)  # for ops whose rows are made of whole tiles
_SHAPES = (UNALIGNED, WIDE, ALIGNED)
_ROWS = ttnn.ROW_MAJOR_LAYOUT
_UNIT = "0.3 to 0.9"


@dataclass(frozen=True)
class Example:
    """`operands` by name; `takes_any` where a shape was chosen, and the operands are tensors of that shape."""

    operands: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    takes_any: bool = False
    before: Callable[[ttnn.Tensor], ttnn.Tensor] = lambda tensor: tensor
    mesh: ttnn.MeshDevice = field(default_factory=one_device)

    def placed(
        self, memory: ttnn.MemoryConfig | None = None, layout: ttnn.Layout | None = None, dtype: Any = None
    ) -> dict[str, Any]:
        """The operands on a device: all in `memory`, and those of floating point in `layout` and `dtype`."""
        made = {name: self._put(seed, like, memory, layout, dtype) for seed, (name, like) in enumerate(self._likes())}
        first = next(iter(made), None)
        return made if first is None else made | {first: self.before(made[first])}

    def _likes(self) -> list[tuple[str, Any]]:
        return list(self.operands.items())

    def _put(self, seed: int, like: Any, *how: Any) -> Any:
        if isinstance(like, list):
            return [self._put(seed + at, one, *how) for at, one in enumerate(like)]
        memory, layout, dtype = how
        if isinstance(like, torch.Tensor):
            return ttnn.from_torch(like, layout=_ROWS, device=self.mesh, memory_config=memory)
        if not isinstance(like, Like):
            return like
        is_float = like.dtype in (ttnn.float32, ttnn.bfloat16)
        wanted = replace(like, layout=layout or like.layout, dtype=dtype or like.dtype) if is_float else like
        values = draw_values(wanted.shape, wanted.values, seed)
        return ttnn.from_torch(values, wanted.dtype, layout=wanted.layout, device=self.mesh, memory_config=memory)


def example(name: str, shape: Extents = ALIGNED) -> Example:
    """With the next shape of `_SHAPES` that the op takes, where it does not take this one."""
    others = _SHAPES[_SHAPES.index(shape) :] if shape in _SHAPES else ()
    return _example(name, next((one for one in others[:-1] if _takes(name, one)), others[-1] if others else shape))


@functools.cache
def _takes(name: str, shape: Extents) -> bool:
    call = _example(name, shape)
    try:
        with ttnn.lenient(), quietly():
            OPERATIONS[name](**call.placed(), **call.options)
    except (ttnn.SoftmeshError, RuntimeError):
        return False
    return True


def _example(name: str, shape: Extents) -> Example:
    op = OPERATIONS[name]
    if name in EXAMPLES:
        found = EXAMPLES[name](shape)
        several = [like for value in found.operands.values() for like in listed(value)]
        takes_any = any(isinstance(like, Like) and like.shape == shape for like in several)
        return replace(found, takes_any=takes_any)
    if is_collective(op):
        mesh, axis = (mesh_of((4, 1)), 0) if name == "reduce_to_root" else (mesh_of((1, 2)), 1)
        return _of_given(collective_calls.CALLS[name](mesh, axis), mesh)
    if name in GIVEN:
        return _of_given(GIVEN[name])
    given, signature = ARGUMENTS.get(name, {}), op.definition.signature
    needed = [
        operand
        for operand, at in zip(signature.operand_names, signature.operand_at, strict=True)
        if operand not in given and signature.defaults[at] is inspect.Parameter.empty
    ]
    low = 0.3 + _FROM.get(name, LARGER.get(name, 0.0))
    return Example(dict.fromkeys(needed, like_of(shape, f"{low} to {low + 0.6}")), given, takes_any=True)


def _of_given(given: Given, mesh: ttnn.MeshDevice | None = None) -> Example:
    return Example(dict(given.operands), given.options, before=given.before, mesh=mesh or one_device())


def like_of(shape: Extents, values: str = _UNIT, dtype: ttnn.DataType = ttnn.bfloat16) -> Like:
    return Like(shape, dtype, values=values)


def _rows(*shape: int) -> Like:
    return Like(shape, ttnn.bfloat16, _ROWS, _UNIT)


# A ring, semaphores and buffers of their own: tests/unit/test_collectives_experimental.py has them.
WITHOUT_EXAMPLE = {
    "experimental.all_to_all_async",
    "experimental.high_bw_all_gather",
    "experimental.reduce_scatter_minimal_direct",
}
_FROM = {"acosh": 1.0}  # where values must lie higher


def names_with_examples() -> list[str]:
    return [name for name in operation_names() if name not in WITHOUT_EXAMPLE]


# -- tensors of one shape, with arguments ------------------------------------------------------------------

Make = Callable[[Extents], Example]


def _one(operand: str = "input_tensor", **options: Any) -> Make:
    return lambda shape: Example({operand: like_of(shape)}, options)


def _whole_numbers(*operands: str) -> Make:
    return lambda shape: Example(dict.fromkeys(operands, like_of(shape, "below 4", ttnn.int32)))


def _two(first: str = "input_tensor_a", second: str = "input_tensor_b", **options: Any) -> Make:
    return lambda shape: Example({first: like_of(shape), second: like_of(shape)}, options)


def _fixed(operands: dict[str, Any], **options: Any) -> Make:
    return lambda shape: Example(operands, options)


_PAIR = ("input_tensor_a", "input_tensor_b")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm")
EXAMPLES: dict[str, Make] = {
    **dict.fromkeys((*_BITS, "logical_left_shift", "logical_right_shift"), _whole_numbers(*_PAIR)),
    "bitwise_not": _whole_numbers("input_tensor"),
    "plus_one": _whole_numbers("input_tensor"),
    "addalpha": _two(alpha=0.5),
    "situ_glu": _two("gate", "up", beta1=2.0, beta2=3.0),
    "clamp": _one(min=0.4, max=0.6),
    "leaky_relu": _one(negative_slope=0.1),
    **dict.fromkeys(REDUCTIONS, _one(dim=-1, keepdim=True)),
    "cumprod": _one(dim=1),
    "cumsum": _one("input", dim=1),
    "fill": _one(fill_value=1.5),
    "full_like": _one("tensor", fill_value=1.5),
    "moreh_full_like": _one("input", fill_value=1.5),
    "bitcast": _one(dtype=ttnn.uint16),
    "typecast": _one(dtype=ttnn.float32),
    "fill_implicit_tile_padding": lambda shape: Example({"input_tensor": like_of(UNALIGNED)}, {"fill_value": 1.5}),
    "to_layout": _one("tensor", layout=_ROWS),
    "tilize": lambda shape: Example({"input_tensor": Like((1, 2, 64, 64), ttnn.bfloat16, _ROWS, _UNIT)}),
    "tilize_with_zero_padding": lambda shape: Example({"input_tensor": _rows(*shape)}),
    "tilize_with_val_padding": lambda shape: Example(
        {"input_tensor": _rows(*shape)}, {"output_tensor_shape": _in_tiles(shape), "pad_value": 1.5}
    ),
    "untilize_with_unpadding": lambda shape: Example(
        {"input_tensor": like_of(shape)}, {"output_tensor_end": [*(n - 1 for n in shape[:-1]), shape[-1] - 3]}
    ),
    "to_memory_config": _one("tensor", memory_config=ttnn.L1_MEMORY_CONFIG),
    "interleaved_to_sharded": lambda shape: Example({"input_tensor": like_of(shape)}, {"grid": one_core(shape)}),
    "sharded_to_interleaved": lambda shape: Example(
        {"input_tensor": like_of(shape)}, before=lambda x: ttnn.interleaved_to_sharded(x, one_core(shape))
    ),
    "chunk": _one(chunks=2, dim=1),
    "split": _one(split_size=1, dim=1),
    "concat": lambda shape: Example({"tensors": [like_of(shape), like_of(shape)]}, {"dim": 1}),
    "stack": lambda shape: Example({"input_tensors": [like_of(shape), like_of(shape)]}, {"dim": 1}),
    "expand": lambda shape: Example({"input_tensor": like_of((1, *shape[1:]))}, {"output_shape": [3, *shape[1:]]}),
    "experimental.broadcast_to": lambda shape: Example(
        {"input": like_of((1, *shape[1:]))}, {"output_shape": [3, *shape[1:]]}
    ),
    "repeat": _one(repeat_dims=[1, 2, 1, 1]),
    "repeat_interleave": _one(repeats=2, dim=1),
    "roll": _one(shifts=1, dim=1),
    "permute": _one(dims=[0, 2, 1, 3]),
    "transpose": _one(dim1=1, dim2=2),
    "narrow": _one(dim=1, start=0, length=1),
    "slice": lambda shape: Example(
        {"input_tensor": like_of(shape)}, {"slice_start": [0, 0, 0, 0], "slice_end": [1, 1, *shape[2:]]}
    ),
    "pad": _one(padding=[(0, 0), (0, 1), (0, 0), (0, 0)], value=0.0),
    "reshape": lambda shape: Example({"input_tensor": like_of(shape)}, {"shape": [shape[1], shape[0], *shape[2:]]}),
    "experimental.quasar.reshape": lambda shape: Example({"input_tensor": like_of(shape)}, {"shape": shape[1:]}),
    "reshape_on_device": lambda shape: Example(
        {"input_tensor": like_of(shape)}, dict(zip("WZYX", (shape[1], shape[0], *shape[2:]), strict=True))
    ),
    "view": lambda shape: Example({"input_tensor": like_of(shape)}, {"shape": shape[1:]}),
    "experimental.view": lambda shape: Example({"input_tensor": like_of(shape)}, {"shape": shape[1:]}),
    "unsqueeze": _one(dim=0),
    "squeeze": _one(dim=0),
    "gather": lambda shape: Example(
        {"input": like_of(shape), "index": like_of(shape, "below 2", ttnn.uint32)}, {"dim": 1}
    ),
    "scatter": lambda shape: Example(
        {"input": like_of(shape), "index": like_of(shape, "below 2", ttnn.uint32), "src": like_of(shape)}, {"dim": 1}
    ),
    "tosa_gather": _fixed({"input": like_of((2, 32, 64)), "index": below(32, 2, 4)}),
    "indexed_fill": lambda shape: Example(
        {"batch_id": ints([0]), "input_tensor_a": like_of(shape), "input_tensor_b": like_of(shape)}
    ),
    "experimental.slice_write": lambda shape: Example(
        {"input_tensor": _rows(1, 1, *shape[2:]), "output_tensor": _rows(*shape)},
        {"start": [0, 1, 0, 0], "end": list(shape), "step": [1, 1, 1, 1]},
    ),
    "sharded_to_interleaved_partial": lambda shape: Example(
        {"input_tensor": like_of((1, 1, *shape[2:])), "cache_tensor": like_of(shape)},
        {"num_slices": 2, "slice_index": 1},
        before=lambda x: ttnn.interleaved_to_sharded(x, one_core((1, 1, *shape[2:]))),
    ),
    "fill_ones_rm": _fixed({"any": _rows(1, 1, 32, 64)}, N=1, C=1, H=32, W=64, hOnes=3, wOnes=5),
    "fill_rm": _fixed({"any": _rows(1, 1, 32, 64)}, N=1, C=1, H=32, W=64, hOnes=3, wOnes=5, val_hi=2.0, val_lo=1.0),
}


def _in_tiles(shape: Extents) -> list[int]:
    return [*shape[:-2], *(-(-n // 32) * 32 for n in shape[-2:])]


def one_core(shape: Extents, layout: ttnn.Layout = ttnn.TILE_LAYOUT, strategy: Any = None) -> ttnn.MemoryConfig:
    """All of a tensor as one shard."""
    *front, height, width = (1, 1, *shape)
    if layout is ttnn.TILE_LAYOUT:
        height, width = -(-height // 32) * 32, -(-width // 32) * 32
    for n in front:
        height *= n
    return ttnn.create_sharded_memory_config(
        (height, width),
        ttnn.CoreGrid(x=1, y=1),
        strategy or ttnn.ShardStrategy.HEIGHT,
        use_height_and_width_as_shard_shape=True,
    )


# -- ops that know what their dims mean ----------------------------------------------------------------------

_IMAGE = {"batch_size": 2, "input_h": 8, "input_w": 8, "channels": 32}
_WINDOWS = {**_IMAGE, "kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0]}
_GATE = {
    "input_tensor": like_of((1, 16, 16)),
    "bias_tensor": like_of((1, 16, 16)),
    "input_indices_tensor": torch.arange(256, dtype=torch.int16).reshape(1, 16, 16),
    "output_tensor": like_of((1, 16, 16)),
    "output_indices_tensor": torch.zeros(1, 16, 16, dtype=torch.int16),
}
_CACHES = {"cache_tensor": like_of((2, 1, 64, 64)), "input_tensor": like_of((1, 2, 32, 64))}
_PAGES = {
    "cache_tensor": like_of((4, 1, 32, 64)),
    "input_tensor": like_of((1, 1, 64, 64)),
    "page_table": ints([2, 0], [3, 1]),
}
_SETTINGS = {"k": ints(*[3] * 32).to(torch.uint32), "p": torch.full((32,), 0.5), "temp": torch.ones(32)}
EXAMPLES |= {
    "avg_pool2d": _fixed(
        {"input_tensor": _rows(1, 1, 128, 32)}, **_IMAGE, kernel_size=[2, 2], stride=[2, 2], padding=[0, 0]
    ),
    "max_pool2d": _fixed(
        {"input_tensor": _rows(1, 1, 128, 32)},
        **_IMAGE,
        kernel_size=[2, 2],
        stride=[2, 2],
        padding=[0, 0],
        dilation=[1, 1],
    ),
    "upsample": _fixed({"input_tensor": _rows(2, 8, 8, 32)}, scale_factor=2),
    "fold": _fixed({"input": _rows(2, 8, 8, 32)}, stride_h=2, stride_w=2),
    "batch_norm": lambda shape: Example(
        {"input": like_of(shape), **dict.fromkeys(("mean", "variance"), like_of((1, shape[1], 1, 1)))}, {"eps": 0.1}
    ),
    "prim.running_statistics": lambda shape: Example(
        dict.fromkeys(("running", "batch"), like_of((1, shape[1], 1, 1))), {"momentum": 0.1}
    ),
    "prelu": lambda shape: Example({"input_tensor_a": like_of(shape), "weight": like_of((shape[1],))}),
    "ema": lambda shape: Example({"input_tensor": like_of((1, 1, *shape[2:]))}, {"alpha": 0.5}),
    "embedding": _fixed({"input_tensor": below(8, 2, 32), "weight": _rows(8, 64)}),
    "moreh_dot": _fixed(dict.fromkeys(_PAIR, like_of((1, 1, 1, 64)))),
    "moe": _fixed(
        {
            "input_tensor": like_of((1, 1, 32, 64)),
            "expert_mask_tensor": like_of((1, 1, 1, 64)),
            "topk_mask_tensor": like_of((1, 1, 1, 32)),
        },
        k=32,
    ),
    "fill_cache": _fixed(
        {"cache_tensor": like_of((2, 1, 64, 64)), "input_tensor": like_of((1, 1, 32, 64))}, batch_idx=1
    ),
    "kv_cache.fill_cache_for_user_": _fixed(
        {"cache": like_of((2, 1, 64, 64)), "input": like_of((1, 1, 32, 64))}, batch_index=1
    ),
    "update_cache": _fixed({"cache": like_of((32, 1, 64, 64)), "input": like_of((1, 1, 32, 64))}, update_idx=3),
    "kv_cache.update_cache_for_token_": _fixed(
        {"cache": like_of((32, 1, 64, 64)), "input": like_of((1, 1, 32, 64))}, update_index=3
    ),
    "experimental.paged_update_cache": _fixed(_CACHES, update_idxs=[3, 5]),
    "experimental.paged_fused_update_cache": _fixed(
        {f"{name}{i}": like for i in (1, 2) for name, like in _CACHES.items()}, update_idxs=[3, 5]
    ),
    "experimental.paged_fill_cache": _fixed(_PAGES, batch_idx=1),
    "experimental.deepseek_prefill.update_padded_kv_cache": _fixed(
        {"cache": like_of((2, 1, 64, 64)), "input": like_of((1, 1, 32, 64))},
        slot_idx=1,
        layer_idx=0,
        num_layers=1,
        kv_actual_global=0,
        cluster_axis=0,
    ),
    "experimental.deepseek_prefill.zero_padded_kv_cache": _fixed(
        {"cache": like_of((2, 1, 64, 64))},
        slot_idx=1,
        layer_idx=0,
        num_layers=1,
        valid_global=5,
        chunk_size_global=32,
        cluster_axis=0,
        pad_align=32,
    ),
    "experimental.fast_reduce_nc": _one("input", dims=[1]),
    "experimental.deepseek_moe_fast_reduce_nc": _one(dim=1, split_size=32),
    "experimental.deepseek_moe_post_combine_tilize": _fixed(
        {"input_tensor": _rows(2, 32, 64)}, output_memory_config=ttnn.DRAM_MEMORY_CONFIG
    ),
    "experimental.deepseek_prefill.insert": _fixed(
        {
            "global_tensor": _rows(64, 32),
            "local_tensor": _rows(32, 32),
            "start": ints(0, 32),
            "counts": ints(20, 7),
            "global_expert_idx_table": ints(0, 1),
        },
        local_expert_id=1,
    ),
    "experimental.deepseek_prefill.masked_bincount": _fixed(
        {"input_tensor": below(8, 32, 3), "expert_mask": ints(*[1] * 8)}, n_routed_experts=8, num_experts_per_token=3
    ),
    "experimental.deepseek_prefill.post_combine_reduce": _fixed(
        {"combine_output": _rows(1, 1, 32, 3, 64), "weights": _rows(1, 1, 32, 3)}
    ),
    "experimental.deepseek_prefill.pack_scaled_fp8_kv_cache": _fixed(
        {
            "latent": Like((1, 1, 32, 512), ttnn.fp8_e4m3, _ROWS, _UNIT),
            "scales": Like((1, 1, 32, 4), ttnn.float32, _ROWS, _UNIT),
            "rope": _rows(1, 1, 32, 64),
        }
    ),
    "experimental.deepseek_prefill.per_token_cast_to_fp8": _fixed({"input_tensor": _rows(1, 1, 32, 128)}),
    "experimental.deepseek.moe.deepseek_moe_gate": _fixed(_GATE),
    "experimental.deepseek.moe.generalized_moe_gate": _fixed(_GATE),
    "experimental.attn_matmul": _fixed(
        {"input_tensor_a": like_of((1, 2, 32, 64)), "input_tensor_b": like_of((32, 1, 64, 32))},
        compute_with_storage_grid_size=(8, 8),
    ),
    "experimental.group_attn_matmul": _fixed(
        {"input_tensor_a": like_of((1, 2, 32, 64)), "input_tensor_b": like_of((32, 2, 64, 32))},
        compute_with_storage_grid_size=(8, 8),
    ),
    "experimental.hc_sum_reduce": _fixed({"input": like_of((1, 1, 32, 64))}),
    "experimental.prefix_scan": _fixed(
        {"a": like_of((1, 1, 32, 64)), "bx": like_of((1, 1, 32, 64)), "h_prev": like_of((1, 1, 1, 64))}
    ),
    "experimental.minimal_matmul_split": lambda shape: Example(
        {"input_tensor": like_of(shape), "weight_tensor": like_of((shape[-1], 96))}, {"chunks": 3}
    ),
    "experimental.minimal_matmul": lambda shape: Example(
        {"input_tensor": like_of(shape), "weight_tensor": like_of((shape[-1], 96))}
    ),
    "matmul": lambda shape: Example({"input_tensor_a": like_of(shape), "input_tensor_b": like_of((shape[-1], 96))}),
    "linear": lambda shape: Example({"input_tensor_a": like_of(shape), "input_tensor_b": like_of((shape[-1], 96))}),
    "addmm": _fixed(
        {"input_tensor": like_of((64, 96)), "mat1_tensor": like_of((64, 32)), "mat2_tensor": like_of((32, 96))}
    ),
    "outer": lambda shape: Example(dict.fromkeys(_PAIR, like_of((2, shape[-1])))),
    "experimental.rotary_embedding_llama": lambda shape: Example(
        {
            "input_tensor": like_of(shape),
            "cos_cache": like_of((1, 1, *shape[2:])),
            "sin_cache": like_of((1, 1, *shape[2:])),
            "trans_mat": like_of((1, 1, 32, 32)),
        }
    ),
    "experimental.rotary_embedding_hf": lambda shape: Example(
        {"input_tensor": like_of(shape), **dict.fromkeys(("cos_cache", "sin_cache"), like_of((1, 1, *shape[2:])))}
    ),
    "experimental.topk_large_indices": _one(k=4),
    "topk": _one(k=4),
    "sampling": _fixed(
        {"input_values_tensor": like_of((1, 1, 32, 64)), "input_indices_tensor": below(64, 1, 1, 32, 64), **_SETTINGS}
    ),
    "manual_seed": lambda shape: Example({}, {"seeds": 3, "device": one_device()}),
    "unary_chain": _one(ops_chain=[ttnn.UnaryWithParam(UnaryOpType.EXP)]),
}


# -- families with a file of their own: they add to EXAMPLES ---------------------------------------------------

importlib.import_module("op_examples_moreh")
