"""A user's own op: `define_op` makes one of a torch function and the labels of its dims."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import torch

from softmesh.arguments import refused
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, Operation, operation
from softmesh.dispatch.plan import CostRule, Local
from softmesh.kinds import Kind
from softmesh.ops.device_batches import on_each_device
from softmesh.ops.gradients import Found, TapedCall
from softmesh.placement import dim_labels, rules
from softmesh.runtime.commands import Cost
from softmesh.tensor.spec import TensorSpec

_WHERE = "define_op"
_KINDS = {kind.value: kind for kind in takewhile(lambda kind: not kind.is_exchange, Kind)}  # of work on one device
_GIVEN = "result_gradient"  # the first operand of the op that is an op's gradient


class _Form(NamedTuple):
    """The dims of an op's operands, as a text each, and of its results."""

    text: str
    operands: list[str]
    result: str

    @property
    def factors(self) -> tuple[int, ...]:
        """The operands that share a label over which the op adds up."""
        result = self.result.split()
        return tuple(at for at, one in enumerate(self.operands) if set(one.split()) - {*result, "_"})

    def gradient(self, operand: int) -> str:
        """The form of the gradient of an operand, whose first operand is that of the result."""
        return f"{self.result}, {', '.join(self.operands)} -> {self.operands[operand]}"


class _ComputeOf(NamedTuple):
    """A computation before the arguments that are no operands are known."""

    operands: tuple[str, ...]
    parameters: list[inspect.Parameter]
    make: Callable[[dict[str, Any]], Callable[..., Any]]
    text: str | None


def define_op(
    dims: str, *, kind: str = Kind.ELEMENTWISE.value, steps: int = 1, linear_in: str = ""
) -> Callable[[Callable[..., Any]], Operation]:
    """Make an op of a function that computes with the torch tensors of one device.

    `dims` labels the dims of the operands, which are the function's first parameters, and of its result:
    `"*rows k, k n -> *rows n"`. Split along a label that the result has, it stays split; along one that the result
    lacks, each device makes a contribution to the sum; along `_`, each device works on its part alone. `*rows` stands
    for any number of dims in front. Contributions to a sum pass through operands that the op is `linear_in`, one at a
    time. `kind` and `steps`, the arithmetic for each element, give its price.

    >>> import softmesh as ttnn
    >>> @ttnn.define_op("*any, *any -> *any", steps=3)
    ... def sum_of_squares(a, b):
    ...     return a * a + b * b
    >>> sum_of_squares
    <operation softmesh.ops.define_op.sum_of_squares>
    """
    form = _checked_form(dims)
    if kind not in _KINDS:
        raise refused(_WHERE, f"kind={kind!r} is none of {', '.join(map(repr, _KINDS))}")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise refused(_WHERE, f"steps={steps!r} must be an int of 1 or more: the arithmetic for each element")

    def register(function: Callable[..., Any]) -> Operation:
        name, tensors = function.__name__, _operands_of(function, form)
        linear = linear_in.split()
        strange = [operand for operand in linear if operand not in tensors]
        if strange:
            raise refused(_WHERE, f"linear_in={linear_in!r}: {strange[0]} is none of the operands {', '.join(tensors)}")
        _make_room(function)
        options: dict[str, Any] = {"kind": _KINDS[kind], "namespace": _module_of(function)}
        passes = [[tensors.index(operand)] for operand in linear]
        plain = _compute_of(function, tensors)
        made = _registered(name, plain, form, passes, steps, gradient=_gradient_rule, **options)
        for at, operand in enumerate(tensors):
            own, compute_of = _checked_form(form.gradient(at)), _gradient_of(function, tensors, at)
            gradient = _registered(_gradient_name(name, operand), compute_of, own, [[0]], 2 * steps, **options)
            setattr(made, f"gradient_of_{operand}", gradient)
        made.golden_function = function
        return made

    return register


def _registered(
    name: str, compute_of: _ComputeOf, form: _Form, passes: Sequence[Sequence[int]], steps: int, **options: Any
) -> Operation:
    labels = dim_labels.spelled(form.text, passes=passes)

    def define(**arguments: Any) -> Local:
        operands = [arguments.pop(operand) for operand in compute_of.operands]
        return Local(on_each_device(compute_of.make(arguments), *operands))

    define.__doc__, define.__name__ = compute_of.text, name
    define.__annotations__ = {one.name: one.annotation for one in compute_of.parameters}
    vars(define)["__signature__"] = inspect.Signature(compute_of.parameters)
    factors = form.factors if options["kind"] is Kind.PRODUCT else ()
    return operation(name, cost=_cost(labels, steps), factors=factors, rule=rules.by_labels(labels), **options)(define)


def _checked_form(dims: str) -> _Form:
    if not isinstance(dims, str) or dims.count("->") != 1:
        raise refused(_WHERE, f'dims={dims!r} must name the dims of each operand and of the result: "m k, k n -> m n"')
    given, _, result = dims.partition("->")
    operands = [one.strip() for one in given.split(",")]
    words = [one.split() for one in (*operands, result)]
    strange = set(words[-1]) - {"_"}.union(*words[:-1])
    if strange:
        raise refused(_WHERE, f"dims={dims!r}: {sorted(strange)[0]!r} of the result is a dim of no operand")
    late = [label for one in words for label in one[1:] if label.startswith("*")]
    if late:
        raise refused(_WHERE, f"dims={dims!r}: {late[0]} must come before the other dims")
    return _Form(dims, operands, result.strip())


def _operands_of(function: Callable[..., Any], form: _Form) -> list[str]:
    """Return the names of the first parameters, one for each operand that has dims."""
    names, count = list(inspect.signature(function).parameters), len(form.operands)
    if len(names) < count:
        said = f"{function.__name__}({', '.join(names)})"
        raise refused(_WHERE, f"dims={form.text!r} has {count} operands, and {said} {len(names)} parameters")
    return names[:count]


def _make_room(function: Callable[..., Any]) -> None:
    """Let a function that is defined once more replace its op; any other op of the name stays."""
    name = function.__name__
    known = OPERATIONS.get(name)
    if known is None:
        return
    if known.definition.namespace != _module_of(function):
        raise refused(
            _WHERE, f"there is an op {known.python_fully_qualified_name}: give the function {name} another name"
        )
    from softmesh.cost.pricing import forget_prices  # which loads the calibration

    forget_prices()
    del OPERATIONS[name]
    for operand in known.definition.signature.operand_names:
        del OPERATIONS[_gradient_name(name, operand)]


def _module_of(function: Callable[..., Any]) -> str:
    """Return the name under which the function's module can be imported."""
    name = function.__module__
    is_importable = name != "__main__" and name in sys.modules
    return name if is_importable else Path(inspect.getfile(function)).stem


def _parameters(function: Callable[..., Any], tensors: Sequence[str]) -> list[inspect.Parameter]:
    """Return the function's parameters, of which the first ones are operands."""
    kinds = get_type_hints(function)
    made = []
    for name, one in inspect.signature(function).parameters.items():
        hint: Any = kinds.get(name, Any)
        if name in tensors:
            hint = Operand | None if one.default is None else Operand
        made.append(one.replace(annotation=hint))
    return made


def _compute_of(function: Callable[..., Any], tensors: Sequence[str]) -> _ComputeOf:
    def make(attributes: dict[str, Any]) -> Callable[..., Any]:
        return lambda *values: function(*values, **attributes)

    return _ComputeOf(tuple(tensors), _parameters(function, tensors), make, function.__doc__)


def _gradient_of(function: Callable[..., Any], tensors: Sequence[str], at: int) -> _ComputeOf:
    """Compute torch's gradient of one operand, from that of the result and all operands."""

    def make(attributes: dict[str, Any]) -> Callable[..., Any]:
        def pulled(given: torch.Tensor, *values: Any) -> torch.Tensor:
            def forward(value: torch.Tensor) -> torch.Tensor:
                made: torch.Tensor = function(*values[:at], value, *values[at + 1 :], **attributes)
                return made.to(given.dtype)

            found: tuple[torch.Tensor, ...] = torch.func.vjp(forward, values[at])[1](given)
            return found[0]

        return pulled

    first = inspect.Parameter(_GIVEN, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Operand)
    text = f"Compute the gradient of {tensors[at]} of {function.__name__}, from that of its result."
    return _ComputeOf((_GIVEN, *tensors), [first, *_parameters(function, tensors)], make, text)


def _gradient_name(op: str, operand: str) -> str:
    return f"{op}.gradient_of_{operand}"


def _gradient_rule(call: TapedCall, g: Any) -> Found:
    """Find the gradients of the operands that ask for one, by an op for each."""
    signature = OPERATIONS[call.op].definition.signature
    taken = {signature.names[at]: call[signature.names[at]] for at in (*signature.operand_at, *signature.attribute_at)}
    return {
        operand: OPERATIONS[_gradient_name(call.op, operand)](g, **taken)
        for operand in signature.operand_names
        if call.needs(operand)
    }


def _cost(labels_of: dim_labels.LabelsOf, steps: int) -> CostRule:
    """Count the steps for each combination of labelled dims, or for each element where that is more."""

    def cost(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Cost:
        shapes = [tuple(spec.shape) for spec in (*inputs, *outputs)]
        dims = labels_of(shapes[: len(inputs)], shapes[len(inputs) :])
        extents = {
            label: n
            for own, shape in zip(dims.operands, shapes, strict=False)
            for label, n in zip(own or (), shape, strict=True)
            if label is not None
        }
        elements = max(math.prod(extents.values()), *map(math.prod, shapes))
        return Cost(steps * elements, moves_bytes(inputs, outputs).bytes)

    return cost
