"""What torch's ops are in TT-NN: a function for each, given the shape of the result and torch's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import NotModelled
from softmesh.hardware.enums import DataType, Layout

Shape = tuple[int, ...]
Make = Callable[..., Any]


def _of_two(op: str) -> Make:
    """Ops of TT-NN take a number on the right only."""

    def make(shape: Shape, a: Any, b: Any) -> Any:
        if isinstance(a, int | float):
            return OPERATIONS[OPERATIONS[op].definition.mirrored](b, a)
        return OPERATIONS[op](a, b)

    return make


def _sum_of_two(op: str, scaled: int = 1) -> Make:
    """`alpha` is a factor of one of them, the second if no other is named."""
    make = _of_two(op)

    def with_alpha(shape: Shape, a: Any, b: Any, alpha: float = 1) -> Any:
        return make(shape, *(_times(one, alpha if at == scaled else 1) for at, one in enumerate((a, b))))

    return with_alpha


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, int | float):
        return value * factor
    return value if factor == 1 else OPERATIONS["multiply"](value, factor)


def _reshape(shape: Shape, x: Any, *_: Any) -> Any:
    return OPERATIONS["reshape"](x, shape)


def _transpose(shape: Shape, x: Any, dim0: int, dim1: int) -> Any:
    return OPERATIONS["transpose"](x, dim0, dim1)


def _permute(shape: Shape, x: Any, dims: Sequence[int]) -> Any:
    return OPERATIONS["permute"](x, tuple(dim % len(dims) for dim in dims))


def _layer_norm(
    shape: Shape, x: Any, normalized: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    _check_last("layer_norm", normalized)
    return OPERATIONS["layer_norm"](x, weight=weight, bias=bias, epsilon=eps)


def _rms_norm(shape: Shape, x: Any, normalized: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    _check_last("rms_norm", normalized)
    return OPERATIONS["rms_norm"](x, weight=weight, epsilon=torch.finfo(torch.float32).eps if eps is None else eps)


def _check_last(name: str, normalized: Sequence[int]) -> None:
    if len(normalized) != 1:
        raise TypeError(f"{name} over {len(normalized)} dims")


def _embedding(shape: Shape, weight: Any, indices: Any, *_: Any) -> Any:
    """A table lies in rows there, and indices are not negative."""
    if indices.dtype is DataType.INT32:
        numbers = OPERATIONS["typecast"](OPERATIONS["to_layout"](indices, Layout.TILE), DataType.UINT32)
        indices = OPERATIONS["to_layout"](numbers, Layout.ROW_MAJOR)
    rows = OPERATIONS["to_layout"](weight, Layout.ROW_MAJOR) if weight.layout is Layout.TILE else weight
    return OPERATIONS["embedding"](indices, rows, layout=Layout.TILE)


def _attention(
    shape: Shape,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        raise TypeError("dropout in attention: call module.eval() first")
    q, k, v = (_of_rank_4(one) for one in (q, k, v))
    mask = None if attn_mask is None else _of_rank_4(attn_mask)
    made = OPERATIONS["transformer.scaled_dot_product_attention"](
        q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale
    )
    return made if len(shape) == 4 else OPERATIONS["reshape"](made, shape)


def _of_rank_4(x: Any) -> Any:
    missing = 4 - len(x.shape)
    return OPERATIONS["reshape"](x, (1,) * missing + tuple(x.shape)) if missing > 0 else x


def _gelu(shape: Shape, x: Any, *, approximate: str = "none") -> Any:
    return OPERATIONS["gelu"](x, fast_and_approximate_mode=approximate == "tanh")


def _softmax(shape: Shape, x: Any, dim: int, dtype: Any = None, *_: Any) -> Any:
    return OPERATIONS["softmax"](x, dim=dim)


def _dropout(shape: Shape, x: Any, p: float, train: bool) -> Any:
    if train and p:
        raise TypeError("dropout while training: call module.eval() first")
    return x


def _reduced(op: str) -> Make:
    def make(shape: Shape, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        dims = dim[0] if isinstance(dim, list | tuple) and len(dim) == 1 else dim
        return OPERATIONS[op](x, dim=dims, keepdim=keepdim)

    return make


def _pow(shape: Shape, x: Any, exponent: Any) -> Any:
    is_square = isinstance(exponent, int | float) and exponent == 2
    return OPERATIONS["multiply"](x, x) if is_square else OPERATIONS["pow"](x, exponent)


def _sliced(shape: Shape, x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    extents = list(x.shape)
    at, first = dim % len(extents), start or 0
    first += extents[at] if first < 0 else 0
    begins = [first if d == at else 0 for d in range(len(extents))]
    ends = [first + shape[at] * step if d == at else n for d, n in enumerate(extents)]
    ends[at] = min(ends[at], extents[at])
    return OPERATIONS["slice"](x, begins, ends, [step if d == at else 1 for d in range(len(extents))])


def _pieces(x: Any, sizes: Sequence[int], dim: int) -> list[Any]:
    at, first, found = dim % len(x.shape), 0, []
    for size in sizes:
        shape = tuple(size if d == at else n for d, n in enumerate(x.shape))
        found.append(_sliced(shape, x, at, first, first + size))
        first += size
    return found


def _split(shape: Shape, x: Any, size: Any, dim: int = 0) -> list[Any]:
    whole = x.shape[dim]
    sizes = [min(size, whole - at) for at in range(0, whole, size)] if isinstance(size, int) else list(size)
    return _pieces(x, sizes, dim)


def _chunk(shape: Shape, x: Any, chunks: int, dim: int = 0) -> list[Any]:
    return _split(shape, x, -(-x.shape[dim] // chunks), dim)


def _selected(shape: Shape, x: Any, dim: int, index: int) -> Any:
    at = dim % len(x.shape)
    first = index % x.shape[at]
    one = tuple(1 if d == at else n for d, n in enumerate(x.shape))
    return OPERATIONS["reshape"](_sliced(one, x, at, first, first + 1), shape)


def _unbound(shape: Shape, x: Any, dim: int = 0) -> list[Any]:
    at = dim % len(x.shape)
    rest = tuple(n for d, n in enumerate(x.shape) if d != at)
    return [_selected(rest, x, at, index) for index in range(x.shape[at])]


def _expanded(shape: Shape, x: Any, *_: Any, **__: Any) -> Any:
    """Ops spread what has an extent of 1 themselves; what is kept so is made so."""
    if len(x.shape) < len(shape):
        x = OPERATIONS["reshape"](x, (1,) * (len(shape) - len(x.shape)) + tuple(x.shape))
    counts = tuple(n // own for n, own in zip(shape, tuple(x.shape), strict=True))
    return OPERATIONS["repeat"](x, counts) if any(n > 1 for n in counts) else x


def _repeated_each(shape: Shape, x: Any, repeats: Any, dim: int | None = None, **_: Any) -> Any:
    if not isinstance(repeats, int) or dim is None:
        raise TypeError("repeats of their own for each element")
    return OPERATIONS["repeat_interleave"](x, repeats, dim)


def cast(x: Any, start: torch.dtype, end: torch.dtype) -> Any:
    """Numbers keep the dtype that they have here, and are rounded as the cast does; integers become such numbers."""
    if end.is_floating_point:
        is_integer = x.dtype in (DataType.UINT32, DataType.INT32)
        return OPERATIONS["typecast"](OPERATIONS["to_layout"](x, Layout.TILE), DataType.BFLOAT16) if is_integer else x
    if end is torch.bool:
        return x if start is torch.bool else OPERATIONS["ne"](OPERATIONS["to_layout"](x, Layout.TILE), 0)
    if end not in (torch.int32, torch.int64):
        raise NotModelled(f"softmesh.plan: the torch module casts to {end}, which would wrap: keep it in torch.int32.")
    return OPERATIONS["trunc"](x) if start.is_floating_point else x


def _where(shape: Shape, condition: Any, a: Any, b: Any) -> Any:
    """What a program is given to choose by lies in rows."""
    in_rows = condition.layout is Layout.ROW_MAJOR
    return OPERATIONS["where"](OPERATIONS["to_layout"](condition, Layout.TILE) if in_rows else condition, a, b)


def _masked_fill(shape: Shape, x: Any, mask: Any, value: Any) -> Any:
    return _where(shape, mask, value, x)


def _einsum(shape: Shape, equation: str, operands: Sequence[Any], *_: Any, **__: Any) -> Any:
    """Of two operands, as one product of matrices."""
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    words = given.split(",")
    if len(words) != 2 or not arrow or "." in equation or any(len(set(word)) < len(word) for word in (*words, wanted)):
        raise TypeError(f"einsum of {equation!r}")
    first, second = words
    both = [one for one in first if one in second and one in wanted]
    summed = [one for one in first if one in second and one not in wanted]
    left, right = ([one for one in word if one not in (*both, *summed)] for word in words)
    if not {*left, *right} <= {*wanted}:
        raise TypeError(f"einsum of {equation!r}")
    sizes = {
        one: n for word, x in zip(words, operands, strict=True) for one, n in zip(word, tuple(x.shape), strict=True)
    }

    def laid(x: Any, word: str, *groups: Sequence[str]) -> Any:
        dims = [word.index(one) for group in groups for one in group]
        turned = x if dims == sorted(dims) else OPERATIONS["permute"](x, tuple(dims))
        return OPERATIONS["reshape"](turned, tuple(math.prod(sizes[one] for one in group) for group in groups))

    a, b = laid(operands[0], first, both, left, summed), laid(operands[1], second, both, summed, right)
    made = OPERATIONS["reshape"](OPERATIONS["matmul"](a, b), tuple(sizes[one] for one in (*both, *left, *right)))
    dims = tuple([*both, *left, *right].index(one) for one in wanted)
    return made if dims == tuple(range(len(dims))) else OPERATIONS["permute"](made, dims)


def _both(value: Any) -> list[Any]:
    """Of rows and of columns."""
    given = [value] if isinstance(value, int | str) else list(value)
    return given * 2 if len(given) == 1 else given


def _patches(
    shape: Shape,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """A convolution whose windows lie side by side is a product for each of them."""
    if len(x.shape) != 4:
        raise TypeError("images without a dim for their number")
    batch, channels, *_ = tuple(x.shape)
    outs, _, down, across = tuple(weight.shape)
    if [_both(stride), _both(padding), _both(dilation)] != [[down, across], [0, 0], [1, 1]] or groups != 1:
        raise TypeError("windows that lie over each other, padding, dilation or groups")
    _, _, rows, columns = shape
    cut = OPERATIONS["slice"](x, [0] * 4, [batch, channels, rows * down, columns * across])
    windows = OPERATIONS["reshape"](cut, (batch, channels, rows, down, columns, across))
    flat = (batch, rows * columns, channels * down * across)
    flat_windows = OPERATIONS["reshape"](OPERATIONS["permute"](windows, (0, 2, 4, 1, 3, 5)), flat)
    flat_weight = OPERATIONS["reshape"](weight, (outs, flat[-1]))
    made = OPERATIONS["linear"](flat_windows, flat_weight, bias=bias, transpose_b=True)
    return OPERATIONS["permute"](OPERATIONS["reshape"](made, (batch, rows, columns, outs)), (0, 3, 1, 2))


def _as_it_is(shape: Shape, x: Any, *_: Any, **__: Any) -> Any:
    return x


def _of_same_operands() -> Iterator[tuple[str, Make]]:
    """Ops whose definitions name torch's."""
    for op in OPERATIONS.values():
        known = op.definition
        if known.torch and known.mirrored:
            yield known.torch, _of_two(op.name)
        elif known.torch:
            yield known.torch, lambda shape, x, op=op: op(x)
            yield f"{known.torch}_", lambda shape, x, op=op: op(x)


TORCH_OPS: dict[str, Make] = {
    **dict(_of_same_operands()),
    **dict.fromkeys(("add", "add_"), _sum_of_two("add")),
    "sub": _sum_of_two("subtract"),
    "rsub": _sum_of_two("rsub", scaled=0),
    **dict.fromkeys(("mul", "mul_"), _of_two("multiply")),
    "div": _of_two("divide"),
    **dict.fromkeys(("matmul", "bmm", "mm"), lambda shape, a, b: OPERATIONS["matmul"](a, b)),
    "view": _reshape,
    "_unsafe_view": _reshape,
    "reshape": _reshape,
    "flatten": _reshape,
    "unflatten": _reshape,
    "view_as": _reshape,
    "reshape_as": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "transpose": _transpose,
    "permute": _permute,
    "t": lambda shape, x: OPERATIONS["transpose"](x, 0, 1),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "embedding": _embedding,
    "scaled_dot_product_attention": _attention,
    "gelu": _gelu,
    "softmax": _softmax,
    "_softmax": _softmax,
    "dropout": _dropout,
    "amax": _reduced("max"),
    "amin": _reduced("min"),
    "topk": lambda shape, x, k, dim=-1, largest=True, sorted=True: OPERATIONS["topk"](x, k, dim, largest, sorted),
    "mean": _reduced("mean"),
    "sum": _reduced("sum"),
    "pow": _pow,
    "cat": lambda shape, tensors, dim=0: OPERATIONS["concat"](list(tensors), dim),
    "slice": _sliced,
    "split": _split,
    "select": _selected,
    "unbind": _unbound,
    "expand": _expanded,
    "expand_as": _expanded,
    "repeat": _expanded,
    "repeat_interleave": _repeated_each,
    **dict.fromkeys(("masked_fill", "masked_fill_"), _masked_fill),
    "where": _where,
    "clamp": lambda shape, x, min=None, max=None: OPERATIONS["clamp"](x, min, max),
    "conv2d": _patches,
    "einsum": _einsum,
    "split_with_sizes": _split,
    "chunk": _chunk,
    "contiguous": _as_it_is,
    "clone": _as_it_is,
    "_assert_tensor_metadata": lambda *_, **__: None,
    "detach": _as_it_is,
    "alias": _as_it_is,
}

CASTS = ("to", "_to_copy", "type_as")

# What is made for its shape alone: filled with what of its call.
SHAPED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("zeros_like", "new_zeros", "empty_like", "new_empty"), lambda node: 0),
    **dict.fromkeys(("ones_like", "new_ones"), lambda node: 1),
    "full_like": lambda node: node.args[1],
    "new_full": lambda node: node.args[2],
}
