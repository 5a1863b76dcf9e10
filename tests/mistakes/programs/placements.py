"""Placements: shards, copies and contributions to a sum."""

import os

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
SILENT = "Numbers are wrong, and every call succeeds."


def split(mesh, rows=None, columns=-1, shape=(128, 128), layout=TILES):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(rows, columns))
    return ttnn.from_torch(torch.ones(*shape), layout=layout, device=mesh, mesh_mapper=mapper)


def copies(mesh, shape=(128, 128)):
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    return ttnn.from_torch(torch.ones(*shape), layout=TILES, device=mesh, mesh_mapper=mapper)


def factors(mesh):
    """Of a product whose inner dim is split over the columns of the mesh."""
    return split(mesh, None, 1), split(mesh, None, 0)


def contributions(mesh):
    return ttnn.matmul(*factors(mesh))


def read(tensor):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


# -- sums ----------------------------------------------------------------------------------------


@right
def a_product_is_summed(mesh):
    read(ttnn.all_reduce(contributions(mesh), cluster_axis=1))


@right
def a_product_is_summed_and_dealt(mesh):
    ttnn.reduce_scatter(contributions(mesh), 1, cluster_axis=1)


@mistake(
    Told.WARNING,
    "adds up over mesh axis 0",
    "Use cluster_axis=1",
    symptom="Results are too large by the number of rows and still differ between columns.",
    mend="Sum over the axis along which the inner dim of the product was split.",
)
def the_wrong_axis_is_summed(mesh):
    ttnn.all_reduce(contributions(mesh), cluster_axis=0)


@mistake(
    Told.WARNING,
    "adds up over mesh axis 0",
    "Use cluster_axis=1",
    symptom="Each device holds a piece of a sum of equal things; the contributions were never added.",
    mend="reduce_scatter over the axis along which the inner dim was split.",
)
def the_wrong_axis_is_summed_and_dealt(mesh):
    ttnn.reduce_scatter(contributions(mesh), 1, cluster_axis=0)


@mistake(
    Told.STRICT,
    "4 devices along mesh axis 1 hold the same",
    "4 times",
    symptom="Activations grow by the number of devices with each layer.",
    mend="Sum once: after the product whose inner dim is split, and not again.",
)
def a_sum_is_summed_again(mesh):
    ttnn.all_reduce(ttnn.all_reduce(contributions(mesh), cluster_axis=1), cluster_axis=1)


@mistake(
    Told.STRICT,
    "parts of dim 1",
    "ttnn.all_gather(x, 1, cluster_axis=1)",
    symptom="The result has the shape of one shard and is a sum of unrelated parts.",
    mend="Shards are put together with all_gather; all_reduce is for contributions.",
)
def shards_are_summed(mesh):
    ttnn.all_reduce(split(mesh), cluster_axis=1)


@mistake(
    Told.STRICT,
    "parts of dim 0",
    symptom=SILENT,
    mend="reduce_scatter adds up what the devices hold; to split another dim, gather first and partition then.",
)
def shards_are_summed_and_dealt(mesh):
    ttnn.reduce_scatter(split(mesh, None, 0), 1, cluster_axis=1)


@right
def both_axes_are_summed_one_after_the_other(mesh):
    left, right = (
        ttnn.from_torch(
            torch.ones(256, 256), layout=TILES, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=dim)
        )
        for dim in (1, 0)
    )
    x = ttnn.matmul(left, right)
    ttnn.all_reduce(ttnn.all_reduce(x, cluster_axis=0), cluster_axis=1)


# -- gathers -------------------------------------------------------------------------------------


@right
def shards_are_gathered(mesh):
    ttnn.all_gather(split(mesh), 1, cluster_axis=1)


@mistake(
    Told.WARNING,
    "contributions to a sum",
    "ttnn.all_reduce(x, cluster_axis=1)",
    symptom="The result is as many times too wide, and each part of it is a fraction of the sum.",
    mend="Contributions are added up: all_reduce, or reduce_scatter where the result stays split.",
)
def contributions_are_gathered(mesh):
    ttnn.all_gather(contributions(mesh), 1, cluster_axis=1)


@right
def contributions_are_stacked_and_added_up(mesh):
    """Contributions are stacked and added up, and nobody asked for strict mode"""
    asked, os.environ["SOFTMESH_STRICT"] = os.environ.get("SOFTMESH_STRICT", "0"), "0"
    x = ttnn.reshape(contributions(mesh), (1, 1, 128, 128))
    ttnn.sum(ttnn.all_gather(x, 0, cluster_axis=1), 0)
    os.environ["SOFTMESH_STRICT"] = asked


@mistake(
    Told.STRICT,
    "dim 1 was split over mesh axis 1, and dim 0 is put together",
    symptom="The shape is plausible and the values are interleaved wrongly.",
    mend="Gather along the dim that the mapper split.",
)
def another_dim_is_gathered(mesh):
    ttnn.all_gather(split(mesh), 0, cluster_axis=1)


@mistake(
    Told.STRICT,
    "2 devices along mesh axis 0 hold the same",
    symptom="The same part appears several times, and the others are missing.",
    mend="Gather over the axis that the dim was split over.",
)
def the_wrong_axis_is_gathered(mesh):
    ttnn.all_gather(split(mesh), 1, cluster_axis=0)


# -- contributions that are taken for the whole ----------------------------------------------------


@mistake(
    Told.WARNING,
    "relu",
    "still Partial(sum)",
    "ttnn.all_reduce(input_tensor, cluster_axis=1)",
    symptom="Accuracy is lost: the activation of a sum is not the sum of activations.",
    mend="all_reduce before anything that is not linear.",
)
def contributions_are_activated(mesh):
    ttnn.relu(contributions(mesh))


@right
def the_sum_is_activated(mesh):
    ttnn.relu(ttnn.all_reduce(contributions(mesh), cluster_axis=1))


@right
def contributions_are_scaled(mesh):
    ttnn.all_reduce(ttnn.multiply(contributions(mesh), 0.5), cluster_axis=1)


@mistake(
    Told.STRICT,
    "one device holds",
    "still Partial(sum)",
    symptom="The host sees a fraction of the result.",
    mend="all_reduce first, then read any device.",
)
def one_contribution_is_read(mesh):
    read(contributions(mesh))


@mistake(
    Told.WARNING,
    "to_torch",
    "still Partial(sum)",
    symptom="The host gets all contributions side by side and takes them for the result.",
    mend="all_reduce first.",
)
def contributions_are_composed(mesh):
    ttnn.to_torch(contributions(mesh), mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, tuple(mesh.shape), dims=(0, 1)))


@right
def a_bias_on_one_device_only(mesh):
    rows = torch.zeros(4, 128)
    rows[0] = 1.0
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0))
    bias = ttnn.from_torch(rows, layout=TILES, device=mesh, mesh_mapper=mapper)
    ttnn.all_reduce(ttnn.add(contributions(mesh), bias), cluster_axis=1)


@right
def a_bias_on_one_device_is_stacked_and_dealt(mesh):
    """Zeros on the others: each adds its row."""
    rows = torch.zeros(4, 1, 128)
    rows[0] = 1.0
    product = ttnn.reshape(contributions(mesh), (1, 128, 128))
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0))
    bias = ttnn.from_torch(rows, layout=TILES, device=mesh, mesh_mapper=mapper)
    read(ttnn.all_reduce(ttnn.add(product, bias), cluster_axis=1))


@mistake(
    Told.STRICT,
    "unless what each of them adds was divided by 4 before",
    symptom="The bias is in the result once for each device.",
    mend="Add it after the sum, on one device only, or divided by the number of devices.",
)
def a_bias_that_all_devices_add(mesh):
    ttnn.all_reduce(ttnn.add(contributions(mesh), copies(mesh, (1, 128))), cluster_axis=1)


@mistake(
    Told.STRICT,
    "their sum has it 4 times, unless it was divided by 4 before",
    symptom="The bias is in the result once for each device.",
    mend="Add it after the sum, or divided by the number of devices.",
)
def a_bias_of_a_product_that_is_still_to_be_summed(mesh):
    ttnn.all_reduce(ttnn.linear(*factors(mesh), bias=copies(mesh, (1, 128))), cluster_axis=1)


@mistake(
    Told.WARNING,
    "gelu: input_tensor is still Partial(sum)",
    symptom="Each device goes on with a fraction of the result.",
    mend="all_reduce before the gelu.",
)
def a_sum_with_a_bias_is_forgotten(mesh):
    ttnn.gelu(ttnn.linear(*factors(mesh), bias=copies(mesh, (1, 128))))


@mistake(
    Told.REMARK,
    "unless what each of them adds was divided by 4 before",
    symptom="The residual is in the result once for each device.",
    mend="all_reduce first, then add the residual.",
)
def a_residual_that_all_devices_add(mesh):
    ttnn.all_reduce(ttnn.add(contributions(mesh), copies(mesh)), cluster_axis=1)


@right
def a_bias_is_added_to_the_sum(mesh):
    ttnn.add(ttnn.all_reduce(contributions(mesh), cluster_axis=1), copies(mesh))


# -- ops along a dim of which each device has a part -----------------------------------------------


@mistake(
    Told.STRICT,
    "softmax: dim 1 is split over mesh axis 1",
    "normalises its own part",
    symptom="Each device's part adds up to one; the whole does not.",
    mend="Gather the dim first, or keep it whole and split another.",
)
def softmax_of_parts(mesh):
    ttnn.softmax(split(mesh), dim=-1)


@right
def softmax_along_a_whole_dim(mesh):
    ttnn.softmax(split(mesh), dim=0)
    ttnn.softmax(split(mesh, None, 0), dim=-1)


@right
def softmax_of_what_was_gathered(mesh):
    ttnn.softmax(ttnn.all_gather(split(mesh), 1, cluster_axis=1), dim=-1)


@mistake(
    Told.STRICT,
    "layer_norm: dim 1 is split",
    "layer_norm_pre_all_gather",
    symptom="Each device normalises by the mean of its own part.",
    mend="Use layer_norm_pre_all_gather, all_gather the statistics, and layer_norm_post_all_gather.",
)
def layer_norm_of_parts(mesh):
    ttnn.layer_norm(split(mesh))


@mistake(
    Told.STRICT,
    "rms_norm: dim 1 is split",
    "rms_norm_pre_all_gather",
    symptom="Each device normalises by the root mean square of its own part.",
    mend="Use rms_norm_pre_all_gather, all_gather the statistics, and rms_norm_post_all_gather.",
)
def rms_norm_of_parts(mesh):
    ttnn.rms_norm(split(mesh))


@right
def norms_of_whole_rows(mesh):
    ttnn.layer_norm(split(mesh, None, 0))
    ttnn.rms_norm(copies(mesh))


@mistake(
    Told.STRICT,
    "topk: dim 1 is split over mesh axis 1",
    "looks at its own part",
    symptom="Each device returns the best of its own part.",
    mend="Gather the dim first, or gather what each found and choose again.",
)
def the_best_of_each_part(mesh):
    ttnn.topk(split(mesh, shape=(32, 512)), 32, dim=-1)


@mistake(
    Told.STRICT,
    "argmax: dim 1 is split over mesh axis 1",
    "count from the start of that part",
    symptom="Tokens are from the first part of the vocabulary only.",
    mend="Gather the logits first.",
)
def the_largest_of_each_part(mesh):
    ttnn.argmax(split(mesh, layout=ROWS), dim=-1)


@right
def the_best_of_all(mesh):
    ttnn.topk(ttnn.all_gather(split(mesh, shape=(32, 512)), 1, cluster_axis=1), 32, dim=-1)


# -- right programs of several steps ---------------------------------------------------------------


@right
def a_product_by_columns_and_one_by_rows(mesh):
    hidden = ttnn.gelu(ttnn.matmul(copies(mesh), split(mesh, None, 1)))
    read(ttnn.all_reduce(ttnn.matmul(hidden, split(mesh, None, 0)), cluster_axis=1))


@right
def a_sum_that_stays_dealt_and_is_gathered_later(mesh):
    part = ttnn.reduce_scatter(contributions(mesh), 1, cluster_axis=1)
    read(ttnn.softmax(ttnn.all_gather(ttnn.relu(part), 1, cluster_axis=1), dim=-1))


@right
def rows_are_a_batch_and_columns_a_model(mesh):
    x, w = split(mesh, 0, None), split(mesh, None, 1)
    y = ttnn.all_gather(ttnn.matmul(x, w), 1, cluster_axis=1)
    ttnn.to_torch(y, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, tuple(mesh.shape), dims=(0, 1)))


@right
def both_dims_are_split_and_composed(mesh):
    composer = ttnn.ConcatMesh2dToTensor(mesh, tuple(mesh.shape), dims=(0, 1))
    ttnn.to_torch(ttnn.gelu(split(mesh, 0, 1)), mesh_composer=composer)


@right
def statistics_of_parts_are_gathered(mesh):
    x = split(mesh, shape=(32, 512))
    parts = ttnn.rms_norm_pre_all_gather(x)
    whole = ttnn.all_gather(parts, 1, cluster_axis=1)
    ttnn.rms_norm_post_all_gather(x, whole)


@right
def copies_are_partitioned_and_put_together(mesh):
    read(ttnn.all_gather(ttnn.mesh_partition(copies(mesh), 1, 1), 1, cluster_axis=1))


@right
def one_device_tells_the_others(mesh):
    read(ttnn.broadcast(split(mesh), ttnn.MeshCoordinate(0, 1), cluster_axis=1))


@right
def everybody_tells_everybody(mesh):
    for part in ttnn.all_broadcast(split(mesh), cluster_axis=1):
        read(part)


@right
def contributions_are_added_before_the_sum(mesh):
    read(ttnn.all_reduce(ttnn.add(contributions(mesh), contributions(mesh)), cluster_axis=1))


@right
def a_mean_over_devices(mesh):
    read(ttnn.multiply(ttnn.all_reduce(contributions(mesh), cluster_axis=1), 1 / 4))


@right
def a_residual_is_added_after_the_sum(mesh):
    x = copies(mesh)
    read(ttnn.add(x, ttnn.all_reduce(contributions(mesh), cluster_axis=1)))


# -- averages, and what is handed on ---------------------------------------------------------------


def averages(mesh):
    """Of the rows that each device has."""
    return ttnn.mean(split(mesh, None, 0), dim=0, keepdim=True)


@mistake(
    Told.STRICT,
    "all_reduce: along mesh axis 1 4 devices hold averages of their own",
    "divide it by 4",
    symptom="The loss, or the mean, is too large by the number of devices.",
    mend="Divide the sum of the averages by their number.",
)
def averages_are_summed(mesh):
    ttnn.all_reduce(averages(mesh), cluster_axis=1)


@right
def averages_are_put_together_on_the_host(mesh):
    """Averages are put together, and nobody asked for strict mode"""
    asked, os.environ["SOFTMESH_STRICT"] = os.environ.get("SOFTMESH_STRICT", "0"), "0"
    composer = ttnn.ConcatMesh2dToTensor(mesh, tuple(mesh.shape), dims=(1, 0))
    ttnn.to_torch(averages(mesh), mesh_composer=composer).mean()
    ttnn.multiply(ttnn.all_reduce(averages(mesh), cluster_axis=1), 1 / 4)
    os.environ["SOFTMESH_STRICT"] = asked


@mistake(
    Told.STRICT,
    "adds up over axis 0 too, along which 2 devices hold the same",
    "Use cluster_axis=1",
    symptom="The result is too large by the number of rows of the mesh.",
    mend="Name the axis along which the inner dim was split.",
)
def contributions_are_summed_over_all_axes(mesh):
    ttnn.all_reduce(contributions(mesh))


@mistake(
    Told.STRICT,
    "what it hands on is one of them, not the whole",
    symptom="All devices agree on a fraction of the sum.",
    mend="all_reduce gives the whole to all of them.",
)
def one_contribution_is_broadcast(mesh):
    ttnn.broadcast(contributions(mesh), ttnn.MeshCoordinate(0, 1), cluster_axis=1)


@right
def a_sum_is_broadcast(mesh):
    whole = ttnn.all_reduce(contributions(mesh), cluster_axis=1)
    read(ttnn.broadcast(whole, ttnn.MeshCoordinate(0, 1), cluster_axis=1))


for work, says in (
    (lambda x: ttnn.std(x, dim=1), "std: dim 1 is split over mesh axis 1"),
    (lambda x: ttnn.var(x, dim=1), "var: dim 1 is split over mesh axis 1"),
    (lambda x: ttnn.roll(x, 1, 1), "roll: dim 1 is split over mesh axis 1"),
):

    @mistake(Told.STRICT, says, symptom=SILENT, mend="Gather the dim first, or keep it whole and split another.")
    def program(mesh, work=work):
        work(split(mesh))

    program.__doc__ = f"{says.partition(':')[0]} of parts"

    @right
    def program(mesh, work=work):
        work(split(mesh, None, 0))

    program.__doc__ = f"{says.partition(':')[0]} along a whole dim"
