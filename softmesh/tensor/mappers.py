"""Mappers: how one tensor is split or replicated over the devices of a mesh, and the coordinate of each piece.

A mapper splits without copying: the result is a view whose leading dims are the distribution's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from softmesh.arguments import checked, checked_ints, described, publicly_named, refused
from softmesh.errors import ArgumentError, MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import (
    Coordinates,
    Distribution,
    Extents,
    common_refinement,
    distribution,
    mesh_coordinates,
    refine,
)
from softmesh.placement.placements import REPLICATE, Placement, Shard
from softmesh.placement.tensor_topology import (
    PlacementReplicate,
    PlacementShard,
    TensorTopology,
    TTPlacement,
)
from softmesh.strictness import is_lenient

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


# Which mesh coordinate each piece of a distribution goes to. Two modes, as in TT-NN. Submesh: the distribution fits
# the mesh per dimension, and piece c sits at mesh coordinate c (plus an offset). Row-major: it does not (8 over 2x4,
# 4x2 over 2x4), and the k-th piece sits at the k-th device, both counted row-major.


def is_submesh(shape: Extents, mesh: Extents) -> bool:
    return len(shape) == len(mesh) and all(n <= m for n, m in zip(shape, mesh, strict=True))


def check_size(shape: Extents, mesh: Extents) -> None:
    if math.prod(shape) > math.prod(mesh):
        raise MeshError(
            f"The size of the supplied mesh shape {MeshShape(shape)} does not match the device shape size "
            f"{MeshShape(mesh)}: it names {math.prod(shape)} devices, the mesh has {math.prod(mesh)}."
        )


def piece_coordinates(shape: Extents, mesh: Extents, offset: Extents | None = None) -> Coordinates:
    """The mesh coordinate of each piece, in row-major order of `shape`."""
    given = offset is not None and any(offset)
    if not is_submesh(shape, mesh):
        if given:
            raise MeshError(
                "mesh_offset_override is only supported when the distribution fits within the mesh device "
                f"per-dimension (SUBMESH mode); the supplied mesh_shape_override {MeshShape(shape)} requires a "
                f"row-major reshape of device shape {MeshShape(mesh)}"
            )
        return mesh_coordinates(mesh)[: math.prod(shape)]
    if offset is None or not given:
        offset = (0,) * len(mesh)
    if len(offset) != len(mesh):
        raise MeshError(
            f"The offset {MeshCoordinate(offset)} must have the same dimensionality as the mesh device shape "
            f"{MeshShape(mesh)}"
        )
    for dim, (start, n, m) in enumerate(zip(offset, shape, mesh, strict=True)):
        if start + n > m:
            raise MeshError(
                f"The sub-rectangle anchored at offset {MeshCoordinate(offset)} with shape {MeshShape(shape)} does not "
                f"fit within the mesh device shape {MeshShape(mesh)} (dimension {dim}): {start} + {n} > {m}."
            )
    return tuple(
        MeshCoordinate([start + c for start, c in zip(offset, piece, strict=True)])
        for piece in MeshShape(shape).coordinates()
    )


def compute_distribution_to_mesh_mapping(distribution_shape: MeshShape, mesh_shape: MeshShape) -> list[MeshCoordinate]:
    """The ordered mesh coordinates of a distribution, cut off at the mesh's size."""
    where = "compute_distribution_to_mesh_mapping"
    shape = tuple(checked(where, "distribution_shape", distribution_shape, MeshShape, "a MeshShape"))
    mesh = tuple(checked(where, "mesh_shape", mesh_shape, MeshShape, "a MeshShape"))
    if is_submesh(shape, mesh):
        return list(piece_coordinates(shape, mesh))
    return list(mesh_coordinates(mesh)[: math.prod(shape)])


class MeshMapperConfig:
    """One placement for each dim of the distribution shape.

    >>> MeshMapperConfig(row_dim=None, col_dim=3)
    MeshMapperConfig(placements: [PlacementReplicate(), PlacementShard(3)])
    """

    def __init__(
        self,
        placements: Sequence[TTPlacement] | int | None = None,
        col_dim: int | MeshShape | None = None,
        mesh_shape_override: MeshShape | None = None,
        mesh_offset_override: MeshCoordinate | None = None,
        *,
        row_dim: int | None = None,
    ) -> None:
        if isinstance(col_dim, MeshShape):  # MeshMapperConfig(placements, mesh_shape)
            col_dim, mesh_shape_override = None, col_dim
        if isinstance(placements, int) or placements is None:
            row_dim = placements if row_dim is None else row_dim
            placements = [_placement(row_dim), _placement(col_dim)]
        if not isinstance(placements, Sequence) or isinstance(placements, str):
            raise refused("MeshMapperConfig", f"placements must be a list, got {described(placements)}")
        check_overrides("MeshMapperConfig", mesh_shape_override, mesh_offset_override)
        for placement in placements:
            if not isinstance(placement, PlacementShard | PlacementReplicate):
                raise ArgumentError(
                    f"MeshMapperConfig(): incompatible function arguments: {placement!r} is neither "
                    "PlacementShard(dim) nor PlacementReplicate()"
                )
        self.placements = list(placements)
        self.mesh_shape_override = mesh_shape_override
        self.mesh_offset_override = mesh_offset_override

    def __repr__(self) -> str:
        return f"MeshMapperConfig(placements: [{', '.join(map(repr, self.placements))}]{override_text(self)})"


def _placement(dim: int | None) -> TTPlacement:
    return PlacementReplicate() if dim is None else PlacementShard(dim)


def check_overrides(where: str, shape: object, offset: object) -> None:
    if shape is not None:
        checked(where, "mesh_shape_override", shape, MeshShape, "a MeshShape")
    if offset is not None:
        checked(where, "mesh_offset_override", offset, MeshCoordinate, "a MeshCoordinate")


def override_text(config: object) -> str:
    """The override part of a config's repr: nothing where nothing is overridden."""
    shape = getattr(config, "mesh_shape_override", None)
    offset = getattr(config, "mesh_offset_override", None)
    return (f", mesh_shape_override={shape}" if shape is not None else "") + (
        f", mesh_offset_override={offset}" if offset is not None and any(offset) else ""
    )


class TensorToMesh:
    """A mapper: a mesh shape and a config that was checked against it."""

    def __init__(self, mesh_shape: MeshShape, config: MeshMapperConfig) -> None:
        checked("create_mesh_mapper", "config", config, MeshMapperConfig, "a ttnn.MeshMapperConfig")
        self._mesh: Extents = tuple(mesh_shape)
        self._config = config
        override = config.mesh_shape_override
        self._shape: Extents = self._mesh if override is None else tuple(override)
        self._offset = None if config.mesh_offset_override is None else tuple(config.mesh_offset_override)
        check_size(self._shape, self._mesh)
        if len(self._shape) != len(config.placements):
            raise MeshError(
                f"The number of dimensions in the mesh shape {MeshShape(self._shape)} does not match the number "
                f"of placements in the config {config}: give one placement for each of the "
                f"{len(self._shape)} dims."
            )
        piece_coordinates(self._shape, self._mesh, self._offset)

    def __repr__(self) -> str:
        return f"TensorToMesh({MeshShape(self._mesh)}, {self._config})"

    def config(self) -> MeshMapperConfig:
        return self._config

    @property
    def mesh_shape(self) -> MeshShape:
        return MeshShape(self._mesh)

    def unwrap(self) -> TensorToMesh:
        return self

    def split(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Distribution, TensorTopology]:
        """A view of `tensor` with the distribution's leading dims, and what they mean."""
        dims = self._dims(tensor)
        cuts = self._cuts(tensor, dims)
        shape: list[int] = []
        words: list[Placement] = []
        pieces = tensor
        for axis, (dim, cut) in enumerate(zip(dims, cuts, strict=True)):  # behind `axis` leading dims already made
            if dim is None or cut is None:
                words.append(REPLICATE)
                shape.append(self._shape[axis])
                pieces = pieces.unsqueeze(axis)
            else:
                count, word = cut
                if word.size is not None:
                    pieces = _pad_dim(pieces, dim + axis, count)
                words.append(word)
                shape.append(count)
                pieces = pieces.unflatten(dim + axis, (count, -1)).movedim(dim + axis, axis)
        return pieces, *self._place(tuple(shape), tuple(words))

    def _place(self, shape: Extents, words: tuple[Placement, ...]) -> tuple[Distribution, TensorTopology]:
        if is_submesh(self._shape, self._mesh):
            coords = piece_coordinates(shape, self._mesh, self._offset)
        else:
            coords = piece_coordinates((math.prod(shape),), self._mesh)
        topology = TensorTopology(MeshShape(shape), self._config.placements, coords)
        dist = distribution(self._mesh, shape, words, coords, shape)
        fine = common_refinement(shape, self._mesh)
        if fine is not None and math.prod(shape) == math.prod(self._mesh):
            dist = distribution(self._mesh, fine, refine(dist, fine).placements, None, shape)
        return dist, topology

    def _dims(self, tensor: torch.Tensor) -> list[int | None]:
        rank = tensor.dim()
        given = [p.dim for p in self._config.placements if isinstance(p, PlacementShard)]
        if any(not -rank <= dim < rank for dim in given):
            raise MeshError(
                f"Invalid dimension index; got dims: {{{', '.join(map(str, given))}}}, tensor dimension: {rank}. "
                + (
                    f"A tensor of shape {tuple(tensor.shape)} can be split along {-rank} to {rank - 1}."
                    if rank
                    else "A rank-0 tensor can be replicated, not sharded."
                )
            )
        dims = [p.dim % rank if isinstance(p, PlacementShard) else None for p in self._config.placements]
        split = [dim for dim in dims if dim is not None]
        if len(set(split)) != len(split):
            raise MeshError(
                f"dims must be unique: {split} name one tensor dim twice, and one is split along one mesh axis only."
            )
        chunks = [n for n, dim in zip(self._shape, dims, strict=True) if dim is not None]
        if 0 in chunks:
            raise MeshError(
                f"num_chunks must be > 0; got num_chunks: {{{', '.join(map(str, chunks))}}}: {MeshShape(self._shape)} "
                "has an axis without devices."
            )
        return dims

    def _cuts(self, tensor: torch.Tensor, dims: list[int | None]) -> list[tuple[int, Shard] | None]:
        """How many chunks TT-NN's rule makes along each axis: ceil(n / devices) each, until the dim is used up."""
        extents = tuple(tensor.shape)
        chunks = [
            None if dim is None else _Chunks(dim, extents[dim], devices)
            for dim, devices in zip(dims, self._shape, strict=True)
        ]
        split = [one for one in chunks if one is not None]
        for one in split:
            if not one.extent:
                raise MeshError(f"No chunks were produced: dim {one.dim} of {extents} is empty.")
        nd = len(self._shape) > 1
        if not is_lenient():
            if nd:
                _check_counts(split)
            _check_even(split, extents)
        if split and 0 in self._shape:
            raise MeshError(
                f"Coordinate {MeshCoordinate([0] * len(self._shape))} is out of bounds for shape "
                f"{MeshShape(self._shape)}: an axis without devices holds no copies."
            )
        return [None if one is None else one.cut(nd) for one in chunks]


class _Chunks(NamedTuple):
    """A dim of so many elements, cut for so many devices."""

    dim: int
    extent: int
    devices: int

    @property
    def size(self) -> int:
        return -(-self.extent // self.devices)

    @property
    def pieces(self) -> int:
        return -(-self.extent // self.size)

    def cut(self, nd: bool) -> tuple[int, Shard]:
        """The number of pieces; with `lenient()` the last may be short, and empty where there are several axes."""
        if self.extent % self.size or (nd and self.pieces != self.devices):
            return self.devices if nd else self.pieces, Shard(self.dim, self.extent)
        return self.pieces, Shard(self.dim)


def _check_counts(split: Sequence[_Chunks]) -> None:
    made, devices = math.prod(one.pieces for one in split), math.prod(one.devices for one in split)
    if made != devices:
        short = next(one for one in split if one.pieces != one.devices)
        raise MeshError(
            f"ND sharding requires the number of chunks {made} to match the mesh dimension size {devices}: dim "
            f"{short.dim} has {short.extent} elements. {_remedy(short.extent, short.devices)}"
        )


def _check_even(split: Sequence[_Chunks], extents: Sequence[int]) -> None:
    """The first piece that is unlike the one before it is the last along the last uneven axis."""
    uneven = [one for one in split if one.extent % one.size]
    if not uneven:
        return
    full, last = list(extents), uneven[-1]
    for one in split:
        full[one.dim] = one.size
    short = [last.extent % last.size if dim == last.dim else n for dim, n in enumerate(full)]
    raise MeshError(
        f"Shard shape mismatch: expected Shape({full}) but got Shape({short}): dim {last.dim} has {last.extent} "
        f"elements, which {last.devices} devices cannot share evenly. {_remedy(last.extent, last.devices)}"
    )


def _remedy(n: int, devices: int) -> str:
    return (
        f"Pad it to {-(-n // devices) * devices}, choose another dim or mesh shape, "
        "or allow uneven shards with `with softmesh.lenient():`."
    )


def _pad_dim(pieces: torch.Tensor, dim: int, count: int) -> torch.Tensor:
    short = -pieces.shape[dim] % count
    filler = list(pieces.shape)
    filler[dim] = short
    return torch.cat([pieces, pieces.new_zeros(filler)], dim)


class ReplicateTensorToMeshWrapper:
    """What `ReplicateTensorToMesh` returns; `unwrap()` gives the mapper itself."""

    def __init__(self, mapper: TensorToMesh) -> None:
        self._mapper = mapper

    def __repr__(self) -> str:
        return f"ReplicateTensorToMesh({self._mapper!r})"

    def unwrap(self) -> TensorToMesh:
        return self._mapper


Mapper = TensorToMesh | ReplicateTensorToMeshWrapper


def create_mesh_mapper(
    mesh_device: MeshDevice | MeshShape | None = None,
    config: MeshMapperConfig | None = None,
    *,
    mesh_shape: MeshShape | None = None,
) -> TensorToMesh:
    """For a mesh, or for meshes of a shape."""
    where = "create_mesh_mapper"
    if mesh_shape is not None and mesh_device is None:
        shape = checked(where, "mesh_shape", mesh_shape, MeshShape, "a ttnn.MeshShape")
    elif mesh_device is not None and mesh_shape is None:
        shape = shape_of(mesh_device)
    else:
        raise refused(where, "give mesh_device or mesh_shape, and not both")
    wanted = "a ttnn.MeshMapperConfig([placement for each mesh axis])"
    return TensorToMesh(shape, checked(where, "config", config, MeshMapperConfig, wanted))


def shape_of(mesh: MeshDevice | MeshShape) -> MeshShape:
    if isinstance(mesh, MeshShape):
        return mesh
    shape = getattr(mesh, "shape", None)
    if not isinstance(shape, MeshShape):
        raise ArgumentError(f"incompatible function arguments: expected a MeshDevice, got {mesh!r}")
    return shape


@publicly_named
def ReplicateTensorToMesh(mesh_device: MeshDevice) -> ReplicateTensorToMeshWrapper:
    """Every device gets the whole tensor; it is stored once."""
    return ReplicateTensorToMeshWrapper(
        create_mesh_mapper(
            mesh_device,
            MeshMapperConfig([PlacementReplicate()], MeshShape([shape_of(mesh_device).mesh_size()])),
        )
    )


@publicly_named
def ShardTensorToMesh(mesh_device: MeshDevice, dim: int) -> TensorToMesh:
    """Split `dim` over all devices, counted row-major."""
    return create_mesh_mapper(
        mesh_device, MeshMapperConfig([PlacementShard(dim)], MeshShape([shape_of(mesh_device).mesh_size()]))
    )


@publicly_named
def ShardTensor2dMesh(
    mesh_device: MeshDevice,
    mesh_shape: MeshShape | tuple[int, int],
    dims: tuple[int | None, int | None],
) -> TensorToMesh:
    """Split `dims[0]` over the mesh rows and `dims[1]` over its columns; None replicates."""
    if not isinstance(dims, Sequence) or isinstance(dims, str) or len(dims) != 2:
        raise refused("ShardTensor2dMesh", f"dims must hold two entries (rows, columns), got {described(dims)}")
    shape = MeshShape(checked_ints("ShardTensor2dMesh", "mesh_shape", mesh_shape))
    return create_mesh_mapper(mesh_device, MeshMapperConfig([_placement(dim) for dim in dims], shape))


shard_tensor_to_mesh_mapper = ShardTensorToMesh
replicate_tensor_to_mesh_mapper = ReplicateTensorToMesh
