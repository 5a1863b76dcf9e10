"""Four ranks that hold the corners of one mesh: parts that some of them hold, and copies that some of them share."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
OTHER = "another program than the rest: call number"
APART = "One row of the mesh works with other weights than the next; results depend on the host that is asked."


def put(mesh, value=1.0, dims=(None, -1)):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=dims)
    return ttnn.from_torch(torch.full((128, 128), value), layout=TILES, device=mesh, mesh_mapper=mapper)


def own_row(mesh):
    """The row of the mesh in which this process has devices: two processes hold it together."""
    return next(row for row in mesh.create_submeshes(ttnn.MeshShape(1, 4)) if not row.is_remote_only())


def ones(row):
    return ttnn.ones((32, 32), layout=TILES, device=row)


@mistake(
    Told.ERROR,
    OTHER,
    "rank 1 made no more calls",
    "on the 1x4 submesh of device 0",
    symptom="The other host of the row waits for ever; hosts of other rows go on.",
    mend="All hosts of a submesh make the same calls on it.",
)
def a_sum_more_on_a_row(mesh, corner):
    row = own_row(mesh)
    if corner != 1:
        ttnn.all_reduce(ones(row))


@mistake(
    Told.ERROR,
    OTHER,
    "dim=1",
    "dim=0",
    symptom="Hosts of a row hold different tensors; those of other rows are right.",
    mend="One dim on all hosts of the submesh.",
)
def another_dim_of_a_gather_in_a_row(mesh, corner):
    ttnn.all_gather(ones(own_row(mesh)), 1 if corner == 3 else 0)


@right
def rows_that_do_different_work(mesh, corner):
    row = own_row(mesh)
    for _ in range(1 + corner // 2):
        ttnn.all_reduce(ones(row))
    mesh.quiesce_devices()


@mistake(
    Told.LOCKSTEP,
    OTHER,
    "all values of the host",
    symptom=APART,
    mend="Load all of it from one source on every rank: each keeps its own part.",
)
def other_weights_in_the_second_row(mesh, corner):
    put(mesh, value=1.0 + corner // 2)


@right
def weights_of_one_source_that_are_split_in_three_ways(mesh, corner):
    put(mesh)
    put(mesh, dims=(0, None))
    put(mesh, dims=(0, 1))
