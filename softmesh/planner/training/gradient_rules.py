"""Gradients of TT-NN's ops, in ops of TT-NN: of each op the gradient of every operand that asks for one."""

from __future__ import annotations

import math
from typing import Any

from softmesh.hardware.enums import Layout
from softmesh.planner.training.taped_call import (
    Found,
    Gradient,
    Rule,
    TapedCall,
    op,
    rows_of,
    scaled,
    shaped,
    summed_to,
)
from softmesh.tensor.tensor import Tensor


def _of_two(call: TapedCall, a: Any, b: Any) -> Found:
    """Gradients of the two operands of an elementwise op, each summed where it was repeated."""
    found = {"input_tensor_a": a, "input_tensor_b": b}
    return {name: summed_to(made(), call[name].shape) for name, made in found.items() if call.needs(name)}


def _add(call: TapedCall, g: Tensor) -> Found:
    return _of_two(call, lambda: g, lambda: g)


def _subtract(call: TapedCall, g: Tensor) -> Found:
    return _of_two(call, lambda: g, lambda: op("neg")(g))


def _rsub(call: TapedCall, g: Tensor) -> Found:
    return _of_two(call, lambda: op("neg")(g), lambda: g)


def _multiply(call: TapedCall, g: Tensor) -> Found:
    a, b = call["input_tensor_a"], call["input_tensor_b"]
    return _of_two(call, lambda: op("multiply")(g, b), lambda: op("multiply")(g, a))


def _divide(call: TapedCall, g: Tensor) -> Found:
    b, (made,), rounding = call["input_tensor_b"], call.results, call["rounding_mode"]
    if rounding:
        raise TypeError(f"rounding_mode={rounding!r}")
    return _of_two(
        call,
        lambda: op("divide")(g, b),
        lambda: op("neg")(op("divide")(op("multiply")(g, made), b)),
    )


def _by_its_backward(call: TapedCall, g: Tensor) -> Found:
    """TT-NN has an op for the gradient."""
    options = {"approximate": _approximation(call)} if call.op == "gelu" else {}
    made = op(f"{call.op}_bw")(g, call["input_tensor"], **options)
    return {"input_tensor": made[0] if isinstance(made, list | tuple) else made}


def _approximation(call: TapedCall) -> str:
    return "tanh" if call["fast_and_approximate_mode"] else "none"


def _neg(call: TapedCall, g: Tensor) -> Found:
    return {"input_tensor": op("neg")(g)}


def _pow(call: TapedCall, g: Tensor) -> Found:
    return {"input_tensor": op("pow_bw")(g, call["input_tensor"], call["exponent"])[0]}


def _matmul(call: TapedCall, g: Tensor) -> Found:
    a, b, ta, tb = (call[name] for name in ("input_tensor_a", "input_tensor_b", "transpose_a", "transpose_b"))
    found: dict[str, Any] = {}
    if call.needs("input_tensor_a"):
        made = op("matmul")(b, g, transpose_a=tb, transpose_b=True) if ta else op("matmul")(g, b, transpose_b=not tb)
        found["input_tensor_a"] = summed_to(made, a.shape)
    if call.needs("input_tensor_b"):
        found["input_tensor_b"] = _of_right(a, b, g, transpose_a=ta, transpose_b=tb)
    if call.needs("bias"):
        found["bias"] = summed_to(g, call["bias"].shape)
    return found


def _of_right(a: Tensor, b: Tensor, g: Tensor, *, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Of one matrix for all rows as one product, of several with a product for each."""
    if math.prod(tuple(b.shape)[:-2]) == 1 and not transpose_a:
        a, g = rows_of(a), rows_of(g)
    left, right = (g, a) if transpose_b else (a, g)
    flips = {"transpose_a": True, "transpose_b": transpose_a} if transpose_b else {"transpose_a": not transpose_a}
    return summed_to(op("matmul")(left, right, **flips), b.shape)


def _reshape(call: TapedCall, g: Tensor) -> Found:
    name = next(name for name in ("input_tensor", "tensor") if name in call.arguments)
    return {name: shaped(g, call[name].shape)}


def _permute(call: TapedCall, g: Tensor) -> Found:
    dims = [dim % len(call["dims"]) for dim in call["dims"]]
    return {"input_tensor": op("permute")(g, tuple(dims.index(at) for at in range(len(dims))))}


def _transpose(call: TapedCall, g: Tensor) -> Found:
    return {"input_tensor": op("transpose")(g, call["dim1"], call["dim2"])}


def _passed_on(call: TapedCall, g: Tensor) -> Found:
    name = next(name for name in ("input_tensor", "tensor", "input") if name in call.arguments)
    same = g if g.dtype is call[name].dtype else op("typecast")(g, call[name].dtype)
    return {name: same}


def _concat(call: TapedCall, g: Tensor) -> Found:
    dim, first, parts = call["dim"], 0, []
    for tensor in call["tensors"]:
        begins, ends = [0] * len(g.shape), list(g.shape)
        begins[dim], ends[dim] = first, first + tensor.shape[dim]
        first = ends[dim]
        parts.append(op("slice")(g, begins, ends))
    return {"tensors": parts}


def _slice(call: TapedCall, g: Tensor) -> Found:
    """Zeros around it; tiles take them behind the values only."""
    x, begins = call["input_tensor"], call["slice_start"]
    if any(step != 1 for step in call["slice_step"] or ()):
        raise TypeError("a step")
    around = []
    for begin, whole, own in zip(begins, tuple(x.shape), tuple(g.shape), strict=True):
        first = int(begin) % whole  # negative ones count from the end
        around.append((first, whole - first - own))
    if not any(before for before, _ in around):
        return {"input_tensor": op("pad")(g, around, 0.0)}
    padded = op("pad")(op("to_layout")(g, Layout.ROW_MAJOR), around, 0.0)
    return {"input_tensor": op("to_layout")(padded, x.layout)}


def _mean(call: TapedCall, g: Gradient) -> Found:
    x = call["input_tensor"]
    return {"input_tensor": _spread(call, g, call.results[0].logical_volume() / x.logical_volume())}


def _sum(call: TapedCall, g: Gradient) -> Found:
    return {"input_tensor": _spread(call, g, 1.0)}


def _spread(call: TapedCall, g: Gradient, share: float) -> Tensor:
    """Over the dims that were summed."""
    x, dim, factor = call["input_tensor"], call["dim"], share * call["scalar"]
    if isinstance(g, float):
        filled: Tensor = op("full_like")(x, g * factor)
        return filled
    dims = range(len(x.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    summed = {at % len(x.shape) for at in dims}
    kept = shaped(scaled(g, factor), tuple(1 if at in summed else n for at, n in enumerate(x.shape)))
    made: Tensor = op("multiply")(op("ones_like")(x), kept)
    return made


def _softmax(call: TapedCall, g: Tensor) -> Found:
    (shares,), dim = call.results, call["dim"]
    return {"input_tensor": of_softmax(shares, g, -1 if dim is None else dim)}


def of_softmax(shares: Tensor, g: Tensor, dim: int = -1) -> Tensor:
    mixed = op("sum")(op("multiply")(g, shares), dim, True)
    made: Tensor = op("multiply")(shares, op("subtract")(g, mixed))
    return made


def _norm(call: TapedCall, g: Tensor) -> Found:
    """Of layer_norm and rms_norm: what forward knew of each row is computed again, it is little."""
    x, weight = call["input_tensor"], call["weight"]
    if call["residual_input_tensor"] is not None:
        raise TypeError("a residual of its own")
    has_mean = call.op == "layer_norm"
    centred = op("subtract")(x, op("mean")(x, -1, True)) if has_mean else x
    spread = op("mean")(op("multiply")(centred, centred), -1, True)
    factor = op("rsqrt")(op("add")(spread, call["epsilon"]))
    plain = op("multiply")(centred, factor)
    found: dict[str, Any] = {}
    if call.needs("weight"):
        found["weight"] = summed_to(op("multiply")(g, plain), weight.shape)
    if call.needs("bias"):
        found["bias"] = summed_to(g, call["bias"].shape)
    if call.needs("input_tensor"):
        own = g if weight is None else op("multiply")(g, weight)
        along = op("multiply")(plain, op("mean")(op("multiply")(own, plain), -1, True))
        rest = op("subtract")(own, op("mean")(own, -1, True)) if has_mean else own
        found["input_tensor"] = op("multiply")(op("subtract")(rest, along), factor)
    return found


def _embedding(call: TapedCall, g: Tensor) -> Found:
    ids, table = call["input_tensor"], call["weight"]
    width = tuple(table.shape)[-1]
    rows = shaped(g, (1, 1, g.logical_volume() // width, width))
    flat = ids if len(ids.shape) == 2 else op("reshape")(ids, (1, ids.logical_volume()))
    return {"weight": shaped(op("embedding_bw")(flat, table, rows), table.shape)}


_BY_BACKWARD = ("gelu", "relu", "silu", "tanh", "sigmoid", "exp", "log", "sqrt", "rsqrt", "square", "abs")
ACTIVATIONS = ("gelu", "relu", "silu", "tanh", "sigmoid")  # by which products go on
TAKES_NUMBERS = ("mean", "sum")  # for the gradient of their result
GRADIENT_RULES: dict[str, Rule] = {
    **dict.fromkeys(_BY_BACKWARD, _by_its_backward),
    "add": _add,
    "subtract": _subtract,
    "rsub": _rsub,
    "multiply": _multiply,
    "div": _divide,
    "neg": _neg,
    "pow": _pow,
    **dict.fromkeys(("matmul", "linear"), _matmul),
    **dict.fromkeys(("reshape", "view", "unsqueeze", "squeeze", "unsqueeze_to_4D", "experimental.view"), _reshape),
    "permute": _permute,
    "transpose": _transpose,
    **dict.fromkeys(("typecast", "to_layout", "to_memory_config", "clone", "identity"), _passed_on),
    "concat": _concat,
    "slice": _slice,
    "mean": _mean,
    "sum": _sum,
    "softmax": _softmax,
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    "embedding": _embedding,
}
