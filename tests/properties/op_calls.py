"""One generated call for every registered op: operands, arguments, and which dims belong together.

A new op gets an entry in `CALLS` and with it all laws about meshes: that it computes on each device
what it computes on one, and that the placement it claims is true.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from strategies import Extents, Like

import softmesh as ttnn
from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.ops.elementwise.binary import BINARY
from softmesh.ops.elementwise.unary import UNARY
from softmesh.ops.reduction.reduction import REDUCTIONS

# (op, tensors, shape of the result that is asked for) -> what the op returns
Run = Callable[[Operation, Sequence[ttnn.Tensor], Extents], Any]
Splits = dict[int, tuple[int | None, ...]]


def _plain(op: Operation, tensors: Sequence[ttnn.Tensor], shape: Extents) -> Any:
    return op(*tensors)


@dataclass(frozen=True)
class Call:
    """`run` makes the call, for one device's pieces or for the whole values.

    `splits[d]` has for each operand the dim that dim d of the result runs along; `summed` those that
    the op sums over. `shape` is the piece of the result for ops that are told it. `reference` computes
    the whole value from whole operands where the op's own arguments speak of pieces.
    """

    operands: tuple[Like, ...]
    run: Run = _plain
    splits: Splits = field(default_factory=dict)
    summed: tuple[int | None, ...] | None = None
    shape: Extents = ()
    reference: Callable[[Sequence[torch.Tensor]], torch.Tensor] | None = None
    tiles_only: bool = False  # the op takes operands of differing extents, and means something else by it
    reads_values: bool = True  # and not only the shape


Entry = Callable[[st.DrawFn, ttnn.DataType], Call]
CALLS: dict[str, Entry] = {}

# Ops that write in place, convolve, know of heads or talk have contracts of their own, and tests by family.
TESTED_ELSEWHERE = {
    *(name for name, op in OPERATIONS.items() if is_collective(op)),
    "conv2d",
    "experimental.nlp_concat_heads",
    "experimental.nlp_concat_heads_decode",
    "experimental.nlp_create_qkv_heads",
    "experimental.nlp_create_qkv_heads_decode",
    "fill_cache",
    "transformer.concatenate_heads",
    "transformer.scaled_dot_product_attention",
    "transformer.scaled_dot_product_attention_decode",
    "update_cache",
}

# torch computes these by one series in the vector part of a loop and by another in what is left over,
# and sums in an order that depends on the shape: the last bit of a piece may depend on its neighbours.
_SERIES = 6  # steps per element from which on a function is a series
APPROXIMATE = {
    *(name for name, entry in UNARY.items() if entry.steps >= _SERIES),
    *(name for name, entry in BINARY.items() if entry.steps >= _SERIES),
    *(
        "elu",
        "gelu",
        "pow",
        "sigmoid",
        "sigmoid_accurate",
        "softplus",
        "softmax",
        "std",
        "var",
        "layer_norm",
        "rms_norm",
    ),
    *("layer_norm_post_all_gather", "rms_norm_post_all_gather", "experimental.minimal_matmul"),
}
PRODUCTS = {"matmul", "linear", "moreh_dot"}

extents = st.sampled_from([1, 2, 2, 3, 4])


def shapes(low: int = 0, high: int = 4) -> st.SearchStrategy[Extents]:
    return st.lists(extents, min_size=low, max_size=high).map(tuple)


def _entry(*names: str) -> Callable[[Entry], Entry]:
    def add(entry: Entry) -> Entry:
        for name in names:
            CALLS[name] = entry
        return entry

    return add


def _given(*args: Any, **kwargs: Any) -> Run:
    """The op on its tensors, followed by these arguments."""
    return lambda op, tensors, shape: op(*tensors, *args, **kwargs)


def _listed(*args: Any, **kwargs: Any) -> Run:
    """The op on a list of tensors."""
    return lambda op, tensors, shape: op(list(tensors), *args, **kwargs)


def _own_dims(rank: int) -> Splits:
    return {d: (d,) for d in range(rank)}


def _some_layout(draw: st.DrawFn, dtype: ttnn.DataType) -> ttnn.Layout:
    only_tiles = dtype in (ttnn.bfloat8_b, ttnn.bfloat4_b)
    return draw(st.sampled_from([ttnn.TILE_LAYOUT] if only_tiles else [ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT]))


def _some_dtype(draw: st.DrawFn, dtype: ttnn.DataType) -> ttnn.DataType:
    """For ops that move values: whole numbers too."""
    return draw(st.sampled_from([dtype, dtype, ttnn.int32, ttnn.uint16]))


def _moved(draw: st.DrawFn, shape: Extents, dtype: ttnn.DataType) -> Like:
    kind = _some_dtype(draw, dtype)
    values = "real" if kind is dtype else "bits"
    return Like(shape, kind, _some_layout(draw, kind), values)


# -- element by element ----------------------------------------------------------------------------


def unary(*args: Any, values: str = "real", reads_values: bool = True, **kwargs: Any) -> Entry:
    def entry(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        shape = draw(shapes())
        like = Like(shape, ttnn.int32 if values == "bits" else dtype, values=values)
        return Call((like,), _given(*args, **kwargs), _own_dims(len(shape)), reads_values=reads_values)

    return entry


for _name in UNARY:
    CALLS[_name] = unary(values="bits" if _name == "bitwise_not" else "real")
CALLS["gelu"] = unary()
CALLS["sigmoid"] = unary()
CALLS["sigmoid_accurate"] = unary()
CALLS["softplus"] = unary()
CALLS["leaky_relu"] = unary(0.1)
CALLS["elu"] = unary(alpha=0.5)
CALLS["round"] = unary(decimals=1)


def _broadcast_parts(draw: st.DrawFn, count: int) -> tuple[Extents, list[Extents]]:
    """A shape, and `count` shapes that broadcast to it together."""
    out = draw(shapes())
    parts: list[Extents] = []
    for _ in range(count):
        start = draw(st.integers(0, len(out))) if draw(st.booleans()) else 0
        ones = draw(st.sets(st.integers(0, 3), max_size=2)) if draw(st.booleans()) else set()
        parts.append(tuple(1 if d in ones else n for d, n in list(enumerate(out))[start:]))
    whole = draw(st.integers(0, count - 1))
    parts[whole] = out
    return out, parts


def _broadcast_splits(out: Extents, parts: Sequence[Extents]) -> Splits:
    rank = len(out)
    return {
        d: tuple(d - rank + len(part) if d - rank + len(part) >= 0 else None for part in parts) for d in range(rank)
    }


def broadcasting(count: int = 2, values: str = "real", number: float | None = None) -> Entry:
    """Several operands element by element; with `number` the last may be that number."""

    def entry(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        out, parts = _broadcast_parts(draw, count)
        kind = ttnn.int32 if values == "bits" else dtype
        if number is not None and draw(st.integers(0, 3)) == 0:
            return Call((Like(out, kind, values=values),), _given(number), _own_dims(len(out)))
        likes = tuple(Like(part, kind, values=values) for part in parts)
        return Call(likes, splits=_broadcast_splits(out, parts))

    return entry


for _name, _binary in BINARY.items():
    CALLS[_name] = broadcasting(values="bits" if _binary.integer else "real", number=2)
for _name in ("div", "rdiv", "pow"):
    CALLS[_name] = broadcasting(values="positive", number=2.0)
CALLS["where"] = broadcasting(3, "whole")


@_entry("clamp")
def _clamp(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    if draw(st.booleans()):
        return broadcasting(3)(draw, dtype)
    return unary(*draw(st.sampled_from([(-1.0, 1.0), (None, 0.5), (0.5, None)])))(draw, dtype)


# -- reductions ------------------------------------------------------------------------------------


@_entry(*REDUCTIONS)
def _reduction(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    dims = draw(st.none() | st.sets(st.integers(0, len(shape) - 1), min_size=1).map(sorted))
    if draw(st.booleans()) and dims is not None:
        dims = [d - len(shape) for d in dims]
    scalar = draw(st.sampled_from([1.0, 1.0, 0.5, -2.0]))
    run = _given(dims, draw(st.booleans()), scalar=scalar)
    return Call((Like(shape, dtype, values="whole"),), run)


def over_one_dim(values: str) -> Entry:
    def entry(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        shape = draw(shapes(1, 3))
        dim = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
        return Call((Like(shape, dtype, values=values),), _given(dim, draw(st.booleans())))

    return entry


CALLS["prod"] = over_one_dim("whole")
CALLS["argmax"] = over_one_dim("real")


@_entry("topk")
def _topk(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    dim = draw(st.integers(0, len(shape) - 1))
    k = draw(st.integers(1, shape[dim]))
    largest = draw(st.booleans())
    return Call((Like(shape, ttnn.float32),), _given(k, dim - len(shape), largest, True), _own_dims(len(shape)))


@_entry("cumsum")
def _cumsum(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    run = _given(draw(st.integers(-len(shape), len(shape) - 1)), reverse_order=draw(st.booleans()))
    return Call((Like(shape, dtype, values="whole"),), run, _own_dims(len(shape)))


# -- shapes ----------------------------------------------------------------------------------------


def _factors(n: int) -> list[int]:
    found = next((k for k in range(2, n + 1) if n % k == 0), None)
    return [] if found is None else [found, *_factors(n // found)]


def _regrouped(draw: st.DrawFn, shape: Extents, rank: int | None = None) -> Extents:
    """The same number of elements under another shape that often keeps some of the dims."""
    parts = [f for n in shape for f in (_factors(n) if draw(st.booleans()) else [n])]
    count = draw(st.integers(1, 5)) if rank is None else rank
    cuts = sorted(draw(st.lists(st.integers(0, len(parts)), min_size=count - 1, max_size=count - 1)))
    bounds = [0, *cuts, len(parts)]
    return tuple(math.prod(parts[a:b]) for a, b in pairwise(bounds))


def _to_shape(op: Operation, tensors: Sequence[ttnn.Tensor], shape: Extents) -> Any:
    return op(*tensors, list(shape))


@_entry("view", "experimental.view")
def _views(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    """Rows stay as they are: only what stands before them is regrouped."""
    shape = draw(shapes(2, 4))
    before = _regrouped(draw, shape[:-2], draw(st.integers(1, 3)))
    return Call((_moved(draw, shape, dtype),), _to_shape, shape=(*before, *shape[-2:]))


@_entry("reshape", "experimental.quasar.reshape")
def _reshape(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes())
    return Call((_moved(draw, shape, dtype),), _to_shape, shape=_regrouped(draw, shape))


@_entry("reshape_on_device")
def _reshape_on_device(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes())
    run: Run = lambda op, tensors, wanted: op(*tensors, *wanted)  # noqa: E731
    return Call((_moved(draw, shape, dtype),), run, shape=_regrouped(draw, shape, 4))


@_entry("squeeze")
def _squeeze(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    """Where the dropped dim is split, the result reads as a reshape of the whole."""
    shape = draw(shapes(1))
    dim = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    dropped = {d for d in range(len(shape)) if shape[d] == 1 and dim in (None, d, d - len(shape))}
    kept = tuple(n for d, n in enumerate(shape) if d not in dropped)

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return op(*tensors, dim) if tuple(tensors[0].shape) == shape else ttnn.reshape(*tensors, list(wanted))

    return Call((_moved(draw, shape, dtype),), run, shape=kept)


@_entry("unsqueeze")
def _unsqueeze(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes())
    return Call((_moved(draw, shape, dtype),), _given(draw(st.integers(-len(shape) - 1, len(shape)))))


@_entry("unsqueeze_to_4D")
def _unsqueeze_to_4d(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    return Call((_moved(draw, draw(shapes()), dtype),))


@_entry("permute")
def _permute(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    order = draw(st.permutations(range(len(shape))))
    return Call((_moved(draw, shape, dtype),), _given(list(order)))


@_entry("transpose")
def _transpose(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    dim = st.integers(-len(shape), len(shape) - 1)
    return Call((_moved(draw, shape, dtype),), _given(draw(dim), draw(dim)))


@_entry("slice")
def _slice(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    cuts: list[tuple[int, int, int] | None] = []
    for n in shape:
        start = draw(st.integers(0, n - 1))
        cut = (start, draw(st.integers(start + 1, n)), draw(st.integers(1, 2)))
        cuts.append(None if cut == (0, n, 1) else draw(st.sampled_from([None, cut])))

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        whole = [cut or (0, n, 1) for cut, n in zip(cuts, tensors[0].shape, strict=True)]
        return op(*tensors, *([cut[i] for cut in whole] for i in range(3)))

    return Call((_moved(draw, shape, dtype),), run)


# An argument that takes all of one device's extent means all of the whole extent too.


@_entry("narrow")
def _narrow(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    dim = draw(st.integers(0, len(shape) - 1))
    start = draw(st.integers(0, shape[dim] - 1))
    length = draw(st.integers(1, shape[dim] - start))

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return op(*tensors, dim, start, tensors[0].shape[dim] if length == shape[dim] else length)

    return Call((_moved(draw, shape, dtype),), run)


@_entry("split")
def _split(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    dim = draw(st.integers(0, len(shape) - 1))
    size = draw(st.integers(1, shape[dim]))

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return op(*tensors, tensors[0].shape[dim] if size == shape[dim] else size, dim)

    return Call((_moved(draw, shape, dtype),), run)


@_entry("chunk")
def _chunk(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    dim = draw(st.integers(0, len(shape) - 1))
    chunks = 1 if shape[dim] == 1 else draw(st.integers(1, 3))
    return Call((_moved(draw, shape, dtype),), _given(chunks, dim))


@_entry("concat")
def _concat(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    dim, count = draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, 3))
    first = _moved(draw, shape, dtype)
    likes = tuple(replace(first, shape=(*shape[:dim], draw(extents), *shape[dim + 1 :])) for _ in range(count))
    splits: Splits = {d: (d,) * count for d in range(len(shape)) if d != dim}
    return Call(likes, _listed(dim - len(shape)), splits)


@_entry("stack")
def _stack(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes())
    count, dim = draw(st.integers(1, 3)), draw(st.integers(0, len(shape)))
    likes = (_moved(draw, shape, dtype),) * count
    return Call(likes, _listed(dim), {d + (d >= dim): (d,) * count for d in range(len(shape))})


@_entry("repeat")
def _repeat(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    counts = draw(st.lists(st.integers(1, 2), min_size=len(shape), max_size=len(shape) + 1))
    return Call((_moved(draw, shape, dtype),), _given(counts))


@_entry("repeat_interleave")
def _repeat_interleave(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    return Call((_moved(draw, shape, dtype),), _given(draw(st.integers(1, 2)), draw(st.integers(0, len(shape) - 1))))


@_entry("expand")
def _expand(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(0, 3))
    sizes = [draw(st.sampled_from([-1, 3])) if n == 1 else -1 for n in shape]
    added = draw(st.lists(extents, max_size=2))
    return Call((_moved(draw, shape, dtype),), _given(added + sizes))


@_entry("pad")
def _pad(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    some = st.sampled_from([0, 0, 1, 2])
    like = _moved(draw, shape, dtype)
    in_front = st.just(0) if like.layout is ttnn.TILE_LAYOUT else some
    pairs = [(draw(in_front), draw(some)) for _ in shape]
    return Call((like,), _given(pairs, draw(st.sampled_from([0.0, 1.0]))))


@_entry("roll")
def _roll(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    dim = draw(st.none() | st.integers(0, len(shape) - 1))
    return Call((_moved(draw, shape, dtype),), _given(draw(st.integers(-2, 2)), dim))


@_entry("gather")
def _gather(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    dim = draw(st.integers(0, len(shape) - 1))
    picked = tuple(draw(extents) if d == dim else draw(st.integers(1, n)) for d, n in enumerate(shape))
    index = Like(picked, ttnn.uint32, values=f"below {shape[dim]}")

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return op(tensors[0], dim, tensors[1])

    splits: Splits = {d: (d, d) for d in range(len(shape)) if d != dim}
    return Call((Like(shape, dtype), index), run, splits, tiles_only=True)


# -- held otherwise --------------------------------------------------------------------------------


@_entry("typecast")
def _typecast(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes())
    to = draw(st.sampled_from([ttnn.float32, ttnn.bfloat16, ttnn.int32]))
    return Call((Like(shape, dtype),), _given(to), _own_dims(len(shape)))


@_entry("to_layout")
def _to_layout(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes())
    layout = draw(st.sampled_from([ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT]))
    return Call((_moved(draw, shape, dtype),), _given(layout), _own_dims(len(shape)))


_L1 = ttnn.L1_MEMORY_CONFIG
CALLS["to_memory_config"] = unary(_L1)
CALLS["untilize"] = unary()
for _name in ("clone", "assign"):
    CALLS[_name] = unary(memory_config=_L1)


def _row_major(draw: st.DrawFn, dtype: ttnn.DataType, shape: Extents, run: Run = _plain) -> Call:
    kind = ttnn.bfloat16 if dtype is ttnn.bfloat8_b else dtype
    return Call((Like(shape, kind, ttnn.ROW_MAJOR_LAYOUT),), run, _own_dims(len(shape)))


@_entry("tilize")
def _tilize(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        is_whole = not any(n % 32 for n in list(tensors[0].shape)[-2:])
        return op(*tensors) if is_whole else ttnn.tilize_with_zero_padding(*tensors)

    return _row_major(draw, dtype, (*draw(shapes(0, 1)), 32, draw(st.sampled_from([32, 64]))), run)


@_entry("tilize_with_zero_padding")
def _tilize_with_zero_padding(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    return _row_major(draw, dtype, draw(shapes(2)))


@_entry("tilize_with_val_padding")
def _tilize_with_val_padding(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        shape = list(tensors[0].shape)
        return op(*tensors, [*shape[:-2], *(-(-n // 32) * 32 for n in shape[-2:])], 1.5)

    return _row_major(draw, dtype, draw(shapes(2)), run)


@_entry("untilize_with_unpadding")
def _untilize_with_unpadding(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(2))
    kept = [draw(st.none() | st.integers(0, n - 2)) if n > 1 else None for n in shape]

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return op(*tensors, [n - 1 if end is None else end for n, end in zip(tensors[0].shape, kept, strict=True)])

    return Call((Like(shape, dtype),), run, _own_dims(len(shape)))


def _over_one_core(shape: Extents) -> ttnn.MemoryConfig:
    padded = [-(-n // 32) * 32 for n in shape[-2:]]
    height = math.prod(shape[:-2]) * padded[0]
    return ttnn.create_sharded_memory_config((height, padded[1]), ttnn.CoreGrid(x=1, y=1), ttnn.ShardStrategy.HEIGHT)


@_entry("interleaved_to_sharded")
def _interleaved_to_sharded(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(2))
    run: Run = lambda op, tensors, wanted: op(*tensors, _over_one_core(tuple(tensors[0].shape)))  # noqa: E731
    return Call((Like(shape, dtype),), run, _own_dims(len(shape)))


@_entry("sharded_to_interleaved")
def _sharded_to_interleaved(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(2))

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        spread = ttnn.interleaved_to_sharded(*tensors, _over_one_core(tuple(tensors[0].shape)))
        return op(spread, _L1)

    return Call((Like(shape, dtype),), run, _own_dims(len(shape)))


for _name in ("zeros_like", "ones_like", "empty_like"):
    CALLS[_name] = unary(reads_values=False)
for _name in ("full_like", "moreh_full_like"):
    CALLS[_name] = unary(1.5, reads_values=False)


# -- products --------------------------------------------------------------------------------------


def _factor_shapes(draw: st.DrawFn) -> tuple[Extents, Extents, Extents]:
    """(..., M, K), (..., K, N) and their product's shape."""
    batch, (left, right) = _broadcast_parts(draw, 2)
    batch, left, right = batch[-2:], left[-2:], right[-2:]
    m, k, n = draw(extents), draw(extents), draw(extents)
    return (*left, m, k), (*right, k, n), (*batch, m, n)


def _product_splits(a: Extents, b: Extents, out: Extents, bias: Extents | None) -> Splits:
    splits = _broadcast_splits(out[:-2], [a[:-2], b[:-2]])
    splits[len(out) - 2] = (len(a) - 2, None)
    splits[len(out) - 1] = (None, len(b) - 1)
    if bias is None:
        return splits
    added = max(len(bias) - len(out), 0)  # dims that only the bias has
    back = len(bias) - len(out)
    return {d + added: (*dims, d + back if d + back >= 0 else None) for d, dims in splits.items()}


def _swap_last(shape: Extents) -> Extents:
    return (*shape[:-2], shape[-1], shape[-2])


def _swapped(dims: Sequence[int | None], index: int, rank: int) -> tuple[int | None, ...]:
    """The dims of a joint split after operand `index` was transposed."""
    dim = dims[index]
    after = dim if dim is None or dim < rank - 2 else 2 * rank - 3 - dim
    return (*dims[:index], after, *dims[index + 1 :])


@dataclass(frozen=True)
class ProductNames:
    """What an op of the matmul family calls its options; None where it has none."""

    bias: str | None
    activation: str
    transposes: bool


def _some_bias(draw: st.DrawFn, out: Extents) -> Extents:
    row = out[-1]
    return draw(st.sampled_from([(row,), (1, row), out, (*out[:-1], 1), (2, *(1,) * (len(out) - 1), row)]))


def product(draw: st.DrawFn, dtype: ttnn.DataType, names: ProductNames) -> Call:
    a, b, out = _factor_shapes(draw)
    likes = [Like(a, dtype, values="whole"), Like(b, dtype, values="whole")]
    summed: list[int | None] = [len(a) - 1, len(b) - 2]
    bias = _some_bias(draw, out) if names.bias is not None and draw(st.booleans()) else None
    if bias is not None:
        likes.append(Like(bias, dtype, values="whole"))
        summed.append(None)
    splits = _product_splits(a, b, out, bias)
    options: dict[str, Any] = {}
    for index, name in enumerate(("transpose_a", "transpose_b")):
        if names.transposes and draw(st.booleans()):
            options[name] = True
            rank = len(likes[index].shape)
            likes[index] = replace(likes[index], shape=_swap_last(likes[index].shape))
            splits = {d: _swapped(dims, index, rank) for d, dims in splits.items()}
            summed = list(_swapped(summed, index, rank))
    if draw(st.integers(0, 3)) == 0:
        options[names.activation] = "relu"

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        extra = {str(names.bias): tensor for tensor in tensors[2:]}
        return op(*tensors[:2], **extra, **options)

    return Call(tuple(likes), run, splits, tuple(summed))


_MATMUL = ProductNames(None, "activation", transposes=True)
_LINEAR = ProductNames("bias", "activation", transposes=True)
_MINIMAL = ProductNames("bias_tensor", "fused_activation", transposes=False)
CALLS["matmul"] = lambda draw, dtype: product(draw, dtype, _MATMUL)
CALLS["linear"] = lambda draw, dtype: product(draw, dtype, _LINEAR)


@_entry("experimental.minimal_matmul")
def _minimal_matmul(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    call = product(draw, dtype, _MINIMAL)
    if call.operands[1].shape[-1] % 64 or draw(st.booleans()):
        return call
    if len(call.operands) > 2 and call.operands[2].shape[-1] == 1:
        return call
    inner = call.run

    def gated(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return inner(lambda *args, **kwargs: op(*args, fuse_swiglu=True, **kwargs), tensors, wanted)  # type: ignore[arg-type]

    return replace(call, run=gated)


@_entry("moreh_dot")
def _moreh_dot(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    like = Like((1, 1, 1, draw(extents)), dtype, values="whole")
    return Call((like, like), summed=(3, 3))


# -- normalisation ---------------------------------------------------------------------------------


@_entry("softmax")
def _softmax(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    return Call(
        (Like(shape, dtype),),
        _given(draw(st.integers(-len(shape), len(shape) - 1))),
        _own_dims(len(shape)),
    )


def _by_name(names: Sequence[str], *args: str, **kwargs: Any) -> Run:
    """The first tensors by position, the others by these names."""

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        first = len(tensors) - len(names)
        return op(*tensors[:first], **dict(zip(names, tensors[first:], strict=True)), **kwargs)

    return run


@_entry("layer_norm", "rms_norm")
def _norm(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    row = draw(st.sampled_from([(shape[-1],), (1, shape[-1])]))
    kinds = {"weight": row, "bias": row, "residual_input_tensor": shape}
    names = [name for name in kinds if draw(st.booleans())]
    likes = [Like(shape, dtype), *(Like(kinds[name], dtype) for name in names)]
    splits: Splits = {
        d: (d, *(d if name == "residual_input_tensor" else None for name in names)) for d in range(len(shape))
    }
    return Call(tuple(likes), _by_name(names, epsilon=0.5), splits)


@_entry("layer_norm_pre_all_gather", "rms_norm_pre_all_gather")
def _statistics(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1, 3))
    names = ["residual_input_tensor"] if draw(st.booleans()) else []
    likes = (Like(shape, dtype, values="whole"),) * (1 + len(names))
    splits: Splits = {d: (d,) * len(likes) for d in range(len(shape) - 1)}
    return Call(likes, _by_name(names, dtype=ttnn.float32), splits)


def _normalised(centred: bool, epsilon: float, total: int, names: Sequence[str]) -> Callable[..., torch.Tensor]:
    """The norm of a whole row from whole statistics, each in column 0 of its tile of 32."""

    def reference(values: Sequence[torch.Tensor]) -> torch.Tensor:
        x, stats = values[0], values[1]
        columns = stats[..., ::32].unflatten(-1, (-1, 2 if centred else 1)).sum(-2) / total
        mean = columns[..., 1:] if centred else torch.zeros_like(columns[..., :1])
        result = (x - mean) * torch.rsqrt(columns[..., :1] - mean.square() + epsilon)
        for name, values_of_row in zip(names, values[2:], strict=True):
            row = values_of_row.flatten()  # repeated for each device where all of them hold the same
            if len(row) > x.shape[-1]:
                raise RuntimeError("a weight for a longer row")
            row = row.repeat(-(-x.shape[-1] // len(row)))[: x.shape[-1]]
            result = result * row if name == "weight" else result + row
        return result

    return reference


def _from_statistics(centred: bool) -> Entry:
    def entry(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        shape = draw(shapes(1, 3))
        width = shape[-1]
        parts = draw(st.integers(1, 2))
        stats = (*shape[:-1], 32 * parts * (2 if centred else 1))
        row = draw(st.sampled_from([(width,), (1, width)] + [(width // 2, 2)] * (width % 2 == 0)))
        names = [name for name in ("weight", "bias") if draw(st.booleans())]
        likes = (
            Like(shape, dtype),
            Like(stats, ttnn.float32, values="positive"),
            *[Like(row, dtype)] * len(names),
        )
        last = len(shape) - 1
        splits: Splits = {d: (d, d, *[None] * len(names)) for d in range(last)}
        along_row = 0 if row[0] > 1 else len(row) - 1
        splits[last] = (last, None, *[along_row] * len(names))
        run = _by_name(names, epsilon=40.0)
        reference = _normalised(centred, 40.0, width * parts, names)
        return Call(likes, run, splits, reference=reference, tiles_only=True)

    return entry


CALLS["rms_norm_post_all_gather"] = _from_statistics(centred=False)
CALLS["layer_norm_post_all_gather"] = _from_statistics(centred=True)


@_entry("embedding")
def _embedding(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    ids = draw(shapes(1, 2))
    rows, width = draw(extents), draw(extents)
    table = (*(1,) * draw(st.integers(0, 2)), rows, width)
    likes = (
        Like(ids, ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, values=f"below {rows}"),
        Like(table, ttnn.bfloat16 if dtype is ttnn.bfloat8_b else dtype, ttnn.ROW_MAJOR_LAYOUT),
    )
    splits: Splits = {d: (d, None) for d in range(len(ids))}
    splits[len(ids)] = (None, len(table) - 1)
    return Call(likes, splits=splits)


# -- families with a file of their own: they add to CALLS, APPROXIMATE and TESTED_ELSEWHERE -------------

for _file in sorted(Path(__file__).parent.glob("op_calls_*.py")):
    importlib.import_module(_file.stem)


# -- the table as a whole --------------------------------------------------------------------------


def operation_names() -> list[str]:
    """Every registered op once, whatever its aliases."""
    return sorted({op.name for op in OPERATIONS.values()})


def names_with_calls() -> list[str]:
    return [name for name in operation_names() if name in CALLS]


def calls(name: str, dtypes: Sequence[ttnn.DataType]) -> st.SearchStrategy[Call]:
    @st.composite
    def build(draw: st.DrawFn) -> Call:
        return CALLS[name](draw, draw(st.sampled_from(list(dtypes))))

    return build()
