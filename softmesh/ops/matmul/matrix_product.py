"""MatrixProduct: a @ b + bias and an activation on each device, in fp32 up to the one rounding at the end.

Where the hardware multiplies bfloat16, operands of that type (and block floats, which are stored in it) are not widened
first: the product accumulates in fp32. A processor has no such product without the rounding, so there an activation
takes the rounded one, and what is to be kept in fp32 or in blocks is computed in fp32. Elsewhere fp32 is as close to
the chip and several times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.native.gpu_kernels import bias_and_activation
from softmesh.ops.elementwise.activations import ONE_KERNEL
from softmesh.ops.matmul.batched_gemm import Multiply, fits_into, native_bias, plain_product, product
from softmesh.runtime.native_bfloat16 import bfloat16_unit
from softmesh.tensor.dtype import DtypeFacts

Function = Callable[[torch.Tensor], torch.Tensor]
_FEWEST_PRODUCTS = 1 << 16  # of numbers: below, a native GEMM takes a processor longer than two conversions


def multiplies_natively(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype is not torch.bfloat16 or b.dtype is not torch.bfloat16:
        return False
    if a.is_cuda:
        return True
    return a.is_cpu and a.shape[-2] * b.shape[-2] * b.shape[-1] >= _FEWEST_PRODUCTS and bfloat16_unit() is not None


def _in_one_rounding(last: Function) -> Function:
    """Of several kernels, none of which but the last may round."""
    return lambda x: last(x.float()).bfloat16()


def _unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


def _turned(is_turned: bool) -> Function:
    return (lambda x: x.transpose(-2, -1)) if is_turned else _unchanged


def _widened(x: torch.Tensor, is_turned: bool) -> Function:
    """What is done to operands like this one before they are multiplied in fp32."""
    if x.dtype is torch.float32:
        return _turned(is_turned)
    return (lambda x: x.float().transpose(-2, -1)) if is_turned else (lambda x: x.float())


def _repeated_natively(
    a: torch.Tensor,
    b: torch.Tensor,
    z: torch.Tensor | None,
    turn_a: Function,
    turn_b: Function,
    last: Function | None,
) -> Multiply:
    """The same for more operands like these."""
    inner, width = b.shape[-2:]
    if last is not None:
        multiply = _repeated_natively(a, b, z, turn_a, turn_b, None)
        return lambda x, y, *bias: last(multiply(x, y, *bias))
    if b.numel() == inner * width and a.numel() and (z is not None or a.is_cuda):
        return _one_native_gemm(inner, width, (*a.shape[:-1], width), z, turn_a, turn_b)
    if z is not None:
        return lambda x, y, bias: product(turn_a(x), turn_b(y), bias)
    multiply = plain_product(a, b) or product
    return lambda x, y, *_: multiply(turn_a(x), turn_b(y))


def _one_native_gemm(
    inner: int, width: int, shape: tuple[int, ...], z: torch.Tensor | None, turn_a: Function, turn_b: Function
) -> Multiply:
    """Multiply rows by one matrix, in few calls: on a GPU a small product costs the time of its call."""

    def with_bias(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        rows, columns = turn_a(x).reshape(-1, inner), turn_b(y).reshape(inner, width)
        return torch.addmm(bias.reshape(width), rows, columns).view(shape)

    if z is not None:
        return with_bias
    if turn_a is _unchanged:  # torch folds the rows itself, in half the time that views of Python take
        return lambda x, y, *_: torch.matmul(x, turn_b(y).reshape(inner, width))
    return lambda x, y, *_: torch.mm(turn_a(x).reshape(-1, inner), turn_b(y).reshape(inner, width)).view(shape)


class MatrixProduct:
    """`into`: what the result will be stored as."""

    def __init__(self, transpose_a: bool, transpose_b: bool, last: Function | None, into: DtypeFacts) -> None:
        self._transpose_a, self._transpose_b, self._last = transpose_a, transpose_b, last
        self._rounds = into.torch is torch.bfloat16
        self._direct: Multiply | None = None

    def __call__(self, x: torch.Tensor, y: torch.Tensor, *bias: torch.Tensor | None) -> torch.Tensor:
        z = bias[0] if bias else None
        turn_a, turn_b = _turned(self._transpose_a), _turned(self._transpose_b)
        a, b = turn_a(x), turn_b(y)
        if multiplies_natively(a, b):
            if a.is_cuda:
                return self._on_gpu(a, b, z, turn_a, turn_b)
            if self._rounds and (z is None or native_bias(z, a, b)):
                return self._on_cpu(a, b, z, turn_a, turn_b)
        return self._in_fp32(x, y, z)

    @property
    def direct(self) -> Callable[..., torch.Tensor]:
        """The same for more operands like the last, none of which asks for a gradient."""
        return self._direct or self

    # -- in bfloat16 -----------------------------------------------------------------------------

    def _on_cpu(
        self, a: torch.Tensor, b: torch.Tensor, z: torch.Tensor | None, turn_a: Function, turn_b: Function
    ) -> torch.Tensor:
        last = self._last
        if last is not None and last not in ONE_KERNEL:
            last = _in_one_rounding(last)
        self._direct = _repeated_natively(a, b, z, turn_a, turn_b, last)
        made = product(a, b, z)
        return made if last is None else last(made)

    def _on_gpu(
        self, a: torch.Tensor, b: torch.Tensor, z: torch.Tensor | None, turn_a: Function, turn_b: Function
    ) -> torch.Tensor:
        """Rounded by the GEMM, where nothing follows that it cannot do; else by what follows."""
        last, rounds = self._last, self._rounds
        kind = None if last is None else ONE_KERNEL.get(last)
        if last is None and rounds and (z is None or native_bias(z, a, b)):
            self._direct = _repeated_natively(a, b, z, turn_a, turn_b, None)
            return product(a, b, z)

        def run(x: torch.Tensor, y: torch.Tensor, *bias: Any) -> torch.Tensor:
            made = product(turn_a(x), turn_b(y), widened=True)
            return bias_and_activation(made, bias[0] if bias else None, last, kind, rounds)

        self._direct = run
        made = product(a, b, widened=True)
        return bias_and_activation(made, z, last, kind, rounds)

    # -- in fp32 ---------------------------------------------------------------------------------

    def _in_fp32(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor:
        first, second = _widened(x, self._transpose_a), _widened(y, self._transpose_b)
        a, b = first(x), second(y)
        self._direct = self._repeated(a, b, z, first, second)
        result = product(a, b, z)
        return result if self._last is None else self._last(result)

    def _repeated(
        self, a: torch.Tensor, b: torch.Tensor, z: torch.Tensor | None, first: Function, second: Function
    ) -> Multiply | None:
        """The same for more operands like these, with what is known of them decided once."""
        multiply, last = plain_product(a, b), self._last
        if multiply is None:
            return None
        if z is None and last is None:
            return lambda x, y, *_: multiply(first(x), second(y))
        has_bias, fits = z is not None, z is None or fits_into(z, a, b)

        def repeated(x: torch.Tensor, y: torch.Tensor, *bias: Any) -> torch.Tensor:
            made = multiply(first(x), second(y))
            if has_bias:
                made = made.add_(bias[0]) if fits else made + bias[0]
            return made if last is None else last(made)

        return repeated
