"""Golden functions of what makes tensors, and of copies: by shape, by range, in one corner of a matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.ops.golden.golden_functions import reference
from softmesh.tensor.dtype import DataType, ttnn_dtype_to_torch_dtype

Tensor = torch.Tensor


def _torch_dtype(dtype: DataType | None) -> torch.dtype:
    return ttnn_dtype_to_torch_dtype(DataType.BFLOAT16 if dtype is None else dtype)


@reference("zeros", "empty")  # what is in an empty tensor is not defined
def _zeros(shape: Sequence[int], dtype: DataType | None = None) -> Tensor:
    return torch.zeros(tuple(shape), dtype=_torch_dtype(dtype))


@reference("ones")
def _ones(shape: Sequence[int], dtype: DataType | None = None) -> Tensor:
    return torch.ones(tuple(shape), dtype=_torch_dtype(dtype))


@reference("full")
def _full(shape: Sequence[int], fill_value: float, dtype: DataType | None = None) -> Tensor:
    return torch.full(tuple(shape), fill_value, dtype=_torch_dtype(dtype))


@reference("arange")
def _arange(start: int, end: int | None = None, step: int = 1, dtype: DataType | None = None) -> Tensor:
    first, last = (0, start) if end is None else (start, end)
    return torch.arange(first, last, step).to(_torch_dtype(dtype))


@reference("fill_rm")
def _fill_rm(
    N: int, C: int, H: int, W: int, hOnes: int, wOnes: int, any: Tensor, val_hi: float, val_lo: float
) -> Tensor:
    made = torch.full((N, C, H, W), float(val_lo), dtype=any.dtype)
    made[:, :, :hOnes, :wOnes] = val_hi
    return made


@reference("fill_ones_rm")
def _fill_ones_rm(N: int, C: int, H: int, W: int, hOnes: int, wOnes: int, any: Tensor) -> Tensor:
    return _fill_rm(N, C, H, W, hOnes, wOnes, any, 1.0, 0.0)


@reference("move")
def _move(input_tensor: Tensor) -> Tensor:
    return input_tensor.clone()


@reference("reallocate")
def _reallocate(tensor: Tensor) -> Tensor:
    return tensor.clone()


@reference("to_dtype")
def _to_dtype(tensor: Tensor, dtype: DataType) -> Tensor:
    return tensor.to(ttnn_dtype_to_torch_dtype(dtype))
