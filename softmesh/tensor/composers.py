"""Composers: from the pieces on the devices of a mesh back to one tensor, by concatenation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from softmesh.arguments import checked, checked_ints, publicly_named
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Distribution, Extents, common_refinement, split_axes
from softmesh.placement.pieces import pieces_at, stored_index
from softmesh.placement.placements import REPLICATE, Partial, Shard
from softmesh.tensor.mappers import check_overrides, check_size, override_text, piece_coordinates, shape_of

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class MeshComposerConfig:
    """The tensor dim along which each dim of the distribution is concatenated.

    >>> MeshComposerConfig(row_dim=0, col_dim=3)
    MeshComposerConfig(dims: [0, 3])
    """

    def __init__(
        self,
        dims: Sequence[int] | int | None = None,
        col_dim: int | MeshShape | None = None,
        mesh_shape_override: MeshShape | None = None,
        mesh_offset_override: MeshCoordinate | None = None,
        *,
        row_dim: int | None = None,
    ) -> None:
        if isinstance(col_dim, MeshShape):  # MeshComposerConfig(dims, mesh_shape)
            col_dim, mesh_shape_override = None, col_dim
        if isinstance(dims, int) or dims is None:
            dims = [d for d in (dims if row_dim is None else row_dim, col_dim) if d is not None]
        check_overrides("MeshComposerConfig", mesh_shape_override, mesh_offset_override)
        self.dims = checked_ints("MeshComposerConfig", "dims", dims)
        self.mesh_shape_override = mesh_shape_override
        self.mesh_offset_override = mesh_offset_override

    def __repr__(self) -> str:
        return f"MeshComposerConfig(dims: {self.dims}{override_text(self)})"


class MeshToTensor:
    """A composer: a mesh shape and a config that was checked against it."""

    def __init__(self, mesh_shape: MeshShape, config: MeshComposerConfig) -> None:
        checked("create_mesh_composer", "config", config, MeshComposerConfig, "a ttnn.MeshComposerConfig")
        self._mesh: Extents = tuple(mesh_shape)
        self.config = config
        self._dims = list(config.dims)
        override = config.mesh_shape_override
        self._shape: Extents = self._mesh if override is None else tuple(override)
        offset = None if config.mesh_offset_override is None else tuple(config.mesh_offset_override)
        check_size(self._shape, self._mesh)
        if len(self._shape) != len(self._dims):
            raise MeshError(
                f"The number of dimensions in the mesh shape {MeshShape(self._shape)} does not match the number "
                f"of dimensions in the config {config}."
            )
        self._coords = piece_coordinates(self._shape, self._mesh, offset)

    def __repr__(self) -> str:
        return f"MeshToTensor({MeshShape(self._mesh)}, dims={self._dims})"

    @property
    def mesh_shape(self) -> MeshShape:
        return MeshShape(self._mesh)

    @property
    def composed_shape(self) -> MeshShape:
        """The shape of the devices that it reads."""
        return MeshShape(self._shape)

    def compose(self, data: torch.Tensor, dist: Distribution) -> torch.Tensor:
        """One tensor from `data`, whose leading dims are those of `dist`."""
        if math.prod(dist.grid) == 1:
            if dist.mesh != self._mesh and math.prod(self._shape) > 1 and dist.coords is None:
                raise MeshError(
                    f"Coordinate {self._coords[1]} is out of bounds for shape {MeshShape(dist.mesh)}: the "
                    f"composer is for {MeshShape(self._mesh)}, the tensor lives on {MeshShape(dist.mesh)}."
                )
            return data.reshape(data.shape[dist.lead :])
        occupied = set(dist.coordinates())
        missing = [c for c in self._coords if c not in occupied]
        if dist.mesh != self._mesh and missing:
            raise MeshError(
                f"Coordinate {missing[0]} is out of bounds for shape {MeshShape(dist.mesh)}: the composer is "
                f"for a mesh {MeshShape(self._mesh)}, the tensor is distributed on {MeshShape(dist.mesh)}."
            )
        found = [c for c in self._coords if c in occupied]
        if len(self._shape) > 1 and missing:
            raise MeshError(
                f"ND composition requires the number of tensors {len(found)} to match the mesh shape "
                f"{MeshShape(self._shape)}: {missing[0]} holds nothing."
            )
        pieces = pieces_at(data, dist, tuple(found))
        rank = pieces.dim() - 1
        if len(found) == 1:
            return pieces[0]
        if not found:
            return pieces.new_empty(0)
        dims = self._checked_dims(rank)
        shape = self._shape if len(self._shape) > 1 else (len(found),)
        return _without_filler(concatenate(pieces.unflatten(0, shape), dims), pieces, dist)

    def misplaced(self, dist: Distribution, rank: int) -> Iterator[tuple[int, int, int]]:
        """Axes whose shards it puts together along another dim than was split: the axis, that dim, its own."""
        for axis, word in enumerate(dist.placements):
            if not isinstance(word, Shard) or dist.devices[axis] == 1:
                continue
            other = next((dim % rank for dim in self._dims_along(dist, axis) if dim % rank != word.dim), None)
            if other is not None:
                yield axis, word.dim, other

    def _dims_along(self, dist: Distribution, axis: int) -> list[int]:
        """The dims along which it puts together what the devices along an axis hold; its own axes may be others."""
        fine = common_refinement(dist.grid, self._shape)
        if fine is None:  # it reads some of the devices: a block of the mesh, or one device after the other
            return [self._dims[axis]] if len(self._shape) == len(dist.grid) else self._dims
        steps = split_axes(dist.grid, fine)[axis]
        return [
            dim for dim, own in zip(self._dims, split_axes(self._shape, fine), strict=True) if set(own) & set(steps)
        ]

    def left_out(self, dist: Distribution) -> MeshCoordinate | None:
        """The first device with a part of a split dim that it does not put in, and no other device has."""
        if not any(isinstance(word, Shard) for word in dist.placements):
            return None
        held = [(coord, stored_index(dist, at)) for at, coord in enumerate(dist.coordinates())]
        taken = {piece for coord, piece in held if coord in self._coords}
        return next((coord for coord, piece in held if piece not in taken), None)

    def copied(self, dist: Distribution, shape: Sequence[int]) -> tuple[int, int] | None:
        """How often it puts in what devices share, and along which dim; None where that is one row of each."""
        held = [stored_index(dist, at) for at, coord in enumerate(dist.coordinates()) if coord in self._coords]
        times = len(held) // max(len(set(held)), 1)
        shared = [axis for axis, word in enumerate(dist.placements) if word is REPLICATE and dist.devices[axis] > 1]
        dims = [dim for axis in shared for dim in self._dims_along(dist, axis)] if times > 1 else []
        found = next((dim for dim in dims if -len(shape) <= dim < len(shape) and shape[dim] > 1), None)
        return None if found is None else (times, found)

    def stacks(self, dist: Distribution, axis: int, shape: Sequence[int]) -> bool:
        """Whether what the devices along the axis hold lies one by one along a dim of the result."""
        return all(-len(shape) <= dim < len(shape) and shape[dim] == 1 for dim in self._dims_along(dist, axis))

    def _checked_dims(self, rank: int) -> list[int]:
        """Counted from 0; nothing looks at them before there are shards to put together."""
        if any(not -rank <= dim < rank for dim in self._dims):
            raise MeshError(
                f"Invalid dimension index; got dims: {{{', '.join(map(str, self._dims))}}}, tensor dimension: {rank}: "
                + (f"shards have dims {-rank} to {rank - 1}." if rank else "shards of rank 0 have none.")
            )
        dims = [dim % rank for dim in self._dims]
        if len(set(dims)) != len(dims):
            raise MeshError(f"dims must be unique: {self._dims} name one tensor dim twice.")
        return dims


def _without_filler(whole: torch.Tensor, pieces: torch.Tensor, dist: Distribution) -> torch.Tensor:
    """Cut what `lenient()` filled up, along each dim whose shards were put together once, in order."""
    for word in dist.placements:
        if isinstance(word, Shard) and word.size is not None:
            shards = math.prod(n for w, n in zip(dist.placements, dist.grid, strict=True) if w is word)
            if whole.shape[word.dim] == shards * pieces.shape[1 + word.dim]:
                whole = whole.narrow(word.dim, 0, word.size)
    return whole


def concatenate(pieces: torch.Tensor, dims: Sequence[int | None]) -> torch.Tensor:
    """Fold leading dim i of `pieces` into local dim `dims[i]`: (2, 4, a, b), [0, 1] -> (2a, 4b).

    None drops a leading dim of extent 1; one local dim may take several, the first of them outermost.
    """
    lead = len(dims)
    order = [axis for axis, target in enumerate(dims) if target is None]
    shape: list[int] = []
    for dim, n in enumerate(pieces.shape[lead:]):
        fronts = [axis for axis, target in enumerate(dims) if target == dim]
        order += [*fronts, lead + dim]
        shape.append(n * math.prod(pieces.shape[axis] for axis in fronts))
    return pieces.permute(order).reshape(shape)


def compose_by_placement(data: torch.Tensor, dist: Distribution) -> torch.Tensor:
    """The value that `dist` says the pieces make: shards concatenated, replicas once, partials combined.

    The caller has made sure that no axis is Local.
    """
    for axis, word in enumerate(dist.placements):
        if isinstance(word, Partial):
            data = combine(data, axis, word.op)
    whole = concatenate(data, [word.dim if isinstance(word, Shard) else None for word in dist.placements])
    for word in dist.placements:
        if isinstance(word, Shard) and word.size is not None:
            whole = whole.narrow(word.dim, 0, word.size)
    return whole


def combine(data: torch.Tensor, dim: int, op: str) -> torch.Tensor:
    """Reduce one leading dim to extent 1 by a Partial's op."""
    if op == "sum":
        return data.sum(dim, keepdim=True, dtype=data.dtype)
    if op == "avg":
        return data.mean(dim, keepdim=True)
    if op == "prod":
        return data.prod(dim, keepdim=True, dtype=data.dtype)
    return data.amax(dim, keepdim=True) if op == "max" else data.amin(dim, keepdim=True)


def fitting_composer(dist: Distribution) -> str:
    """The composer a user would write for a tensor distributed like this, as code."""
    if dist.is_replicated:
        return "ttnn.to_torch(ttnn.get_device_tensors(t)[0]), for every device holds the same"
    words = [word for word, n in zip(dist.placements, dist.grid, strict=True) if n > 1]
    dims = [word.dim if isinstance(word, Shard) else None for word in words]
    if len(set(dims)) == 1 and dims[0] is not None:
        return f"mesh_composer=ttnn.ConcatMeshToTensor(mesh_device, dim={dims[0]})"
    if len(dims) == 2 and None not in dims and len(dist.grid) == 2:
        return f"mesh_composer=ttnn.ConcatMesh2dToTensor(mesh_device, mesh_shape={dist.grid}, dims={tuple(dims)})"
    return "softmesh.compose(t), which knows the placement"


def create_mesh_composer(mesh_device: MeshDevice | MeshShape, config: MeshComposerConfig) -> MeshToTensor:
    return MeshToTensor(shape_of(mesh_device), config)


@publicly_named
def ConcatMeshToTensor(mesh_device: MeshDevice, dim: int) -> MeshToTensor:
    """Concatenate all shards along `dim`, in row-major device order."""
    size = shape_of(mesh_device).mesh_size()
    return create_mesh_composer(mesh_device, MeshComposerConfig([dim], MeshShape([size])))


@publicly_named
def ConcatMesh2dToTensor(
    mesh_device: MeshDevice, mesh_shape: MeshShape | tuple[int, int], dims: tuple[int, int]
) -> MeshToTensor:
    """Concatenate along `dims[0]` down the mesh rows and along `dims[1]` across its columns."""
    shape = MeshShape(checked_ints("ConcatMesh2dToTensor", "mesh_shape", mesh_shape))
    return create_mesh_composer(
        mesh_device, MeshComposerConfig(checked_ints("ConcatMesh2dToTensor", "dims", dims), shape)
    )


concat_mesh_to_tensor_composer = ConcatMeshToTensor
concat_2d_mesh_to_tensor_composer = ConcatMesh2dToTensor
