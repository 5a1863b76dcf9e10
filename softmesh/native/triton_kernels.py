"""Kernels for GPUs in Triton, each one pass over its data, computed in fp32 and rounded once.

Loaded by `gpu_kernels` when large data on a GPU first asks for one; everything else runs on torch's own kernels.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

GELU, GELU_TANH, SILU, RELU = 1, 2, 3, 4  # what `finish` does behind the bias; 0 is nothing
_BLOCK = 1024


@triton.jit
def _phi(x):
    """The normal distribution below x: a half of erfc(-x / sqrt(2)), by Numerical Recipes' fit (1.2e-7 of itself).

    erf of the mathematical library takes half as long again, and 1 + erf(x) has lost its bits where x is negative.
    """
    z = tl.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.5 * z)
    p = 0.17087277
    p = p * t - 0.82215223
    p = p * t + 1.48851587
    p = p * t - 1.13520398
    p = p * t + 0.27886807
    p = p * t - 0.18628806
    p = p * t + 0.09678418
    p = p * t + 0.37409196
    p = p * t + 1.00002368
    p = p * t - 1.26551223
    below = 0.5 * t * tl.exp(p - z * z)
    return tl.where(x < 0, below, 1.0 - below)


@triton.jit
def _activated(x, KIND: tl.constexpr):
    if KIND == 1:
        x = tl.where(x == float("-inf"), 0.0, x * _phi(x))
    elif KIND == 2:
        u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = tl.where(x == float("-inf"), 0.0, x * (1.0 - 1.0 / (1.0 + tl.exp(2.0 * u))))
    elif KIND == 3:
        x = x / (1.0 + tl.exp(-x))
    elif KIND == 4:
        x = tl.where(x != x, x, tl.maximum(x, 0.0))
    return x


@triton.jit
def _finish(
    source, bias, result, elements, width, of_matrix, HAS_BIAS: tl.constexpr, KIND: tl.constexpr, B: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = at < elements
    x = tl.load(source + at, mask=there, other=0.0).to(tl.float32)
    if HAS_BIAS:
        x += tl.load(bias + (at // of_matrix) * width + at % width, mask=there, other=0.0).to(tl.float32)
    tl.store(result + at, _activated(x, KIND).to(result.dtype.element_ty), mask=there)


@triton.jit
def _sum(source, result, pieces, elements, B: tl.constexpr):
    group = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = at < elements
    total = tl.zeros((B,), tl.float32)
    for piece in range(pieces):
        total += tl.load(source + (group * pieces + piece) * elements + at, mask=there, other=0.0).to(tl.float32)
    tl.store(result + group * elements + at, total.to(result.dtype.element_ty), mask=there)


@triton.jit
def _sum_of_few(source, result, elements, PIECES: tl.constexpr, B: tl.constexpr):
    group = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = at < elements
    total = tl.zeros((B,), tl.float32)
    for piece in tl.static_range(PIECES):
        total += tl.load(source + (group * PIECES + piece) * elements + at, mask=there, other=0.0).to(tl.float32)
    tl.store(result + group * elements + at, total.to(result.dtype.element_ty), mask=there)


_FEW = 32


def finish(source, bias, result, kind):
    """result = activation(source + bias): `bias` None, or a row for each matrix (matrices, width)."""
    width = source.shape[-1]
    count = 1 if bias is None else bias.numel() // width
    grid = (triton.cdiv(source.numel(), _BLOCK),)
    of_matrix = source.numel() // count
    given = source if bias is None else bias
    _finish[grid](source, given, result, source.numel(), width, of_matrix, bias is not None, kind, _BLOCK, num_warps=4)


def add_up(source, result, groups, pieces, elements):
    """result (groups, elements) = the sums of source (groups, pieces, elements), in the order of the pieces."""
    grid = (triton.cdiv(elements, _BLOCK), groups)
    if pieces <= _FEW:
        _sum_of_few[grid](source, result, elements, pieces, _BLOCK, num_warps=8)
    else:
        _sum[grid](source, result, pieces, elements, _BLOCK, num_warps=8)
