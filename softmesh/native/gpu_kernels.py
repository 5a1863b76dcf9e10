"""What a GPU does in one kernel of ours where torch needs several, or is held up: for large data, and by Triton.

Triton comes with torch's builds for CUDA, and wants a C compiler when a kernel first runs. Where one of the two is not
there torch does the work: the values are the same, to the rounding of fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

_LARGE = 4 << 20  # bytes: below, a launch of torch's takes less time than one of Triton's

Function = Callable[[torch.Tensor], torch.Tensor]


@cache
def _kernels() -> Any | None:
    """The module with the kernels, once one of them has run; None where they cannot be had."""
    try:
        from softmesh.native import triton_kernels

        tried = torch.zeros(2, 8, device="cuda", dtype=torch.bfloat16)
        triton_kernels.add_up(tried, torch.empty(8, device="cuda", dtype=torch.bfloat16), 1, 2, 8)
    except Exception:  # of whatever kind: a missing package, compiler, driver
        return None
    return triton_kernels


def _is_large(data: torch.Tensor) -> bool:
    return data.is_cuda and data.nbytes >= _LARGE and not (data.requires_grad and torch.is_grad_enabled())


def gpu_sum(data: torch.Tensor, groups: int, pieces: int, elements: int) -> torch.Tensor | None:
    """(groups, elements) of bfloat16 added up over the pieces, in their order; None where torch's sum is as good."""
    if data.dtype is not torch.bfloat16 or not _is_large(data) or not data.is_contiguous() or groups > 65535:
        return None
    kernels = _kernels()
    if kernels is None:
        return None
    found = data.new_empty(groups, elements)
    with torch.cuda.device(data.device):
        kernels.add_up(data, found, groups, pieces, elements)
    return found


_KINDS = {"gelu": 1, "gelu_tanh": 2, "silu": 3, "relu": 4}


def gpu_activation(kind: str, data: torch.Tensor) -> torch.Tensor | None:
    """Of bfloat16, whose gelu torch computes more slowly than memory delivers it; None where torch's is as good."""
    if data.dtype is not torch.bfloat16 or not _is_large(data) or not data.is_contiguous():
        return None
    kernels = _kernels()
    if kernels is None:
        return None
    found = torch.empty_like(data)
    with torch.cuda.device(data.device):
        kernels.finish(data, None, found, _KINDS[kind])
    return found


def bias_and_activation(
    product: torch.Tensor, bias: torch.Tensor | None, last: Function | None, kind: str | None, rounds: bool
) -> torch.Tensor:
    """What follows a product in fp32, rounded to bfloat16 if it `rounds`. `kind` is what is known of `last`."""
    has_kernel = rounds and (last is None or kind in _KINDS) and _is_large(product) and product.is_contiguous()
    if has_kernel and (bias is None or _is_rows(bias, product)) and (kernels := _kernels()) is not None:
        found = torch.empty_like(product, dtype=torch.bfloat16)
        if bias is not None:
            bias = bias.contiguous()
        with torch.cuda.device(product.device):
            kernels.finish(product, bias, found, 0 if kind is None else _KINDS[kind])
        return found
    made = product if bias is None else product + bias
    made = made if last is None else last(made)
    return made.bfloat16() if rounds else made


def _is_rows(bias: torch.Tensor, product: torch.Tensor) -> bool:
    """Whether it is one row, or one for each matrix of the product."""
    if bias.shape[-2] != 1 or bias.shape[-1] != product.shape[-1]:
        return False
    lead = bias.shape[:-2]
    return lead == product.shape[:-2] or all(n == 1 for n in lead)
