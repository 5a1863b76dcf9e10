"""Adding up the pieces of many devices at memory speed: in the order of the devices, in fp32, rounded once.

A kernel of softmesh's own does it wherever it could be compiled; elsewhere the fastest of torch's kernels do, of which
its plain sum, for small pieces of float32, has an order of its own. Sums begin with 0, as torch's do: that of -0 is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from softmesh.collectives.torch_sums import (
    ONE_BY_ONE,
    Add,
    AddPart,
    Stack,
    shape_of_sums,
    torch_kernel,
    torch_part_adder,
)
from softmesh.native.library import is_plain
from softmesh.native.sums import AddInto, native_sum
from softmesh.runtime.reused_results import BIG, empty_result

_sum = torch.sum  # looking it up in torch's large module costs cache lines, where they are cold


def summed_over(data: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """The sum over these axes, kept with extent 1."""
    return adder(data.shape, data.dtype, axes)(data)


def adder(shape: Sequence[int], dtype: torch.dtype, axes: Sequence[int]) -> Add:
    """The fastest way to add up data of this shape over these axes; for other than plain CPU data, torch's own."""
    over = tuple(axes)
    kernel, whole = _kernel(shape, dtype, over), torch.Size(shape)
    if kernel is None and dtype.is_floating_point:
        return lambda data: _sum(data, over, True)

    def add(data: torch.Tensor) -> torch.Tensor:
        if kernel is None or data.shape != whole or data.dtype is not dtype or not is_plain(data):
            return data.sum(over, keepdim=True, dtype=dtype)
        return kernel(data.contiguous())

    return add


def adds_in_order(whole: Sequence[int], dtype: torch.dtype, axes: Sequence[int]) -> bool:
    """Whether `adder` gives what adding one piece after the other to 0 gives, bit for bit."""
    over = tuple(axes)
    if not dtype.is_floating_point:
        return True
    rows = math.prod(whole[axis] for axis in over)
    return dtype is torch.float32 and (rows <= ONE_BY_ONE or _kernel(whole, dtype, over) is not None)


def part_adder(
    whole: Sequence[int], part: Sequence[int], dtype: torch.dtype, axes: Sequence[int]
) -> AddPart | None:
    """Adds up some of the columns with the bits that `adder` gives for all of them; None where it might not."""
    over = tuple(axes)
    if _native(whole, dtype, over) is None:
        return torch_part_adder(whole, part, dtype, over)
    add = _native(part, dtype, over)
    if add is None:
        return None

    def add_into(data: torch.Tensor, out: torch.Tensor) -> None:
        stack = data.contiguous().view(tuple(part))
        if out.is_contiguous():
            add(stack, out)
        else:
            into = torch.empty_like(out, memory_format=torch.contiguous_format)
            add(stack, into)
            out.copy_(into)

    return add_into


def _kernel(shape: Sequence[int], dtype: torch.dtype, axes: tuple[int, ...]) -> Add | None:
    add = _native(shape, dtype, axes)
    if add is None:
        return torch_kernel(shape, dtype, axes)
    result = shape_of_sums(shape, axes)
    is_big = math.prod(result) * dtype.itemsize > BIG

    def sums(data: torch.Tensor) -> torch.Tensor:
        found = empty_result(result, dtype) if is_big else data.new_empty(result)
        add(data, found)
        return found

    return sums


def _native(shape: Sequence[int], dtype: torch.dtype, axes: tuple[int, ...]) -> AddInto | None:
    stack = Stack.of(shape, axes)
    return stack and native_sum(stack.groups, stack.pieces, stack.elements, dtype)
