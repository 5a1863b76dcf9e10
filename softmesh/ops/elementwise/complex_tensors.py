"""Tensors of complex numbers, as two tensors: complex_tensor, real, imag, angle, polar, and gradients through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from softmesh.arguments import checked, checked_function
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.dispatch.signature import Signature
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.ops.golden import golden_training as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.tensor.tensor import Tensor

Parts = tuple[torch.Tensor, ...]
_SEVERAL = "a ttnn.ComplexTensor: ttnn.complex_tensor(real, imag) makes one"


class ComplexTensor:
    """Real and imaginary parts, each a tensor."""

    def __init__(self, real: Tensor, imag: Tensor) -> None:
        self.real = checked("complex_tensor", "real", real, Tensor, "a ttnn.Tensor")
        self.imag = checked("complex_tensor", "imag", imag, Tensor, "a ttnn.Tensor")

    def __getitem__(self, index: int) -> Tensor:
        return (self.real, self.imag)[index]

    def __repr__(self) -> str:
        return f"ComplexTensor(real={self.real!r}, imag={self.imag!r})"

    def deallocate(self, force: bool = False) -> None:
        self.real.deallocate(force)
        self.imag.deallocate(force)


def complex_tensor(real: Tensor, imag: Tensor) -> ComplexTensor:
    """A tensor of complex numbers out of two tensors."""
    return ComplexTensor(real, imag)


def _op(name: str, function: Callable[..., Any], count: int) -> Operation:
    """An op of `count` tensors, element by element."""
    operands = ", ".join(f"part{i}" for i in range(count))
    definition = _definition(name, function, count)
    definition.__doc__ = f"{name} of {operands}."
    signature = Signature(name, definition, ["memory_config"], [])
    return Operation(Definition(name, Kind.ELEMENTWISE, definition, signature, flops_per_element(8), floats_only=True))


def _definition(name: str, function: Callable[..., Any], count: int) -> Callable[..., Local]:
    def local(*parts: Operand) -> Local:
        rank = len(check_broadcast(name, [(part.name, part.shape) for part in parts]))
        return Local(function, broadcast_rank=rank)

    def of_one(a: Operand) -> Local:
        return local(a)

    def of_two(a: Operand, b: Operand) -> Local:
        return local(a, b)

    def of_three(a: Operand, b: Operand, c: Operand) -> Local:
        return local(a, b, c)

    def of_four(a: Operand, b: Operand, c: Operand, d: Operand) -> Local:
        return local(a, b, c, d)

    def of_six(a: Operand, b: Operand, c: Operand, d: Operand, e: Operand, f: Operand) -> Local:
        return local(a, b, c, d, e, f)

    known: dict[int, Callable[..., Local]] = {1: of_one, 2: of_two, 3: of_three, 4: of_four, 6: of_six}
    return known[count]


def _parts_of(*values: Tensor | ComplexTensor) -> list[Tensor]:
    return [part for value in values for part in ([value] if isinstance(value, Tensor) else [value.real, value.imag])]


def _complex(where: str, name: str, value: object) -> ComplexTensor:
    return checked(where, name, value, ComplexTensor, _SEVERAL)


def _paired(made: list[Tensor]) -> list[ComplexTensor]:
    return [ComplexTensor(*pair) for pair in zip(made[::2], made[1::2], strict=True)]


# -- functions of one ----------------------------------------------------------------------------------


def _reciprocal(a: torch.Tensor, b: torch.Tensor) -> Parts:
    size = a * a + b * b
    return a / size, -b / size


_PARTS = {
    "real": _op("real", torch.clone, 1),
    "is_zero": _op("is_real", lambda x: x == 0, 1),
    "angle": _op("angle", lambda a, b: torch.atan2(b, a), 2),
    "abs": _op("abs", torch.hypot, 2),
    "neg": _op("conj", torch.neg, 1),
    "polar": _op("polar", lambda r, angle: (r * torch.cos(angle), r * torch.sin(angle)), 2),
    "reciprocal": _op("reciprocal", _reciprocal, 2),
}


@checked_function
@with_reference(golden.real)
def real(input_tensor: ComplexTensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """The real part."""
    return cast(Tensor, _PARTS["real"](input_tensor.real, memory_config=memory_config))


@checked_function
@with_reference(golden.imag)
def imag(input_tensor: ComplexTensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """The imaginary part."""
    return cast(Tensor, _PARTS["real"](input_tensor.imag, memory_config=memory_config))


@checked_function
@with_reference(golden.is_real)
def is_real(input_tensor: ComplexTensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """1 where the imaginary part is 0."""
    return cast(Tensor, _PARTS["is_zero"](input_tensor.imag, memory_config=memory_config))


@checked_function
@with_reference(golden.is_imag)
def is_imag(input_tensor: ComplexTensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """1 where the real part is 0."""
    return cast(Tensor, _PARTS["is_zero"](input_tensor.real, memory_config=memory_config))


@checked_function
@with_reference(golden.angle)
def angle(input_tensor: ComplexTensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """From the real axis, between -pi and pi."""
    return cast(Tensor, _PARTS["angle"](input_tensor.real, input_tensor.imag, memory_config=memory_config))


@checked_function
@with_reference(golden.conj)
def conj(input_tensor: ComplexTensor, *, memory_config: MemoryConfig | None = None) -> ComplexTensor:
    """The same with the other sign of the imaginary part."""
    parts = _PARTS["real"](input_tensor.real, memory_config=memory_config), _PARTS["neg"](input_tensor.imag)
    return ComplexTensor(*parts)


@checked_function
@with_reference(golden.polar)
def polar(input_tensor: ComplexTensor, *, memory_config: MemoryConfig | None = None) -> ComplexTensor:
    """The number of this size (real part) and angle (imaginary part)."""
    return ComplexTensor(*_PARTS["polar"](input_tensor.real, input_tensor.imag, memory_config=memory_config))


def _abs(input_tensor: object, *, memory_config: MemoryConfig | None = None) -> Tensor:
    given = _complex("abs", "input_tensor", input_tensor)
    return cast(Tensor, _PARTS["abs"](*_parts_of(given), memory_config=memory_config))


def _reciprocal_of(input_tensor: object, *, memory_config: MemoryConfig | None = None) -> ComplexTensor:
    given = _complex("reciprocal", "input_tensor", input_tensor)
    return ComplexTensor(*_PARTS["reciprocal"](*_parts_of(given), memory_config=memory_config))


# -- gradients, as torch has them for complex numbers: of the conjugate ----------------------------------


def _safe(size: torch.Tensor) -> torch.Tensor:
    """1 / size, and 0 where that is 0."""
    return torch.where(size == 0, 0.0, 1 / torch.where(size == 0, torch.ones_like(size), size))


def _times(a: Parts, b: Parts) -> Parts:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _conj(a: Parts) -> Parts:
    return a[0], -a[1]


def _angle_bw(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Parts:
    size = _safe(a * a + b * b)
    return -grad * b * size, grad * a * size


def _abs_bw(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Parts:
    size = _safe(torch.hypot(a, b))
    return grad * a * size, grad * b * size


def _polar_bw(g: torch.Tensor, h: torch.Tensor, size: torch.Tensor, turn: torch.Tensor) -> Parts:
    cos, sin = torch.cos(turn), torch.sin(turn)
    return g * cos + h * sin, size * (h * cos - g * sin)


def _reciprocal_bw(g: torch.Tensor, h: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Parts:
    inverse = _reciprocal(a, b)
    slope = _conj(_times(inverse, inverse))
    return _times((-g, -h), slope)


def _mul_bw(g: Any, h: Any, a: Any, b: Any, c: Any, d: Any) -> Parts:
    return (*_times((g, h), _conj((c, d))), *_times((g, h), _conj((a, b))))


def _div_bw(g: Any, h: Any, a: Any, b: Any, c: Any, d: Any) -> Parts:
    inverse = _reciprocal(c, d)
    by_b = _times((a, b), _times(inverse, inverse))
    return (*_times((g, h), _conj(inverse)), *_times((-g, -h), _conj(by_b)))


_GRADIENTS: dict[str, Operation] = {
    "angle_bw": _op("angle_bw", _angle_bw, 3),
    "abs_bw": _op("abs_bw", _abs_bw, 3),
    "real_bw": _op("real_bw", lambda grad, a, b: (grad, torch.zeros_like(grad)), 3),
    "imag_bw": _op("imag_bw", lambda grad, a, b: (torch.zeros_like(grad), grad), 3),
    "conj_bw": _op("conj_bw", lambda g, h, a, b: (g, -h), 4),
    "polar_bw": _op("polar_bw", _polar_bw, 4),
    "reciprocal_bw": _op("reciprocal_bw", _reciprocal_bw, 4),
    "mul_bw": _op("mul_bw", _mul_bw, 6),
    "div_bw": _op("div_bw", _div_bw, 6),
}


def _gradient_of_one(name: str) -> Callable[..., list[ComplexTensor]]:
    def of_one(
        grad_tensor: Any, input_tensor: ComplexTensor, *, memory_config: MemoryConfig | None = None
    ) -> list[ComplexTensor]:
        given = _complex(name, "input_tensor", input_tensor)
        return _paired(list(_GRADIENTS[name](*_parts_of(grad_tensor, given), memory_config=memory_config)))

    of_one.__name__ = name
    of_one.__doc__ = f"[the gradient of the input of {name.removesuffix('_bw')}]."
    return of_one


angle_bw, real_bw, imag_bw, conj_bw, polar_bw = (
    with_reference(golden.complex_gradient(forward))(_gradient_of_one(f"{forward.__name__}_bw"))
    for forward in (golden.angle, golden.real, golden.imag, golden.conj, golden.polar)
)


def _gradient_of_two(name: str) -> Callable[..., list[ComplexTensor]]:
    def of_two(
        grad_tensor: Any, input_tensor_a: Any, input_tensor_b: Any, *, memory_config: MemoryConfig | None = None
    ) -> list[ComplexTensor]:
        given = (grad_tensor, input_tensor_a, input_tensor_b)
        parts = _parts_of(*(_complex(name, "operand", value) for value in given))
        return _paired(list(_GRADIENTS[name](*parts, memory_config=memory_config)))

    return of_two


def _gradient_of_sum(sign: float) -> Callable[..., list[ComplexTensor]]:
    def of_sum(
        grad_tensor: Any,
        input_tensor_a: Any,
        input_tensor_b: Any,
        alpha: float = 1.0,
        *,
        memory_config: MemoryConfig | None = None,
    ) -> list[ComplexTensor]:
        """The gradient itself, and it times alpha."""
        grad = _complex("add_bw", "grad_tensor", grad_tensor)
        first = [OPERATIONS["clone"](part, memory_config=memory_config) for part in _parts_of(grad)]
        second = [OPERATIONS["multiply"](part, sign * alpha, memory_config=memory_config) for part in _parts_of(grad)]
        return _paired([*first, *second])

    return of_sum


for _name, _function in {
    "abs": _abs,
    "reciprocal": _reciprocal_of,
    "abs_bw": _gradient_of_one("abs_bw"),
    "reciprocal_bw": _gradient_of_one("reciprocal_bw"),
    "mul_bw": _gradient_of_two("mul_bw"),
    "div_bw": _gradient_of_two("div_bw"),
    "add_bw": _gradient_of_sum(1.0),
    "sub_bw": _gradient_of_sum(-1.0),
}.items():
    OPERATIONS[_name].take_also(ComplexTensor, _function)
