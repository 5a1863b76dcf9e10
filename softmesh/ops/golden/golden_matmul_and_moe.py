"""Golden functions of matrix products and of mixture-of-experts ops."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.ops.golden.golden_elementwise import activated

Tensor = torch.Tensor


def _turned(x: Tensor, transpose: bool) -> Tensor:
    return x.transpose(-1, -2) if transpose else x


def matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Tensor | None = None,
    activation: Any = None,
    program_config: Any = None,
) -> Tensor:
    product = _turned(input_tensor_a, transpose_a) @ _turned(input_tensor_b, transpose_b)
    shifted = product if bias is None else product + bias
    for one in (getattr(program_config, "fused_activation", None), activation):
        shifted = shifted if one is None else activated(shifted, one)
    return shifted


def minimal_matmul(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    bias_tensor: Tensor | None = None,
    fused_activation: Any = None,
    fuse_swiglu: bool = False,
) -> Tensor:
    result = matmul(input_tensor, weight_tensor, bias=bias_tensor, activation=fused_activation)
    if not fuse_swiglu:
        return result
    gates, values = result.unflatten(-1, (-1, 2, 32)).unbind(-2)
    return (values * gates * torch.sigmoid(gates)).flatten(-2)


def moreh_dot(input_tensor_a: Tensor, input_tensor_b: Tensor) -> Tensor:
    return torch.dot(input_tensor_a.flatten(), input_tensor_b.flatten()).reshape(1, 1, 1, 1)


def moe(input_tensor: Tensor, expert_mask_tensor: Tensor, topk_mask_tensor: Tensor, k: int = 32) -> Tensor:
    values, numbers = torch.topk(input_tensor + expert_mask_tensor, k, dim=-1)
    shares = torch.softmax(values + topk_mask_tensor, dim=-1)
    return torch.where(numbers == 0, shares, 0.0).sum(-1, keepdim=True)


def grouped_gate(
    scores: Tensor,
    bias: Tensor,
    n_groups: int = 8,
    summed_experts_per_group: int = 2,
    topk_groups: int = 4,
    n_activated_experts: int = 8,
    route_scale: float = 1.0,
    epsilon: float = 1e-20,
) -> list[Tensor]:
    plain = torch.sigmoid(scores)
    biased = plain + bias
    groups = biased.reshape(*biased.shape[:-1], n_groups, -1)
    strength = torch.topk(groups, summed_experts_per_group, dim=-1).values.sum(-1)
    weakest = torch.topk(strength, topk_groups, dim=-1).values[..., -1:]
    allowed = groups.masked_fill((strength < weakest).unsqueeze(-1), float("-inf")).reshape(biased.shape)
    chosen = torch.topk(allowed, n_activated_experts, dim=-1).indices
    weights = plain.expand(biased.shape).gather(-1, chosen)
    return [weights / (weights.sum(-1, keepdim=True) + epsilon) * route_scale, chosen]


def fast_reduce(input_tensor: Tensor, dim: int, split_size: int) -> list[Tensor]:
    total = input_tensor.sum(dim, keepdim=True)
    return [total[..., start : start + split_size] for start in range(0, total.shape[-1], split_size)]


def post_combine_tilize(input_tensor: Tensor) -> Tensor:
    return input_tensor


def minimal_matmul_split(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    bias_tensor: Tensor | None = None,
    chunks: int = 3,
    fused_activation: Any = None,
    fuse_swiglu: bool = False,
) -> list[Tensor]:
    whole = minimal_matmul(input_tensor, weight_tensor, bias_tensor, fused_activation, fuse_swiglu)
    return list(whole.chunk(chunks, -1))
