"""Tensors that are put together, cut or combined along other dims than they were split."""

import os

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES = ttnn.TILE_LAYOUT
SHUFFLED = "The tensor on the host has the wrong shape, or the right one with its parts in the wrong place."


def split(mesh, rows=None, columns=-1, shape=(128, 128)):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(rows, columns))
    return ttnn.from_torch(torch.ones(*shape), layout=TILES, device=mesh, mesh_mapper=mapper)


def in_a_row(mesh, dim, shape=(64, 256)):
    return ttnn.from_torch(
        torch.ones(*shape), layout=TILES, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=dim)
    )


def copies(mesh, shape=(128, 128)):
    return ttnn.from_torch(torch.ones(*shape), layout=TILES, device=mesh)


def contributions(mesh):
    return ttnn.matmul(split(mesh, None, 1), split(mesh, None, 0))


def composed(tensor, mesh, *dims):
    if len(dims) == 1:
        return ttnn.to_torch(tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=dims[0]))
    return ttnn.to_torch(tensor, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, tuple(mesh.shape), dims=dims))


# -- composers ---------------------------------------------------------------------------------------


@mistake(
    Told.STRICT,
    "dim 1 was split over mesh axis 0",
    "Compose along dim 1",
    symptom=SHUFFLED,
    mend="Compose along the dim that the mapper split.",
)
def shards_are_composed_along_another_dim(mesh):
    composed(in_a_row(mesh, 1), mesh, 0)


@mistake(
    Told.STRICT,
    "dim 0 was split over mesh axis 0",
    "along dim 1",
    symptom=SHUFFLED,
    mend="Give the composer the dims in the order of the mesh axes.",
)
def the_dims_of_a_composer_are_swapped(mesh):
    composed(split(mesh, 0, 1), mesh, 1, 0)


@mistake(
    Told.STRICT,
    "dim 0 was split over mesh axis 0",
    symptom=SHUFFLED,
    mend="A transpose moves the split along: compose along the dim where it is now.",
)
def a_transposed_tensor_is_composed_as_before(mesh):
    composed(ttnn.transpose(in_a_row(mesh, 1), 0, 1), mesh, 1)


@mistake(
    Told.STRICT,
    "dim 1 was split over mesh axis 1",
    "along dim 0",
    symptom="The dealt sum comes back with its parts behind each other.",
    mend="Compose along the dim that reduce_scatter dealt out.",
)
def a_dealt_sum_is_composed_along_another_dim(mesh):
    composed(ttnn.reduce_scatter(contributions(mesh), 1, cluster_axis=1), mesh, 1, 0)


@mistake(
    Told.STRICT,
    "dim 1 was split over mesh axis 1, and dim 0 is put together",
    symptom="The dealt sum is gathered with its parts behind each other.",
    mend="Gather along the dim that reduce_scatter dealt out.",
)
def a_dealt_sum_is_gathered_along_another_dim(mesh):
    ttnn.all_gather(ttnn.reduce_scatter(contributions(mesh), 1, cluster_axis=1), 0, cluster_axis=1)


@mistake(
    Told.STRICT,
    "from_device: this is what one device holds",
    "still Partial(sum)",
    symptom="Too small by what the other devices would add.",
    mend="Call all_reduce first, or add up the shards of all devices on the host.",
)
def one_contribution_comes_to_the_host(mesh):
    ttnn.get_device_tensors(contributions(mesh))[0].cpu().to_torch()


@right
def all_contributions_come_to_the_host_and_are_added_up(mesh):
    sum(ttnn.to_torch(one).float() for one in ttnn.get_device_tensors(contributions(mesh)))
    sum(one.to_torch().float() for one in ttnn.get_device_tensors(contributions(mesh).cpu()))


@mistake(
    Told.WARNING,
    "still Partial(sum)",
    symptom="Contributions side by side, taken for the tensor.",
    mend="Call all_reduce or reduce_scatter before the tensor goes to the host.",
)
def contributions_come_to_the_host_and_are_composed(mesh):
    whole = contributions(mesh).cpu()
    ttnn.to_torch(whole, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, tuple(mesh.shape), dims=(0, 1)))


@right
def shards_are_composed_as_they_were_split(mesh):
    composed(in_a_row(mesh, 1), mesh, 1)
    composed(in_a_row(mesh, 1), mesh, -1)
    composed(split(mesh, 0, 1), mesh, 0, 1)


@right
def copies_are_stacked_and_one_is_taken(mesh):
    composed(copies(mesh), mesh, 0)[:128]


@right
def rows_of_copies_are_stacked_and_one_is_taken(mesh):
    composed(split(mesh, None, 1), mesh, 0, 1)[:128]


@right
def a_transposed_tensor_is_composed_where_the_split_is_now(mesh):
    composed(ttnn.transpose(in_a_row(mesh, 1), 0, 1), mesh, 0)


@right
def a_dealt_sum_is_composed_as_it_was_dealt(mesh):
    dealt = ttnn.reduce_scatter(contributions(mesh), 1, cluster_axis=1)
    ttnn.to_torch(ttnn.get_device_tensors(ttnn.all_gather(dealt, 1, cluster_axis=1))[0])
    composed(dealt, mesh, 0, 1)[:128]


# -- cuts --------------------------------------------------------------------------------------------


@mistake(
    Told.WARNING,
    "mesh_partition: along mesh axis 1 4 devices hold contributions to a sum",
    "ttnn.reduce_scatter(x, dim, cluster_axis=1)",
    symptom="Each device has its own contribution to its part; what the others add to it is lost.",
    mend="Deal the sum out with reduce_scatter.",
)
def contributions_are_cut(mesh):
    ttnn.mesh_partition(contributions(mesh), 1, 1)


@mistake(
    Told.STRICT,
    "hold parts of dim 1 already",
    "comes first",
    symptom="Only blocks on the diagonal are left of the tensor.",
    mend="Gather it before it is cut along another dim.",
)
def parts_are_cut_again(mesh):
    ttnn.mesh_partition(split(mesh), 0, 1)


@right
def copies_are_cut(mesh):
    ttnn.mesh_partition(copies(mesh), 1, 1)


@right
def parts_are_cut_along_the_other_axis(mesh):
    ttnn.mesh_partition(split(mesh), 0, 0)


@mistake(
    Told.STRICT,
    "broadcast: along mesh axis 1 4 devices hold parts of dim 1",
    "ttnn.all_gather(x, 1, cluster_axis=1) gives every device the whole",
    symptom="Every device goes on with one part, and takes it for its own.",
    mend="Gather parts; broadcast what one device has and others need.",
)
def parts_are_broadcast(mesh):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 1))
    x = ttnn.from_torch(torch.randn(32, 128), layout=TILES, device=mesh, mesh_mapper=mapper)
    ttnn.broadcast(x, ttnn.MeshCoordinate(0, 1), cluster_axis=1)


@right
def what_one_device_has_is_broadcast(mesh):
    """The others hold zeros, or a row of each was stacked."""
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0))
    own = torch.cat([torch.randn(32, 32), torch.zeros(96, 32)])
    for values in (own, torch.randn(4, 32, 32)):
        x = ttnn.from_torch(values, layout=TILES, device=mesh, mesh_mapper=mapper)
        ttnn.broadcast(x, ttnn.MeshCoordinate(0, 0), cluster_axis=1)


# -- operands that do not meet -------------------------------------------------------------------------


@mistake(
    Told.STRICT,
    "add: over mesh axis 1 dim 0 of input_tensor_a [32, 32] and dim 1 of input_tensor_b [32, 32] are split",
    symptom="Numbers are wrong: rows of one tensor meet columns of the other.",
    mend="Split both along the same dim.",
)
def operands_are_split_along_different_dims(mesh):
    ttnn.add(split(mesh, None, 0, (128, 32)), split(mesh, None, 1, (32, 128)))


@mistake(
    Told.STRICT,
    "matmul: over mesh axis 1 dim 0 of input_tensor_b [32, 128] is split",
    "whole where they meet",
    symptom="Numbers are wrong: every device multiplies the same columns with rows of its own.",
    mend="Split the columns of the first factor along with the rows of the second.",
)
def the_inner_dim_of_one_factor_only_is_split(mesh):
    ttnn.matmul(copies(mesh, (128, 32)), split(mesh, None, 0))


@mistake(
    Told.STRICT,
    "cumsum: dim 1 is split over mesh axis 1",
    "begins anew at the start of its own part",
    symptom="The running sum falls back to zero at the border of each device.",
    mend="Gather the tensor first, or add the sums of the parts before.",
)
def a_running_sum_over_parts(mesh):
    ttnn.cumsum(split(mesh), 1)


@mistake(
    Told.STRICT,
    "scaled_dot_product_attention: dim 2 is split over mesh axis 1",
    "attends to its own part only",
    symptom="Tokens do not see what lies on other devices.",
    mend="Gather keys and values, or take one of the ring attentions.",
)
def attention_over_parts_of_the_sequence(mesh):
    x = split(mesh, None, 2, (1, 1, 128, 64))
    ttnn.transformer.scaled_dot_product_attention(x, x, x, is_causal=False)


@mistake(
    Told.STRICT,
    "embedding: dim 0 is split over mesh axis 1",
    "in its own rows",
    symptom="Every device looks up the same rows of another part of the table.",
    mend="Subtract each device's first row from the numbers, mask the others, and sum; or keep the table whole.",
)
def a_table_whose_rows_are_split(mesh):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0))
    table = ttnn.from_torch(torch.ones(128, 32), layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, mesh_mapper=mapper)
    numbers = torch.zeros(1, 32, dtype=torch.int32)
    ttnn.embedding(ttnn.from_torch(numbers, ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh), table)


@right
def attention_with_heads_or_queries_in_parts(mesh):
    heads = split(mesh, None, 1, (1, 4, 32, 64))
    ttnn.transformer.scaled_dot_product_attention(heads, heads, heads, is_causal=False)
    queries, keys = split(mesh, None, 2, (1, 1, 128, 64)), copies(mesh, (1, 1, 128, 64))
    ttnn.transformer.scaled_dot_product_attention(queries, keys, keys, is_causal=False)


@right
def a_running_sum_and_a_table_along_whole_dims(mesh):
    ttnn.cumsum(split(mesh), 0)
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 1))
    table = ttnn.from_torch(torch.ones(32, 128), layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, mesh_mapper=mapper)
    numbers = torch.zeros(1, 32, dtype=torch.int32)
    ttnn.embedding(ttnn.from_torch(numbers, ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh), table)


@right
def operands_are_split_alike(mesh):
    ttnn.add(split(mesh, None, 0), split(mesh, None, 0))
    ttnn.add(split(mesh, None, 1), copies(mesh, (128, 1)))


@right
def blocks_of_a_product_are_computed_around_a_ring(mesh):
    """Rows of one factor and columns of the other, as ring attention has them."""
    ttnn.matmul(split(mesh, None, 0), split(mesh, None, 1))


@right
def contributions_that_were_stacked_are_summed(mesh):
    ttnn.all_reduce(split(mesh, None, 0, (4, 1, 32, 32)), cluster_axis=1)


# -- outputs -----------------------------------------------------------------------------------------


@mistake(
    Told.WARNING,
    "matmul: the output tensor is one of the factors",
    symptom="Tiles of the product overwrite factors that other cores still read.",
    mend="Give the product memory of its own.",
)
def a_product_is_written_over_its_factor(mesh):
    x = copies(mesh)
    ttnn.matmul(x, copies(mesh), optional_output_tensor=x)


@right
def an_elementwise_op_is_written_over_its_operand(mesh):
    x = copies(mesh)
    ttnn.add(x, 1.0, output_tensor=x)
    ttnn.matmul(x, x, optional_output_tensor=copies(mesh))


# -- caches ------------------------------------------------------------------------------------------


def cache_and_table(mesh, rows):
    cache = ttnn.zeros((8, 1, 32, 32), ttnn.bfloat16, TILES, mesh)
    table = ttnn.from_torch(torch.tensor(rows, dtype=torch.int32), device=mesh, layout=ttnn.ROW_MAJOR_LAYOUT)
    return cache, table


def filled(mesh, rows):
    cache, table = cache_and_table(mesh, rows)
    values = ttnn.from_torch(torch.ones(1, 1, 64, 32), ttnn.bfloat16, layout=TILES, device=mesh)
    ttnn.experimental.paged_fill_cache(cache, values, table, batch_idx=0)


def updated(mesh, rows):
    cache, table = cache_and_table(mesh, rows)
    cores = ttnn.CoreGrid(y=1, x=2)
    shards = ttnn.create_sharded_memory_config((1, 2, 32, 32), core_grid=cores, strategy=ttnn.ShardStrategy.HEIGHT)
    values = ttnn.from_torch(torch.ones(1, 2, 32, 32), ttnn.bfloat16, layout=TILES, device=mesh, memory_config=shards)
    ttnn.experimental.paged_update_cache(cache, values, update_idxs=[5, 5], page_table=table)


@mistake(
    Told.STRICT,
    "two users write the same row of a block",
    symptom="Users see each other's tokens, now and then.",
    mend="Give each page of the cache to one user.",
)
def two_users_share_a_page(mesh):
    updated(mesh, [[0, 1], [0, 2]])


@mistake(
    Told.STRICT,
    "two parts of the sequence go to the same block",
    symptom="The prompt's first part is lost, or its second.",
    mend="Give each part of the sequence a page of its own.",
)
def two_parts_of_a_prompt_share_a_page(mesh):
    filled(mesh, [[1, 1]])


@right
def each_user_has_pages_of_its_own(mesh):
    updated(mesh, [[0, 1], [3, 2]])


@right
def each_part_of_a_prompt_has_a_page(mesh):
    filled(mesh, [[1, 4]])


# -- strict mode -------------------------------------------------------------------------------------


@mistake(
    Told.STRICT,
    "softmax: dim 1 is split over mesh axis 1",
    symptom="Each device normalises its part. The same call was made before anybody asked for strict mode.",
    mend="Gather the tensor first.",
)
def a_doubt_of_a_call_that_was_made_before_strict_mode(mesh):
    x, asked = split(mesh), os.environ.get("SOFTMESH_STRICT", "0")
    for mode in ("0", "0", asked):
        os.environ["SOFTMESH_STRICT"] = mode
        ttnn.softmax(x, dim=-1)


@right
def a_call_with_nothing_to_doubt_in_any_mode(mesh):
    x, asked = split(mesh), os.environ.get("SOFTMESH_STRICT", "0")
    for mode in ("0", "0", asked):
        os.environ["SOFTMESH_STRICT"] = mode
        ttnn.softmax(x, dim=0)


@right
def a_whole_sum_is_cut(mesh):
    ttnn.mesh_partition(ttnn.all_reduce(contributions(mesh), cluster_axis=1), 1, 1)


# -- memory of the host that a copy to the device reads ----------------------------------------------


TORN = "The device gets the new values, the old ones or some of both, now and then."
WAIT = "ttnn.synchronize_device before the torch tensor is written again, or two torch tensors in turn."


def lent(values):
    return ttnn.from_torch(values, ttnn.float32, layout=ttnn.ROW_MAJOR_LAYOUT)


def on_device(mesh):
    return ttnn.from_torch(torch.zeros(32, 32), ttnn.float32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh)


@mistake(
    Told.SANITIZER, "writes to a torch tensor [32, 32] while a copy to the device reads it", symptom=TORN, mend=WAIT
)
def a_torch_tensor_is_cleared_while_it_is_copied(mesh):
    rows, x = torch.ones(32, 32), on_device(mesh)
    ttnn.copy_host_to_device_tensor(lent(rows), x)
    rows.zero_()


@mistake(
    Told.SANITIZER, "writes to a torch tensor [32, 32] while a copy to the device reads it", symptom=TORN, mend=WAIT
)
def a_numpy_array_is_filled_for_the_next_step_too_early(mesh):
    rows, x = torch.ones(32, 32), on_device(mesh)
    host = lent(rows.numpy())
    ttnn.copy_host_to_device_tensor(host, x)
    rows.numpy()[:] = 2.0
    ttnn.to_torch(ttnn.get_device_tensors(ttnn.relu(x))[0])


@mistake(
    Told.SANITIZER, "writes to a torch tensor [32, 32] while a copy to the device reads it", symptom=TORN, mend=WAIT
)
def a_torch_tensor_changes_before_to_device_is_done(mesh):
    rows = torch.ones(32, 32)
    x = ttnn.to_device(lent(rows), mesh)
    rows.mul_(3.0)
    ttnn.synchronize_device(mesh)
    ttnn.relu(x)


@right
def a_torch_tensor_is_written_again_when_its_copy_is_done(mesh):
    rows, x = torch.ones(32, 32), on_device(mesh)
    for value in (1.0, 2.0):
        rows.fill_(value)
        ttnn.copy_host_to_device_tensor(lent(rows), x)
        ttnn.synchronize_device(mesh)
        ttnn.copy_host_to_device_tensor(lent(rows), x)
        ttnn.to_torch(ttnn.get_device_tensors(x)[0])
    rows.zero_()


@right
def host_tensors_of_their_own_memory_are_copied(mesh):
    rows, x = torch.ones(32, 32), on_device(mesh)
    ttnn.copy_host_to_device_tensor(lent(rows.clone()), x)
    ttnn.copy_host_to_device_tensor(
        ttnn.from_torch(rows, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT),
        ttnn.zeros((32, 32), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh),
    )
    rows.zero_()
