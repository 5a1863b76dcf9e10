"""Tensor methods that move values: constructors, printing, to and from torch, host-side padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from softmesh.errors import ArgumentError, MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.composers import MeshToTensor
from softmesh.placement.mappers import Mapper
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.convert import from_storage
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.memory import MemoryConfig
from softmesh.tensor.printing import format_deallocated, format_shards
from softmesh.tensor.tensor import Tensor, tensor_method
from softmesh.tensor.tile import Tile
from softmesh.tensor.transfer import from_device, from_torch, get_device_tensors, to_device, to_torch


@tensor_method("__init__")
def construct(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """`Tensor(values, shape, dtype, layout, ...)` from a list, or `Tensor(torch_or_numpy, dtype, ...)`."""
    first = args[0] if args else kwargs.pop("tensor", None)
    made = _from_list(*args, **kwargs) if isinstance(first, list) else _from_array(first, *args[1:], **kwargs)
    for slot in ("_storage", "_spec", "_where", "_topology", "_id"):
        setattr(self, slot, getattr(made, slot))


def _from_list(
    values: list[float],
    shape: Sequence[int],
    dtype: DataType,
    layout: Layout = Layout.ROW_MAJOR,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    tile: Tile | None = None,
    pad_value: float | None = None,
) -> Tensor:
    volume = int(np.prod(list(shape)))
    if len(values) != volume:
        raise MeshError(f"Buffer size {len(values)} differs from shape volume {volume}")
    kind = torch.float32 if facts(dtype).is_float else torch.int64
    source = torch.tensor(values, dtype=kind).reshape(tuple(shape))
    return cast(
        Tensor,
        from_torch(
            source, dtype, layout=layout, device=device, memory_config=memory_config, tile=tile, pad_value=pad_value
        ),
    )


def _from_array(
    tensor: Any,
    data_type: DataType | None = None,
    device: MeshDevice | None = None,
    layout: Layout | None = None,
    mem_config: MemoryConfig | None = None,
    tile: Tile | None = None,
    cq_id: int | None = None,
    pad_value: float | None = None,
    mesh_mapper: Mapper | None = None,
) -> Tensor:
    if not isinstance(tensor, torch.Tensor | np.ndarray):
        raise ArgumentError(
            f"Tensor(): incompatible function arguments: expected a list with a shape, a torch.Tensor or a numpy "
            f"array, got {type(tensor).__name__}"
        )
    return cast(
        Tensor,
        from_torch(
            cast(torch.Tensor, tensor),
            data_type,
            layout=layout,
            device=device,
            memory_config=mem_config,
            tile=tile,
            cq_id=cq_id,
            pad_value=pad_value,
            mesh_mapper=mesh_mapper,
        ),
    )


@tensor_method("__repr__")
def describe(self: Tensor) -> str:
    if not self.is_allocated():
        return format_deallocated(self.shape, self.dtype, self.layout)
    dist = self.view_distribution()
    pieces = from_storage(self.pieces().detach().cpu(), self.dtype)
    device = self.device()
    headers: list[str | None] = [None] * len(pieces)
    if device is not None and device.get_num_devices() > 1:
        headers = [f"device_id: {device.get_device_id(coord)}, {coord}" for coord in dist.coordinates()]
    return format_shards(list(zip(headers, pieces, strict=True)), self.shape, self.dtype, self.layout)


@tensor_method("__bool__")
def is_true(self: Tensor) -> bool:
    """Always true, as in TT-NN."""
    return True


@tensor_method("to")
def to(self: Tensor, target: MeshDevice | Layout, mem_config: MemoryConfig | None = None, cq_id: int | None = None) -> Tensor:
    """`to(device)` moves, `to(layout)` re-lays a host tensor."""
    if isinstance(target, MeshDevice):
        return to_device(self, target, mem_config, queue_id=cq_id)
    if isinstance(target, Layout):
        from softmesh.tensor.spec import make_spec

        spec = make_spec(tuple(self.shape), self.dtype, target, self.memory_config(), self.tile)
        return Tensor.make(self._storage, spec, self._topology, self._where)
    raise ArgumentError(f"to(): incompatible function arguments: expected a MeshDevice or a Layout, got {target!r}")


@tensor_method("cpu")
def cpu(self: Tensor, blocking: bool = True, cq_id: int | None = None) -> Tensor:
    return from_device(self, blocking, queue_id=cq_id)


@tensor_method("to_torch")
def as_torch(self: Tensor, mesh_composer: MeshToTensor | None = None) -> torch.Tensor:
    return to_torch(self, mesh_composer=mesh_composer)


@tensor_method("to_numpy")
def as_numpy(self: Tensor, mesh_composer: MeshToTensor | None = None) -> np.ndarray[Any, Any]:
    values = to_torch(self, mesh_composer=mesh_composer)
    return (values.float() if values.dtype is torch.bfloat16 else values).numpy()


@tensor_method("to_list")
def as_list(self: Tensor) -> list[Any]:
    return cast("list[Any]", to_torch(self).tolist())


@tensor_method("item")
def item(self: Tensor) -> Any:
    if self.logical_volume() != 1:
        raise MeshError(
            f"tensor.item() requires tensor to have exactly one element, but got {self.logical_volume()} elements"
        )
    return to_torch(self).reshape(()).item()


@tensor_method("to_torch_with_padded_shape")
def as_padded_torch(self: Tensor) -> torch.Tensor:
    """With the tile padding, which is 0."""
    values = to_torch(self)
    padded = tuple(self.padded_shape)
    result = values.new_zeros(padded)
    result[tuple(slice(0, n) for n in (1,) * (len(padded) - values.dim()) + tuple(values.shape))] = values
    return result


class HostBuffer:
    """What `tensor.host_buffer()` answers: the pieces of a host tensor by coordinate."""

    def __init__(self, tensor: Tensor) -> None:
        dist = tensor.view_distribution()
        self._shape = MeshShape(dist.mesh)
        self._shards = dict(zip(dist.coordinates(), get_device_tensors(tensor), strict=True))

    def shape(self) -> MeshShape:
        return self._shape

    def is_local(self, coord: MeshCoordinate) -> bool:
        return self._shape.contains(coord)

    def get_shard(self, coord: MeshCoordinate) -> Tensor | None:
        return self._shards.get(coord)


@tensor_method("host_buffer")
def host_buffer(self: Tensor) -> HostBuffer:
    if self._storage.device is not None:
        raise MeshError("host_buffer: the tensor is on a device: use ttnn.from_device first.")
    return HostBuffer(self)
