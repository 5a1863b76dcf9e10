"""Gradients of ops, in ops: for each op the gradient of every operand that asks for one.

Definitions name them as `gradient=`; the planner's tape calls them for training steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware.enums import DataType, Layout
from softmesh.tensor.tensor import Tensor

Gradient = Tensor | float  # one number for all elements, as a loss begins with
Found = Mapping[str, Any]  # gradients by the names of operands


class Constants(Protocol):
    def put(self, name: str, values: torch.Tensor, dtype: DataType, like: Tensor) -> Tensor:
        """A tensor beside `like`, which is a leaf of the graph; the same one for the same name and shape."""
        ...


@dataclass(frozen=True)
class TapedCall:
    op: str
    arguments: Mapping[str, Any]  # by the names of the op's signature
    results: tuple[Tensor, ...]
    constants: Constants
    site: str
    rule: Rule | None
    saved: Any = None  # by the forward of a composite, for its gradient

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def needs(self, name: str) -> bool:
        """Whether this operand leads to a parameter."""
        return asks_for_gradient(self.arguments.get(name))


Rule = Callable[[TapedCall, Any], Found]  # of the gradient of the result, or of a list of them where there are several


def asks_for_gradient(value: Any) -> bool:
    data = value.storage.data if isinstance(value, Tensor) else None
    return data is not None and data.requires_grad


def op(name: str) -> Callable[..., Any]:
    return OPERATIONS[name]


def scaled(value: Tensor, factor: Gradient) -> Tensor:
    is_one = isinstance(factor, float) and factor == 1.0
    made: Tensor = value if is_one else op("multiply")(value, factor)
    return made


def shaped(value: Tensor, shape: Sequence[int]) -> Tensor:
    made: Tensor = value if tuple(value.shape) == tuple(shape) else op("reshape")(value, tuple(shape))
    return made


def summed_to(gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """Over the dims along which an operand of this shape was repeated."""
    extents = (1,) * (len(gradient.shape) - len(shape)) + tuple(shape)
    for dim, (n, own) in enumerate(zip(tuple(gradient.shape), extents, strict=True)):
        if own == 1 and n > 1:
            gradient = op("sum")(gradient, dim, True)
    return shaped(gradient, shape)


def rows_of(value: Tensor) -> Tensor:
    """All but the last dim as one, behind as many dims of 1 as there were."""
    *lead, width = tuple(value.shape)
    return shaped(value, (*(1,) * (len(lead) - 1), math.prod(lead), width))


# -- the rules ---------------------------------------------------------------------------------------


def _of_two(call: TapedCall, a: Any, b: Any) -> Found:
    """Gradients of the two operands of an elementwise op, each summed where it was repeated."""
    found = {"input_tensor_a": a, "input_tensor_b": b}
    return {name: summed_to(made(), call[name].shape) for name, made in found.items() if call.needs(name)}


def of_sum(call: TapedCall, g: Tensor) -> Found:
    return _of_two(call, lambda: g, lambda: g)


def of_difference(call: TapedCall, g: Tensor) -> Found:
    return _of_two(call, lambda: g, lambda: op("neg")(g))


def of_reverse_difference(call: TapedCall, g: Tensor) -> Found:
    return _of_two(call, lambda: op("neg")(g), lambda: g)


def of_elementwise_product(call: TapedCall, g: Tensor) -> Found:
    a, b = call["input_tensor_a"], call["input_tensor_b"]
    return _of_two(call, lambda: op("multiply")(g, b), lambda: op("multiply")(g, a))


def of_quotient(call: TapedCall, g: Tensor) -> Found:
    b, (made,), rounding = call["input_tensor_b"], call.results, call["rounding_mode"]
    if rounding:
        raise TypeError(f"rounding_mode={rounding!r}")
    return _of_two(
        call,
        lambda: op("divide")(g, b),
        lambda: op("neg")(op("divide")(op("multiply")(g, made), b)),
    )


def by_its_backward(call: TapedCall, g: Tensor) -> Found:
    """TT-NN has an op for the gradient."""
    options = {"approximate": _approximation(call)} if call.op == "gelu" else {}
    if f"{call.op}_bw" not in OPERATIONS:
        raise TypeError
    made = op(f"{call.op}_bw")(g, call["input_tensor"], **options)
    return {"input_tensor": made[0] if isinstance(made, list | tuple) else made}


def _approximation(call: TapedCall) -> str:
    return "tanh" if call["fast_and_approximate_mode"] else "none"


def of_negation(call: TapedCall, g: Tensor) -> Found:
    return {"input_tensor": op("neg")(g)}


def of_power(call: TapedCall, g: Tensor) -> Found:
    return {"input_tensor": op("pow_bw")(g, call["input_tensor"], call["exponent"])[0]}


def of_matmul(call: TapedCall, g: Tensor) -> Found:
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


def of_reshape(call: TapedCall, g: Tensor) -> Found:
    name = next(name for name in ("input_tensor", "tensor") if name in call.arguments)
    return {name: shaped(g, call[name].shape)}


def of_permute(call: TapedCall, g: Tensor) -> Found:
    dims = [dim % len(call["dims"]) for dim in call["dims"]]
    return {"input_tensor": op("permute")(g, tuple(dims.index(at) for at in range(len(dims))))}


def of_transpose(call: TapedCall, g: Tensor) -> Found:
    return {"input_tensor": op("transpose")(g, call["dim1"], call["dim2"])}


def passed_on(call: TapedCall, g: Tensor) -> Found:
    name = next(name for name in ("input_tensor", "tensor", "input") if name in call.arguments)
    same = g if g.dtype is call[name].dtype else op("typecast")(g, call[name].dtype)
    return {name: same}


def of_concat(call: TapedCall, g: Tensor) -> Found:
    dim, first, parts = call["dim"], 0, []
    for tensor in call["tensors"]:
        begins, ends = [0] * len(g.shape), list(g.shape)
        begins[dim], ends[dim] = first, first + tensor.shape[dim]
        first = ends[dim]
        parts.append(op("slice")(g, begins, ends))
    return {"tensors": parts}


def of_slice(call: TapedCall, g: Tensor) -> Found:
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


def of_mean(call: TapedCall, g: Gradient) -> Found:
    x = call["input_tensor"]
    return {"input_tensor": _spread(call, g, call.results[0].logical_volume() / x.logical_volume())}


def of_reduced_sum(call: TapedCall, g: Gradient) -> Found:
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


def of_softmax(call: TapedCall, g: Tensor) -> Found:
    (shares,), dim = call.results, call["dim"]
    return {"input_tensor": through_softmax(shares, g, -1 if dim is None else dim)}


def through_softmax(shares: Tensor, g: Tensor, dim: int = -1) -> Tensor:
    mixed = op("sum")(op("multiply")(g, shares), dim, True)
    made: Tensor = op("multiply")(shares, op("subtract")(g, mixed))
    return made


def of_norm(call: TapedCall, g: Tensor) -> Found:
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


def of_embedding(call: TapedCall, g: Tensor) -> Found:
    ids, table = call["input_tensor"], call["weight"]
    width = tuple(table.shape)[-1]
    rows = shaped(g, (1, 1, g.logical_volume() // width, width))
    flat = ids if len(ids.shape) == 2 else op("reshape")(ids, (1, ids.logical_volume()))
    return {"weight": shaped(op("embedding_bw")(flat, table, rows), table.shape)}
