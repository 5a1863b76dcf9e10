"""Composers that do not fit the mesh, and copies that are put side by side"""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
SHUFFLED = "The tensor on the host has the wrong shape, or the right one with its parts in the wrong place."


def put(mesh, *dims, shape=None, size=(256, 256)):
    """Split in rows and columns, as on a mesh of this shape; not split at all without dims."""
    mapper = ttnn.ShardTensor2dMesh(mesh, shape or tuple(mesh.shape), dims=dims) if dims else None
    return ttnn.from_torch(torch.randn(*size), layout=TILES, device=mesh, mesh_mapper=mapper)


def composed(mesh, tensor, *dims, shape=None):
    if len(dims) == 1:
        return ttnn.to_torch(tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=dims[0]))
    composer = ttnn.ConcatMesh2dToTensor(mesh, shape or tuple(mesh.shape), dims=dims)
    return ttnn.to_torch(tensor, mesh_composer=composer)


# -- another mesh shape ----------------------------------------------------------------------------------


@mistake(
    Told.STRICT,
    "dim 1 was split over mesh axis 1, and the composer puts the shards together along dim 0",
    symptom=SHUFFLED,
    mend="Give mapper and composer one shape: that of the mesh.",
)
def a_composer_for_a_mesh_of_four_rows_after_a_mapper_of_two(mesh):
    composed(mesh, put(mesh, 0, 1), 0, 1, shape=(4, 2))


@mistake(
    Told.STRICT,
    "dim 0 was split over mesh axis 1, and the composer puts the shards together along dim 1",
    symptom=SHUFFLED,
    mend="Give mapper and composer one shape: that of the mesh.",
)
def a_mapper_for_a_mesh_of_four_rows_before_a_composer_of_two(mesh):
    composed(mesh, put(mesh, 0, 1, shape=(4, 2)), 0, 1)


@mistake(
    Told.STRICT,
    "dim 0 was split over mesh axis 0, and the composer puts the shards together along dim 1",
    symptom=SHUFFLED,
    mend="Compose along the dim that was split.",
)
def a_composer_for_a_column_of_devices_whose_dims_are_swapped(mesh):
    tensor = ttnn.from_torch(
        torch.randn(256, 64), layout=TILES, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)
    )
    composed(mesh, tensor, 1, 0, shape=(8, 1))


@mistake(
    Told.STRICT,
    "the composer for MeshShape([2, 2]) leaves out what MeshCoordinate([0, 2]) holds",
    symptom="Half of the columns are missing.",
    mend="Give the composer the shape of the mesh.",
)
def a_composer_for_half_of_the_devices(mesh):
    composed(mesh, put(mesh, 0, 1), 0, 1, shape=(2, 2))


@mistake(
    Told.STRICT,
    "aggregate_tensor: dim 1 was split over mesh axis 1",
    symptom=SHUFFLED,
    mend="Give mapper and composer one shape: that of the mesh.",
)
def a_tensor_on_the_host_is_aggregated_for_another_mesh(mesh):
    composer = ttnn.ConcatMesh2dToTensor(mesh, (4, 2), dims=(0, 1))
    ttnn.aggregate_tensor(ttnn.from_device(put(mesh, 0, 1)), composer)


@right
def mapper_and_composer_have_one_shape(mesh):
    """Whatever the shape of the mesh is; copies are left out."""
    composed(mesh, put(mesh, 0, 1), 0, 1)
    composed(mesh, put(mesh, 0, 1, shape=(4, 2)), 0, 1, shape=(4, 2))
    composed(mesh, put(mesh, None, 1), 0, 1, shape=(1, 4))
