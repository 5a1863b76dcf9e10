"""Golden functions of data movement: shapes, slices, joins, copies, dtypes; of embedding and the `*_like` ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.ops.golden.golden_functions import plain_references, reference
from softmesh.tensor.dtype import DataType, ttnn_dtype_to_torch_dtype

Tensor = torch.Tensor

plain_references(
    {
        "assign": torch.clone,
        "clone": torch.clone,
        "empty_like": torch.zeros_like,  # undefined in TT-NN
        "interleaved_to_sharded": torch.clone,
        "ones_like": torch.ones_like,
        "sharded_to_interleaved": torch.clone,
        "tilize": torch.clone,
        "tilize_with_zero_padding": torch.clone,
        "tilize_with_val_padding": torch.clone,
        "to_layout": torch.clone,
        "to_memory_config": torch.clone,
        "unsqueeze_to_4D": lambda x: x.reshape((1,) * (4 - x.dim()) + tuple(x.shape)),
        "untilize": torch.clone,
        "zeros_like": torch.zeros_like,
    }
)


@reference("full_like")
def _full_like(tensor: Tensor, fill_value: float) -> Tensor:
    return torch.full_like(tensor, fill_value)


@reference("moreh_full_like")
def _moreh_full_like(input: Tensor, fill_value: float) -> Tensor:
    return torch.full_like(input, fill_value)


@reference("typecast")
def _typecast(input_tensor: Tensor, dtype: DataType, output_dtype: DataType | None = None) -> Tensor:
    return input_tensor.to(ttnn_dtype_to_torch_dtype(dtype if output_dtype is None else output_dtype))


@reference("reshape", "view", "experimental.view", "experimental.quasar.reshape")
def _reshape(input_tensor: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.reshape(input_tensor, tuple(shape))


@reference("reshape_on_device")
def _reshape_on_device(input_tensor: Tensor, W: int, Z: int, Y: int, X: int) -> Tensor:
    return torch.reshape(input_tensor, (W, Z, Y, X))


@reference("squeeze")
def _squeeze(input_tensor: Tensor, dim: Any = None) -> Tensor:
    if dim is None:
        return torch.squeeze(input_tensor)
    return torch.squeeze(input_tensor, dim if isinstance(dim, int) else tuple(dim))


@reference("unsqueeze")
def _unsqueeze(input_tensor: Tensor, dim: int) -> Tensor:
    return torch.unsqueeze(input_tensor, dim)


@reference("permute")
def _permute(input_tensor: Tensor, dims: Sequence[int]) -> Tensor:
    return torch.permute(input_tensor, tuple(dims))


@reference("transpose")
def _transpose(input_tensor: Tensor, dim1: int, dim2: int) -> Tensor:
    return torch.transpose(input_tensor, dim1, dim2)


@reference("slice")
def _slice(
    input_tensor: Tensor,
    slice_start: Sequence[int],
    slice_end: Sequence[int],
    slice_step: Sequence[int] | None = None,
) -> Tensor:
    steps = slice_step or [1] * len(slice_start)
    return input_tensor[tuple(map(slice, slice_start, slice_end, steps))]


@reference("narrow")
def _narrow(input_tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    return torch.narrow(input_tensor, dim, start, length)


@reference("split")
def _split(input_tensor: Tensor, split_size: Any, dim: int = 0) -> Sequence[Tensor]:
    return torch.split(input_tensor, split_size, dim)


@reference("chunk")
def _chunk(input_tensor: Tensor, chunks: int, dim: int = 0) -> Sequence[Tensor]:
    return torch.chunk(input_tensor, chunks, dim)


@reference("concat")
def _concat(tensors: Sequence[Tensor], dim: int = 0, groups: int = 1) -> Tensor:
    runs = zip(*(torch.chunk(tensor, groups, dim) for tensor in tensors), strict=True)
    return torch.cat([one for several in runs for one in several], dim)


@reference("stack")
def _stack(input_tensors: Sequence[Tensor], dim: int) -> Tensor:
    return torch.stack(list(input_tensors), dim)


@reference("repeat")
def _repeat(input_tensor: Tensor, repeat_dims: Sequence[int]) -> Tensor:
    return input_tensor.repeat(*repeat_dims)


@reference("repeat_interleave")
def _repeat_interleave(input_tensor: Tensor, repeats: int, dim: int = 0) -> Tensor:
    return torch.repeat_interleave(input_tensor, repeats, dim)


@reference("expand")
def _expand(input_tensor: Tensor, output_shape: Sequence[int]) -> Tensor:
    return input_tensor.expand(tuple(output_shape))


@reference("pad")
def _pad(input_tensor: Tensor, padding: Sequence[Any], value: float = 0.0) -> Tensor:
    """`padding` has (before, after) for each dim, the first dim first."""
    pairs = [pair if isinstance(pair, Sequence) else (0, pair) for pair in padding]
    backwards = [n for pair in reversed(pairs) for n in pair]
    return torch.nn.functional.pad(input_tensor, backwards, value=value)


@reference("roll")
def _roll(input_tensor: Tensor, shifts: Any, dim: Any = None) -> Tensor:
    return torch.roll(input_tensor, shifts, dim)


@reference("gather")
def _gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    return torch.gather(input, dim, index.long())


_REDUCTIONS = {"add": "sum", "multiply": "prod"}  # what torch calls otherwise


@reference("scatter")
def _scatter(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str | None = None) -> Tensor:
    places, values = index.long(), src.to(input.dtype)
    if reduce is None:
        return torch.scatter(input, dim, places, values)
    return torch.scatter_reduce(input, dim, places, values, _REDUCTIONS.get(reduce, reduce))


@reference("scatter_add")
def _scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return torch.scatter_add(input, dim, index.long(), src.to(input.dtype))


@reference("indexed_fill")
def _indexed_fill(batch_id: Tensor, input_tensor_a: Tensor, input_tensor_b: Tensor, dim: int = 0) -> Tensor:
    return input_tensor_a.index_copy(dim, batch_id.flatten().long(), input_tensor_b)


@reference("untilize_with_unpadding")
def _untilize_with_unpadding(input_tensor: Tensor, output_tensor_end: Sequence[int]) -> Tensor:
    """`output_tensor_end` is the last index that is kept, for each dim."""
    return input_tensor[tuple(slice(0, end + 1) for end in output_tensor_end)]


@reference("embedding")
def _embedding(input_tensor: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.embedding(input_tensor.long(), weight.reshape(-1, weight.shape[-1]))
