"""Golden functions of losses, quantization, fills by index, and gradients of moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.hardware.enums import LossReductionMode
from softmesh.ops.golden.golden_functions import reference

Tensor = torch.Tensor


def _loss(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def golden(
        input_reference: Tensor,
        input_prediction: Tensor,
        reduction: LossReductionMode = LossReductionMode.NONE,
    ) -> Tensor:
        each = function(input_reference - input_prediction)
        if reduction is LossReductionMode.NONE:
            return each
        return torch.mean(each) if reduction is LossReductionMode.MEAN else torch.sum(each)

    return golden


reference("l1_loss")(_loss(torch.abs))
reference("mse_loss")(_loss(torch.square))


def _along(parameter: Any, axis: int | None, rank: int) -> Any:
    """A parameter for each channel, so that it broadcasts."""
    if not isinstance(parameter, Tensor):
        return parameter
    sizes = [1] * rank
    if axis is not None:
        sizes[axis] = -1
    return parameter.reshape(sizes)


@reference("quantize")
def _quantize(input_tensor: Tensor, scale: Any, zero_point: Any, axis: int | None = None) -> Tensor:
    rank = input_tensor.dim()
    steps = torch.round(input_tensor.float() / _along(scale, axis, rank))
    return (steps + _along(zero_point, axis, rank)).to(torch.int32)


@reference("dequantize")
def _dequantize(input_tensor: Tensor, scale: Any, zero_point: Any, axis: int | None = None) -> Tensor:
    rank = input_tensor.dim()
    return (input_tensor - _along(zero_point, axis, rank)).float() * _along(scale, axis, rank)


@reference("requantize")
def _requantize(
    input_tensor: Tensor,
    in_scale: Any,
    in_zero_point: Any,
    out_scale: Any,
    out_zero_point: Any,
    axis: int | None = None,
) -> Tensor:
    real = _dequantize(input_tensor, in_scale, in_zero_point, axis)
    return _quantize(real, out_scale, out_zero_point, axis)


@reference("index_fill", "index_fill_new")
def _index_fill(input: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    return torch.index_fill(input, dim, index.long(), value)


def _gradients(function: Callable[..., Tensor], grad: Tensor, *values: Tensor) -> list[Tensor]:
    leaves = [value.detach().clone().requires_grad_() for value in values]
    made = function(*leaves)
    return list(torch.autograd.grad(made, leaves, grad.reshape(made.shape).to(made.dtype)))


@reference("assign_bw")
def _assign_bw(grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor | None = None) -> list[Tensor]:
    return [grad_tensor] * (1 if input_tensor_b is None else 2)


@reference("fill_bw")
def _fill_bw(grad_tensor: Tensor, input_tensor: Tensor) -> list[Tensor]:
    return [torch.sum(grad_tensor.float()).to(grad_tensor.dtype).expand_as(grad_tensor)]


@reference("fill_zero_bw")
def _fill_zero_bw(grad_tensor: Tensor, input_tensor: Tensor) -> list[Tensor]:
    return [torch.zeros_like(grad_tensor)]


@reference("concat_bw")
def _concat_bw(grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, dim: int = 0) -> list[Tensor]:
    return _gradients(lambda a, b: torch.concat((a, b), dim), grad_tensor, input_tensor_a, input_tensor_b)


@reference("repeat_bw")
def _repeat_bw(grad_tensor: Tensor, input_tensor: Tensor, shape: Sequence[int]) -> list[Tensor]:
    return _gradients(lambda x: x.repeat(*shape), grad_tensor, input_tensor)


@reference("prod_bw")
def _prod_bw(grad_tensor: Tensor, input_tensor: Tensor, dim: int | None = None) -> list[Tensor]:
    return _gradients(lambda x: x.prod() if dim is None else x.prod(dim, keepdim=True), grad_tensor, input_tensor)


def _over_matrices(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda input_tensor: function(input_tensor, (-2, -1), correction=0, keepdim=True)


reference("var_hw")(_over_matrices(torch.var))
reference("std_hw")(_over_matrices(torch.std))


@reference("normalize_hw")
def _normalize_hw(input_tensor: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(input_tensor, (-2, -1), correction=0, keepdim=True)
    return (input_tensor - mean) / deviation


@reference("normalize_global")
def _normalize_global(input_tensor: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(input_tensor, correction=0)
    return (input_tensor - mean) / deviation


# -- complex numbers: torch's own tensors of them ------------------------------------------------------


_COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "angle": lambda input_tensor: torch.angle(input_tensor),
    "conj": lambda input_tensor: torch.conj(input_tensor),
    "imag": lambda input_tensor: torch.imag(input_tensor),
    "is_imag": lambda input_tensor: torch.real(input_tensor) == 0,
    "is_real": lambda input_tensor: torch.isreal(input_tensor),
    "polar": lambda input_tensor: torch.polar(input_tensor.real.contiguous(), input_tensor.imag.contiguous()),
    "real": lambda input_tensor: torch.real(input_tensor),
}


def _gradient(function: Callable[[Tensor], Tensor]) -> Callable[..., list[Tensor]]:
    def golden(grad_tensor: Tensor, input_tensor: Tensor) -> list[Tensor]:
        leaf = input_tensor.detach().clone().requires_grad_()
        made = function(leaf)
        return list(torch.autograd.grad(made, leaf, grad_tensor.to(made.dtype)))

    return golden


for _name, _function in _COMPLEX.items():
    reference(_name)(_function)
for _name in ("angle", "conj", "imag", "polar", "real"):
    reference(f"{_name}_bw")(_gradient(_COMPLEX[_name]))
