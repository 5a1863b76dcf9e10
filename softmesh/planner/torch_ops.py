"""What torch's ops are in TT-NN: a function for each, given the shape of the result and torch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware.enums import Layout

Shape = tuple[int, ...]
Make = Callable[..., Any]


def _same(*names: str, as_: str | None = None) -> dict[str, Make]:
    """Of one operand and nothing else."""
    return {name: lambda shape, x, op=as_ or name: OPERATIONS[op](x) for name in names}


def _of_two(name: str, op: str, *, has_alpha: bool = False) -> dict[str, Make]:
    def make(shape: Shape, a: Any, b: Any, *, alpha: float = 1) -> Any:
        if has_alpha and alpha != 1:
            b = OPERATIONS["multiply"](b, alpha)
        if isinstance(a, int | float):
            return OPERATIONS["rsub" if op == "subtract" else op](b, a)
        return OPERATIONS[op](a, b)

    return {name: make}


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
    """A table lies in rows there."""
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
    return OPERATIONS["transformer.scaled_dot_product_attention"](
        q, k, v, attn_mask=attn_mask, is_causal=is_causal, scale=scale
    )


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


def _pow(shape: Shape, x: Any, exponent: float) -> Any:
    return OPERATIONS["multiply"](x, x) if exponent == 2 else OPERATIONS["pow"](x, exponent)


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


def _as_it_is(shape: Shape, x: Any, *_: Any, **__: Any) -> Any:
    return x


TORCH_OPS: dict[str, Make] = {
    **_same("relu", "silu", "tanh", "sigmoid", "exp", "rsqrt", "sqrt", "neg", "abs"),
    **_of_two("add", "add", has_alpha=True),
    **_of_two("add_", "add", has_alpha=True),
    **_of_two("sub", "subtract", has_alpha=True),
    **_of_two("mul", "multiply"),
    **_of_two("div", "divide"),
    "matmul": lambda shape, a, b: OPERATIONS["matmul"](a, b),
    "bmm": lambda shape, a, b: OPERATIONS["matmul"](a, b),
    "mm": lambda shape, a, b: OPERATIONS["matmul"](a, b),
    "view": _reshape,
    "reshape": _reshape,
    "flatten": _reshape,
    "unflatten": _reshape,
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
    "mean": _reduced("mean"),
    "sum": _reduced("sum"),
    "pow": _pow,
    "cat": lambda shape, tensors, dim=0: OPERATIONS["concat"](list(tensors), dim),
    "slice": _sliced,
    "split": _split,
    "split_with_sizes": _split,
    "chunk": _chunk,
    "contiguous": _as_it_is,
    "clone": _as_it_is,
    "to": _as_it_is,
    "_to_copy": _as_it_is,
    "detach": _as_it_is,
    "alias": _as_it_is,
}
