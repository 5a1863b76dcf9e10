"""Operands that nobody wrote: gradients, statistics and borders that an op reads whatever their argument is called."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
NEVER = "made of memory that nothing was written to since ttnn.empty"
OLD = "Results differ from run to run: they are made of what the memory held before."


def given(mesh, *shape, dtype=ttnn.bfloat16, layout=TILES):
    values = torch.rand(*shape, generator=torch.Generator().manual_seed(0)) + 0.5
    return ttnn.from_torch(values, dtype, layout=layout, device=mesh)


def empty(mesh, *shape, layout=TILES):
    return ttnn.empty(shape, ttnn.bfloat16, layout, mesh)


def read(tensor):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


# -- statistics of a norm ----------------------------------------------------------------------------


@mistake(
    Told.WARNING,
    NEVER,
    symptom="Rows come out scaled by whatever the memory held; nothing says that statistics are missing.",
    mend="Gather what ttnn.rms_norm_pre_all_gather returned, and give that.",
)
def rows_are_normalized_by_statistics_that_nobody_gathered(mesh):
    read(ttnn.rms_norm_post_all_gather(given(mesh, 1, 1, 32, 64), empty(mesh, 1, 1, 32, 128)))


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Give the statistics of ttnn.layer_norm_pre_all_gather, gathered.")
def statistics_of_a_layer_norm_are_an_empty_buffer(mesh):
    read(ttnn.layer_norm_post_all_gather(given(mesh, 1, 1, 32, 64), empty(mesh, 1, 1, 32, 128)))


@right
def statistics_are_gathered_into_a_buffer_of_empty_memory(mesh):
    x = ttnn.from_torch(
        torch.rand(1, 1, 32, 256), ttnn.bfloat16, layout=TILES, device=mesh, mesh_mapper=_along_rows(mesh)
    )
    whole = empty(mesh, 1, 1, 32, 128)
    own = ttnn.rms_norm_pre_all_gather(x)
    ttnn.all_gather(own, 3, cluster_axis=1, output_tensor=whole)
    read(ttnn.rms_norm_post_all_gather(x, whole))


def _along_rows(mesh):
    return ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), (None, 3))


# -- gradients ---------------------------------------------------------------------------------------


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Give the gradient of the loss by the softmax.")
def a_softmax_is_differentiated_without_a_gradient(mesh):
    read(ttnn.moreh_softmax_backward(ttnn.softmax(given(mesh, 1, 1, 32, 64), 3), empty(mesh, 1, 1, 32, 64), 3))


@right
def gradients_are_written_into_empty_memory(mesh):
    y, grad, made = ttnn.softmax(given(mesh, 1, 1, 32, 64), 3), given(mesh, 1, 1, 32, 64), empty(mesh, 1, 1, 32, 64)
    ttnn.moreh_softmax_backward(y, grad, 3, input_grad_tensor=made)
    read(made)


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Give the gradient of the loss by what the embedding returned.")
def a_table_gets_the_gradient_of_empty_memory(mesh):
    ids = ttnn.zeros((1, 32), ttnn.uint32, ROWS, mesh)
    read(ttnn.embedding_bw(ids, given(mesh, 64, 32), empty(mesh, 1, 1, 32, 32)))


@right
def a_table_is_only_asked_for_its_shape(mesh):
    ids = ttnn.zeros((1, 32), ttnn.uint32, ROWS, mesh)
    read(ttnn.embedding_bw(ids, empty(mesh, 64, 32), given(mesh, 1, 1, 32, 32)))


@mistake(
    Told.WARNING,
    NEVER,
    symptom="The first step goes in a random direction, and the momentum keeps it for long.",
    mend="Leave momentum_initialized=False at the first step: it makes the momentum.",
)
def the_first_step_goes_on_from_a_momentum_that_nobody_made(mesh):
    weight, slope, momentum = given(mesh, 32, 32), given(mesh, 32, 32), empty(mesh, 32, 32)
    read(ttnn.moreh_sgd(weight, slope, momentum, momentum=0.9, momentum_initialized=True)[0])


@right
def the_first_step_makes_the_momentum_in_empty_memory(mesh):
    weight, slope, momentum = given(mesh, 32, 32), given(mesh, 32, 32), empty(mesh, 32, 32)
    options = {"lr": 0.1, "momentum": 0.9, "momentum_buffer_out": momentum}
    ttnn.moreh_sgd(weight, slope, momentum, momentum_initialized=False, **options)
    made = ttnn.moreh_sgd(weight, slope, momentum, momentum_initialized=True, **options)
    read(made[0])
    read(momentum)


@right
def a_step_of_adam_without_maxima_reads_none(mesh):
    tensors = [given(mesh, 32, 32) for _ in range(4)]
    made = ttnn.moreh_adam(*tensors, step=1, max_exp_avg_sq_in=empty(mesh, 32, 32))
    read(made[0])


# -- borders, answers of experts ---------------------------------------------------------------------


def halo(mesh, pixels=24):
    return empty(mesh, pixels, 8, layout=ROWS)


def picture(mesh):
    return given(mesh, 1, 1, 4, 4, 8, layout=ROWS)


@mistake(
    Told.WARNING,
    NEVER,
    symptom="Seams along the borders of the parts of a picture.",
    mend="Fill the buffer with ttnn.experimental.neighbor_pad_halo first.",
)
def a_picture_gets_a_border_that_no_neighbour_sent(mesh):
    read(ttnn.experimental.halo_scatter(halo(mesh), picture(mesh), 1, 1))


@mistake(
    Told.WARNING,
    NEVER,
    symptom="Seams along the borders of the parts of a volume.",
    mend="Fill the halo buffer with ttnn.experimental.neighbor_pad_halo first.",
)
def a_convolution_reads_a_border_that_no_neighbour_sent(mesh):
    read(convolved(mesh, halo(mesh)))


def convolved(mesh, border):
    weight = ttnn.experimental.prepare_conv3d_weights(weight_tensor=given(mesh, 16, 8, 1, 3, 3, layout=ROWS))
    return ttnn.experimental.conv3d(
        input_tensor=picture(mesh),
        weight_tensor=weight,
        dtype=ttnn.bfloat16,
        output_channels=16,
        kernel_size=(1, 3, 3),
        padding=(0, 1, 1),
        halo_buffer=border,
    )


@right
def the_border_of_a_picture_fills_the_first_pixels_of_a_buffer(mesh):
    border, signal = halo(mesh, pixels=64), semaphore(mesh)
    x = picture(mesh)
    ttnn.experimental.neighbor_pad_halo(
        x, border, 1, 1, 0, 1, ttnn.Topology.Linear, signal, semaphore(mesh), semaphore(mesh), 3, 1, 1, 1, 1
    )
    read(ttnn.experimental.halo_scatter(border, x, 1, 1))
    read(convolved(mesh, border))


def semaphore(mesh):
    size = mesh.compute_with_storage_grid_size()
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(size.x - 1, size.y - 1))])
    return ttnn.create_global_semaphore(mesh, cores, 0)


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Run the experts and bring their answers back first.")
def answers_of_experts_are_added_before_they_came(mesh):
    weights = given(mesh, 1, 1, 32, 2, layout=ROWS)
    read(ttnn.experimental.deepseek_prefill.post_combine_reduce(empty(mesh, 1, 1, 32, 2, 64, layout=ROWS), weights))


@right
def answers_that_did_not_come_have_weight_0(mesh):
    """Cells of a cache that nobody wrote, next to those of the experts that answered."""
    answers = empty(mesh, 1, 32, 2, 64)
    ttnn.experimental.slice_write(given(mesh, 1, 32, 1, 64), answers, [0, 0, 0, 0], [1, 32, 1, 64], [1, 1, 1, 1])
    weights = ttnn.from_torch(torch.tensor([1.0, 0.0]).expand(1, 32, 2), ttnn.bfloat16, layout=TILES, device=mesh)
    read(ttnn.experimental.deepseek_prefill.post_combine_reduce(answers, weights, expert_dim=2))
