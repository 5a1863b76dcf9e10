"""Allocates tensors without writing values, on a mesh or on the host, and deallocates them."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked, checked_shape, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.placement.distribution import replicated
from softmesh.placement.placements import placed
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import A_TENSOR, check_memory_config
from softmesh.tensor.undefined import mark_unwritten
from softmesh.tensor.untouched_memory import untouched_zeros


@reject_unknown_keywords
@placed("Whatever is written into it decides; until then its values are not defined.")
def allocate_tensor_on_device(
    shape: Sequence[int] | TensorSpec | None = None,
    dtype: DataType | MeshDevice | None = None,
    layout: Layout | None = None,
    mesh_device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    *,
    tensor_spec: TensorSpec | None = None,
) -> Tensor:
    """`(tensor_spec, mesh_device)` or `(shape, dtype, layout, mesh_device, memory_config)`.

    Contents are undefined: here they are zeros, and who reads them before they were written is warned.

    >>> spec = ttnn.TensorSpec((8, 64), ttnn.bfloat16, ttnn.TILE_LAYOUT)
    >>> y = ttnn.allocate_tensor_on_device(spec, mesh)
    >>> y.shape
    Shape([8, 64])
    """
    where = "allocate_tensor_on_device"
    first = shape if tensor_spec is None else tensor_spec
    spec, device = _spec_and_mesh(where, first, dtype, layout, mesh_device, memory_config)
    config = spec.memory_config
    if config.is_sharded() and config.shard_spec is None and config.nd_shard_spec is None:
        raise MeshError(
            "MemoryConfig must have Shard Spec specified for sharded memory layout: nothing tells how to cut "
            f"{spec.shape} for {config.memory_layout}."
        )
    made = _allocated(where, spec, device, device)
    mark_unwritten(made, where)
    return made


def _spec_and_mesh(
    where: str, first: object, dtype: object, layout: object, mesh: object, memory_config: MemoryConfig | None
) -> tuple[TensorSpec, MeshDevice]:
    """Of `(tensor_spec, mesh_device)` and `(shape, dtype, layout, mesh_device, memory_config)`, what was given."""
    if isinstance(first, TensorSpec):
        spec, mesh = first, dtype if mesh is None else mesh
    else:
        spec = _checked_spec(where, first, dtype, layout, memory_config)
    device = checked_open(where, "mesh_device", mesh)
    return spec, device


def _allocated(where: str, spec: TensorSpec, mesh_device: MeshDevice, held_by: MeshDevice | None) -> Tensor:
    mesh = tuple(mesh_device.shape)
    dist = replicated(mesh).with_label(mesh)
    if held_by is not None and held_by.block is not None:
        dist = held_by.block.narrow(dist)
    on = None if held_by is None else held_by.torch_device
    storage = Storage(None, dist, held_by)
    result = Tensor.make(storage, spec)  # first of all: is there room on the device?
    storage.data = untouched_zeros((*dist.extents, *spec.shape), facts(spec.dtype).storage, on)
    if observed():
        emit(where, Kind.ALLOCATION, (), (result,), coords=dist.coordinates())
    return result


def _checked_spec(
    where: str, shape: object, dtype: object, layout: object, memory_config: MemoryConfig | None
) -> TensorSpec:
    spec = make_spec(
        tuple(checked_shape(where, shape)),
        checked(where, "dtype", dtype, DataType, "a ttnn dtype such as ttnn.bfloat16"),
        checked(where, "layout", layout, Layout, "ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT"),
        check_memory_config(memory_config, where),
    )
    spec.check()
    return spec


@reject_unknown_keywords
def deallocate(tensor: Tensor, force: bool = True) -> None:
    """Give a tensor's memory back; `force=False` only if no other tensor shares it. Twice is harmless.

    >>> x = whole(8, 64)
    >>> ttnn.deallocate(x)
    >>> x.is_allocated()
    False
    """
    checked("deallocate", "tensor", tensor, Tensor, A_TENSOR)
    if observed():
        emit("deallocate", Kind.DEALLOCATION, (tensor,), (), coords=tensor.view_distribution().coordinates())
    if force or not tensor.is_shared():
        tensor.storage.release()


@reject_unknown_keywords
def allocate_tensor_on_host(
    shape: Sequence[int] | TensorSpec | None = None,
    dtype: DataType | MeshDevice | None = None,
    layout: Layout | None = None,
    mesh_device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    *,
    tensor_spec: TensorSpec | None = None,
) -> Tensor:
    """As `allocate_tensor_on_device`, for a host tensor distributed over that mesh."""
    where = "allocate_tensor_on_host"
    first = shape if tensor_spec is None else tensor_spec
    spec, device = _spec_and_mesh(where, first, dtype, layout, mesh_device, memory_config)
    return _allocated(where, spec, device, None)
