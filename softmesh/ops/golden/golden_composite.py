"""Golden functions of composite ops: addcmul, addmm, outer, prelu, GLU, tril, cumprod, sort, scatter_add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.hardware import BcastOpDim, BcastOpMath, GeluVariant
from softmesh.ops.golden.golden_elementwise import activated, as_tensors, golden_gelu
from softmesh.ops.golden.golden_functions import rounds_once

Tensor = torch.Tensor


@rounds_once
def fill(input_tensor: Tensor, fill_value: float) -> Tensor:
    """Whole numbers wrap, as they do in the tensor's dtype."""
    if input_tensor.is_floating_point():
        return torch.full_like(input_tensor, float(fill_value))
    wide = torch.full(input_tensor.shape, int(fill_value), dtype=torch.int64)
    return wide.to(input_tensor.dtype)


@rounds_once
def bcast(input_a: Tensor, input_b: Tensor, math_op: BcastOpMath, dim: BcastOpDim) -> Tensor:
    if math_op is BcastOpMath.MUL:
        return input_a * input_b
    return input_a + input_b if math_op is BcastOpMath.ADD else input_a - input_b


@rounds_once
def addalpha(input_tensor_a: Tensor, input_tensor_b: Tensor, alpha: float = 1.0) -> Tensor:
    return input_tensor_a + alpha * input_tensor_b


@rounds_once
def subalpha(input_tensor_a: Tensor, input_tensor_b: Tensor, alpha: float = 1.0) -> Tensor:
    return input_tensor_a - alpha * input_tensor_b


@rounds_once
def addcmul(input_a: Tensor, input_b: Tensor, input_c: Tensor, value: float = 1.0) -> Tensor:
    whole = not input_a.is_floating_point()
    return input_a + (int(value) if whole else value) * input_b * input_c


@rounds_once
def addcdiv(input_a: Tensor, input_b: Tensor, input_c: Tensor, value: float = 1.0) -> Tensor:
    return input_a + value * input_b / input_c


@rounds_once
def addmm(
    input_tensor: Tensor,
    mat1_tensor: Tensor,
    mat2_tensor: Tensor,
    alpha: float = 1.0,
    beta: float = 1.0,
    program_config: Any = None,
) -> Tensor:
    fused = getattr(program_config, "fused_activation", None)
    product = mat1_tensor @ mat2_tensor
    return beta * input_tensor + alpha * (product if fused is None else activated(product, fused))


@rounds_once
def div_no_nan(input_tensor_a: Tensor, input_tensor_b: Any) -> Tensor:
    a, b = as_tensors(input_tensor_a, input_tensor_b)
    return torch.where(b == 0, torch.zeros_like(a), a / torch.where(b == 0, torch.ones_like(b), b))


@rounds_once
def bias_gelu(input_tensor_a: Tensor, input_tensor_b: Any) -> Tensor:
    return golden_gelu(input_tensor_a + input_tensor_b)


@rounds_once
def isclose(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    return torch.isclose(input_tensor_a.float(), input_tensor_b.float(), rtol, atol, equal_nan)


@rounds_once
def outer(input_tensor_a: Tensor, input_tensor_b: Tensor) -> Tensor:
    return torch.einsum("...n,...m->...nm", input_tensor_a, input_tensor_b)


@rounds_once
def prelu(input_tensor_a: Tensor, weight: Any) -> Tensor:
    """A weight for each channel stands along dim 1; one number may stand in a list."""
    if isinstance(weight, Sequence):
        (weight,) = weight
    if isinstance(weight, Tensor):
        channels = [1, -1] if weight.numel() > 1 else [1] * min(input_tensor_a.dim(), 2)
        weight = weight.reshape(channels + [1] * (input_tensor_a.dim() - 2))
    return torch.where(input_tensor_a > 0, input_tensor_a, input_tensor_a * weight)


def gated(gate: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    @rounds_once
    def golden(input_tensor: Tensor, dim: int = -1) -> Tensor:
        value, chosen = torch.chunk(input_tensor, 2, dim)
        return value * gate(chosen)

    return golden


@rounds_once
def situ_glu(gate: Tensor, up: Tensor, beta1: float, beta2: float) -> Tensor:
    return beta1 * torch.tanh(gate / beta1) * torch.sigmoid(gate) * beta2 * torch.tanh(up / beta2)


@rounds_once
def geglu(input_tensor: Tensor, dim: int = -1, variant: GeluVariant = GeluVariant.Accurate) -> Tensor:
    value, gate = torch.chunk(input_tensor, 2, dim)
    return value * golden_gelu(gate, variant)


def triangle(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    return rounds_once(lambda input_tensor, diagonal=0: function(input_tensor, diagonal))


@rounds_once
def cumprod(input_tensor: Tensor, dim: int, reverse_order: bool = False) -> Tensor:
    if reverse_order:
        return torch.cumprod(input_tensor.flip(dim), dim).flip(dim)
    return torch.cumprod(input_tensor, dim)


@rounds_once
def moreh_cumsum(input: Tensor, dim: int) -> Tensor:
    return torch.cumsum(input, dim)


@rounds_once
def sort(input_tensor: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sequence[Tensor]:
    return list(torch.sort(input_tensor, dim=dim, descending=descending, stable=True))


@rounds_once
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return torch.scatter_add(input, dim, index.long(), src)


@rounds_once
def broadcast_to(input: Tensor, output_shape: Sequence[int]) -> Tensor:
    return torch.broadcast_to(input, tuple(output_shape))


@rounds_once
def attention_softmax(tensor: Tensor, attention_mask: Tensor | None = None, head_size: int | None = None) -> Tensor:
    scores = tensor if head_size is None else tensor / head_size**0.5
    return torch.softmax(scores if attention_mask is None else scores + attention_mask, -1)


@rounds_once
def concatenate_heads(input_tensor: Tensor) -> Tensor:
    return input_tensor.transpose(1, 2).flatten(-2)
