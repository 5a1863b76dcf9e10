"""Composers that do not fit the mesh, and copies that are put side by side."""

import numpy as np
import torch
from catalogue import Told, mistake, right, unknowable

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


# -- copies side by side ---------------------------------------------------------------------------------

TIMES = "The batch comes back several times as large, and a sum or a count over it is wrong by that factor."
FORGOTTEN = "Give from_torch the mapper; of what all devices share, read one copy."


def batch(mesh, mapper=None):
    return ttnn.from_torch(torch.randn(4, 32), layout=TILES, device=mesh, mesh_mapper=mapper)


@mistake(
    Told.STRICT,
    "aggregate_tensor: 8 devices hold the same, and the result [32, 32] has it 8 times side by side",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def copies_are_aggregated_on_the_host(mesh):
    whole = ttnn.aggregate_tensor(batch(mesh).cpu(), ttnn.ConcatMeshToTensor(mesh, dim=0))
    ttnn.to_torch(whole).sum()


@mistake(
    Told.STRICT,
    "8 devices hold the same, and the result [32, 32] has it 8 times side by side",
    "Was the mapper forgotten",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def a_batch_was_never_split_and_is_composed(mesh):
    composed(mesh, ttnn.gelu(batch(mesh)), 0).argmax(-1)


@mistake(
    Told.STRICT,
    "2 devices hold the same, and the result [8, 128] has it 2 times side by side",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def rows_of_the_mesh_hold_the_same_and_are_composed(mesh):
    x = ttnn.from_torch(
        torch.randn(4, 128), layout=TILES, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(None, 1))
    )
    composed(mesh, x, 0, 1).sum()


@mistake(
    Told.STRICT,
    "8 devices hold the same, and the result [32, 32] has it 8 times side by side",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def a_default_composer_reads_a_batch_that_was_never_split(mesh):
    with ttnn.distribute(ttnn.ConcatMeshToTensor(mesh, dim=0)):
        print(ttnn.to_torch(batch(mesh)).shape)


@mistake(
    Told.STRICT,
    "torch.cat: 8 devices hold the same, and the result [32, 32] has it 8 times side by side",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def copies_of_all_devices_are_put_together_in_torch(mesh):
    logits = torch.cat([ttnn.to_torch(one).float() for one in ttnn.get_device_tensors(batch(mesh))])
    logits.softmax(-1).sum()


@mistake(
    Told.STRICT,
    "2 devices hold the same, and the result [8, 128] has it 2 times side by side",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def rows_of_the_mesh_hold_the_same_and_nobody_looks_at_the_result(mesh):
    x = ttnn.from_torch(
        torch.randn(4, 128), layout=TILES, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(None, 1))
    )
    composed(mesh, ttnn.relu(x), 0, 1)


EIGHTFOLD = "8 devices hold the same, and the result [32, 32] has it 8 times side by side"


@mistake(Told.STRICT, EIGHTFOLD, symptom=TIMES, mend=FORGOTTEN)
def a_numpy_array_of_copies_is_added_up(mesh):
    composed(mesh, batch(mesh), 0).float().numpy().sum()


@mistake(Told.STRICT, EIGHTFOLD, symptom=TIMES, mend=FORGOTTEN)
def the_largest_of_each_row_of_a_numpy_array_of_copies(mesh):
    logits = batch(mesh).cpu().to_numpy(ttnn.ConcatMeshToTensor(mesh, dim=0))
    print(np.argmax(logits, axis=-1).shape)


@mistake(Told.STRICT, EIGHTFOLD, symptom=TIMES, mend=FORGOTTEN)
def tokens_of_copies_are_counted_in_a_list(mesh):
    tokens = composed(mesh, batch(mesh), 0).argmax(-1).tolist()
    print(len(tokens), "tokens")


@mistake(Told.STRICT, EIGHTFOLD, symptom=TIMES, mend=FORGOTTEN)
def copies_are_flattened_for_a_norm(mesh):
    composed(mesh, batch(mesh), 0).reshape(-1).norm()


@mistake(Told.STRICT, EIGHTFOLD, symptom=TIMES, mend=FORGOTTEN)
def copies_are_multiplied_with_a_weight_of_as_many_rows(mesh):
    (composed(mesh, batch(mesh), 0) @ torch.randn(32, 2)).sum()


@mistake(
    Told.STRICT,
    "numpy.concatenate: 8 devices hold the same, and the result [32, 32] has it 8 times side by side",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def copies_of_all_devices_are_put_together_in_numpy(mesh):
    np.concatenate([ttnn.to_torch(one).numpy() for one in ttnn.get_device_tensors(batch(mesh))]).sum()


@mistake(Told.STRICT, "torch.cat: " + EIGHTFOLD, symptom=TIMES, mend=FORGOTTEN)
def pieces_of_a_tensor_on_the_host_are_put_together(mesh):
    torch.cat([one.to_torch() for one in ttnn.get_device_tensors(batch(mesh).cpu())]).sum()


@mistake(Told.STRICT, "aggregate_tensor: " + EIGHTFOLD, symptom=TIMES, mend=FORGOTTEN)
def copies_are_aggregated_and_written_to_a_file(mesh, folder):
    whole = ttnn.aggregate_tensor(batch(mesh).cpu(), ttnn.ConcatMeshToTensor(mesh, dim=0))
    ttnn.dump_tensor(f"{folder}/batch.tensorbin", whole)


@unknowable(
    "Who goes through the rows one by one may compare them with each other or with what he expects, and what is done "
    "with a row in Python is not seen.",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def rows_of_copies_are_gone_through_one_by_one(mesh):
    for row in composed(mesh, batch(mesh), 0):
        float(row.sum())


@unknowable(
    "A program that compares the devices' sums takes the same steps. Numbers in Python remember nothing.",
    symptom=TIMES,
    mend=FORGOTTEN,
)
def sums_of_copies_are_added_up_in_python(mesh):
    sum(float(ttnn.to_torch(one).sum()) for one in ttnn.get_device_tensors(batch(mesh)))


@right
def sums_of_copies_are_divided_by_their_number(mesh):
    x = batch(mesh)
    composed(mesh, x, 0).sum() / 8
    composed(mesh, x, 0).sum().item() / 8
    composed(mesh, x, 0).pow(2).sum() / composed(mesh, x, 0)[:].numel()
    (composed(mesh, x, 0) - composed(mesh, ttnn.relu(x), 0)).abs().mean()


@right
def copies_in_numpy_and_in_lists_are_told_apart(mesh):
    values = torch.randn(4, 32)
    x = ttnn.from_torch(values, layout=TILES, device=mesh)

    def array():
        return composed(mesh, x, 0).numpy()

    np.testing.assert_allclose(array(), np.tile(values.numpy(), (8, 1)))
    np.array_equal(array(), array())
    np.split(array(), 8)
    np.asarray(array())[:4]
    torch.from_numpy(array())[:4]
    array().reshape(8, 4, 32)[0].sum()
    array().reshape(-1)[:128]
    array().mean()
    np.argmax(array(), -1)[:4]
    assert len(set(composed(mesh, x, 0).argmax(-1).tolist())) <= 4
    composed(mesh, x, 0).topk(2).indices[:4]
    for _ in zip(range(4), composed(mesh, x, 0).argmax(-1).tolist(), strict=False):
        pass


@right
def what_a_collective_made_whole_is_read_on_all_devices(mesh):
    x = ttnn.from_torch(
        torch.randn(4, 128), layout=TILES, device=mesh, mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(0, 1))
    )
    composed(mesh, ttnn.relu(ttnn.all_gather(x, 1, cluster_axis=1)), 0, 1)


@right
def aggregated_copies_go_back_to_the_mesh(mesh):
    whole = ttnn.aggregate_tensor(batch(mesh).cpu(), ttnn.ConcatMeshToTensor(mesh, dim=0))
    ttnn.distribute_tensor(whole, ttnn.ShardTensorToMesh(mesh, dim=0), mesh)
    ttnn.to_device(ttnn.aggregate_tensor(batch(mesh).cpu(), ttnn.ConcatMeshToTensor(mesh, dim=0)), mesh)


@right
def copies_that_are_composed_are_told_apart(mesh):
    """One is taken, or all are compared."""
    x, first = batch(mesh), ttnn.to_torch(ttnn.get_device_tensors(batch(mesh))[0])
    composed(mesh, x, 0)[:4]
    composed(mesh, x, 0).float().argmax(-1)[:4]
    composed(mesh, x, 0).chunk(8)
    composed(mesh, x, 0).view(8, 4, 32)[0].sum()
    composed(mesh, x, 0).numpy()[:4]
    torch.equal(composed(mesh, x, 0), first.repeat(8, 1))
    torch.allclose(composed(mesh, x, 0), composed(mesh, x, 0))
    composed(mesh, x, 0).mean()
    ttnn.to_torch(ttnn.aggregate_tensor(x.cpu(), ttnn.ConcatMeshToTensor(mesh, dim=0)))[:4]
    ttnn.from_torch(composed(mesh, x, 0), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))


@right
def pieces_of_devices_are_put_together_in_torch(mesh):
    split = ttnn.get_device_tensors(put(mesh, None, 1))
    torch.cat([ttnn.to_torch(one) for one in split[:4]], -1).sum()
    copies = [ttnn.to_torch(one) for one in ttnn.get_device_tensors(batch(mesh))]
    torch.stack(copies).sum()
    torch.cat(copies)[:4].sum()
    (copies[0] * 2).sum()


@right
def one_row_of_each_device_is_stacked(mesh):
    x = ttnn.from_torch(torch.randn(1, 1, 32, 32), layout=TILES, device=mesh)
    composed(mesh, x, 0).sum()
