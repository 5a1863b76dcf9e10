"""Golden functions of data movement: shapes, slices, joins, copies, dtypes; of embedding and the `*_like` ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.tensor.dtype import DataType, ttnn_dtype_to_torch_dtype

Tensor = torch.Tensor


def full_like(tensor: Tensor, fill_value: float) -> Tensor:
    return torch.full_like(tensor, fill_value)


def moreh_full_like(input: Tensor, fill_value: float) -> Tensor:
    return torch.full_like(input, fill_value)


def typecast(input_tensor: Tensor, dtype: DataType, output_dtype: DataType | None = None) -> Tensor:
    return input_tensor.to(ttnn_dtype_to_torch_dtype(dtype if output_dtype is None else output_dtype))


def reshape(input_tensor: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.reshape(input_tensor, tuple(shape))


def reshape_on_device(input_tensor: Tensor, W: int, Z: int, Y: int, X: int) -> Tensor:
    return torch.reshape(input_tensor, (W, Z, Y, X))


def squeeze(input_tensor: Tensor, dim: Any = None) -> Tensor:
    if dim is None:
        return torch.squeeze(input_tensor)
    return torch.squeeze(input_tensor, dim if isinstance(dim, int) else tuple(dim))


def unsqueeze(input_tensor: Tensor, dim: int) -> Tensor:
    return torch.unsqueeze(input_tensor, dim)


def permute(input_tensor: Tensor, dims: Sequence[int]) -> Tensor:
    return torch.permute(input_tensor, tuple(dims))


def transpose(input_tensor: Tensor, dim1: int, dim2: int) -> Tensor:
    return torch.transpose(input_tensor, dim1, dim2)


def slice_(
    input_tensor: Tensor,
    slice_start: Sequence[int],
    slice_end: Sequence[int],
    slice_step: Sequence[int] | None = None,
) -> Tensor:
    steps = slice_step or [1] * len(slice_start)
    return input_tensor[tuple(map(slice, slice_start, slice_end, steps))]


def narrow(input_tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    return torch.narrow(input_tensor, dim, start, length)


def split(input_tensor: Tensor, split_size: Any, dim: int = 0) -> Sequence[Tensor]:
    return torch.split(input_tensor, split_size, dim)


def chunk(input_tensor: Tensor, chunks: int, dim: int = 0) -> Sequence[Tensor]:
    return torch.chunk(input_tensor, chunks, dim)


def concat(tensors: Sequence[Tensor], dim: int = 0, groups: int = 1) -> Tensor:
    runs = zip(*(torch.chunk(tensor, groups, dim) for tensor in tensors), strict=True)
    return torch.cat([one for several in runs for one in several], dim)


def stack(input_tensors: Sequence[Tensor], dim: int) -> Tensor:
    return torch.stack(list(input_tensors), dim)


def repeat(input_tensor: Tensor, repeat_dims: Sequence[int]) -> Tensor:
    return input_tensor.repeat(*repeat_dims)


def repeat_interleave(input_tensor: Tensor, repeats: int, dim: int = 0) -> Tensor:
    return torch.repeat_interleave(input_tensor, repeats, dim)


def expand(input_tensor: Tensor, output_shape: Sequence[int]) -> Tensor:
    return input_tensor.expand(tuple(output_shape))


def pad(input_tensor: Tensor, padding: Sequence[Any], value: float = 0.0) -> Tensor:
    """`padding` has (before, after) for each dim, the first dim first."""
    pairs = [pair if isinstance(pair, Sequence) else (0, pair) for pair in padding]
    backwards = [n for pair in reversed(pairs) for n in pair]
    return torch.nn.functional.pad(input_tensor, backwards, value=value)


def roll(input_tensor: Tensor, shifts: Any, dim: Any = None) -> Tensor:
    return torch.roll(input_tensor, shifts, dim)


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    return torch.gather(input, dim, index.long())


_REDUCTIONS = {"add": "sum", "multiply": "prod"}  # what torch calls otherwise


def scatter(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str | None = None) -> Tensor:
    places, values = index.long(), src.to(input.dtype)
    if reduce is None:
        return torch.scatter(input, dim, places, values)
    return torch.scatter_reduce(input, dim, places, values, _REDUCTIONS.get(reduce, reduce))


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return torch.scatter_add(input, dim, index.long(), src.to(input.dtype))


def indexed_fill(batch_id: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, dim: int = 0) -> Tensor:
    return input_tensor_a.index_copy(dim, batch_id.flatten().long(), input_tensor_b)


def untilize_with_unpadding(input_tensor: Tensor, output_tensor_end: Sequence[int]) -> Tensor:
    """`output_tensor_end` is the last index that is kept, for each dim."""
    return input_tensor[tuple(slice(0, end + 1) for end in output_tensor_end)]


def embedding(input_tensor: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.embedding(input_tensor.long(), weight.reshape(-1, weight.shape[-1]))
