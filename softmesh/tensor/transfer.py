"""Moving tensors between torch, the host and a mesh.

`from_torch` splits by a mapper, rounds each piece to its dtype and puts it on the mesh; `to_torch`
composes the pieces again. No value moves between devices here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from softmesh.errors import ArgumentError, MeshError, PartialError, PartialWarning
from softmesh.lenience import warn_or_raise
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.composers import MeshToTensor, compose_by_placement, fitting_composer
from softmesh.placement.distribution import HOST, Distribution, distribution, mesh_coordinates, replicated
from softmesh.placement.mappers import Mapper, ReplicateTensorToMeshWrapper, TensorToMesh
from softmesh.placement.topology import PlacementShard, TensorTopology
from softmesh.placement.words import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.runtime.commands import emit, observed
from softmesh.tensor.convert import from_storage, round_to, to_storage
from softmesh.tensor.dtype import DataType, Layout, default_dtype_for, facts
from softmesh.tensor.memory import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.storage import Storage, alias
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE, Tile

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


def from_torch(
    tensor: torch.Tensor | None,
    dtype: DataType | None = None,
    *,
    spec: TensorSpec | None = None,
    tile: Tile | None = None,
    pad_value: float | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    mesh_mapper: Mapper | None = None,
    cq_id: int | None = None,
    preserve_nan_values: bool = False,
    col_tilize: bool = False,
    enable_bfloat_opt: bool = False,
) -> Tensor | None:
    """A torch tensor as a ttnn tensor: on the host, or on `device`, split by `mesh_mapper`.

    Without a mapper every device of the mesh gets the whole tensor, stored once.
    """
    if tensor is None:
        return None
    source = _as_torch(tensor, "from_torch")
    if spec is not None:
        _check_spec_alone(spec, source, dtype=dtype, layout=layout, memory_config=memory_config, tile=tile)
        dtype, layout, memory_config, tile = spec.dtype, spec.layout, spec.memory_config, spec.tile
    if dtype is None:
        dtype = default_dtype_for(source.dtype)
    if not isinstance(dtype, DataType):
        raise ArgumentError(f"from_torch: dtype must be a ttnn dtype such as ttnn.bfloat16, got {dtype!r}")
    if layout is None:
        layout = Layout.TILE if facts(dtype).is_block else Layout.ROW_MAJOR
    if not isinstance(layout, Layout):
        raise ArgumentError(f"from_torch: layout must be ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT, got {layout!r}")
    memory_config = _check_memory_config(memory_config, "from_torch")
    if dtype is DataType.FP8_E4M3 and layout is not Layout.ROW_MAJOR:
        raise MeshError("fp8_e4m3 supports ROW_MAJOR layout only: pass layout=ttnn.ROW_MAJOR_LAYOUT.")
    if col_tilize:
        if not facts(dtype).is_block or source.dim() < 2 or spec is not None:
            raise MeshError("from_torch: col_tilize needs a block-float dtype, at least two dims, and no spec.")
        source = source.transpose(-2, -1)
    if device is not None:
        device.check_open("from_torch")
    pieces, dist, topology = _split(source, mesh_mapper)
    data = _stored(pieces, dtype, source, pad_value or 0.0)
    data = _own_memory(data, source)
    local = tuple(data.shape[dist.lead :])
    made = make_spec(local, dtype, layout, memory_config, tile or DEFAULT_TILE)
    host = Tensor.make(Storage(data, dist, None), made, topology)
    result = host if device is None else _place(host, device, made)
    if observed():
        emit("from_torch", (), (result,), coords=result.view_distribution().coordinates(), queue=cq_id or 0)
    return result


def _as_torch(tensor: object, where: str) -> torch.Tensor:
    if isinstance(tensor, np.ndarray):
        return torch.from_numpy(tensor)
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f"{where}: expected a torch.Tensor or numpy array, got {type(tensor).__name__}")
    return tensor.detach()


def _check_spec_alone(spec: TensorSpec, source: torch.Tensor, **others: object) -> None:
    for name, value in others.items():
        if value is not None:
            raise MeshError(f"ttnn.from_torch: {name} must be None when spec is specified")
    if tuple(source.shape) != tuple(spec.shape):
        raise MeshError(f"ttnn.from_torch: spec has shape {spec.shape}, the tensor {tuple(source.shape)}")


def _check_memory_config(config: MemoryConfig | None, where: str) -> MemoryConfig:
    if config is None:
        return DRAM_MEMORY_CONFIG
    if config.is_sharded() and config.shard_spec is None and config.nd_shard_spec is None:
        raise MeshError(
            f"ttnn.{where}: Shard spec must not be None for sharded tensors: build one with "
            "ttnn.create_sharded_memory_config(...)."
        )
    return config


def _split(
    source: torch.Tensor, mapper: Mapper | None
) -> tuple[torch.Tensor, Distribution, TensorTopology | None]:
    if mapper is None:
        return source.reshape(1, 1, *source.shape), HOST, None
    if not isinstance(mapper, TensorToMesh | ReplicateTensorToMeshWrapper):
        raise ArgumentError(
            f"mesh_mapper must be a mapper such as ttnn.ShardTensorToMesh(mesh_device, dim=0), got {mapper!r}"
        )
    pieces, dist, topology = mapper.unwrap().split(source)
    local = pieces.shape[len(topology.placements()) :]
    return pieces.reshape(*dist.extents, *local), dist, topology


def _stored(pieces: torch.Tensor, dtype: DataType, source: torch.Tensor, pad_value: float) -> torch.Tensor:
    saturating = source.dtype is torch.float32
    if source.dim():
        return to_storage(pieces, dtype, saturating_uint16=saturating, pad_value=pad_value)
    apart = pieces.unsqueeze(-1)  # keeps a lone value's block apart from the mesh dims
    return to_storage(apart, dtype, saturating_uint16=saturating, pad_value=pad_value).squeeze(-1)


def _own_memory(data: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Contiguous, and not the user's memory."""
    if data.untyped_storage().data_ptr() == source.untyped_storage().data_ptr() and data.numel():
        return data.clone(memory_format=torch.contiguous_format)
    return data.contiguous()


def _place(host: Tensor, device: MeshDevice, spec: TensorSpec) -> Tensor:
    """A host tensor's pieces at their coordinates of `device`."""
    dist = place_on(host.view_distribution(), tuple(device.shape))
    data = alias(host.view_data().to(device.torch_device))
    topology = host._topology if host.view_distribution() is not HOST else None
    return Tensor.make(Storage(data, dist, device), spec, topology)


def place_on(dist: Distribution, mesh: tuple[int, ...]) -> Distribution:
    """A host distribution as it lies on a mesh: an undistributed tensor goes to every device."""
    if dist.mesh == (1, 1) and dist.is_replicated:
        return replicated(mesh)
    if dist.mesh == mesh:
        return dist
    known = set(mesh_coordinates(mesh))
    for coord in dist.coordinates():
        if coord not in known:
            raise MeshError(
                f"Coordinate {coord} not found in mesh {MeshShape(mesh)}: the tensor was distributed for a mesh "
                f"{MeshShape(dist.mesh)}. Map it for the mesh it goes to."
            )
    return distribution(mesh, dist.grid, dist.placements, dist.coordinates(), dist.label)


def to_torch(
    tensor: Tensor,
    dtype: torch.dtype | None = None,
    *,
    torch_rank: int | None = None,
    mesh_composer: MeshToTensor | None = None,
    device: MeshDevice | None = None,
    cq_id: int | None = None,
) -> torch.Tensor:
    """A ttnn tensor as a torch tensor of its own memory; pieces are joined by `mesh_composer`."""
    _check_tensor(tensor, "to_torch")
    tensor.check_allocated("to_torch")
    dist = tensor.view_distribution()
    data = tensor.view_data()
    if mesh_composer is not None:
        if not isinstance(mesh_composer, MeshToTensor):
            raise ArgumentError(
                f"mesh_composer must be a composer such as ttnn.ConcatMeshToTensor(mesh_device, dim=0), "
                f"got {mesh_composer!r}"
            )
        _warn_partial(tensor, dist, "to_torch")
        whole = mesh_composer.compose(data, dist)
    elif len(dist.coordinates()) > 1:
        raise MeshError(
            f"Can't convert a tensor distributed on {MeshShape(dist.mesh)} mesh to row-major logical tensor. "
            f"Supply a mesh composer to concatenate multi-device shards. It is {_words(dist)}: use "
            f"{fitting_composer(dist)}."
        )
    else:
        whole = data.reshape(data.shape[dist.lead :])
    result = _hand_over(whole, data, tensor.dtype, dtype)
    if torch_rank is not None:
        result = _squeeze_to_rank(result, torch_rank)
    if observed():
        emit("to_torch", (tensor,), (), coords=dist.coordinates(), queue=cq_id or 0)
    return result


def compose(tensor: Tensor) -> torch.Tensor:
    """The value that the pieces make, by their placement: no composer needed.

    Shards are concatenated, replicas taken once. A Partial is combined, with a warning: on silicon
    that takes a collective.
    """
    _check_tensor(tensor, "compose")
    tensor.check_allocated("compose")
    dist, data = tensor.view_distribution(), tensor.view_data()
    if LOCAL in dist.placements:
        raise MeshError(
            f"compose: the tensor is {_words(dist)}: the devices along a Local axis hold values of their own that "
            "make no single tensor. Take them one by one with ttnn.get_device_tensors(t)."
        )
    _warn_partial(tensor, dist, "compose")
    partial = any(isinstance(word, Partial) for word in dist.placements)
    source = data.float() if partial and data.is_floating_point() else data
    whole = compose_by_placement(source, dist)
    return _hand_over(round_to(whole, tensor.dtype) if partial else whole, data, tensor.dtype, None)


def _words(dist: Distribution) -> str:
    return " x ".join(map(repr, dist.placements)) + f" over {' x '.join(map(str, dist.grid))} devices"


def _warn_partial(tensor: Tensor, dist: Distribution, doing: str) -> None:
    for axis, word in enumerate(dist.placements):
        if isinstance(word, Partial):
            warn_or_raise(
                f"{doing}: the tensor {tuple(tensor.shape)} is still {word} over mesh axis {axis}: its "
                f"{dist.grid[axis]} devices hold contributions that nobody has combined. Missing before this: "
                f"ttnn.all_reduce(t, cluster_axis={axis}) or ttnn.reduce_scatter(t, dim, cluster_axis={axis}).",
                PartialWarning,
                PartialError,
            )


def _hand_over(
    whole: torch.Tensor, data: torch.Tensor, dtype: DataType, wanted: torch.dtype | None
) -> torch.Tensor:
    result = from_storage(whole, dtype).detach().cpu()
    if wanted is not None:
        result = result.to(wanted)
    if result.untyped_storage().data_ptr() == data.untyped_storage().data_ptr() or not result.is_contiguous():
        result = result.clone(memory_format=torch.contiguous_format)
    return result


def _squeeze_to_rank(result: torch.Tensor, rank: int) -> torch.Tensor:
    while result.dim() > rank:
        if result.shape[0] != 1:
            raise MeshError(
                f"ttnn: Unable to squeeze to desired rank! {tuple(result.shape)} has no leading 1 to drop "
                f"on the way to rank {rank}."
            )
        result = result.squeeze(0)
    return result


def _check_tensor(tensor: object, where: str) -> None:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{where}: incompatible function arguments: expected a ttnn.Tensor, got {type(tensor).__name__}")


def to_device(
    tensor: Tensor, device: MeshDevice, memory_config: MemoryConfig | None = None, *, queue_id: int | None = None
) -> Tensor:
    """A host tensor onto a mesh: an undistributed one to every device, a distributed one piece by piece."""
    _check_tensor(tensor, "to_device")
    tensor.check_allocated("to_device")
    device.check_open("to_device")
    if tensor._storage.device is not None:
        return tensor
    config = memory_config or tensor.memory_config()
    result = _place(tensor, device, tensor.spec.with_memory_config(_check_memory_config(config, "to_device")))
    if observed():
        emit("to_device", (tensor,), (result,), coords=result.view_distribution().coordinates(), queue=queue_id or 0)
    return result


def from_device(tensor: Tensor, blocking: bool = True, *, queue_id: int | None = None) -> Tensor:
    """A device tensor's pieces on the host, still distributed; a host tensor is returned as it is."""
    _check_tensor(tensor, "from_device")
    tensor.check_allocated("from_device")
    if tensor._storage.device is None:
        return tensor
    dist = tensor.view_distribution()
    result = Tensor.make(Storage(alias(tensor.view_data().cpu()), dist, None), tensor.spec, tensor._topology)
    if observed():
        emit("from_device", (tensor,), (result,), coords=dist.coordinates(), queue=queue_id or 0)
    return result


def allocate_tensor_on_device(
    shape: Sequence[int] | TensorSpec,
    dtype: DataType | MeshDevice | None = None,
    layout: Layout | None = None,
    mesh_device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """`(spec, mesh)` or `(shape, dtype, layout, mesh, memory_config)`. Contents are undefined (zeros here)."""
    if isinstance(shape, TensorSpec):
        spec, device = shape, cast("MeshDevice", mesh_device if dtype is None else dtype)
    else:
        if not isinstance(dtype, DataType) or not isinstance(layout, Layout) or mesh_device is None:
            raise ArgumentError(
                "allocate_tensor_on_device(): incompatible function arguments: give (spec, mesh_device) or "
                "(shape, dtype, layout, mesh_device)."
            )
        spec, device = make_spec(tuple(shape), dtype, layout, memory_config or DRAM_MEMORY_CONFIG), mesh_device
    device.check_open("allocate_tensor_on_device")
    mesh = tuple(device.shape)
    dist = replicated(mesh).with_label(mesh)
    result = Tensor.make(Storage(_zeros(spec, dist, device), dist, device), spec)
    if observed():
        emit("allocate_tensor_on_device", (), (result,), coords=dist.coordinates())
    return result


def _zeros(spec: TensorSpec, dist: Distribution, device: MeshDevice | None) -> torch.Tensor:
    where = None if device is None else device.torch_device
    return torch.zeros(*dist.extents, *spec.shape, dtype=facts(spec.dtype).storage, device=where)


def allocate_tensor_on_host(
    shape: Sequence[int] | TensorSpec,
    dtype: DataType | MeshDevice | None = None,
    layout: Layout | None = None,
    mesh_device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """As `allocate_tensor_on_device`, for a host tensor distributed over that mesh."""
    return from_device(allocate_tensor_on_device(shape, dtype, layout, mesh_device, memory_config))


def copy_host_to_device_tensor(host_tensor: Tensor, device_tensor: Tensor, cq_id: int | None = None) -> None:
    """Overwrite a device tensor in place with a host tensor of the same spec."""
    _check_same(host_tensor, device_tensor, "copy_host_to_device_tensor")
    device = device_tensor._storage.device
    if host_tensor._storage.device is not None or device is None:
        raise MeshError(
            "copy_host_to_device_tensor needs a host tensor and a device tensor, in this order; got "
            f"{host_tensor.storage_type()} and {device_tensor.storage_type()}."
        )
    device.check_open("copy_host_to_device_tensor")
    host_dist = host_tensor.view_distribution()
    if device_tensor._where is None:
        host_dist = place_on(host_dist, tuple(device.shape))
    device_tensor.overwrite(host_tensor.view_data().to(device.torch_device), host_dist)
    if observed():
        coords = device_tensor.view_distribution().coordinates()
        emit("copy_host_to_device_tensor", (host_tensor,), (device_tensor,), coords=coords, queue=cq_id or 0)


def copy_device_to_host_tensor(
    device_tensor: Tensor, host_tensor: Tensor, blocking: bool = True, cq_id: int | None = None
) -> None:
    """Overwrite a host tensor in place with a device tensor of the same spec."""
    _check_same(host_tensor, device_tensor, "copy_device_to_host_tensor")
    dist = device_tensor.view_distribution()
    host_tensor.overwrite(device_tensor.view_data().cpu(), dist)
    if observed():
        coords = dist.coordinates()
        emit("copy_device_to_host_tensor", (device_tensor,), (host_tensor,), coords=coords, queue=cq_id or 0)


def _check_same(host: Tensor, device: Tensor, where: str) -> None:
    _check_tensor(host, where)
    _check_tensor(device, where)
    host.check_allocated(where)
    device.check_allocated(where)
    if host.shape != device.shape:
        raise MeshError(f"Host tensor has different shape: {host.shape} on the host, {device.shape} on the device.")
    if host.dtype is not device.dtype:
        raise MeshError(f"Host tensor has different dtype: {host.dtype} on the host, {device.dtype} on the device.")
    if host.layout is not device.layout:
        raise MeshError(
            f"Host tensor has different page config: {host.layout} on the host, {device.layout} on the device."
        )


def get_device_tensors(tensor: Tensor) -> list[Tensor]:
    """One tensor per occupied device, row-major. On a mesh they share the parent's memory."""
    _check_tensor(tensor, "get_device_tensors")
    tensor.check_allocated("get_device_tensors")
    if tensor._storage.device is None:
        return [_plain_host(piece, tensor.spec) for piece in tensor.pieces()]
    positions = tensor._where or tuple(range(len(tensor._storage.dist.coordinates())))
    topology = tensor.tensor_topology()
    return [Tensor.make(tensor._storage, tensor.spec, topology, (position,)) for position in positions]


def _plain_host(piece: torch.Tensor, spec: TensorSpec) -> Tensor:
    return Tensor.make(Storage(piece.reshape(1, 1, *piece.shape), HOST, None), spec)


def combine_device_tensors(*, tensors: Sequence[Tensor]) -> Tensor:
    """The inverse of `get_device_tensors`: shards of one mesh buffer as one tensor again."""
    if not tensors:
        raise MeshError("At least one tensor shard must be provided")
    if any(t._storage.device is None for t in tensors):
        raise MeshError("All tensor shards must be on device")
    if any(t.spec != tensors[0].spec for t in tensors):
        raise MeshError("All tensor shards must have the same spec")
    storage = tensors[0]._storage
    if any(t._storage is not storage for t in tensors):
        raise MeshError("tensor shards must be allocated on the same mesh buffer.")
    where: list[int] = []
    for tensor in tensors:
        for position in tensor._where or range(len(storage.dist.coordinates())):
            if position in where:
                coord = storage.dist.coordinates()[position]
                raise MeshError(f"Found a tensor shard at duplicate coordinate {coord}")
            where.append(position)
    return Tensor.make(storage, tensors[0].spec, None, tuple(where))


def from_host_shards(tensors: Sequence[Tensor], mesh_shape: MeshShape) -> Tensor:
    """One distributed host tensor from a plain host tensor for each device, row-major."""
    if len(tensors) != mesh_shape.mesh_size():
        raise MeshError(
            f"Number of tensor shards must match mesh size: {len(tensors)} shards for {mesh_shape} "
            f"({mesh_shape.mesh_size()} devices)."
        )
    if any(t._storage.device is not None for t in tensors):
        raise MeshError("All tensor shards must be on host")
    if any(t.spec != tensors[0].spec for t in tensors):
        raise MeshError("All tensor shards must have the same tensor spec")
    mesh = tuple(mesh_shape)
    pieces = torch.stack([t.pieces()[0] for t in tensors]).unflatten(0, mesh)
    words: tuple[Placement, ...] = (Shard(0) if len(tensors[0].shape) else LOCAL,) * len(mesh)
    dist = distribution(mesh, mesh, words, None, (len(tensors),))
    pieces = pieces if len(tensors) > 1 else pieces.reshape(*dist.extents, *pieces.shape[len(mesh) :])
    topology = TensorTopology(MeshShape([len(tensors)]), [PlacementShard(0)], dist.coordinates())
    return Tensor.make(Storage(pieces, dist, None), tensors[0].spec, topology)


def distribute_tensor(tensor: Tensor, mapper: Mapper, mesh_device: MeshDevice | None = None) -> Tensor:
    """Split a plain host tensor by a mapper; onto `mesh_device` where one is given."""
    _check_tensor(tensor, "distribute_tensor")
    if tensor._storage.device is not None:
        raise MeshError("TensorToMesh only supports host tensors; got storage type: StorageType::DEVICE")
    pieces, dist, topology = _split(tensor.pieces()[0], mapper)
    spec = tensor.spec
    data = round_to(pieces.contiguous(), spec.dtype)
    made = make_spec(tuple(pieces.shape[dist.lead :]), spec.dtype, spec.layout, spec.memory_config, spec.tile)
    result = Tensor.make(Storage(data, dist, None), made, topology)
    return result if mesh_device is None else to_device(result, mesh_device)


def aggregate_tensor(tensor: Tensor, composer: MeshToTensor) -> Tensor:
    """Join a distributed tensor into one plain host tensor."""
    _check_tensor(tensor, "aggregate_tensor")
    tensor.check_allocated("aggregate_tensor")
    whole = composer.compose(tensor.view_data(), tensor.view_distribution()).cpu()
    spec = tensor.spec
    made = make_spec(tuple(whole.shape), spec.dtype, spec.layout, DRAM_MEMORY_CONFIG, spec.tile)
    return _plain_host(whole, made)


def placements(tensor: Tensor) -> tuple[Placement, ...]:
    """What the devices hold of the tensor's value, one word for each mesh axis.

    `Replicate`, `Shard(dim)`, `Partial(op)` or `Local`.
    """
    _check_tensor(tensor, "placements")
    return tensor.view_distribution().placements


def coordinates(tensor: Tensor) -> list[MeshCoordinate]:
    """The mesh coordinates that hold a piece of the tensor, on the host too."""
    return list(tensor.view_distribution().coordinates())
