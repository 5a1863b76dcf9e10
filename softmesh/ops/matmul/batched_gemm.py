"""Batched matrix products over all devices of a mesh as few GEMMs, with their gradients. Defines no op.

A replicated operand is never expanded into copies: the mesh dims that only the other operand has are folded
into its rows, so that a data-parallel product is one GEMM. In the backward pass each operand asks for a
gradient on every device; what all devices hold still takes part as one matrix.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from softmesh.autograd.gradient_wrapper import plain
from softmesh.runtime.cpu_block_cache import BIG, empty_result
from softmesh.runtime.float32_products import multiplies_by_onednn, onednn_product
from softmesh.tensor.broadcasting import broadcast_shapes

Multiply = Callable[..., torch.Tensor]

_MANY_COPIES = 4 << 20  # bytes: as much may be copied for the sake of a single call
_MANY_ROWS = 16 << 20  # bytes of such copies, of bfloat16
_NARROW = 128  # columns: below, one wide product is faster than several of them


def product(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, *, widened: bool = False
) -> torch.Tensor:
    """a (..., M, K) @ b (..., K, N) + bias, all of one rank, leading dims broadcast without copies.

    Of bfloat16 it is computed in fp32 and rounded once; `widened`, on a GPU, not at all. Such a bias is added before
    the rounding, and must be one that `native_bias` takes.
    """
    given = (a, b) if bias is None else (a, b, bias)
    if torch.is_grad_enabled() and any(value.requires_grad for value in given):
        return Product.apply(a, b, bias, widened)
    return _product_and_bias(a, b, bias, widened)


def _product_and_bias(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, widened: bool) -> torch.Tensor:
    if widened or (a.dtype is torch.bfloat16 and (bias is not None or _copies_many_rows(a, b))):
        return native_product(a, b, bias, widened)
    made = _product(a, b)
    return made if bias is None else _with_bias(made, bias)


def _with_bias(product: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Added in place where that may be: the product is new, and a second one of its size costs as much to get."""
    return product.add_(bias) if _has_room(product.shape, bias) else product + bias


def fits_into(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the sum of it and the product has the product's shape."""
    return _has_room(_shape_of_product(a, b), bias)


def _shape_of_product(a: torch.Tensor, b: torch.Tensor) -> tuple[int, ...]:
    return (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def _has_room(shape: Sequence[int], bias: torch.Tensor) -> bool:
    return all(n in (1, m) for m, n in zip(shape, bias.shape, strict=True))


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _choose_gemm(a, b)(a, b)


def _choose_gemm(a: torch.Tensor, b: torch.Tensor) -> Multiply:
    """How operands of these shapes and strides are multiplied."""
    height, width = b.shape[-2], b.shape[-1]
    if not (a.numel() and b.numel()):
        return torch.matmul
    if b.numel() == height * width:
        return _one_gemm
    if _may_share_rows(a, b) and b.mT.is_contiguous():
        return _fold_columns
    return _choose_gemm_for_any_strides(a, b)


def _choose_gemm_for_any_strides(a: torch.Tensor, b: torch.Tensor) -> Multiply:
    """However they lie in memory."""
    if any(m > 1 and n == 1 for m, n in zip(a.shape[:-2], b.shape[:-2], strict=True)):
        return _fold_rows
    if _is_for_onednn(a, b):
        return _multiplied
    return _by_groups if _would_copy(a, b) else _multiplied


def _would_copy(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether torch would write many copies of a's matrices, which several of b multiply; and need not.

    Of no more than two dims: of one, each of a's matrices has its own in b, along the other they share it.
    """
    if b.numel() * a.shape[-2] * a.itemsize < _MANY_COPIES * b.shape[-1]:
        return False
    own = [m for m in a.shape[:-2] if m > 1]
    lead = [n for n in b.shape[:-2] if n > 1]
    return len(own) < len(lead) <= 2


def plain_product(a: torch.Tensor, b: torch.Tensor) -> Multiply | None:
    """Choose how operands of these shapes are multiplied; None if the result is big, or oneDNN's."""
    if _is_big(a.shape, b.shape, a.itemsize) or (a.dtype is torch.bfloat16 and _copies_many_rows(a, b)):
        return None
    if _is_for_onednn(a, b):
        return None
    way = _choose_gemm(a, b)
    if way in (torch.matmul, _one_gemm) or not _may_share_rows(a, b):
        return _plain(way)
    other = _plain(_choose_gemm_for_any_strides(a, b))
    return lambda a, b: _fold_columns(a, b) if b.mT.is_contiguous() else other(a, b)


def _plain(way: Multiply) -> Multiply:
    """Where nothing is big."""
    return _PLAIN.get(way, way)


def _is_big(shape_a: torch.Size, shape_b: torch.Size, itemsize: int) -> bool:
    """Whether the result may have more bytes than a block that the C library keeps by itself."""
    lead_a, lead_b = shape_a[:-2], shape_b[:-2]
    lead = math.prod(lead_a) if lead_a == lead_b else math.prod(lead_a) * math.prod(lead_b)
    return lead * shape_a[-2] * shape_b[-1] * itemsize > BIG


def _one_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """All rows of a by the one matrix of b."""
    return _multiplied(a, b.reshape(b.shape[-2:]))


def _one_plain_gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _matmul(a, b.flatten(0, -2))


def _multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """torch.matmul or oneDNN; a big result of the former goes into memory that is there already."""
    if _is_for_onednn(a, b):
        return _by_onednn(a, b)
    if not a.is_cpu or not _is_big(a.shape, b.shape, a.itemsize):
        return torch.matmul(a, b)
    shape = _shape_of_product(a, b)
    if math.prod(shape) * a.itemsize <= BIG:
        return torch.matmul(a, b)
    return torch.matmul(a, b, out=empty_result(shape, a.dtype))


def _is_for_onednn(a: torch.Tensor, b: torch.Tensor) -> bool:
    is_one = b.numel() == b.shape[-2] * b.shape[-1]
    rows = a.numel() // a.shape[-1] if is_one and a.shape[-1] else a.shape[-2]
    return multiplies_by_onednn(a, rows, b)


def _by_onednn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One call for each matrix of b: oneDNN has no batches of float32, and each is worth a call by itself."""
    if b.numel() == b.shape[-2] * b.shape[-1]:
        return onednn_product(a, b.reshape(b.shape[-2:]))
    shape = _shape_of_product(a, b)
    made = empty_result(shape, a.dtype) if math.prod(shape) * a.itemsize > BIG else a.new_empty(shape)
    rows, columns = (value.expand(*shape[:-2], *value.shape[-2:]) for value in (a, b))
    for at in itertools.product(*map(range, shape[:-2])):
        made[at] = onednn_product(rows[at], columns[at])
    return made


_matmul = torch.matmul
_PLAIN: dict[Multiply, Multiply] = {_multiplied: _matmul, _one_gemm: _one_plain_gemm}


def native_bias(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether it is a row for each matrix of b, which a product of bfloat16 adds before it rounds.

    A GPU has no such product of several matrices: its sum is rounded twice.
    """
    if bias.dtype is not torch.bfloat16 or bias.shape[-2] != 1 or bias.shape[-1] != b.shape[-1]:
        return False
    if a.is_cuda and math.prod(b.shape[:-2]) > 1:
        return False
    return all(n in (1, m) for m, n in zip(b.shape[:-2], bias.shape[:-2], strict=True))


def _copies_many_rows(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether oneDNN would copy large rows, which all matrices of b multiply, for each of these.

    What is done instead copies the matrices, and deals out the columns of the result.
    """
    count = math.prod(b.shape[:-2])
    is_shared = count > 1 and all(m == 1 or n == 1 for m, n in zip(a.shape[:-2], b.shape[:-2], strict=True))
    return a.is_cpu and is_shared and count * a.nbytes > max(_MANY_ROWS, b.nbytes)


def native_product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, widened: bool) -> torch.Tensor:
    """Of bfloat16, with a bias that is added in fp32 (`native_bias`), or with a result in fp32 (on a GPU)."""
    if not (a.numel() and b.numel()):
        made = torch.matmul(a.float(), b.float())
        made = made if bias is None else made + bias
        return made if widened else made.bfloat16()
    folding = _folding(a.shape, b.shape)
    folded = (a.permute(folding.order) if folding.turns else a).reshape(folding.rows)
    inner, width = b.shape[-2:]
    count = b.numel() // (inner * width)
    if count == 1:
        rows, columns = folded.reshape(-1, inner), b.reshape(inner, width)
        if widened:
            made = _widened_gemm(torch.mm, rows, columns)
        else:
            made = torch.addmm(bias.reshape(width), rows, columns)  # type: ignore[union-attr]
    else:
        columns = b.reshape(count, inner, width)
        if _copies_many_rows(a, b):
            wide = columns.movedim(0, 1).reshape(inner, -1)  # all of them as one, whose columns are dealt out again
            each = folded.reshape(-1, inner)
            row = None if bias is None else bias.expand(*b.shape[:-2], 1, width).reshape(-1)
            made = torch.mm(each, wide) if row is None else torch.addmm(row, each, wide)
            made = made.view(-1, count, width).movedim(1, 0).reshape(folding.spread)
            return made.permute(folding.back)
        rows = folded.expand(*folding.columns[:-2], *folded.shape[-2:]).reshape(count, -1, inner)
        if widened:
            made = _widened_gemm(torch.bmm, rows, columns)
        else:
            row = bias.expand(*b.shape[:-2], 1, width).reshape(count, 1, width)  # type: ignore[union-attr]
            made = torch.baddbmm(row, rows, columns)
    return made.view(folding.spread).permute(folding.back)


def _widened_gemm(gemm: Multiply, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    return gemm(rows, columns, out_dtype=torch.float32) if _WIDENS else gemm(rows.float(), columns.float())


_WIDENS = "dtype" in torch.ops.aten.mm.overloads()  # of torch 2.8 and later


def _fold_rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Dims that only `a` has become rows of its matrices; the result is brought back to their place."""
    folding = _folding(a.shape, b.shape)
    folded = (a.permute(folding.order) if folding.turns else a).reshape(folding.rows)
    columns = b.reshape(folding.columns)
    if folding.copies and not _is_big(a.shape, b.shape, a.itemsize):
        made = torch.bmm(folded.expand(folding.copies, -1, -1), columns)
    else:
        made = _multiplied(folded, columns)
    return made.view(folding.spread).permute(folding.back)


def _by_groups(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One call for each matrix of a, with all those of b that it multiplies: a batch of torch has but one stride."""
    rows, inner, columns = *a.shape[-2:], b.shape[-1]
    shape = [*(n if m == 1 else m for m, n in zip(a.shape[:-2], b.shape[:-2], strict=True)), rows, columns]
    is_big = math.prod(shape) * a.itemsize > BIG and a.is_cpu
    made = empty_result(shape, a.dtype) if is_big else a.new_empty(shape)
    own = next((i for i, m in enumerate(a.shape[:-2]) if m > 1), None)
    parts = [(a, b, made)] if own is None else zip(a.unbind(own), b.unbind(own), made.unbind(own), strict=True)
    for one, many, place in parts:
        count = many.numel() // (inner * columns)
        torch.bmm(
            one.reshape(1, rows, inner).expand(count, -1, -1),
            many.reshape(count, inner, columns),
            out=place.view(count, rows, columns),
        )
    return made


class Folding(NamedTuple):
    order: list[int]  # of the dims of a
    turns: bool  # whether that moves any of several elements
    rows: list[int]
    columns: list[int]
    copies: int  # of the one matrix that a is then; 0 if it is several
    spread: list[int]
    back: list[int]


@lru_cache(maxsize=1024)
def _folding(shape_a: torch.Size, shape_b: torch.Size) -> Folding:
    lead = len(shape_a) - 2
    only_a = [i for i in range(lead) if shape_b[i] == 1 and shape_a[i] > 1]
    others = [i for i in range(lead) if i not in only_a]
    own = [shape_a[i] for i in only_a]
    is_one = all(shape_a[i] == 1 for i in others)
    kept = [
        [math.prod(shape[i] for i in others)] if is_one else [shape[i] for i in others] for shape in (shape_a, shape_b)
    ]
    order = [*others, *only_a]
    real = [i for i in order if shape_a[i] > 1]
    return Folding(
        [*order, lead, lead + 1],
        real != sorted(real),
        [*kept[0], math.prod(own) * shape_a[-2], shape_a[-1]],
        [*kept[1], *shape_b[-2:]],
        kept[1][0] if is_one else 0,
        [*(shape_b[i] if shape_a[i] == 1 else shape_a[i] for i in others), *own, shape_a[-2], shape_b[-1]],
        [*sorted(range(lead), key=order.__getitem__), lead, lead + 1],
    )


def _may_share_rows(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether all matrices of b multiply the same rows, and are narrow; they need to lie as the columns of one."""
    return b.shape[-1] <= _NARROW and all(m == 1 or n == 1 for m, n in zip(a.shape[:-2], b.shape[:-2], strict=True))


def _fold_columns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Narrow matrices that multiply the same rows, as one wide one; the result is a view of its columns."""
    lead = a.dim() - 2
    dims = [i for i in range(lead) if b.shape[i] > 1]
    others = [i for i in range(lead) if i not in dims]
    wide = _multiplied(a.reshape(-1, a.shape[-1]), b.mT.reshape(-1, b.shape[-2]).mT)
    spread = wide.view(*(a.shape[i] for i in others), a.shape[-2], *(b.shape[i] for i in dims), b.shape[-1])
    places = [len(others) + 1 + dims.index(i) if i in dims else others.index(i) for i in range(lead)]
    return spread.permute(*places, len(others), spread.dim() - 1)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, widened: bool) -> torch.Tensor:
        once_a, once_b = _held_once(a), _held_once(b)
        ctx.save_for_backward(once_a, once_b)
        ctx.leads = a.shape[:-2], b.shape[:-2]
        leads = [*ctx.leads]
        if bias is not None:
            ctx.bias_shape, ctx.bias_dtype = bias.shape, bias.dtype
            leads.append(bias.shape[:-2])
        made = _product_and_bias(once_a, once_b, None if bias is None else _held_once(bias), widened)
        return made.expand(*map(max, *leads), *made.shape[-2:])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        a, b = ctx.saved_tensors
        whole = plain(gradient)
        gradient = whole.to(a.dtype)  # of a widened product it is fp32
        lead_a, lead_b = ctx.leads
        to_a = to_b = to_bias = None
        if ctx.needs_input_grad[0]:
            to_a = _summed_to(_product(_held_once(gradient, lead_a), b.mT), lead_a)
        if ctx.needs_input_grad[1]:
            to_b = _contracted(a, _held_once(gradient, lead_b), lead_b, b.stride(-1) > b.stride(-2))
        if ctx.needs_input_grad[2]:
            to_bias = whole.sum_to_size(ctx.bias_shape).to(ctx.bias_dtype)
        return to_a, to_b, to_bias, None


def _held_once(data: torch.Tensor, lead: torch.Size | None = None) -> torch.Tensor:
    """Without the copies that an expanded dim stands for; with those that will be added up (`lead` has extent 1)."""
    for dim, (n, stride) in enumerate(zip(data.shape[:-2], data.stride()[:-2], strict=True)):
        if n > 1 and stride == 0 and (lead is None or lead[dim] > 1):
            data = data.narrow(dim, 0, 1)
    return data


def _contracted(a: torch.Tensor, gradient: torch.Tensor, lead: torch.Size, is_turned: bool) -> torch.Tensor:
    """a^T @ gradient, summed over the dims where `lead` has extent 1: these are more rows of the product."""
    summed = [i for i, n in enumerate(lead) if n == 1 and (a.shape[i] > 1 or gradient.shape[i] > 1)]
    if any(a.shape[i] != gradient.shape[i] for i in summed):  # held once by one of them
        extents = [max(m, n) for m, n in zip(a.shape[:-2], gradient.shape[:-2], strict=True)]
        a = a.expand(*(extents[i] if i in summed else n for i, n in enumerate(a.shape[:-2])), *a.shape[-2:])
        gradient = gradient.expand(
            *(extents[i] if i in summed else n for i, n in enumerate(gradient.shape[:-2])),
            *gradient.shape[-2:],
        )
    rows_a, rows_g = _rows(a, summed), _rows(gradient, summed)
    made = _turned_product(rows_a, rows_g) if is_turned else _product(rows_a.mT, rows_g)
    return made.expand(*lead, *made.shape[-2:])


def _turned_product(a: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """a^T @ gradient, laid out for an operand that is the transpose of what is stored."""
    if gradient.shape[-1] > _NARROW or any(n > 1 for n in a.shape[:-2]) or not gradient.numel():
        return _product(gradient.mT, a).mT
    lead = gradient.shape[:-2]
    wide = gradient.movedim(-2, 0).reshape(gradient.shape[-2], -1)  # a view, if the product was one of columns
    return _multiplied(wide.mT, a.reshape(-1, a.shape[-1])).view(*lead, gradient.shape[-1], -1).mT


def _rows(data: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """These leading dims as more rows, with extent 1 in their places."""
    if not dims:
        return data
    lead = data.dim() - 2
    others = [i for i in range(lead) if i not in dims]
    turned = data.permute(*others, *dims, lead, lead + 1)
    rows = math.prod(data.shape[i] for i in dims) * data.shape[-2]
    return turned.reshape(*(1 if i in dims else data.shape[i] for i in range(lead)), rows, data.shape[-1])


def _summed_to(data: torch.Tensor, lead: torch.Size) -> torch.Tensor:
    """Summed over the leading dims where `lead` has extent 1, expanded where it has more."""
    dims = [i for i, n in enumerate(lead) if n == 1 and data.shape[i] > 1]
    if dims:
        data = data.sum(dims, keepdim=True)
    return data.expand(*lead, *data.shape[-2:])
