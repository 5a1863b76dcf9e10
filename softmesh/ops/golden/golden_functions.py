"""Golden functions of ops: their torch references, gradients from autograd; get, attach, fall back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import torch

from softmesh.dispatch.entry_point import Function
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import to_torch

# -- references ---------------------------------------------------------------------------------------


Reference = Callable[..., Any]  # torch tensors, by the op's own parameter names or in the order of its operands
_Function = TypeVar("_Function", bound=Reference)


class InOrder:
    """A reference that takes an op's operands in their order, and nothing else."""

    def __init__(self, function: Reference) -> None:
        self.function = function

    def __call__(self, *operands: Any) -> Any:
        return self.function(*operands)


def rounds_once(function: _Function) -> _Function:
    """Compute bfloat16 tensors in float32 and round at the end, as one program of a chip does."""

    @wraps(function)
    def rounding(*args: Any, **kwargs: Any) -> Any:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if {value.dtype for value in given if value.is_floating_point()} != {torch.bfloat16}:
            return function(*args, **kwargs)
        made = function(*map(_wide, args), **{name: _wide(value) for name, value in kwargs.items()})
        return [_narrow(value) for value in made] if isinstance(made, list) else _narrow(made)

    return cast(_Function, rounding)


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _narrow(value: Any) -> Any:
    return value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def reference_of(name: str) -> Reference | None:
    """Return the reference of an op; one in place has that of the op that it is a form of."""
    op = OPERATIONS.get(name)
    if op is None:
        return None
    definition = op.definition
    found = getattr(definition.define, "reference", None)
    if found is None and definition.kind in _COPIES:
        return InOrder(torch.clone)
    return reference_of(definition.same_as) if found is None and definition.same_as else found


_COPIES = (Kind.COPY, Kind.LAYOUT, Kind.RELOCATION)


def with_reference(reference: Reference | GradientOf) -> Callable[[_Function], _Function]:
    """State the reference of the op that the decorated function defines, or of a function of several ops."""

    def state(function: _Function) -> _Function:
        vars(function)["reference"] = reference
        return function

    return state


# -- gradients: torch's own gradient of the golden function of the forward op ------------------------


@dataclass(frozen=True)
class GradientOf:
    """The reference of an op that makes the gradients of another.

    `renamed` has what its arguments are called there; the tensors within `wanted` get a gradient.
    """

    forward: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    wanted: tuple[int, int | None] = (0, None)

    def of(self, op: Operation) -> Reference | None:
        """Make the reference, if the other op has one; it takes all arguments by name."""
        function = reference_of(self.forward)
        if function is None:
            return None

        def golden(**named: Any) -> list[torch.Tensor]:
            return self._gradients(inspect.unwrap(function), op.definition.signature.operand_names, named)

        found = rounds_once(golden)
        vars(found)["__signature__"] = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in op.definition.signature.names]
        )
        return found

    def _gradients(self, function: Reference, operands: Sequence[str], named: dict[str, Any]) -> list[torch.Tensor]:
        gradient, *inputs = (named.pop(name) for name in operands)
        leaves = [_leaf(value) for value in inputs]
        result = self._applied(function, leaves, named)
        wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)][slice(*self.wanted)]
        if not result.requires_grad:
            return [torch.zeros_like(leaf) for leaf in wanted]
        spread = gradient.to(result.dtype).expand_as(result)
        found = torch.autograd.grad(result, wanted, spread, allow_unused=True)
        return [torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(wanted, found, strict=True)]

    def _applied(self, function: Reference, inputs: Sequence[Any], named: dict[str, Any]) -> torch.Tensor:
        result: torch.Tensor
        if isinstance(function, InOrder):
            result = inspect.unwrap(function.function)(*inputs)
            return result
        names = list(inspect.signature(function).parameters)
        given = dict(zip(names, inputs, strict=False))
        for name, value in named.items():
            meant = self.renamed.get(name, name)
            if meant in names and meant not in given and value is not None:
                given[meant] = value
        result = function(**given)
        return result


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    leaf = value.detach().clone()
    return leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf


class Golden:
    """A reference that takes an op's arguments: binds them by the op's signature, keeps those it has a use for.

    As golden functions of TT-NN do, it takes more by position than the op: the reference's own parameters, in their
    order. Keywords that neither knows are left aside.
    """

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
        first = signature.names[: signature.positional]
        others = [name for name in self._names if name not in first][: max(len(args) - len(first), 0)]
        kwargs = kwargs | dict(zip(others, args[len(first) :], strict=False))
        known = {name: value for name, value in kwargs.items() if name in signature.places}
        values = signature.bind(args[: len(args) - len(others)], known)
        if isinstance(self._reference, InOrder):
            return self._reference(*(values[at] for at in signature.operand_at))
        named = signature.named(values, range(len(values)))
        named |= {name: value for name, value in kwargs.items() if name not in signature.places}
        given = {name: value for name, value in named.items() if name in self._names}
        if signature.operand_names[0] not in self._names:  # in place, the same operands have other names
            given |= dict(zip(self._names, map(named.get, signature.operand_names), strict=False))
        return self._written_over(self._reference(**given), values)

    def _written_over(self, result: Any, values: list[Any]) -> Any:
        """Of an op in place: in its operand's dtype."""
        written = self._op.definition.writes
        target = values[self._op.definition.signature.operand_at[written[0]]] if written else None
        if isinstance(target, torch.Tensor) and isinstance(result, torch.Tensor):
            return result.to(target.dtype) if result.dtype is torch.bool else result
        return result


def known_golden(op: Operation) -> Golden | None:
    """Return the golden function that comes with softmesh."""
    found = reference_of(op.name)
    found = found.of(op) if isinstance(found, GradientOf) else found
    return None if found is None else Golden(op, found)


def known_golden_of_function(function: Function) -> Reference | None:
    """That of a function of several ops: it takes the function's arguments, and leaves aside what it has no use for."""
    found: Reference | None = getattr(function, "reference", None)
    if found is None:
        return None
    golden, names = found, list(inspect.signature(found).parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        return golden(*args, **{name: value for name, value in kwargs.items() if name in names})

    call.__name__ = f"golden {function.python_fully_qualified_name}"
    return call


Operation.known_golden = known_golden  # type: ignore[method-assign,assignment]
Function.known_golden = known_golden_of_function  # type: ignore[method-assign,assignment]


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
