"""Python operators (`+`, `@`, `==`), indexing and `reshape` as methods of Tensor.

TT-NN has no unary minus, no ** and no item assignment. Operators are bound to ops when this is imported, so the
modules that register those ops are imported first.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from softmesh.arguments import described
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError, TensorIndexError
from softmesh.ops.elementwise import binary  # noqa: F401
from softmesh.ops.matmul import matmul  # noqa: F401
from softmesh.tensor.tensor import Tensor, tensor_method

_OPERATORS = {
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "subtract",
    "__rsub__": "rsub",
    "__mul__": "multiply",
    "__rmul__": "multiply",
    "__truediv__": "div",
    "__rtruediv__": "rdiv",
    "__matmul__": "matmul",
    "__eq__": "eq",
    "__ne__": "ne",
    "__gt__": "gt",
    "__ge__": "ge",
    "__lt__": "lt",
    "__le__": "le",
}


def _bind(method: str, name: str) -> None:
    op = OPERATIONS[name]

    def operator(self: Tensor, other: Any) -> Any:
        if not isinstance(other, Tensor | int | float):
            if not isinstance(other, np.number):
                return NotImplemented
            other = other.item()
        return op(self, other)

    tensor_method(method)(operator)


for _method, _name in _OPERATORS.items():
    _bind(_method, _name)


@tensor_method("__getitem__")
def get_item(self: Tensor, index: Any) -> Tensor:
    """ints drop a dim, slices cut, one `...` stands for what is left."""
    starts, ends, steps, dropped = _parse_index(self, index)
    if self.storage.device is None:
        _check_host_index(index, steps)
    cut = OPERATIONS["slice"](self, starts, ends, steps)
    if not dropped:
        return cast(Tensor, cut)
    kept = [n for d, n in enumerate(cut.shape) if d not in dropped]
    return cast(Tensor, OPERATIONS["reshape"](cut, kept))


def _parse_index(tensor: Tensor, index: Any) -> tuple[list[int], list[int], list[int], set[int]]:
    entries = list(index) if isinstance(index, list | tuple) else [index]
    _check_entries(entries)
    rank = len(tensor.shape)
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise ArgumentValueError("Only one ellipsis ('...') is allowed in a slice.")
    given = len(entries) - (Ellipsis in entries)
    if given > rank:
        raise TensorIndexError(f"Too many indices for tensor of dimension {rank}")
    at = entries.index(Ellipsis) if Ellipsis in entries else len(entries)
    full = [slice(None)] * (rank - given)
    entries = entries[:at] + full + entries[at + 1 :]
    starts, ends, steps, dropped = [], [], [], set()
    for dim, (entry, n) in enumerate(zip(entries, tensor.shape, strict=True)):
        if isinstance(entry, slice):
            if entry.step is not None and entry.step < 1:
                raise ArgumentValueError(f"slice step {entry.step} in dim {dim} must be positive")
            low, high, step = entry.indices(n)
            starts.append(low)
            ends.append(max(low, high))
            steps.append(step)
        else:
            position = entry + n if entry < 0 else entry
            if not 0 <= position < n:
                raise TensorIndexError(
                    f"Index {entry} (converted to {position}) is out of bounds for dimension {dim} of size {n}"
                )
            starts.append(position)
            ends.append(position + 1)
            steps.append(1)
            dropped.add(dim)
    return starts, ends, steps, dropped


def _check_entries(entries: list[Any]) -> None:
    for entry in entries:
        bounds = (entry.start, entry.stop, entry.step) if isinstance(entry, slice) else (entry,)
        for bound in bounds:
            allowed = bound is None if isinstance(entry, slice) else bound is Ellipsis
            if not allowed and (isinstance(bound, bool) or not isinstance(bound, int)):
                raise ArgumentError(
                    f"a tensor is indexed by ints, slices of ints and one ..., not by {described(entry)}"
                )


def _check_host_index(index: Any, steps: list[int]) -> None:
    if any(step != 1 for step in steps):
        raise MeshError("Host tensors cannot be accessed with non-unit stride: move it with ttnn.to_device first.")
    for entry in index if isinstance(index, list | tuple) else [index]:
        bounds = (entry.start, entry.stop) if isinstance(entry, slice) else ()
        if any(bound is not None and bound < 0 for bound in bounds):
            raise MeshError("Host tensors cannot be sliced with negative bounds: move it with ttnn.to_device first.")


@tensor_method("reshape")
def reshape(self: Tensor, *shape: Any) -> Tensor:
    """`reshape(a, b, c, d)` or `reshape(shape)`."""
    return cast(Tensor, OPERATIONS["reshape"](self, shape[0] if len(shape) == 1 else shape))
