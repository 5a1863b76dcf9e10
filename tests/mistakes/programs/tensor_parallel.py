"""Layers whose weights are split: factors, sums and parts that do not belong to each other."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh import train

TILES = ttnn.TILE_LAYOUT


def split(mesh, rows=None, columns=None, shape=(128, 128)):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(rows, columns))
    return ttnn.from_torch(torch.rand(*shape), layout=TILES, device=mesh, mesh_mapper=mapper)


def contributions(mesh):
    return ttnn.matmul(split(mesh, None, 1), split(mesh, None, 0))


@mistake(
    Told.STRICT,
    "matmul: over mesh axis 1 dim 1 of input_tensor_a [32, 32] and dim 1 of input_tensor_b [32, 32] are split",
    "Distribute both along dims that meet",
    symptom="Shapes fit by chance, and each device multiplies its columns with rows that belong to others.",
    mend="Split the second weight of an MLP along its rows, where the first is split along its columns.",
)
def the_second_weight_is_split_by_columns_too(mesh):
    hidden = ttnn.gelu(ttnn.matmul(split(mesh, None, None, (32, 32)), split(mesh, None, 1, (32, 128))))
    ttnn.all_reduce(ttnn.matmul(hidden, split(mesh, None, 1, (32, 128))), cluster_axis=1)


@right
def the_second_weight_is_split_by_rows(mesh):
    hidden = ttnn.gelu(ttnn.matmul(split(mesh, None, None, (32, 32)), split(mesh, None, 1, (32, 128))))
    ttnn.all_reduce(ttnn.matmul(hidden, split(mesh, None, 0, (128, 32))), cluster_axis=1)


@mistake(
    Told.WARNING,
    "scatter: along mesh axis 1 4 devices hold contributions to a sum",
    "ttnn.reduce_scatter(x, dim, cluster_axis=1)",
    symptom="Each device goes on with its own contribution to its part.",
    mend="reduce_scatter adds up and deals out.",
)
def contributions_are_scattered(mesh):
    train.scatter(contributions(mesh), 1, 1)


@right
def a_sum_is_scattered(mesh):
    train.scatter(train.all_reduce(contributions(mesh), 1), 1, 1)


@mistake(
    Told.STRICT,
    "get_device_tensors: this is what one device holds of a tensor that is still Partial(sum)",
    symptom="Too small by what the other devices would add.",
    mend="all_reduce first, or add up the parts of all devices on the host.",
)
def one_contribution_is_taken_on_the_host(mesh):
    ttnn.get_device_tensors(ttnn.from_device(contributions(mesh)))[0].to_torch()


@right
def copies_of_a_sum_are_compared_on_the_host(mesh):
    whole = ttnn.from_device(ttnn.all_reduce(contributions(mesh), cluster_axis=1))
    first, *others = [one.to_torch() for one in ttnn.get_device_tensors(whole)]
    assert all(torch.equal(first, other) for other in others)
