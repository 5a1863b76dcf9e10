"""Generated calls of element-wise ops and of what moves values by place.

Each kind of placement rule has an entry; ops that share a rule with one of them, and those that write in place, are
compared with torch on a mesh in tests/unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from op_calls import (
    APPROXIMATE,
    CALLS,
    TESTED_ELSEWHERE,
    Call,
    Entry,
    Splits,
    broadcasting,
    extents,
    shapes,
    unary,
)
from strategies import Extents, Like

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.ops.elementwise.in_place import IN_PLACE

MOREH_TESTED_HERE = ("moreh_dot", "moreh_full_like")
APPROXIMATE.update({"bias_gelu", "snake_beta", "ema", "addmm", "addcdiv", "situ_glu"})
TESTED_ELSEWHERE.update(
    {
        *(name for name in OPERATIONS if name.endswith("_bw")),  # tests/unit/test_ops_backward.py
        *(f"{name}_" for name in (*IN_PLACE, "logical_not")),  # tests/unit/test_ops_in_place.py
        # tests/unit/test_ops_elementwise_more.py
        *(
            "celu",
            "hardtanh",
            "selu",
            "softshrink",
            "hardshrink",
            "heaviside",
            "rpow",
            "relu_max",
            "relu_min",
        ),
        *(
            "softcap",
            "logit",
            "xielu",
            "alt_complex_rotate90",
            "multigammaln",
            "polygamma",
            "polyval",
            "unary_chain",
        ),
        *(
            "lerp",
            "bias_gelu",
            "subalpha",
            "isclose",
            "nextafter",
            "floor_div",
            "triu",
            "snake_beta",
            "bcast",
        ),
        *("glu", "reglu", "geglu", "swiglu"),
        # tests/unit/test_ops_more_families.py
        *("quantize", "dequantize", "requantize", "l1_loss", "mse_loss", "index_fill", "index_fill_new"),
        *("var_hw", "std_hw", "normalize_hw", "normalize_global"),
        # tests/unit/test_ops_moreh.py
        *(name for name in OPERATIONS if name.startswith("moreh_") and name not in MOREH_TESTED_HERE),
        # tests/unit/test_ops_movement_more.py
        *(
            "scatter_add",
            "tosa_scatter",
            "experimental.slice_write",
            "experimental.padded_slice",
            "moreh_cumsum",
        ),
        *("experimental.intimg", "nonzero", "move", "reshard", "interleaved_to_sharded_partial", "fill_rm"),
        *(
            "sharded_to_interleaved_partial",
            "fill_implicit_tile_padding",
            "experimental.typecast",
            "experimental.quasar.typecast",
            "fill_ones_rm",
        ),
        *("composite_example", "experimental.dropout", "bernoulli"),
    }
)

CALLS["threshold"] = unary(0.25, -1.5)
CALLS["situ_glu"] = lambda draw, dtype: _with_number(broadcasting(2, "whole"), 2.0, 3.0)(draw, dtype)
CALLS["fill"] = unary(1.5, reads_values=False)
CALLS["tril"] = lambda draw, dtype: _matrices(draw, dtype)
CALLS["addalpha"] = lambda draw, dtype: _with_number(broadcasting(2, "whole"), 0.5)(draw, dtype)
CALLS["div_no_nan"] = broadcasting(values="positive", number=2.0)
CALLS["addcmul"] = broadcasting(3, "whole")
CALLS["mac"] = broadcasting(3, "whole")
CALLS["addcdiv"] = broadcasting(3, "positive")


def _given(*args: Any, **kwargs: Any) -> Any:
    return lambda op, tensors, shape: op(*tensors, *args, **kwargs)


def _with_number(entry: Entry, *numbers: float) -> Entry:
    def build(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        call = entry(draw, dtype)
        return Call(call.operands, _given(*numbers), call.splits)

    return build


def _matrices(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(2, 3))
    run = _given(diagonal=draw(st.integers(-1, 1)))
    return Call((Like(shape, dtype),), run, {d: (d,) for d in range(len(shape))})


def _along_a_dim(name: str) -> Entry:
    def build(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        shape = draw(shapes(1, 3))
        dim = draw(st.integers(-len(shape), len(shape) - 1))
        own: Splits = {d: (d,) for d in range(len(shape))}
        return Call((Like(shape, ttnn.float32, values="whole"),), _given(dim), own)

    return build


for _name in ("sort", "cumprod"):
    CALLS[_name] = _along_a_dim(_name)


def _ema(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    return Call((Like(shape, dtype),), _given(0.5), {d: (d,) for d in range(len(shape))})


def _prelu(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(2, 4))
    weight = draw(st.sampled_from([(shape[1],), (1, shape[1])]))
    splits: Splits = {d: (d, len(weight) - 1 if d == 1 else None) for d in range(len(shape))}
    return Call((Like(shape, dtype), Like(weight, dtype)), splits=splits)


def _outer(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    batch = draw(extents)
    likes = tuple(Like((batch, draw(extents)), dtype, values="whole") for _ in range(2))
    return Call(likes, splits={0: (0, 0), 1: (1, None), 2: (None, 1)})


def _scatter(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    dim = draw(st.integers(0, len(shape) - 1))
    written = (*shape[:dim], draw(st.integers(1, shape[dim])), *shape[dim + 1 :])
    index = Like(written, ttnn.uint32, values=f"below {shape[dim]}")
    likes = (Like(shape, ttnn.float32, values="whole"), index, Like(written, ttnn.float32, values="whole"))

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return op(tensors[0], dim, *tensors[1:], reduce="add")

    splits: Splits = {d: (d, d, d) for d in range(len(shape)) if d != dim}
    return Call(likes, run, splits, tiles_only=True)


def _tosa_gather(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    n, rows, width, picked = (draw(extents) for _ in range(4))
    index = Like((n, picked), ttnn.uint32, values=f"below {rows}")
    return Call((Like((n, rows, width), dtype), index), splits={0: (0, 0), 2: (2, None)})


def _broadcast_to(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    added = tuple(draw(st.lists(extents, max_size=1)))
    grown = [3 if n == 1 and draw(st.booleans()) else None for n in shape]

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        sizes = [own if n is None else n for own, n in zip(tensors[0].shape, grown, strict=True)]
        return op(*tensors, [*added, *sizes])

    splits: Splits = {d + len(added): (d,) for d in range(len(shape)) if grown[d] is None}
    return Call((Like(shape, dtype),), run, splits)


def _addmm(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    m, k, n = draw(extents), draw(extents), draw(extents)
    addend = draw(st.sampled_from([(m, n), (1, n), (n,)]))
    likes = tuple(Like(shape, dtype, values="whole") for shape in (addend, (m, k), (k, n)))
    rows = 0 if addend == (m, n) else None
    splits: Splits = {0: (rows, 0, None), 1: (len(addend) - 1, None, 1)}
    return Call(likes, splits=splits, summed=(None, 1, 0))


def _bits(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes())
    return Call((Like(shape, ttnn.float32),), _given(ttnn.int32), {d: (d,) for d in range(len(shape))})


CALLS["ema"] = _ema
CALLS["prelu"] = _prelu
CALLS["outer"] = _outer
CALLS["scatter"] = _scatter
CALLS["tosa_gather"] = _tosa_gather
CALLS["experimental.broadcast_to"] = _broadcast_to
CALLS["addmm"] = _addmm
CALLS["bitcast"] = _bits
