"""Golden functions of what makes tensors, and of copies: by shape, by range, in one corner of a matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.tensor.dtype import DataType, ttnn_dtype_to_torch_dtype

Tensor = torch.Tensor


def _torch_dtype(dtype: DataType | None) -> torch.dtype:
    return ttnn_dtype_to_torch_dtype(DataType.BFLOAT16 if dtype is None else dtype)


def zeros(shape: Sequence[int], dtype: DataType | None = None) -> Tensor:
    return torch.zeros(tuple(shape), dtype=_torch_dtype(dtype))


def ones(shape: Sequence[int], dtype: DataType | None = None) -> Tensor:
    return torch.ones(tuple(shape), dtype=_torch_dtype(dtype))


def full(shape: Sequence[int], fill_value: float, dtype: DataType | None = None) -> Tensor:
    return torch.full(tuple(shape), fill_value, dtype=_torch_dtype(dtype))


def arange(start: int, end: int | None = None, step: int = 1, dtype: DataType | None = None) -> Tensor:
    first, last = (0, start) if end is None else (start, end)
    return torch.arange(first, last, step).to(_torch_dtype(dtype))


def fill_rm(
    N: int, C: int, H: int, W: int, hOnes: int, wOnes: int, any: Tensor, val_hi: float, val_lo: float
) -> Tensor:
    made = torch.full((N, C, H, W), float(val_lo), dtype=any.dtype)
    made[:, :, :hOnes, :wOnes] = val_hi
    return made


def fill_ones_rm(N: int, C: int, H: int, W: int, hOnes: int, wOnes: int, any: Tensor) -> Tensor:
    return fill_rm(N, C, H, W, hOnes, wOnes, any, 1.0, 0.0)


def move(input_tensor: Tensor) -> Tensor:
    return input_tensor.clone()


def reallocate(tensor: Tensor) -> Tensor:
    return tensor.clone()


def to_dtype(tensor: Tensor, dtype: DataType) -> Tensor:
    return tensor.to(ttnn_dtype_to_torch_dtype(dtype))
