"""Padding of host tensors: adding it, and cutting it off again.

Values stay logical; padding is a shape and one number in the spec until somebody reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from softmesh.arguments import checked_ints, described, refused
from softmesh.errors import MeshError
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, Shard
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.storage import Storage, alias
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import padded_shape


def check_host(tensor: Tensor, method: str, remedy: str = "use ttnn.from_device first") -> None:
    tensor.check_allocated(method)
    if tensor.storage.device is not None:
        raise MeshError(f"{method}: the tensor is on a device (StorageType::DEVICE): {remedy}.")


def with_spec(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """The same values, held in another way, in a tensor of its own."""
    storage = Storage(alias(tensor.view_data()), tensor.view_distribution(), None)
    return Tensor.make(storage, spec, tensor.topology_label)


def host_layout(spec: TensorSpec, layout: Layout) -> Layout:
    """The layout in which the host holds a tensor for which `layout` is asked: block floats stay in tiles."""
    if spec.dtype is DataType.FP8_E4M3 and layout is Layout.TILE:
        raise MeshError(
            "pad: FP8_E4M3 is not supported: it lies in rows only. Convert it with ttnn.to_dtype(t, ttnn.float32)."
        )
    if not facts(spec.dtype).is_block:
        return layout
    if layout is Layout.ROW_MAJOR and spec.volume() != spec.logical_volume():
        raise MeshError(
            f"Tensor layout must be ROW_MAJOR for unpadding: {spec.dtype} lies in tiles only, and {spec.shape} does "
            "not fill them. Convert it first with ttnn.to_dtype(t, ttnn.bfloat16)."
        )
    return Layout.TILE


def in_layout(tensor: Tensor, layout: Layout) -> Tensor:
    """A host tensor in rows or in tiles. Padding that is there stays: `unpad` takes it away."""
    check_host(tensor, "to", "use ttnn.to_layout(tensor, layout) on a device")
    layout = host_layout(tensor.spec, layout)
    if facts(tensor.dtype).is_block:
        return with_spec(tensor, tensor.spec)
    spec = make_spec(tuple(tensor.shape), tensor.dtype, layout, tensor.memory_config(), tensor.tile)
    if tensor.volume() > spec.volume():
        spec = spec.padded_to(tensor.padded_shape, tensor.spec.pad_value, tensor.spec.room)
    return with_spec(tensor, spec)


def with_padding(values: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """(..., *padded_shape) from (..., *shape)."""
    padded, rank = tuple(spec.padded_shape), len(spec.shape)
    lead = values.shape[: values.dim() - rank]
    inner = (1,) * (len(padded) - rank) + tuple(spec.shape)
    if spec.room is None:
        result = torch.full((*lead, *padded), spec.pad_value, device=values.device).to(values.dtype)
    else:
        result = spec.room.to(values).expand(*lead, *padded).clone()
    at = (slice(None),) * len(lead) + tuple(slice(0, n) for n in inner)
    result[at] = values.reshape(*lead, *inner)
    return result


def pad(
    self: Tensor, output_tensor_shape: Sequence[int], input_tensor_start: Sequence[int], pad_value: float
) -> Tensor:
    """A host tensor with room around its values, up to `output_tensor_shape`; the logical shape stays.

    So of values that are moved by `input_tensor_start` the last lie in the padding. A tensor in tiles is returned as
    it is.
    """
    check_host(self, "pad")
    if self.layout is not Layout.ROW_MAJOR:
        return self
    sizes = checked_ints("pad", "output_tensor_shape", output_tensor_shape)
    starts = checked_ints("pad", "input_tensor_start", input_tensor_start)
    shape = tuple(self.shape)
    if not len(sizes) == len(starts) == len(shape) or any(
        at < 0 or at + n > size for at, n, size in zip(starts, shape, sizes, strict=True)
    ):
        raise MeshError(f"pad: {self.shape} does not fit into {sizes} from {starts} on.")
    spec = self.spec.padded_to(sizes, _number("pad", pad_value))
    return _moved(self, spec, starts) if any(starts) else with_spec(self, spec)


def _moved(tensor: Tensor, spec: TensorSpec, starts: Sequence[int]) -> Tensor:
    """What lies first in the padded box are the tensor's values now."""
    dist, values = tensor.view_distribution(), tensor.view_data()
    if math.prod(dist.extents) > 1:
        raise MeshError(
            f"pad: from {list(starts)} on goes one piece at a time, and this tensor has {math.prod(dist.extents)}: "
            "take them apart with ttnn.get_device_tensors(t)."
        )
    shape = tuple(spec.shape)
    room = torch.full(tuple(spec.padded_shape), spec.pad_value).to(values.dtype)
    room[tuple(slice(at, at + n) for at, n in zip(starts, shape, strict=True))] = values.reshape(shape)
    first = room[tuple(slice(0, n) for n in shape)].reshape(values.shape).clone()
    return Tensor.make(Storage(first, dist, None), spec.padded_to(spec.padded_shape, spec.pad_value, room))


def pad_to_tile(self: Tensor, pad_value: float) -> Tensor:
    """A host tensor with its last two dims padded up to whole tiles; the logical shape stays. Tiles are whole."""
    check_host(self, "pad_to_tile")
    if self.layout is not Layout.ROW_MAJOR:
        return self
    padded = padded_shape(tuple(self.shape), Layout.TILE, self.tile)
    return with_spec(self, self.spec.padded_to(padded, _number("pad_to_tile", pad_value)))


def unpad(self: Tensor, output_tensor_start: Sequence[int], output_tensor_end: Sequence[int]) -> Tensor:
    """A box out of a host tensor and its padding; the ends are not part of it."""
    _check_row_major(self, "unpad")
    starts = checked_ints("unpad", "output_tensor_start", output_tensor_start)
    ends = checked_ints("unpad", "output_tensor_end", output_tensor_end)
    padded = tuple(self.padded_shape)
    inside = len(starts) == len(ends) == len(padded) and all(
        0 <= a < b <= n for a, b, n in zip(starts, ends, padded, strict=True)
    )
    if not inside:
        raise MeshError(f"unpad: from {starts} to {ends} does not lie within the padded shape {list(padded)}.")
    dist = self.view_distribution()
    cuts = (slice(None),) * dist.lead + tuple(slice(a, b) for a, b in zip(starts, ends, strict=True))
    data = with_padding(self.view_data(), self.spec)[cuts].contiguous()
    sizes = tuple(b - a for a, b in zip(starts, ends, strict=True))
    changed = {d for d, n in enumerate(sizes) if len(sizes) != len(self.shape) or n != self.shape[d]}
    spec = make_spec(sizes, self.dtype, self.layout, self.memory_config(), self.tile)
    return Tensor.make(Storage(data, _cut(dist, changed), None), spec)


def unpad_from_tile(self: Tensor, output_tensor_shape: Sequence[int]) -> Tensor:
    """What `pad_to_tile` padded, back at its size."""
    sizes = checked_ints("unpad_from_tile", "output_tensor_shape", output_tensor_shape)
    padded = tuple(self.padded_shape)
    if len(sizes) != len(padded) or tuple(sizes[:-2]) != padded[:-2]:
        raise MeshError(
            f"unpad_from_tile: {sizes} must equal the padded shape {list(padded)} apart from the last two dims."
        )
    if any(n <= size - edge for n, size, edge in zip(sizes[-2:], padded[-2:], self.tile.tile_shape, strict=True)):
        raise MeshError(f"unpad_from_tile: {sizes} leaves off whole tiles of {list(padded)}: use unpad.")
    return unpad(self, [0] * len(sizes), sizes)


def _check_row_major(tensor: Tensor, method: str) -> None:
    check_host(tensor, method)
    if tensor.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"{method}: Tensor layout must be ROW_MAJOR for {method.split('_')[0]}ding, got {tensor.layout}: "
            "use tensor.to(ttnn.ROW_MAJOR_LAYOUT) first."
        )


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(where, f"the pad value must be a number, got {described(value)}")
    return float(value)


def _cut(dist: Distribution, changed: set[int]) -> Distribution:
    """What is left of a distribution when pieces are cut along some dims: a split there means nothing more."""
    return dist.with_placements(
        tuple(LOCAL if isinstance(w, Shard) and w.dim in changed else w for w in dist.placements)
    )
