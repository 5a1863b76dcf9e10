"""Fused GPU kernels in Triton for large data, where torch takes several launches or is slower than memory.

Triton comes with torch's builds for CUDA, and wants a C compiler when a kernel first runs. Where one of the two is not
there torch does the work: the values are the same, to the rounding of fp32. Small data is left to torch, whose launches
are the quicker ones, but in a graph, where launches cost nothing (`small_too`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


class _Thread(threading.local):
    small_too = False


_THREAD = _Thread()


@contextmanager
def small_too() -> Iterator[None]:
    """For what is recorded as a graph, and for the run before it, which compiles."""
    before, _THREAD.small_too = _THREAD.small_too, True
    try:
        yield
    finally:
        _THREAD.small_too = before


def _found_for(data: torch.Tensor) -> Any | None:
    """The kernels, for data that is worth one of them."""
    if not data.is_cuda or not data.is_contiguous() or (data.requires_grad and torch.is_grad_enabled()):
        return None
    return _kernels() if data.nbytes >= _LARGE or (_THREAD.small_too and data.numel()) else None


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current GPU."""
    return nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device)


def gpu_adder(groups: int, pieces: int, elements: int, shape: Sequence[int]) -> Function:
    """Adds up bfloat16 over the pieces, in their order, where torch's sum is slower than memory: `shape` is a sum's."""
    is_large = 2 * groups * pieces * elements >= _LARGE
    axes = tuple(shape)

    def add(data: torch.Tensor) -> torch.Tensor:
        kernels = _found_for(data) if (is_large or _THREAD.small_too) and groups <= _MOST_GROUPS else None
        if kernels is None:
            return data.reshape(groups, pieces, elements).sum(1).view(axes)
        found = data.new_empty(axes)
        with _on(data.device):
            kernels.add_up(data, found, groups, pieces, elements)
        return found

    return add


_MOST_GROUPS = 65535  # of a grid


_KINDS = {"gelu": 1, "silu": 2, "relu": 3}


def gpu_gelu(data: torch.Tensor) -> torch.Tensor | None:
    """Of bfloat16, which torch computes more slowly than memory delivers it; None where torch's is as good."""
    kernels = _found_for(data) if data.dtype is torch.bfloat16 and data.nbytes >= _LARGE else None
    if kernels is None:
        return None
    found = torch.empty_like(data)
    with _on(data.device):
        kernels.finish(data, None, found, _KINDS["gelu"])
    return found


def bias_and_activation(
    product: torch.Tensor, bias: torch.Tensor | None, last: Function | None, kind: str | None, rounds: bool
) -> torch.Tensor:
    """What follows a product in fp32, rounded to bfloat16 if it `rounds`. `kind` is what is known of `last`."""
    has_kernel = rounds and (last is None or kind in _KINDS) and (bias is None or _is_rows(bias, product))
    kernels = _found_for(product) if has_kernel else None
    if kernels is not None:
        found = torch.empty_like(product, dtype=torch.bfloat16)
        with _on(product.device):
            kernels.finish(product, None if bias is None else bias.contiguous(), found, _KINDS.get(kind or "", 0))
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


_LONGEST_ROW = 16384


def gpu_rms_norm(x: torch.Tensor, weight: torch.Tensor | None, epsilon: float) -> torch.Tensor | None:
    """Of bfloat16 rows in a graph; torch's kernel takes its time for a few of them."""
    if not _THREAD.small_too or x.dtype is not torch.bfloat16 or x.shape[-1] > _LONGEST_ROW:
        return None
    kernels = _found_for(x)
    if kernels is None:
        return None
    found = torch.empty_like(x)
    with _on(x.device):
        kernels.rms_norm(x, weight, found, epsilon)
    return found


def gpu_gated(gate: torch.Tensor, values: torch.Tensor) -> torch.Tensor | None:
    """silu(gate), rounded, times values, of bfloat16 and one shape."""
    are_alike = gate.shape == values.shape and gate.dtype is values.dtype is torch.bfloat16 and values.is_contiguous()
    kernels = _found_for(gate) if are_alike and not values.requires_grad else None
    if kernels is None:
        return None
    found = torch.empty_like(gate)
    with _on(gate.device):
        kernels.gated(gate, values, found)
    return found


def gpu_rotation(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor | None:
    """x * cos + (neighbouring columns (a, b) as (-b, a)) * sin of bfloat16, all of one rank; None where it is not."""
    if not x.is_cuda or not (_THREAD.small_too or x.nbytes >= _LARGE):
        return None
    dims = [i for i, n in enumerate(x.shape[:-1]) if n > 1]
    if len(dims) > 3 or not x.numel() or not _has_plain_rows(x):
        return None
    if not _is_factor(cos, x) or not _is_factor(sin, x):
        return None
    kernels = _kernels()
    if kernels is None:
        return None
    found = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    with _on(x.device):
        kernels.rotate(*(_in_three_dims(y, dims) for y in (x, cos, sin)), found)
    return found


def _has_plain_rows(y: torch.Tensor) -> bool:
    return y.dtype is torch.bfloat16 and y.stride(-1) == 1 and not y.requires_grad


def _is_factor(y: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether it has a row for each of x's, or one for several along some dims."""
    if y.dim() != x.dim() or y.shape[-1] != x.shape[-1] or not _has_plain_rows(y):
        return False
    return all(n in (1, m) for m, n in zip(x.shape, y.shape, strict=True))


def _in_three_dims(y: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """A view (d0, d1, d2, width), of dims that have several."""
    missing = 3 - len(dims)
    shape = (*(1,) * missing, *(y.shape[i] for i in dims), y.shape[-1])
    steps = (*(0,) * missing, *(y.stride(i) for i in dims), 1)
    return y.as_strided(shape, steps)


def gpu_write_rows(cache: torch.Tensor, rows: torch.Tensor, written: torch.Tensor, values: torch.Tensor) -> bool:
    """cache[rows] = values where `written`, for contiguous matrices of one type; False where that was not done."""
    if not _THREAD.small_too or cache.dtype is not values.dtype or not (cache.is_contiguous() and cache.is_cuda):
        return False
    kernels = _kernels()
    if kernels is None:
        return False
    with _on(cache.device):
        kernels.write_rows(cache, rows.contiguous(), written.contiguous(), values.contiguous())
    return True
