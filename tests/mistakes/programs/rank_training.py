"""Training on a mesh of several ranks: what all of them must synchronise and update alike."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh import train

TILES = ttnn.TILE_LAYOUT
OTHER = "runs another program than the rest: call number"
APART = "Copies of one parameter come apart between hosts; the loss is that of no single model."


def after_backward(mesh):
    """Two parameters of one shape that all share, with gradients of parts of a batch."""
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0))
    batch = ttnn.from_torch(torch.ones(128, 32), layout=TILES, device=mesh, mesh_mapper=mapper)
    params = [ttnn.from_torch(torch.ones(32, 32), layout=TILES, device=mesh).requires_grad_() for _ in range(2)]
    ttnn.mean(ttnn.matmul(ttnn.matmul(batch, params[0]), params[1])).backward()
    return params


@mistake(
    Told.ERROR,
    OTHER,
    "in sync_gradients(",
    "on memory at",
    symptom="Gradients of different parameters are added up: every step goes somewhere else.",
    mend="Go through parameters in one order, not in that of a set.",
)
def gradients_are_synchronised_in_another_order(mesh, rank):
    first, second = after_backward(mesh)
    train.sync_gradients([first, second] if rank else [second, first], axes=[1])


@mistake(Told.ERROR, OTHER, "axes=[0]", symptom=APART, mend="Synchronise over one set of axes on all ranks.")
def gradients_are_synchronised_over_another_axis(mesh, rank):
    train.sync_gradients(after_backward(mesh), axes=[rank])
    ttnn.synchronize_device(mesh)


@mistake(Told.ERROR, OTHER, "SGD.step(", "made no more calls", symptom=APART, mend="Step on all ranks, or on none.")
def one_rank_makes_the_step(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    if rank:
        train.SGD(params, lr=0.1).step()


@mistake(Told.ERROR, OTHER, "lr=0.1", "lr=0.2", symptom=APART, mend="One schedule, counted in steps, on all ranks.")
def another_learning_rate(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    train.SGD(params, lr=0.1 + 0.1 * rank).step()


@mistake(Told.ERROR, OTHER, "max_norm=", symptom=APART, mend="One bound of the norm on all ranks.")
def another_bound_of_the_norm(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    train.clip_grad_norm(params, 1.0 + rank)


@right
def a_step_of_training(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    train.clip_grad_norm(params, 1.0)
    train.SGD(params, lr=0.1).step()


@right
def one_rank_writes_down_the_loss(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    if rank == 0:
        str([ttnn.to_torch(ttnn.get_device_tensors(param.grad)[0]).sum() for param in params])
    train.SGD(params, lr=0.1).step()
