"""Which mesh coordinate each piece of a distribution goes to.

Two modes, as in TT-NN. Submesh: the distribution fits the mesh per dimension, piece c sits at mesh
coordinate c (plus an offset). Row-major: it does not (8 over 2x4, 4x2 over 2x4), and the k-th piece
sits at the k-th device, both counted row-major.
"""

from __future__ import annotations

import math

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Coordinates, Extents, mesh_coordinates


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
    if not is_submesh(shape, mesh):
        if offset is not None and any(offset):
            raise MeshError(
                "mesh_offset_override is only supported when the distribution fits within the mesh device "
                f"per-dimension (SUBMESH mode); {MeshShape(shape)} does not fit {MeshShape(mesh)} that way."
            )
        return mesh_coordinates(mesh)[: math.prod(shape)]
    if offset is None:
        offset = (0,) * len(mesh)
    if len(offset) != len(mesh):
        raise MeshError(
            f"mesh_offset_override has {len(offset)} dimensions, the mesh {MeshShape(mesh)} has {len(mesh)}."
        )
    for dim, (start, n, m) in enumerate(zip(offset, shape, mesh, strict=True)):
        if start + n > m:
            raise MeshError(
                f"The sub-rectangle anchored at offset {MeshCoordinate(offset)} does not fit within the mesh "
                f"device shape {MeshShape(mesh)} (dimension {dim}): {start} + {n} > {m}."
            )
    return tuple(
        MeshCoordinate([start + c for start, c in zip(offset, piece, strict=True)])
        for piece in MeshShape(shape).coordinates()
    )


def compute_distribution_to_mesh_mapping(
    distribution_shape: MeshShape, mesh_shape: MeshShape
) -> list[MeshCoordinate]:
    """The ordered mesh coordinates of a distribution, cut off at the mesh's size."""
    where = "compute_distribution_to_mesh_mapping"
    shape = tuple(checked(where, "distribution_shape", distribution_shape, MeshShape, "a MeshShape"))
    mesh = tuple(checked(where, "mesh_shape", mesh_shape, MeshShape, "a MeshShape"))
    if is_submesh(shape, mesh):
        return list(piece_coordinates(shape, mesh))
    return list(mesh_coordinates(mesh)[: math.prod(shape)])
