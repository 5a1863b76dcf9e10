"""References of matrix products and what is made of them."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.ops.golden.element_wise import activated
from softmesh.ops.golden.table import reference

Tensor = torch.Tensor


def _turned(x: Tensor, transpose: bool) -> Tensor:
    return x.transpose(-1, -2) if transpose else x


@reference("matmul")
def _matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: Any = None,
) -> Tensor:
    product = _turned(input_tensor_a, transpose_a) @ _turned(input_tensor_b, transpose_b)
    return product if activation is None else activated(product, activation)


@reference("linear")
def _linear(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    bias: Tensor | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: Any = None,
) -> Tensor:
    product = _matmul(input_tensor_a, input_tensor_b, transpose_a, transpose_b)
    shifted = product if bias is None else product + bias
    return shifted if activation is None else activated(shifted, activation)


@reference("experimental.minimal_matmul")
def _minimal_matmul(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    bias_tensor: Tensor | None = None,
    fused_activation: Any = None,
    fuse_swiglu: bool = False,
) -> Tensor:
    result = _linear(input_tensor, weight_tensor, bias_tensor, activation=fused_activation)
    if not fuse_swiglu:
        return result
    up, gate = result.chunk(2, -1)
    return up * gate * torch.sigmoid(gate)


@reference("moreh_dot")
def _moreh_dot(input_tensor_a: Tensor, input_tensor_b: Tensor) -> Tensor:
    return torch.dot(input_tensor_a.flatten(), input_tensor_b.flatten()).reshape(1, 1, 1, 1)
