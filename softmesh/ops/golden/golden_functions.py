"""The registry of golden functions: op name -> torch reference, gradients from autograd; get, attach, fall back."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from softmesh.dispatch.entry_point import Function
from softmesh.dispatch.operation import Operation
from softmesh.errors import MeshError
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import to_torch

# -- the table: op name -> reference -----------------------------------------------------------------


Reference = Callable[..., Any]  # torch tensors, by the op's own parameter names or in the order of its operands

REFERENCES: dict[str, Reference] = {}


def reference(*names: str) -> Callable[[Reference], Reference]:
    """The decorated function is the reference of these ops; its parameters are some of theirs, by name."""

    def add(function: Reference) -> Reference:
        for name in names:
            REFERENCES[name] = function
        return function

    return add


def plain_references(functions: Mapping[str, Callable[..., Any]]) -> None:
    """References that take an op's operands in their order, and nothing else."""
    for name, function in functions.items():
        REFERENCES[name] = _Plain(function)


class _Plain:
    """A function of the operands alone."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *operands: Any) -> Any:
        return self.function(*operands)


def is_plain(function: Reference) -> bool:
    return isinstance(function, _Plain)


_ONE_STEP = ("golden_elementwise", "golden_composite")  # what a chip computes in one program, and rounds at its end


def rounded_once(function: Reference, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function of bfloat16 tensors in float32, rounded at the end: as an op rounds, however many its steps."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if {value.dtype for value in given if value.is_floating_point()} != {torch.bfloat16}:
        return function(*args, **kwargs)
    made = function(*map(_wide, args), **{name: _wide(value) for name, value in kwargs.items()})
    return [_narrow(value) for value in made] if isinstance(made, list) else _narrow(made)


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _narrow(value: Any) -> Any:
    return value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def as_given(function: Reference) -> Reference:
    """For a golden of one step, which rounds by itself, and takes numbers as the tensor's dtype has them."""
    _AS_GIVEN.add(function)
    return function


_AS_GIVEN: set[Reference] = set()


def _is_one_step(function: Reference) -> bool:
    inner = function.function if isinstance(function, _Plain) else function
    of_one_program = isinstance(function, _Gradient) or str(inner.__module__).rpartition(".")[2] in _ONE_STEP
    return of_one_program and inner not in _AS_GIVEN


# -- gradients: torch's own gradient of the golden function of the forward op ------------------------


_SUFFIX = "_bw"
_FORWARD = {
    "clip": "clamp",
    "experimental.gelu": "gelu",
    "logiteps": "logit",
    "max": "maximum",
    "min": "minimum",
    "mul": "multiply",
    "sub": "subtract",
}
# What the gradient's arguments are called in the op before it.
_ARGUMENTS: dict[str, dict[str, str]] = {
    "addcdiv": {"alpha": "value"},
    "addcmul": {"alpha": "value"},
    "div_no_nan": {"scalar": "input_tensor_b"},
    "hardtanh": {"min": "min_val", "max": "max_val"},
    "polygamma": {"n": "k"},
    "rdiv": {"scalar": "value"},
    "threshold": {"min": "threshold", "max": "value"},
}
_WITHOUT_FORWARD_OP = ("fill", "fill_zero")  # TT-NN's gradient is that of no op
_WITHOUT_GRADIENT = {"where": 1, "clamp": 0}  # operands in front that get none
_ONLY_FIRST = ("clamp",)


def backward_reference(op: Operation) -> Reference | None:
    """The gradient of the op that this one belongs to; None where that has no reference."""
    if not op.name.endswith(_SUFFIX):
        return None
    short = op.name.removesuffix(_SUFFIX)
    if short in _WITHOUT_FORWARD_OP:
        return None
    forward = _FORWARD.get(short, short)
    function = REFERENCES.get(forward)
    return None if function is None else _Gradient(op, forward, function)


class _Gradient:
    """Takes all the op's arguments by name."""

    def __init__(self, op: Operation, forward: str, function: Reference) -> None:
        self._operands = op.definition.signature.operand_names
        self._forward = forward
        self._function = function
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in op.definition.signature.names]
        )

    def __call__(self, **named: Any) -> list[torch.Tensor]:
        gradient, *inputs = (named.pop(name) for name in self._operands)
        leaves = [_leaf(value) for value in inputs]
        result = self._applied(leaves, named)
        wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        wanted = wanted[_WITHOUT_GRADIENT.get(self._forward, 0) :]
        if self._forward in _ONLY_FIRST:
            wanted = wanted[:1]
        if not result.requires_grad:
            return [torch.zeros_like(leaf) for leaf in wanted]
        spread = gradient.to(result.dtype).expand_as(result)
        found = torch.autograd.grad(result, wanted, spread, allow_unused=True)
        return [torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(wanted, found, strict=True)]

    def _applied(self, inputs: Sequence[Any], named: dict[str, Any]) -> torch.Tensor:
        result: torch.Tensor
        if is_plain(self._function):
            result = self._function(*inputs)
            return result
        names = list(inspect.signature(self._function).parameters)
        spelled = _ARGUMENTS.get(self._forward, {})
        given = dict(zip(names, inputs, strict=False))
        for name, value in named.items():
            meant = spelled.get(name, name)
            if meant in names and meant not in given and value is not None:
                given[meant] = value
        result = self._function(**given)
        return result


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    leaf = value.detach().clone()
    return leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf


@reference("embedding_bw")
def _embedding_gradient(
    input_tensor: torch.Tensor, weight_tensor: torch.Tensor, output_gradient_tensor: torch.Tensor
) -> torch.Tensor:
    width = weight_tensor.shape[-1]
    rows = torch.zeros_like(weight_tensor).reshape(-1, width)
    found = rows.index_add(0, input_tensor.flatten().long(), output_gradient_tensor.reshape(-1, width))
    return found.reshape(weight_tensor.shape)


_FAMILIES = (
    "golden_attention",
    "golden_elementwise",
    "golden_matmul_and_moe",
    "golden_composite",
    "golden_creation",
    "golden_data_movement",
    "golden_images_and_caches",
    "golden_pool",
    "golden_reduction",
    "golden_training",
)


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
        if is_plain(self._reference):
            return self._called(*(values[at] for at in signature.operand_at))
        named = signature.named(values, range(len(values)))
        named |= {name: value for name, value in kwargs.items() if name not in signature.places}
        given = {name: value for name, value in named.items() if name in self._names}
        if signature.operand_names[0] not in self._names:  # in place, the same operands have other names
            given |= dict(zip(self._names, map(named.get, signature.operand_names), strict=False))
        return self._written_over(self._called(**given), values)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        if _is_one_step(self._reference):
            return rounded_once(self._reference, args, kwargs)
        return self._reference(*args, **kwargs)

    def _written_over(self, result: Any, values: list[Any]) -> Any:
        """Of an op in place: in its operand's dtype."""
        written = self._op.definition.writes
        target = values[self._op.definition.signature.operand_at[written[0]]] if written else None
        if isinstance(target, torch.Tensor) and isinstance(result, torch.Tensor):
            return result.to(target.dtype) if result.dtype is torch.bool else result
        return result


def _load_families() -> None:
    for family in _FAMILIES:
        importlib.import_module(f"softmesh.ops.golden.{family}")


def known_golden(op: Operation) -> Golden | None:
    """The golden function that comes with softmesh.

    An op in place has that of the op it is named after; a gradient has torch's gradient of that.
    """
    _load_families()
    found = REFERENCES.get(op.name) or REFERENCES.get(op.name.removesuffix("_")) or backward_reference(op)
    return None if found is None else Golden(op, found)


def known_golden_of_function(function: Function) -> Reference | None:
    """That of a function of several ops: it takes the function's arguments, and leaves aside what it has no use for."""
    _load_families()
    found = REFERENCES.get(function.name)
    if found is None:
        return None
    names = list(inspect.signature(found).parameters)
    golden = found

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
