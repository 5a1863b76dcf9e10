"""Finding an op's golden function, and calling it as the op is called."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from softmesh.errors import MeshError
from softmesh.ops.golden.backward import backward_reference
from softmesh.ops.golden.table import REFERENCES, Reference, is_plain
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import from_torch, to_torch

if TYPE_CHECKING:
    from softmesh.dispatch.operation import Operation

_FAMILIES = ("attention", "element_wise", "experts", "combining", "heads", "movement", "products", "reducing")
_NOT_TOLD = ("device",)  # tests hand it to every golden function, and few have a use for it


class Golden:
    """A reference that takes an op's arguments: binds them by the op's signature, keeps those it has a use for."""

    def __init__(self, op: Operation, reference: Reference) -> None:
        self._op = op
        self._reference = reference
        self.__name__ = f"golden {op.python_fully_qualified_name}"

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    @cached_property
    def _names(self) -> list[str]:
        return list(inspect.signature(self._reference).parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature = self._op.definition.signature
        told = {
            name: value for name, value in kwargs.items() if name not in _NOT_TOLD or name in signature.names
        }
        values = signature.bind(args, told)
        if is_plain(self._reference):
            return self._reference(*(values[at] for at in signature.operand_at))
        named = signature.named(values, range(len(values)))
        given = {name: value for name, value in named.items() if name in self._names}
        if signature.operand_names[0] not in self._names:  # in place, the same operands have other names
            given |= dict(zip(self._names, map(named.get, signature.operand_names), strict=False))
        return self._reference(**given)


def known_golden(op: Operation) -> Golden | None:
    """The golden function that comes with softmesh.

    An op in place has that of the op it is named after; a gradient has torch's gradient of that.
    """
    for family in _FAMILIES:
        importlib.import_module(f"softmesh.ops.golden.{family}")
    found = REFERENCES.get(op.name) or REFERENCES.get(op.name.removesuffix("_")) or backward_reference(op)
    return None if found is None else Golden(op, found)


def get_golden_function(operation: Any) -> Callable[..., Any]:
    """The torch reference of an op, called with torch tensors where the op takes ttnn ones."""
    found = getattr(operation, "golden_function", None)
    if found is None:
        raise MeshError(
            f"{operation} does not have a golden function: give it one with "
            "ttnn.attach_golden_function(operation, function)."
        )
    golden: Callable[..., Any] = found
    return golden


def attach_golden_function(
    operation: Any,
    golden_function: Callable[..., Any],
    *,
    preprocess_golden_function_inputs: Callable[..., Any] | None = None,
    postprocess_golden_function_outputs: Callable[..., Any] | None = None,
    output_tensor_kwarg_names: tuple[str, ...] = (),
) -> None:
    """From now on this is the op's golden function; comparisons use it too.

    The functions that prepare its inputs and outputs are kept beside it, for whoever asks the op for them.
    """
    operation.golden_function = golden_function
    operation.preprocess_golden_function_inputs = preprocess_golden_function_inputs
    operation.postprocess_golden_function_outputs = postprocess_golden_function_outputs


def get_fallback_function(operation: Any) -> Callable[..., Any]:
    """A function that computes an op on the host, by its golden function, and brings the result to the device."""
    golden = get_golden_function(operation)

    def fall_back(*args: Any, **kwargs: Any) -> Any:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if not given:
            raise MeshError(f"{operation}: a fallback needs a ttnn.Tensor among its arguments.")
        values = {name: _on_host(value) for name, value in kwargs.items()}
        found = golden(*map(_on_host, args), **values)
        like = given[0]
        return from_torch(found, like.dtype, layout=like.layout, device=like.device())

    return fall_back


def _on_host(value: Any) -> Any:
    return to_torch(value) if isinstance(value, Tensor) else value
