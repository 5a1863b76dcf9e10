"""Golden functions of losses, quantization, fills by index, and gradients of moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.hardware.enums import LossReductionMode

Tensor = torch.Tensor


def loss(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
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


def _along(parameter: Any, axis: int | None, rank: int) -> Any:
    """A parameter for each channel, so that it broadcasts."""
    if not isinstance(parameter, Tensor):
        return parameter
    sizes = [1] * rank
    if axis is not None:
        sizes[axis] = -1
    return parameter.reshape(sizes)


def quantize(input_tensor: Tensor, scale: Any, zero_point: Any, axis: int | None = None) -> Tensor:
    rank = input_tensor.dim()
    steps = torch.round(input_tensor.float() / _along(scale, axis, rank))
    return (steps + _along(zero_point, axis, rank)).to(torch.int32)


def dequantize(input_tensor: Tensor, scale: Any, zero_point: Any, axis: int | None = None) -> Tensor:
    rank = input_tensor.dim()
    return (input_tensor - _along(zero_point, axis, rank)).float() * _along(scale, axis, rank)


def requantize(
    input_tensor: Tensor,
    in_scale: Any,
    in_zero_point: Any,
    out_scale: Any,
    out_zero_point: Any,
    axis: int | None = None,
) -> Tensor:
    real = dequantize(input_tensor, in_scale, in_zero_point, axis)
    return quantize(real, out_scale, out_zero_point, axis)


def index_fill(input: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    return torch.index_fill(input, dim, index.long(), value)


def _gradients(function: Callable[..., Tensor], grad: Tensor, *values: Tensor) -> list[Tensor]:
    leaves = [value.detach().clone().requires_grad_() for value in values]
    made = function(*leaves)
    return list(torch.autograd.grad(made, leaves, grad.reshape(made.shape).to(made.dtype)))


def embedding_gradient(input_tensor: Tensor, weight_tensor: Tensor, output_gradient_tensor: Tensor) -> Tensor:
    width = weight_tensor.shape[-1]
    rows = torch.zeros_like(weight_tensor).reshape(-1, width)
    found = rows.index_add(0, input_tensor.flatten().long(), output_gradient_tensor.reshape(-1, width))
    return found.reshape(weight_tensor.shape)


def assign_bw(grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor | None = None) -> list[Tensor]:
    return [grad_tensor] * (1 if input_tensor_b is None else 2)


def fill_bw(grad_tensor: Tensor, input_tensor: Tensor) -> list[Tensor]:
    return [torch.sum(grad_tensor.float()).to(grad_tensor.dtype).expand_as(grad_tensor)]


def fill_zero_bw(grad_tensor: Tensor, input_tensor: Tensor) -> list[Tensor]:
    return [torch.zeros_like(grad_tensor)]


def concat_bw(grad_tensor: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, dim: int = 0) -> list[Tensor]:
    return _gradients(lambda a, b: torch.concat((a, b), dim), grad_tensor, input_tensor_a, input_tensor_b)


def repeat_bw(grad_tensor: Tensor, input_tensor: Tensor, shape: Sequence[int]) -> list[Tensor]:
    return _gradients(lambda x: x.repeat(*shape), grad_tensor, input_tensor)


def prod_bw(grad_tensor: Tensor, input_tensor: Tensor, dim: int | None = None) -> list[Tensor]:
    return _gradients(lambda x: x.prod() if dim is None else x.prod(dim, keepdim=True), grad_tensor, input_tensor)


def over_matrices(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda input_tensor: function(input_tensor, (-2, -1), correction=0, keepdim=True)


def normalize_hw(input_tensor: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(input_tensor, (-2, -1), correction=0, keepdim=True)
    return (input_tensor - mean) / deviation


def normalize_global(input_tensor: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(input_tensor, correction=0)
    return (input_tensor - mean) / deviation


# -- complex numbers: torch's own tensors of them ------------------------------------------------------


def angle(input_tensor: Tensor) -> Tensor:
    return torch.angle(input_tensor)


def conj(input_tensor: Tensor) -> Tensor:
    return torch.conj(input_tensor)


def imag(input_tensor: Tensor) -> Tensor:
    return torch.imag(input_tensor)


def is_imag(input_tensor: Tensor) -> Tensor:
    return torch.real(input_tensor) == 0


def is_real(input_tensor: Tensor) -> Tensor:
    return torch.isreal(input_tensor)


def polar(input_tensor: Tensor) -> Tensor:
    return torch.polar(input_tensor.real.contiguous(), input_tensor.imag.contiguous())


def real(input_tensor: Tensor) -> Tensor:
    return torch.real(input_tensor)


def complex_gradient(function: Callable[[Tensor], Tensor]) -> Callable[..., list[Tensor]]:
    def golden(grad_tensor: Tensor, input_tensor: Tensor) -> list[Tensor]:
        leaf = input_tensor.detach().clone().requires_grad_()
        made = function(leaf)
        return list(torch.autograd.grad(made, leaf, grad_tensor.to(made.dtype)))

    return golden
