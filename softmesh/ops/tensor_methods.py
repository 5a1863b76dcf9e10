"""Methods of Tensor that make, move, read or free values: each passes through the one door, as functions do.

What TT-NN has as a function too is that function, so that whoever looks on sees one call for both ways to write it; the
others are entry points of their own, `ttnn.Tensor.pad` and the like. So are the transfers of a command queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from softmesh.arguments import checked, checked_ints, described, refused
from softmesh.dispatch.entry_point import FUNCTIONS, Function
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.tensor.composers import MeshToTensor
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.mappers import Mapper
from softmesh.tensor.padding import check_host, in_layout, pad, pad_to_tile, unpad, unpad_from_tile, with_padding
from softmesh.tensor.shard_extraction import extract_shard
from softmesh.tensor.tensor import Tensor, tensor_method
from softmesh.tensor.tile import Tile


@tensor_method("__init__")
def construct(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """`Tensor(values, shape, dtype, layout, ...)` from a list, or `Tensor(torch_or_numpy, dtype, ...)`."""
    names = [name for name in ("data", "tensor", "arg") if name in kwargs]
    values = [*args, *(kwargs.pop(name) for name in names[: not args])]
    first = values[0] if values else None
    if isinstance(first, Tensor):
        made = first
    else:
        make = _from_list if isinstance(first, list | tuple) else _from_array
        try:
            made = make(*values, **kwargs)
        except TypeError as error:
            raise refused("Tensor", str(error)) from error
    for slot in ("storage", "spec", "shard_positions", "topology_label", "_id"):
        setattr(self, slot, getattr(made, slot))


def _from_list(
    data: Sequence[float],
    shape: Sequence[int],
    data_type: DataType,
    layout: Layout = Layout.ROW_MAJOR,
    device: MeshDevice | Tile | None = None,
    memory_config: MemoryConfig | None = None,
    tile: Tile | None = None,
    pad_value: float | None = None,
) -> Tensor:
    if isinstance(device, Tile):  # Tensor(values, shape, dtype, layout, tile)
        device, tile = None, device
    sizes = checked_ints("Tensor", "shape", shape)
    volume = int(np.prod(sizes))
    if len(data) != volume:
        raise MeshError(f"Buffer size {len(data)} differs from shape volume {volume}")
    kind = torch.float32 if facts(data_type).is_float else torch.int64
    try:
        source = torch.tensor(data, dtype=kind).reshape(sizes)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refused("Tensor", f"data must be a flat list of numbers, got {described(data)}") from error
    made = FUNCTIONS["from_torch"](
        source,
        data_type,
        layout=layout,
        device=device,
        memory_config=memory_config,
        tile=tile,
        pad_value=pad_value,
    )
    return cast(Tensor, made)


def _from_array(
    tensor: Any = None,
    data_type: DataType | None = None,
    device: MeshDevice | None = None,
    layout: Layout | None = None,
    mem_config: MemoryConfig | None = None,
    tile: Tile | None = None,
    cq_id: int | None = None,
    pad_value: float | None = None,
    mesh_mapper: Mapper | None = None,
    preserve_nan_values: bool = False,
    col_tilize: bool = False,
    enable_bfloat_opt: bool = False,
) -> Tensor:
    if not isinstance(tensor, torch.Tensor | np.ndarray):
        raise refused(
            "Tensor",
            f"expected a list with a shape, a torch.Tensor or a numpy array, got {described(tensor)}",
        )
    made = FUNCTIONS["from_torch"](
        cast(torch.Tensor, tensor),
        data_type,
        layout=layout,
        device=device,
        memory_config=mem_config,
        tile=tile,
        cq_id=cq_id,
        pad_value=pad_value,
        mesh_mapper=mesh_mapper,
        preserve_nan_values=preserve_nan_values,
        col_tilize=col_tilize,
        enable_bfloat_opt=enable_bfloat_opt,
    )
    return cast(Tensor, made)


@tensor_method("to")
def to(
    self: Tensor,
    target: MeshDevice | Layout | None = None,
    mem_config: MemoryConfig | None = None,
    cq_id: int | None = None,
    *,
    device: MeshDevice | None = None,
    target_layout: Layout | None = None,
) -> Tensor:
    """`to(device)` moves, `to(target_layout)` re-lays a host tensor."""
    where = next((given for given in (target, device, target_layout) if given is not None), None)
    if isinstance(where, MeshDevice):
        return cast(Tensor, FUNCTIONS["to_device"](self, where, mem_config, queue_id=cq_id))
    if isinstance(where, Layout):
        return cast(Tensor, _TO_LAYOUT(self, where))
    raise refused("to", f"expected a MeshDevice or a Layout, got {described(where)}")


@tensor_method("cpu")
def cpu(self: Tensor, blocking: bool = True, cq_id: int | None = None) -> Tensor:
    return cast(Tensor, FUNCTIONS["from_device"](self, blocking, queue_id=cq_id))


@tensor_method("to_torch")
def as_torch(self: Tensor, mesh_composer: MeshToTensor | None = None) -> torch.Tensor:
    return cast(torch.Tensor, FUNCTIONS["to_torch"](self, mesh_composer=mesh_composer))


@tensor_method("to_numpy")
def as_numpy(self: Tensor, mesh_composer: MeshToTensor | None = None) -> np.ndarray[Any, Any]:
    """Floats that numpy does not have come as float32."""
    values = as_torch(self, mesh_composer)
    has_counterpart = values.dtype not in (torch.bfloat16, torch.float8_e4m3fn)
    return (values if has_counterpart else values.float()).numpy()


@tensor_method("to_list")
def as_list(self: Tensor) -> list[Any]:
    if self.dtype is DataType.FP8_E4M3:
        raise MeshError("Tensor.to_list(): FP8_E4M3 is not supported: convert it first with ttnn.to_dtype.")
    return as_torch(self).tolist()


@tensor_method("item")
def item(self: Tensor) -> Any:
    if self.logical_volume() != 1:
        raise MeshError(
            f"tensor.item() requires tensor to have exactly one element, but got {self.logical_volume()} elements"
        )
    return as_torch(self).reshape(()).item()


@tensor_method("to_torch_with_padded_shape")
def as_padded_torch(self: Tensor) -> torch.Tensor:
    """With the padding, which is 0 or what `pad_value` said."""
    return with_padding(as_torch(self), self.spec)


class HostBuffer:
    """What `tensor.host_buffer()` answers: the pieces of a host tensor by coordinate."""

    def __init__(self, tensor: Tensor) -> None:
        dist = tensor.view_distribution()
        self._shape = MeshShape(dist.mesh)
        self._shards = dict(zip(dist.coordinates(), FUNCTIONS["get_device_tensors"](tensor), strict=True))

    def __repr__(self) -> str:
        return f"HostBuffer({self._shape}, {len(self._shards)} pieces)"

    def shape(self) -> MeshShape:
        return self._shape

    def is_local(self, coord: MeshCoordinate) -> bool:
        wanted = "a MeshCoordinate such as ttnn.MeshCoordinate(0, 0)"
        return self._shape.contains(checked("is_local", "coord", coord, MeshCoordinate, wanted))

    def get_shard(self, coord: MeshCoordinate) -> Tensor | None:
        return self._shards.get(coord) if self.is_local(coord) else None


@tensor_method("host_buffer")
def host_buffer(self: Tensor) -> HostBuffer:
    check_host(self, "host_buffer")
    return HostBuffer(self)


@tensor_method("deallocate")
def deallocate(self: Tensor, force: bool = False) -> None:
    """Free the values. With `force=False` only if no other tensor shares them."""
    is_freed = force or not self.is_shared()  # asked before the call, which holds the tensor too
    FUNCTIONS["deallocate"](self, is_freed)


# Methods that are no functions of TT-NN: entry points by the name that a program writes.


_TO_LAYOUT = Function(in_layout, "Tensor.to")
for _method in (extract_shard, pad, pad_to_tile, unpad, unpad_from_tile):
    tensor_method(_method.__name__)(Function(_method, f"Tensor.{_method.__name__}"))


# Reads and writes of whole tensors as methods of a command queue.


_A_TENSOR = "a ttnn.Tensor: make one with ttnn.from_torch(...)"


def enqueue_write_tensor(
    self: MeshCommandQueue, host_tensor: Tensor, device_tensor: Tensor, blocking: bool = False
) -> None:
    """Overwrite a tensor of this queue's mesh with one of the host."""
    checked("enqueue_write_tensor", "device_tensor", device_tensor, Tensor, _A_TENSOR)
    FUNCTIONS["copy_host_to_device_tensor"](host_tensor, device_tensor, self.id())
    if blocking:
        self.finish()


def enqueue_read_tensor(
    self: MeshCommandQueue, device_tensor: Tensor, host_tensor: Tensor, blocking: bool = True
) -> None:
    """Overwrite a tensor of the host with one of this queue's mesh."""
    checked("enqueue_read_tensor", "device_tensor", device_tensor, Tensor, _A_TENSOR)
    FUNCTIONS["copy_device_to_host_tensor"](device_tensor, host_tensor, blocking, self.id())


MeshCommandQueue.enqueue_write_tensor = enqueue_write_tensor  # type: ignore[method-assign,assignment]
MeshCommandQueue.enqueue_read_tensor = enqueue_read_tensor  # type: ignore[method-assign,assignment]
