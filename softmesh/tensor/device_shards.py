"""Shards as tensors of their own: taken apart by device, put together, distributed and aggregated."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.arguments import checked, described, refused, reject_unknown_keywords
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import HOST, distribution, whole
from softmesh.placement.placements import LOCAL, Placement, Shard
from softmesh.placement.tensor_topology import PlacementShard, TensorTopology
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.strictness import is_strict
from softmesh.tensor.composers import MeshToTensor
from softmesh.tensor.convert import round_to
from softmesh.tensor.from_torch_values import split_by_mapper
from softmesh.tensor.mappers import TensorToMesh
from softmesh.tensor.persistent_results import note_views, warn_if_overwritten
from softmesh.tensor.read_doubts import note_pieces
from softmesh.tensor.shards_elsewhere import note_copy, shard_of
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.stacked_copies import aggregate_taken_in, note_aggregate, note_host_pieces
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import A_TENSOR, check_readable, composed, gathered_from_ranks, tell_host_use, to_device
from softmesh.tensor.undefined import warn_before_leaving


def get_device_tensors(tensor: Tensor) -> list[Tensor]:
    """One tensor per occupied device, row-major. On a mesh they share the parent's memory.

    Of devices that other processes hold there are copies on the host.
    """
    checked("get_device_tensors", "tensor", tensor, Tensor, A_TENSOR).check_allocated("get_device_tensors")
    if tensor.storage.notes is not None:
        warn_if_overwritten(tensor, "get_device_tensors")
    device, held = tensor.storage.device, gathered_from_ranks(tensor, "get_device_tensors")
    if device is None:
        shards = [_plain_host(piece, tensor.spec) for piece in tensor.pieces()]
        note_pieces(tensor, shards, "get_device_tensors")
        if is_strict():
            note_host_pieces(tensor, shards)
        if observed():
            emit("get_device_tensors", Kind.PIECES, (tensor,), shards, coords=tensor.view_distribution().coordinates())
        return shards
    positions = tensor.shard_positions or tuple(range(len(tensor.storage.dist.coordinates())))
    topology = tensor.tensor_topology()
    own = [Tensor.make(tensor.storage, tensor.spec, topology, (position,)) for position in positions]
    if tensor.storage.notes is not None:
        note_views(tensor, own)
    if held is tensor:
        return own
    here = {coord: shard for shard in own for coord in shard.own_coordinates()}
    coords = held.view_distribution().coordinates()
    pairs = zip(coords, held.pieces(), strict=True)
    return [
        here.get(coord) or note_copy(_plain_host(piece, tensor.spec), tensor.storage, coord) for coord, piece in pairs
    ]


def _plain_host(piece: torch.Tensor, spec: TensorSpec) -> Tensor:
    return Tensor.make(Storage(piece.reshape(1, 1, *piece.shape), HOST, None), spec)


@reject_unknown_keywords
def combine_device_tensors(*, tensors: Sequence[Tensor]) -> Tensor:
    """The inverse of `get_device_tensors`: shards of one mesh buffer as one tensor again."""
    shards = _checked_shards("combine_device_tensors", tensors)
    if not shards:
        raise MeshError("At least one tensor shard must be provided")
    elsewhere = [shard_of(t) for t in shards]
    if any(t.storage.device is None and found is None for t, found in zip(shards, elsewhere, strict=True)):
        raise MeshError("All tensor shards must be on device")
    if any(elsewhere):
        return _combined_over_ranks(shards, elsewhere)
    storage, spec = shards[0].storage, shards[0].spec
    if any(t.spec != spec for t in shards):
        raise MeshError("All tensor shards must have the same spec")
    if any(t.storage is not storage for t in shards):
        raise MeshError(
            "tensor shards must be allocated on the same mesh buffer. Take them from one tensor with "
            "ttnn.get_device_tensors(t), or join other ones on the host with ttnn.from_host_shards."
        )
    coords = storage.dist.coordinates()
    where: list[int] = []
    for position in (p for shard in shards for p in shard.shard_positions or range(len(coords))):
        if position in where:
            raise MeshError(f"Found a tensor shard at duplicate coordinate {coords[position]}")
        where.append(position)
    held = [coords[position] for position in where]
    topology = TensorTopology(MeshShape([len(where)]), [PlacementShard(0)], held)
    return Tensor.make(storage, spec, topology, tuple(where))


def _combined_over_ranks(shards: list[Tensor], elsewhere: list[tuple[Storage, MeshCoordinate] | None]) -> Tensor:
    """Of all shards of a tensor, of which this process holds some."""
    places = [
        (t.storage, t.own_coordinates()) if found is None else (found[0], (found[1],))
        for t, found in zip(shards, elsewhere, strict=True)
    ]
    storage = places[0][0]
    held = [coord for _, coords in places for coord in coords]
    if any(other is not storage for other, _ in places):
        raise MeshError(
            "tensor shards must be allocated on the same mesh buffer. Take them from one tensor with "
            "ttnn.get_device_tensors(t), or join other ones on the host with ttnn.from_host_shards."
        )
    if tuple(held) != whole(storage.dist).coordinates():
        raise NotModelled(
            "combine_device_tensors: several processes hold this tensor, and only all of its shards, in the order that "
            "ttnn.get_device_tensors gives them, make a tensor again."
        )
    topology = TensorTopology(MeshShape([len(held)]), [PlacementShard(0)], held)
    return Tensor.make(storage, shards[0].spec, topology)


def _checked_shards(where: str, tensors: object) -> list[Tensor]:
    if not isinstance(tensors, list | tuple):
        raise refused(where, f"tensors must be a list of ttnn.Tensor, got {described(tensors)}")
    for i, tensor in enumerate(tensors):
        checked(where, f"tensors[{i}]", tensor, Tensor, A_TENSOR).check_allocated(where)
    return list(tensors)


@reject_unknown_keywords
def from_host_shards(tensors: Sequence[Tensor], mesh_shape: MeshShape) -> Tensor:
    """One distributed host tensor from a plain host tensor for each device, row-major."""
    shards = _checked_shards("from_host_shards", tensors)
    size = checked(
        "from_host_shards", "mesh_shape", mesh_shape, MeshShape, "a MeshShape such as ttnn.MeshShape(1, 2)"
    ).mesh_size()
    if len(shards) != size or not shards:
        raise MeshError(
            f"Number of tensor shards must match mesh size: {len(shards)} shards for {mesh_shape} ({size} devices)."
        )
    if any(t.storage.device is not None for t in shards):
        raise MeshError("All tensor shards must be on host")
    if any(t.spec != shards[0].spec for t in shards):
        raise MeshError("All tensor shards must have the same tensor spec")
    for i, shard in enumerate(shards):
        _check_undistributed(shard, f"from_host_shards: tensors[{i}]")
    mesh = tuple(mesh_shape)
    words: tuple[Placement, ...] = (Shard(0) if len(shards[0].shape) else LOCAL,) * len(mesh)
    dist = distribution(mesh, mesh, words, None, (size,))
    pieces = torch.stack([t.pieces()[0] for t in shards]).reshape(*dist.extents, *shards[0].shape)
    topology = TensorTopology(MeshShape([size]), [PlacementShard(0)], dist.coordinates())
    result = Tensor.make(Storage(pieces, dist, None), shards[0].spec, topology)
    if observed():
        emit("from_host_shards", Kind.PIECES, shards, (result,), coords=dist.coordinates())
    return result


def _check_undistributed(tensor: Tensor, what: str) -> None:
    coords = tensor.view_distribution().coordinates()
    if len(coords) > 1:
        raise MeshError(
            f"{what} is already distributed over {len(coords)} devices: take a shard of it with "
            "ttnn.get_device_tensors(t)[i], or join it with ttnn.aggregate_tensor(t, composer)."
        )


@reject_unknown_keywords
def distribute_tensor(tensor: Tensor, mapper: TensorToMesh, mesh_device: MeshDevice | None = None) -> Tensor:
    """Split a plain host tensor by a mapper; onto `mesh_device` where one is given."""
    where = "distribute_tensor"
    check_readable(tensor, where)
    if tensor.storage.device is not None:
        raise MeshError("TensorToMesh only supports host tensors; got storage type: StorageType::DEVICE")
    unwrapping = "; take it out of its wrapper with .unwrap()" if hasattr(mapper, "unwrap") else ""
    checked(where, "mapper", mapper, TensorToMesh, f"a mapper such as ttnn.ShardTensorToMesh(...){unwrapping}")
    _check_undistributed(tensor, "distribute_tensor: tensor")
    aggregate_taken_in(tensor)
    pieces, dist, topology = split_by_mapper(tensor.pieces()[0], mapper, where)
    spec = tensor.spec
    data = round_to(pieces.contiguous(), spec.dtype)
    made = make_spec(tuple(pieces.shape[dist.lead :]), spec.dtype, spec.layout, spec.memory_config, spec.tile)
    result = Tensor.make(Storage(data, dist, None), made, topology)
    return result if mesh_device is None else to_device(result, mesh_device)


@reject_unknown_keywords
def aggregate_tensor(tensor: Tensor, composer: MeshToTensor) -> Tensor:
    """Join a distributed tensor into one plain host tensor."""
    check_readable(tensor, "aggregate_tensor")
    tell_host_use(tensor, "aggregate_tensor")
    warn_before_leaving(tensor, "aggregate_tensor")
    tensor = gathered_from_ranks(tensor, "aggregate_tensor")
    whole = composed(tensor, composer, "aggregate_tensor").cpu()
    spec = tensor.spec
    made = make_spec(tuple(whole.shape), spec.dtype, spec.layout, DRAM_MEMORY_CONFIG, spec.tile)
    result = _plain_host(whole, made)
    if is_strict():
        note_aggregate(result, composer.copied(tensor.view_distribution(), tensor.shape))
    return result


def placements(tensor: Tensor) -> tuple[Placement, ...]:
    """What the devices hold of the tensor's value, one word for each mesh axis.

    `Replicate`, `Shard(dim)`, `Partial(op)` or `Local`.
    """
    checked("placements", "tensor", tensor, Tensor, A_TENSOR)
    return tensor.view_distribution().placements


def coordinates(tensor: Tensor) -> list[MeshCoordinate]:
    """The mesh coordinates that hold a piece of the tensor, on the host too."""
    return list(tensor.mesh_coordinates())
