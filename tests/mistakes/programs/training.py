"""Training: gradients that are summed too often, or never."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT


def split(mesh, dim):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, dim))
    return ttnn.from_torch(torch.ones(128, 128), layout=TILES, device=mesh, mesh_mapper=mapper)


def copies(mesh):
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    return ttnn.from_torch(torch.ones(128, 128), layout=TILES, device=mesh, mesh_mapper=mapper)


@mistake(
    Told.WARNING,
    "gradients before it are 4 times too large",
    "noop_backward=True",
    symptom="Training diverges, or needs a learning rate smaller by the number of devices.",
    mend="Use the all_reduce of training with noop_backward=True where the gradient is the same on every device.",
)
def a_sum_whose_gradient_is_summed_again(mesh):
    w = split(mesh, 0).requires_grad_()
    y = ttnn.all_reduce(ttnn.matmul(split(mesh, 1), w), cluster_axis=1)
    ttnn.mean(ttnn.multiply(y, y)).backward()


@right
def gradients_of_a_product_that_stays_split(mesh):
    w = split(mesh, 1).requires_grad_()
    ttnn.mean(ttnn.matmul(copies(mesh), w)).backward()
