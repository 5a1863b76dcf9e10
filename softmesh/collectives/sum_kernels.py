"""Sum kernels: the pieces of many devices added up at memory speed, in the order of the devices, in fp32, rounded once.

A kernel of softmesh's own does it wherever it could be compiled; elsewhere the fastest of torch's kernels do, of which
its plain sum, for small pieces of float32, has an order of its own. Sums begin with 0, as torch's do: that of -0 is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from softmesh.native.c_kernels import AddInto, is_plain, native_sum
from softmesh.native.gpu_kernels import gpu_adder
from softmesh.runtime.cpu_block_cache import BIG, empty_result

# Where there is no native kernel, torch's kernels add up. torch's own sum over a leading dim of bfloat16 runs at a
# third of the speed of a copy on a CPU, and at about that for hundreds of rows of any dtype. Others are faster:
#
# - float32: an embedding bag, whose bags are the rows that belong together; in the order of the devices. Of few and
#   small pieces torch's own sum is the quickest;
# - bfloat16: average pooling over a window as tall as the group (divided by one; in the order of the devices,
#   in fp32, rounded once). A bag would be twice as fast, and rounds ties away from zero;
# - bfloat16 of tall stacks: a product with a row of ones, some columns at a time, on CPUs that multiply bfloat16;
#   on others such a product takes thirty times as long as pooling.


_MULTIPLIES_BFLOAT16 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
_TALL = 32  # rows of bfloat16 from which on the product is the fastest, and otherwise wide pooled rows
_TALL_FROM = 1 << 19  # bytes of a piece, if the stack is not much taller
_COLUMNS_AT_ONCE = 1 << 20  # of a product: it falls back where more are far apart in memory
_FEWEST_BYTES = 1 << 14  # of a piece: below, the plain sum costs least
_SMALL, _FEW = 1 << 19, 64  # bytes of a piece of float32, and rows: below, the plain sum costs least too
# Of the pooled rows. Short ones of a few stacked pieces are in the caches together; of more pieces they are not, as
# pieces lie powers of two apart and share the same few lines, so that long reads one after the other are faster.
_POOL_WIDTHS = (512, 256, 128, 32)
_TALL_POOL_WIDTHS = (16384, 8192, 4096, 2048, 1024, *_POOL_WIDTHS)
_WIDE_UP_TO = 1 << 21  # bytes of a piece
_BAG_WIDTHS = (256, 128, 64, 32)
ONE_BY_ONE = 4  # rows that torch's own sum adds in their order
_VECTORS = 256  # elements: torch's own sum takes the last few columns in another order than the others

Add = Callable[[torch.Tensor], torch.Tensor]
AddPart = Callable[[torch.Tensor, torch.Tensor], object]


class Stack(NamedTuple):
    """Data that is added up over neighbouring axes; one of extent 1 between them is as good as none."""

    groups: int  # that are added up apart
    pieces: int
    elements: int  # of a piece

    @classmethod
    def of(cls, shape: Sequence[int], axes: tuple[int, ...]) -> Stack | None:
        first, last = min(axes), max(axes)
        if any(n > 1 for axis, n in enumerate(shape[first:last], first) if axis not in axes):
            return None
        return cls(math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :]))


def torch_kernel(shape: Sequence[int], dtype: torch.dtype, axes: tuple[int, ...]) -> Add | None:
    """None where torch's own sum is the quickest."""
    stack = Stack.of(shape, axes)
    kind = stack and _kind(stack, dtype)
    return stack and kind and kind(stack, shape_of_sums(shape, axes))


def torch_part_adder(
    whole: Sequence[int], part: Sequence[int], dtype: torch.dtype, axes: tuple[int, ...]
) -> AddPart | None:
    """Adds up some of the columns with the bits that torch gives for all of them; None where it might not."""
    of_whole, of_part = Stack.of(whole, axes), Stack.of(part, axes)
    kind = of_whole and _kind(of_whole, dtype)
    if kind is _product:  # who knows how a product goes about it
        return None
    is_plain = torch_kernel(whole, dtype, axes) is None
    if is_plain and any(math.prod(shape[max(axes) + 1 :]) % _VECTORS for shape in (whole, part)):
        return None
    if of_part is None or is_plain or (kind is _bagging and of_part.pieces <= ONE_BY_ONE):
        return lambda data, out: torch.sum(data, axes, keepdim=True, dtype=dtype, out=out)
    kernel = kind and kind(of_part, shape_of_sums(part, axes))
    return kernel and (lambda data, out: out.copy_(kernel(data)))


def shape_of_sums(shape: Sequence[int], axes: tuple[int, ...]) -> list[int]:
    return [1 if axis in axes else n for axis, n in enumerate(shape)]


def _kind(stack: Stack, dtype: torch.dtype) -> Callable[[Stack, list[int]], Add | None] | None:
    of_piece = stack.elements * dtype.itemsize
    if of_piece < _FEWEST_BYTES:
        return None
    if dtype is torch.float32:
        return None if of_piece < _SMALL and stack.pieces <= _FEW else _bagging
    if dtype is not torch.bfloat16:
        return None
    return _product if _MULTIPLIES_BFLOAT16 and _is_tall(stack.pieces, of_piece) else _pooling


def _is_tall(rows: int, of_piece: int) -> bool:
    return rows > _FEW or (rows >= _TALL and of_piece >= _TALL_FROM)


def _product(stack: Stack, result: list[int]) -> Add:
    groups, devices, elements = stack
    ones = torch.ones(1, devices, dtype=torch.bfloat16)
    if elements <= 2 * _COLUMNS_AT_ONCE:
        return lambda data: torch.matmul(ones, data.view(stack)).view(result)
    cuts = [slice(at, at + _COLUMNS_AT_ONCE) for at in range(0, elements, _COLUMNS_AT_ONCE)]

    def in_cuts(data: torch.Tensor) -> torch.Tensor:
        found = data.new_empty(groups, 1, elements)
        for pieces, total in zip(data.view(stack), found, strict=True):
            for cut in cuts:
                torch.mm(ones, pieces[:, cut], out=total[:, cut])
        return found.view(result)

    return in_cuts


def _bagging(stack: Stack, result: list[int]) -> Add | None:
    groups, devices, elements = stack
    width = next((width for width in _BAG_WIDTHS if elements % width == 0), None)
    rows = groups * devices * elements // width if width else 0
    if not 0 < rows < 1 << 31:
        return None
    numbers = torch.arange(rows, dtype=torch.int32).view(groups, devices, -1)
    members = numbers.transpose(1, 2).reshape(-1)  # of each bag, one after the other
    starts = torch.arange(0, rows, devices, dtype=torch.int32)
    table = (rows, width or 1)
    return lambda data: torch.embedding_bag(data.view(table), members, starts, False, 0)[0].view(result)


def _pooling(stack: Stack, result: list[int]) -> Add | None:
    groups, devices, elements = stack
    width = next((width for width in _pool_widths(stack) if elements % width == 0), None)
    if width is None:
        return None
    rows = (groups, devices, elements // width, width)

    def pool(data: torch.Tensor) -> torch.Tensor:
        channels_last = data.view(rows).permute(0, 3, 1, 2)  # (group, width, device, row)
        pooled = torch.nn.functional.avg_pool2d(channels_last, (devices, 1), divisor_override=1)
        return pooled.permute(0, 2, 3, 1).reshape(result)

    return pool


def _pool_widths(stack: Stack) -> Sequence[int]:
    groups, devices, elements = stack
    of_piece = elements * torch.bfloat16.itemsize
    if not _is_tall(devices, of_piece):
        return _POOL_WIDTHS if of_piece <= _WIDE_UP_TO else _POOL_WIDTHS[1:]
    threads = torch.get_num_threads()  # each is to get a row
    return [width for width in _TALL_POOL_WIDTHS if groups * elements // width >= threads]


_sum = torch.sum  # looking it up in torch's large module costs cache lines, where they are cold


def summed_over(data: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """The sum over these axes, kept with extent 1."""
    return adder(data.shape, data.dtype, axes)(data)


def adder(shape: Sequence[int], dtype: torch.dtype, axes: Sequence[int]) -> Add:
    """The fastest way to add up data of this shape over these axes; for other than plain CPU data, torch's own."""
    over = tuple(axes)
    kernel, whole = _kernel(shape, dtype, over), torch.Size(shape)
    stack = Stack.of(shape, over) if dtype is torch.bfloat16 else None
    on_gpu = stack and gpu_adder(*stack, shape_of_sums(shape, over))
    if kernel is None and dtype.is_floating_point and on_gpu is None:
        return lambda data: _sum(data, over, True)

    def add(data: torch.Tensor) -> torch.Tensor:
        if on_gpu is not None and data.is_cuda and data.shape == whole and data.dtype is dtype:
            return on_gpu(data)
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


def part_adder(whole: Sequence[int], part: Sequence[int], dtype: torch.dtype, axes: Sequence[int]) -> AddPart | None:
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
