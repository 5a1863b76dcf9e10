"""Kernels for GPUs in Triton, each one pass over its data, computed in fp32 and rounded once.

Loaded by `gpu_kernels` when large data on a GPU first asks for one; everything else runs on torch's own kernels.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

GELU, SILU, RELU = 1, 2, 3  # what `finish` does behind the bias; 0 is nothing
_BLOCK = 1024


@triton.jit
def _reciprocal(x):
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _gelu(x):
    """max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2, with Numerical Recipes' fit of erfc (1.2e-7 of itself).

    As few instructions as memory has time for: erf of the mathematical library takes half as long again, and 1 + erf(x)
    has lost its bits where x is negative. Exponents are those of 2, and a half is one of them.
    """
    a = tl.minimum(tl.abs(x), 30.0)
    t = _reciprocal(0.35355339059327373 * a + 1.0)
    p = 0.24651731
    p = p * t - 1.18611489
    p = p * t + 2.14747458
    p = p * t - 1.63775320
    p = p * t + 0.40232161
    p = p * t - 0.26875686
    p = p * t + 0.13963005
    p = p * t + 0.53970062
    p = p * t + 1.44272921
    p = p * t - 2.82574828
    tail = t * tl.exp2(p - 0.7213475204444817 * a * a)
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) - a * tail


@triton.jit
def _activated(x, KIND: tl.constexpr):
    if KIND == 1:
        x = _gelu(x)
    elif KIND == 2:
        x = x / (1.0 + tl.exp(-x))
    elif KIND == 3:
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
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


@triton.jit
def _rotate(x, cos, sin, result, d1, d2, x0, x1, x2, c0, c1, c2, s0, s1, s2, WIDTH: tl.constexpr, B: tl.constexpr):
    """A row of x for each program: neighbouring columns (a, b) become (-b, a), times sin; beside x times cos."""
    row = tl.program_id(0).to(tl.int64)
    i, j, k = row // (d1 * d2), row // d2 % d1, row % d2
    at = tl.arange(0, B)
    there = at < WIDTH
    own = x + i * x0 + j * x1 + k * x2
    here = tl.load(own + at, mask=there, other=0.0).to(tl.float32)
    beside = tl.load(own + (at ^ 1), mask=there, other=0.0).to(tl.float32)
    across = tl.where(at % 2 == 0, -beside, beside)
    c = tl.load(cos + i * c0 + j * c1 + k * c2 + at, mask=there, other=0.0).to(tl.float32)
    s = tl.load(sin + i * s0 + j * s1 + k * s2 + at, mask=there, other=0.0).to(tl.float32)
    tl.store(result + row * WIDTH + at, (here * c + across * s).to(result.dtype.element_ty), mask=there)


@triton.jit
def _write_rows(cache, rows, written, values, WIDTH: tl.constexpr, B: tl.constexpr):
    """Each program writes one row, if it is one that is written."""
    number = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, B)
    there = (at < WIDTH) & (tl.load(written + number) != 0)
    row = tl.load(rows + number)
    tl.store(cache + row * WIDTH + at, tl.load(values + number * WIDTH + at, mask=there, other=0.0), mask=there)


@triton.jit
def _rms_norm(x, weight, result, epsilon, WIDTH: tl.constexpr, WEIGHED: tl.constexpr, B: tl.constexpr):
    """A row for each program."""
    row = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, B)
    there = at < WIDTH
    values = tl.load(x + row + at, mask=there, other=0.0).to(tl.float32)
    values = values / tl.sqrt(tl.sum(values * values, 0) / WIDTH + epsilon)
    if WEIGHED:
        values *= tl.load(weight + at, mask=there, other=0.0).to(tl.float32)
    tl.store(result + row + at, values.to(result.dtype.element_ty), mask=there)


@triton.jit
def _gated(gate, values, result, elements, B: tl.constexpr):
    """silu(gate), rounded, times values."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = at < elements
    x = tl.load(gate + at, mask=there, other=0.0).to(tl.float32)
    opened = (x / (1.0 + tl.exp(-x))).to(gate.dtype.element_ty).to(tl.float32)
    y = tl.load(values + at, mask=there, other=0.0).to(tl.float32)
    tl.store(result + at, (opened * y).to(result.dtype.element_ty), mask=there)


_FEW = 32
_KNOWN = {}  # compiled kernels by what they were compiled for: calling one costs less than finding it again


def _launch(kernel, grid, key, arguments, warps):
    """Arguments of one key, a number for a number, are alike to the compiler: pointers are aligned or they are not."""
    key = (kernel, key, *(value.data_ptr() % 16 for value in arguments if hasattr(value, "data_ptr")))
    known = _KNOWN.get(key)
    if known is not None:
        known[(*grid, 1, 1)[:3]](*arguments)
        return
    _KNOWN[key] = kernel[grid](*arguments, num_warps=warps)


def finish(source, bias, result, kind):
    """result = activation(source + bias): `bias` None, or a row for each matrix (matrices, width)."""
    count, width = source.numel(), source.shape[-1]
    of_matrix = count if bias is None else count // (bias.numel() // width)
    numbers = (count, width, of_matrix, bias is not None, kind, _BLOCK)
    key = (*numbers, source.dtype, result.dtype, None if bias is None else bias.dtype)
    _launch(
        _finish, (triton.cdiv(count, _BLOCK),), key, (source, source if bias is None else bias, result, *numbers), 4
    )


def add_up(source, result, groups, pieces, elements):
    """result (groups, elements) = the sums of source (groups, pieces, elements), in the order of the pieces."""
    grid = (triton.cdiv(elements, _BLOCK), groups)
    if pieces <= _FEW:
        _launch(_sum_of_few, grid, (elements, pieces), (source, result, elements, pieces, _BLOCK), 8)
    else:
        _launch(_sum, grid, (elements, pieces), (source, result, pieces, elements, _BLOCK), 8)


def rms_norm(x, weight, result, epsilon):
    """Over the last dim, `weight` None or a row of it."""
    width = x.shape[-1]
    numbers = (epsilon, width, weight is not None, triton.next_power_of_2(width))
    warps = 4 if width <= 2048 else 16
    _launch(_rms_norm, (x.numel() // width,), numbers, (x, x if weight is None else weight, result, *numbers), warps)


def gated(gate, values, result):
    count = gate.numel()
    _launch(_gated, (triton.cdiv(count, _BLOCK),), (count,), (gate, values, result, count, _BLOCK), 4)


def rotate(x, cos, sin, result):
    """x, cos and sin (d0, d1, d2, width) with columns side by side, extents of 1 repeated; result contiguous."""
    width = x.shape[-1]
    steps = [step if n > 1 else 0 for y in (x, cos, sin) for n, step in zip(y.shape[:3], y.stride()[:3], strict=True)]
    numbers = (x.shape[1], x.shape[2], *steps, width, triton.next_power_of_2(width))
    _launch(_rotate, (x.numel() // width,), (*numbers, x.shape[0]), (x, cos, sin, result, *numbers), 1)


def write_rows(cache, rows, written, values):
    """cache[rows] = values (rows, width), where `written` says so."""
    width = cache.shape[-1]
    numbers = (width, triton.next_power_of_2(width))
    _launch(
        _write_rows, (rows.numel(),), (*numbers, cache.dtype, values.dtype), (cache, rows, written, values, *numbers), 1
    )
