"""Gradients that are added up twice."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh import train

TILES = ttnn.TILE_LAYOUT
DIVERGES = "Training diverges, or needs a learning rate smaller by the number of devices."


def split(mesh, dim, shape=(128, 128)):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, dim))
    return ttnn.from_torch(torch.ones(*shape), layout=TILES, device=mesh, mesh_mapper=mapper)


def after_backward(mesh):
    """A parameter that all share, with gradients of parts of a batch."""
    w = ttnn.from_torch(torch.ones(32, 32), layout=TILES, device=mesh).requires_grad_()
    ttnn.mean(ttnn.matmul(split(mesh, 0, (128, 32)), w)).backward()
    return w


@mistake(
    Told.WARNING,
    "sync_gradients: the gradient of parameter 0 was added up over the 4 devices along mesh axis 1 before",
    symptom=DIVERGES,
    mend="Synchronise once a step, behind the last backward pass.",
)
def gradients_are_synchronised_twice(mesh):
    w = after_backward(mesh)
    train.sync_gradients([w], axes=[1])
    train.sync_gradients([w], axes=[1])


@mistake(
    Told.WARNING,
    "sync_gradients: the gradient of parameter 0 was added up",
    symptom=DIVERGES,
    mend="Leave one of the two out.",
)
def gradients_are_summed_by_hand_and_synchronised(mesh):
    w = after_backward(mesh)
    w.grad = ttnn.all_reduce(w.grad, cluster_axis=1)
    train.sync_gradients([w], axes=[1])


@mistake(
    Told.WARNING,
    "all_reduce: the gradient was added up over the 4 devices along mesh axis 1 before",
    symptom=DIVERGES,
    mend="Leave one of the two out.",
)
def synchronised_gradients_are_summed_by_hand(mesh):
    w = after_backward(mesh)
    train.sync_gradients([w], axes=[1])
    w.grad = ttnn.all_reduce(w.grad, cluster_axis=1)


@mistake(
    Told.WARNING,
    "reduce_scatter: the gradient was added up",
    symptom=DIVERGES,
    mend="Cut a gradient that was added up with mesh_partition.",
)
def a_summed_gradient_is_summed_and_dealt(mesh):
    w = after_backward(mesh)
    ttnn.reduce_scatter(ttnn.all_reduce(w.grad, cluster_axis=1), 1, cluster_axis=1)


@mistake(
    Told.WARNING,
    "gradients before it are 4 times too large",
    "experimental.all_reduce_async",
    symptom=DIVERGES,
    mend="Use the all_reduce of training with noop_backward=True.",
)
def an_asynchronous_sum_whose_gradient_is_summed_again(mesh):
    w = split(mesh, 0).requires_grad_()
    y = ttnn.experimental.all_reduce_async(
        ttnn.matmul(split(mesh, 1), w), cluster_axis=1, mesh_device=mesh, math_op=ttnn.ReduceType.Sum
    )
    ttnn.mean(ttnn.multiply(y, y)).backward()


@mistake(
    Told.WARNING,
    "the gradient that comes to all_gather",
    'gradients="replicated"',
    symptom=DIVERGES,
    mend='Use the all_gather of training with gradients="replicated".',
)
def a_gather_whose_gradient_is_the_same_on_all_devices(mesh):
    w = split(mesh, 1).requires_grad_()
    x = ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh)
    y = ttnn.all_gather(ttnn.matmul(x, w), 1, cluster_axis=1)
    ttnn.mean(ttnn.multiply(y, y)).backward()


@right
def gradients_are_synchronised_once_a_step(mesh):
    w = after_backward(mesh)
    for _ in range(2):
        train.sync_gradients([w], axes=[1])
        w.grad = None
        ttnn.mean(ttnn.matmul(split(mesh, 0, (128, 32)), w)).backward()


@right
def gradients_are_summed_by_hand(mesh):
    w = after_backward(mesh)
    w.grad = ttnn.multiply(ttnn.all_reduce(w.grad, cluster_axis=1), 0.25)


@right
def gradients_are_accumulated_and_synchronised(mesh):
    w = after_backward(mesh)
    ttnn.mean(ttnn.matmul(split(mesh, 0, (128, 32)), w)).backward()
    train.sync_gradients([w], axes=[1])


@right
def a_sum_whose_gradient_is_handed_on(mesh):
    w = split(mesh, 0).requires_grad_()
    y = train.all_reduce(ttnn.matmul(split(mesh, 1), w), 1, noop_backward=True)
    ttnn.mean(ttnn.multiply(y, y)).backward()


@right
def a_gather_whose_gradient_is_cut(mesh):
    w = split(mesh, 1).requires_grad_()
    x = ttnn.from_torch(torch.ones(32, 128), layout=TILES, device=mesh)
    y = train.all_gather(ttnn.matmul(x, w), 1, 1, gradients="replicated")
    ttnn.mean(ttnn.multiply(y, y)).backward()


@right
def a_gathered_weight_with_a_part_of_the_batch_each(mesh):
    w = split(mesh, 1, (32, 128)).requires_grad_()
    whole = ttnn.all_gather(w, 1, cluster_axis=1)
    ttnn.mean(ttnn.matmul(split(mesh, 0, (128, 32)), whole)).backward()


def accumulated(mesh, average):
    w = after_backward(mesh)
    train.sync_gradients([w], axes=[1], average=average)
    ttnn.mean(ttnn.matmul(split(mesh, 0, (128, 32)), w)).backward()
    train.sync_gradients([w], axes=[1], average=average)


@mistake(
    Told.WARNING,
    "holds what was added up over the 4 devices along mesh axis 1 before",
    "a sum makes the first part 4 times too large",
    symptom="The first of the accumulated batches counts as often as there are devices.",
    mend="Synchronise once a step, behind the last backward pass.",
)
def gradients_are_summed_between_two_backward_passes(mesh):
    accumulated(mesh, average=False)


@right
def averages_of_gradients_are_added_to(mesh):
    accumulated(mesh, average=True)


def two_steps(mesh, after):
    w = after_backward(mesh)
    optimizer = train.SGD([w], lr=0.1)
    for _ in range(2):
        train.sync_gradients([w], axes=[1])
        optimizer.step()
        after(optimizer)
        ttnn.mean(ttnn.matmul(split(mesh, 0, (128, 32)), w)).backward()
    train.sync_gradients([w], axes=[1])


@mistake(
    Told.STRICT,
    "holds what the step at",
    "Call zero_grad() behind each step",
    symptom="Each step goes on in the direction of all steps before it: training swings and diverges.",
    mend="optimizer.zero_grad() behind optimizer.step().",
)
def gradients_of_the_step_before_stay(mesh):
    two_steps(mesh, lambda optimizer: None)


@right
def gradients_are_taken_away_behind_each_step(mesh):
    two_steps(mesh, lambda optimizer: optimizer.zero_grad())


# -- gradients of which the program says that all devices have the same ---------------------------------

LACKING = "Training is slower than on one device, and goes somewhere else: most of the gradient is missing."


def two_layers(mesh, enter):
    """A sum, and a layer behind it whose weights are split by columns, then by rows."""
    first, second, third = (split(mesh, dim).requires_grad_() for dim in (0, 1, 0))
    whole = train.all_reduce(ttnn.matmul(split(mesh, 1), first), 1, noop_backward=True)
    hidden = ttnn.relu(ttnn.matmul(enter(whole), second))
    ttnn.mean(train.all_reduce(ttnn.matmul(hidden, third), 1, noop_backward=True)).backward()


@mistake(
    Told.WARNING,
    "the gradient that comes to all_reduce(noop_backward=True)",
    "is not the same on the 4 devices along mesh axis 1",
    "broadcast(x, axis)",
    symptom=LACKING,
    mend="softmesh.train's broadcast(x, axis) before a layer whose weights are split: backwards it adds up.",
)
def a_layer_that_is_split_is_entered_without_a_broadcast(mesh):
    two_layers(mesh, lambda x: x)


@right
def a_layer_that_is_split_is_entered_through_a_broadcast(mesh):
    two_layers(mesh, lambda x: train.broadcast(x, 1))


def gathered_before_a_split_layer(mesh, gradients):
    first, second, third = (split(mesh, dim).requires_grad_() for dim in (1, 1, 0))
    x = ttnn.from_torch(torch.rand(32, 128), layout=TILES, device=mesh)
    whole = train.all_gather(ttnn.matmul(x, first), 1, 1, gradients=gradients)
    hidden = ttnn.relu(ttnn.matmul(whole, second))
    ttnn.mean(train.all_reduce(ttnn.matmul(hidden, third), 1, noop_backward=True)).backward()


@mistake(
    Told.WARNING,
    'the gradient that comes to all_gather(gradients="replicated")',
    "is not the same on the 4 devices along mesh axis 1",
    symptom=LACKING,
    mend='Leave out gradients="replicated" where the layers behind it are split.',
)
def a_gather_whose_gradients_are_contributions(mesh):
    gathered_before_a_split_layer(mesh, "replicated")


@right
def a_gather_whose_gradients_are_added_up(mesh):
    gathered_before_a_split_layer(mesh, "partial")


# -- steps and scales ----------------------------------------------------------------------------------


def stepped(mesh, *after):
    """A step as it should be, and what comes behind it."""
    w = after_backward(mesh)
    optimizer = train.SGD([w], lr=0.1)
    train.sync_gradients([w], axes=[1])
    train.clip_grad_norm([w], 1.0)
    optimizer.step()
    for one in after:
        one(w, optimizer)


ONE_STEP = "One step for each backward pass, behind all that changes gradients."


@mistake(
    Told.STRICT,
    "SGD: the gradient of parameter 0 holds what the step at",
    "a second step goes the same way again",
    symptom="Steps are twice as long as the learning rate says.",
    mend=ONE_STEP,
)
def an_optimizer_steps_twice(mesh):
    stepped(mesh, lambda w, optimizer: optimizer.step())


@mistake(
    Told.STRICT,
    "AdamW: the gradient of parameter 0 holds what the step at",
    symptom="Two optimizers move one parameter.",
    mend="Give each parameter to one optimizer.",
)
def two_optimizers_share_a_parameter(mesh):
    stepped(mesh, lambda w, optimizer: train.AdamW([w], lr=0.1).step())


@mistake(
    Told.STRICT,
    "clip_grad_norm: the gradient of parameter 0 holds what the step at",
    "comes too late",
    symptom="Gradients are never clipped: training breaks down at the first bad batch.",
    mend=ONE_STEP,
)
def gradients_are_clipped_behind_the_step(mesh):
    stepped(mesh, lambda w, optimizer: train.clip_grad_norm([w], 1.0))


@right
def a_step_is_followed_by_the_next_backward_pass(mesh):
    def once_more(w, optimizer):
        optimizer.zero_grad()
        ttnn.mean(ttnn.matmul(split(mesh, 0, (128, 32)), w)).backward()
        train.sync_gradients([w], axes=[1])
        optimizer.step()

    stepped(mesh, once_more)


TOO_LONG = "Steps are longer than on one device, by the number of devices."


@mistake(
    Told.STRICT,
    "the loss was the average of each device's own part along mesh axis 1",
    "average=True",
    symptom=TOO_LONG,
    mend="Average the gradients of a mean; sum those of a sum.",
)
def gradients_of_means_are_summed(mesh):
    train.sync_gradients([after_backward(mesh)], axes=[1], average=False)


@mistake(
    Told.STRICT,
    "SGD: the gradient of parameter 0 was added up over the 4 devices along mesh axis 1 at",
    "Multiply it by 1/4",
    symptom=TOO_LONG,
    mend="Multiply the sum by one over the number of devices.",
)
def gradients_of_means_are_summed_by_hand_and_not_divided(mesh):
    w = after_backward(mesh)
    w.grad = ttnn.all_reduce(w.grad, cluster_axis=1)
    train.SGD([w], lr=0.1).step()


@right
def gradients_of_means_are_summed_by_hand_and_divided(mesh):
    w = after_backward(mesh)
    w.grad = ttnn.multiply(ttnn.all_reduce(w.grad, cluster_axis=1), 0.25)
    train.SGD([w], lr=0.1).step()


def scale_before_split_layers(mesh, average):
    """A scale that all devices share, before layers whose weights are split; all of them have the same loss."""
    scale = ttnn.from_torch(torch.rand(1, 128), layout=TILES, device=mesh).requires_grad_()
    x = ttnn.multiply(ttnn.from_torch(torch.rand(32, 128), layout=TILES, device=mesh), scale)
    hidden = ttnn.gelu(ttnn.matmul(x, split(mesh, 1)))
    y = train.all_reduce(ttnn.matmul(hidden, split(mesh, 0)), 1, noop_backward=True)
    ttnn.mean(ttnn.multiply(y, y)).backward()
    train.sync_gradients([scale], axes=[1], average=average)


@mistake(
    Told.STRICT,
    "all 4 devices along mesh axis 1 had the same loss",
    "average=False",
    symptom="Norms and biases before split layers learn too slowly, and the rest of the model does not.",
    mend="Sum what split layers bring; average what parts of a batch bring.",
)
def gradients_of_split_layers_are_averaged(mesh):
    scale_before_split_layers(mesh, average=True)


@right
def gradients_of_split_layers_are_summed(mesh):
    scale_before_split_layers(mesh, average=False)


def of_two_micro_batches(mesh, forget):
    w = after_backward(mesh)
    optimizer = train.SGD([w], lr=0.1)
    forget(optimizer)
    ttnn.mean(ttnn.matmul(split(mesh, 0, (128, 32)), w)).backward()
    train.sync_gradients([w], axes=[1])
    optimizer.step()
    optimizer.zero_grad()


@mistake(
    Told.STRICT,
    "zero_grad: it throws away the gradient of parameter 0",
    "behind each step",
    symptom="Accumulation has no effect: each step sees the last of its batches only.",
    mend="optimizer.zero_grad() behind the step, outside the loop over micro-batches.",
)
def gradients_are_taken_away_between_micro_batches(mesh):
    of_two_micro_batches(mesh, lambda optimizer: optimizer.zero_grad())


@right
def gradients_of_micro_batches_add_up(mesh):
    of_two_micro_batches(mesh, lambda optimizer: None)


@mistake(
    Told.WARNING,
    "parameter 0 and parameter 1 are the same parameter",
    symptom="A weight that two layers share learns twice as fast as the others.",
    mend="Give the optimizer each parameter once.",
)
def a_shared_parameter_is_given_twice(mesh):
    w = after_backward(mesh)
    train.SGD([w, w], lr=0.1)


@right
def parameters_of_equal_values_are_given(mesh):
    first, second = after_backward(mesh), after_backward(mesh)
    train.sync_gradients([first, second], axes=[1])
    train.SGD([first, second], lr=0.1).step()


@mistake(
    Told.ERROR,
    "weight: two parameters have this name",
    symptom="The weights of one of two models never change.",
    mend="A prefix before the names of each model's parameters.",
)
def parameters_of_two_models_have_one_name(mesh):
    train.SGD([("weight", after_backward(mesh)), ("weight", after_backward(mesh))], lr=0.1)


@right
def parameters_of_two_models_have_names_of_their_own(mesh):
    train.SGD([("first.weight", after_backward(mesh)), ("second.weight", after_backward(mesh))], lr=0.1)
