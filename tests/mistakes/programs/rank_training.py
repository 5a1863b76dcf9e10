"""Training on a mesh of several ranks: what all of them must synchronise and update alike."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh import train

TILES = ttnn.TILE_LAYOUT
OTHER = "runs another program than the rest: call number"
APART = "Copies of one parameter come apart between hosts; the loss is that of no single model."


def parameters(mesh):
    return [ttnn.from_torch(torch.ones(32, 32), layout=TILES, device=mesh).requires_grad_() for _ in range(2)]


def after_backward(mesh):
    """Two parameters of one shape that all share, with gradients of parts of a batch."""
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0))
    batch = ttnn.from_torch(torch.ones(128, 32), layout=TILES, device=mesh, mesh_mapper=mapper)
    params = parameters(mesh)
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


for setting, (one, another) in {
    "betas": ((0.9, 0.999), (0.9, 0.95)),
    "eps": (1e-8, 1e-6),
    "weight_decay": (0.0, 0.01),
}.items():

    @mistake(Told.ERROR, OTHER, f"{setting}=", symptom=APART, mend="One configuration of the optimizer on all ranks.")
    def program(mesh, rank, setting=setting, values=(one, another)):
        params = after_backward(mesh)
        train.sync_gradients(params, axes=[1])
        train.AdamW(params, **{setting: values[rank]}).step()

    program.__name__ = f"another_{setting}_of_an_optimizer"
    program.__doc__ = f"An optimizer with another {setting} on one rank"


@mistake(Told.ERROR, OTHER, "momentum=0.9", symptom=APART, mend="One configuration of the optimizer on all ranks.")
def momentum_on_one_rank(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    train.SGD(params, lr=0.1, momentum=0.9 * rank).step()


@mistake(Told.ERROR, OTHER, "steps=9", "steps=0", symptom=APART, mend="Restore the count of steps on all ranks.")
def the_count_of_steps_is_restored_on_one_rank(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    optimizer = train.AdamW(params, lr=0.1)
    optimizer.set_steps(9 * rank)
    optimizer.step()


@mistake(Told.ERROR, OTHER, "AdamW.load_state_dict(", symptom=APART, mend="Load the state on all ranks.")
def the_state_of_an_optimizer_is_loaded_on_one_rank(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    optimizer = train.AdamW(params, lr=0.1)
    state = optimizer.state_dict()
    optimizer.step()
    if rank:
        optimizer.load_state_dict(state)


@right
def the_state_of_an_optimizer_is_loaded_on_all_ranks(mesh, rank):
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    optimizer = train.AdamW(params, lr=0.1, betas=(0.9, 0.95))
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()


@mistake(Told.ERROR, OTHER, "of 1 parameter on", symptom=APART, mend="Every rank takes every parameter into its loss.")
def a_parameter_without_a_gradient_on_one_rank(mesh, rank):
    x, (first, second) = ttnn.ones((32, 32), layout=TILES, device=mesh), parameters(mesh)
    ttnn.mean(ttnn.matmul(x, ttnn.matmul(first, first if rank else second))).backward()
    train.SGD([first, second], lr=0.1, skip_missing=True).step()


def saved_run(mesh, folder, steps=(1, 2)):
    """Parameters that have gone on since their last checkpoint, and the run's folder."""
    params = after_backward(mesh)
    train.sync_gradients(params, axes=[1])
    optimizer = train.SGD(params, lr=0.1)
    for step in steps:
        optimizer.step()
        train.checkpoints.save(folder, params, optimizer, step=step)
    optimizer.step()
    return params, optimizer


@mistake(
    Told.ERROR,
    OTHER,
    "checkpoints.load(step=2,",
    "made no more calls",
    symptom=APART,
    mend="Load a checkpoint on every rank: each fills its own devices.",
)
def a_checkpoint_is_loaded_on_one_rank(mesh, rank, run="run-of-one"):
    params, optimizer = saved_run(mesh, run)
    if rank == 0:
        train.checkpoints.load(run, params, optimizer)


@mistake(Told.ERROR, OTHER, "(step=1,", "(step=2,", symptom=APART, mend="Let all ranks load the same step.")
def another_step_is_loaded(mesh, rank, run="run-of-two-steps"):
    params, optimizer = saved_run(mesh, run)
    train.checkpoints.load(run, params, optimizer, step=1 + rank)


@mistake(Told.ERROR, OTHER, "content ", symptom=APART, mend="Let all ranks load the same run.")
def another_run_is_loaded(mesh, rank):
    params, _ = saved_run(mesh, "run-a", steps=(1,))
    saved_run(mesh, "run-b", steps=(0, 1))
    train.checkpoints.load("run-b" if rank else "run-a", params, step=1)


@mistake(Told.ERROR, OTHER, "into the model, the optimizer)", symptom=APART, mend="Load the optimizer on all ranks.")
def an_optimizer_is_loaded_on_one_rank(mesh, rank, run="run-with-state"):
    params, optimizer = saved_run(mesh, run)
    train.checkpoints.load(run, params, optimizer if rank else None)


@right
def a_checkpoint_is_loaded_on_all_ranks(mesh, rank, run="run-of-all"):
    params, optimizer = saved_run(mesh, run)
    train.checkpoints.load(run, params, optimizer)
    optimizer.step()


@mistake(
    Told.REPORT,
    OTHER,
    "checkpoints.save(step=1,",
    symptom="The rank that saves waits in its barrier for ranks that train on: a hang.",
    mend="Save on every rank: each writes what its devices hold, and the first one the index.",
)
def a_checkpoint_is_saved_on_one_rank(mesh, rank):
    params = after_backward(mesh)
    if rank == 0:
        train.checkpoints.save("run-of-the-first", params, step=1)
    ttnn.synchronize_device(mesh)


def thinned_out(mesh, seed, **others):
    copies = ttnn.ones((32, 128), layout=TILES, device=mesh)
    ttnn.experimental.dropout(copies, 0.5, 2.0, seed, **others)


@mistake(
    Told.ERROR,
    OTHER,
    "dropout(seed=8",
    symptom="Copies of one activation have other zeros on each host.",
    mend="One seed on all ranks, or use_per_device_seed=True and a sum that counts with it.",
)
def another_seed_where_devices_are_to_drop_alike(mesh, rank):
    thinned_out(mesh, 7 + rank, use_per_device_seed=False)


@right
def one_seed_where_devices_are_to_drop_alike(mesh, rank):
    thinned_out(mesh, 7, use_per_device_seed=False)


@right
def another_seed_where_each_device_drops_for_itself(mesh, rank):
    thinned_out(mesh, 7 + rank)


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
