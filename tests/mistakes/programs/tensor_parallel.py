"""Layers whose weights are split: factors, sums and parts that do not belong to each other."""

import torch
from catalogue import Told, mistake, right, unknowable

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


# -- what all devices share, beside what is split ------------------------------------------------------

FIRST_ONES = "Every device uses the values of the first part: one part of the result is right, the others are not."


@mistake(
    Told.STRICT,
    "linear: dim 1 is split over mesh axis 1, and bias [1, 32] is the same on all 4 devices",
    "Split it along dim 1",
    symptom=FIRST_ONES,
    mend="Split the bias as the columns of the weight.",
)
def a_bias_of_split_columns_is_not_split(mesh):
    ttnn.linear(split(mesh), split(mesh, None, 1), bias=split(mesh, shape=(1, 32)))


@right
def a_bias_of_split_columns_is_split(mesh):
    ttnn.linear(split(mesh), split(mesh, None, 1), bias=split(mesh, None, 1, (1, 128)))
    ttnn.linear(split(mesh, None, 0), split(mesh), bias=split(mesh, shape=(1, 128)))


@mistake(
    Told.STRICT,
    "add: dim 2 is split over mesh axis 1, and input_tensor_b [1, 1, 32, 128] is the same on all 4 devices",
    symptom="Tokens of later parts do not see what comes before them, and see what does not.",
    mend="Split the mask along the queries, as the scores are.",
)
def a_causal_mask_of_the_first_queries_for_all_parts(mesh):
    ttnn.add(split(mesh, None, 2, (1, 8, 128, 128)), split(mesh, shape=(1, 1, 32, 128)))


@mistake(
    Told.STRICT,
    "add: dim 2 is split over mesh axis 1, and input_tensor_b [1, 1, 32, 128] is the same on all 4 devices",
    symptom="All parts of the sequence count their positions from 0.",
    mend="Split the table of positions as the sequence is.",
)
def positions_of_the_first_part_for_all_parts(mesh):
    ttnn.add(split(mesh, None, 2, (1, 1, 128, 128)), split(mesh, shape=(1, 1, 32, 128)))


@right
def masks_and_positions_are_split_as_the_sequence_is(mesh):
    scores = split(mesh, None, 2, (1, 8, 128, 128))
    ttnn.add(scores, split(mesh, None, 2, (1, 1, 128, 128)))
    ttnn.add(split(mesh, None, 1, (1, 8, 128, 128)), split(mesh, shape=(1, 1, 128, 128)))
    ttnn.multiply(scores, split(mesh, shape=(1, 1, 1, 128)))


@mistake(
    Told.STRICT,
    "matmul: dim 1 is split over mesh axis 1, and input_tensor_b [1, 2, 64, 128] is the same on all 4 devices",
    symptom=FIRST_ONES,
    mend="Split the heads of the keys as those of the queries.",
)
def queries_in_parts_meet_the_first_keys(mesh):
    ttnn.matmul(split(mesh, None, 1, (1, 8, 128, 64)), split(mesh, shape=(1, 2, 64, 128)))


@right
def queries_in_parts_meet_their_keys(mesh):
    ttnn.matmul(split(mesh, None, 1, (1, 8, 128, 64)), split(mesh, None, 1, (1, 8, 64, 128)))
    ttnn.matmul(split(mesh, None, 2, (1, 8, 128, 64)), split(mesh, shape=(1, 8, 64, 128)))


@mistake(
    Told.STRICT,
    "concat: dim 1 is split over mesh axis 1, and tensors[1] [1, 2, 32, 64] is the same on all 4 devices",
    symptom="All heads attend to the new keys of the first ones.",
    mend="Split the weights of the new keys by heads, as those of the cache.",
)
def new_keys_of_the_first_heads_are_appended_to_all(mesh):
    ttnn.concat([split(mesh, None, 1, (1, 8, 32, 64)), split(mesh, shape=(1, 2, 32, 64))], 2)


@right
def tokens_and_positions_that_are_repeated_for_each_sample(mesh):
    patches = split(mesh, None, 0, (8, 32, 64))
    tokens = ttnn.concat([ttnn.repeat(split(mesh, shape=(1, 32, 64)), (2, 1, 1)), patches], 1)
    ttnn.add(tokens, ttnn.repeat(split(mesh, shape=(1, 64, 64)), (2, 1, 1)))
    ttnn.concat([split(mesh, None, 1, (1, 8, 32, 64)), split(mesh, None, 1, (1, 8, 32, 64))], 2)


def normed_by(mesh, weight):
    x = split(mesh, None, 3, (1, 1, 32, 512))
    stats = ttnn.all_gather(ttnn.rms_norm_pre_all_gather(x), 3, cluster_axis=1)
    ttnn.rms_norm_post_all_gather(x, stats, weight=weight)


@mistake(
    Told.STRICT,
    "rms_norm_post_all_gather: dim 3 is split over mesh axis 1, and the weight or bias [1, 1, 1, 128] is the same",
    symptom=FIRST_ONES,
    mend="Split the weight of the norm as the rows are.",
)
def a_norm_of_split_rows_with_one_weight(mesh):
    normed_by(mesh, split(mesh, shape=(1, 1, 1, 128)))


@right
def a_norm_of_split_rows_with_a_split_weight(mesh):
    normed_by(mesh, split(mesh, None, 3, (1, 1, 1, 512)))


# -- contributions that are put side by side -----------------------------------------------------------


@mistake(
    Told.STRICT,
    "contributions to a sum (Partial(sum)), and it puts them side by side, unless they are added up next",
    symptom="A batch of as many results as there are devices, each of them a fraction of the one.",
    mend="all_reduce; or ttnn.sum over the dim along which they were stacked.",
)
def contributions_are_stacked(mesh):
    x = ttnn.reshape(contributions(mesh), (1, 1, 128, 128))
    ttnn.softmax(ttnn.all_gather(x, 0, cluster_axis=1), dim=-1)


@right
def contributions_are_stacked_and_added_up(mesh):
    for dim in (0, 1):
        x = ttnn.reshape(contributions(mesh), (1, 1, 128, 128))
        stacked = ttnn.to_memory_config(ttnn.all_gather(x, dim, cluster_axis=1), ttnn.L1_MEMORY_CONFIG)
        ttnn.softmax(ttnn.sum(ttnn.typecast(stacked, ttnn.float32), dim, keepdim=True), dim=-1)
        ttnn.relu(ttnn.experimental.fast_reduce_nc(ttnn.typecast(stacked, ttnn.bfloat16), dims=[dim]))


@right
def sums_and_maxima_of_rows_are_gathered_and_combined(mesh):
    for combine in (ttnn.sum, ttnn.max):
        ttnn.relu(
            combine(ttnn.all_gather(combine(split(mesh, None, 1), 1, keepdim=True), 1, cluster_axis=1), 1, keepdim=True)
        )


# -- a fused weight of queries, keys and values --------------------------------------------------------------


def fused_heads(mesh, weight):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    weight = ttnn.from_torch(weight, layout=TILES, device=mesh, mesh_mapper=mapper)
    rows = ttnn.matmul(split(mesh, shape=(1, 32, 64)), weight)
    return ttnn.transformer.split_query_key_value_and_split_heads(rows, num_heads=1)


ANOTHERS = "The first devices take queries for keys and values, the last ones values for queries."
IN_ORDER = "On the host, put the queries, keys and values of each device side by side: q0 k0 v0 q1 k1 v1 and so on."


@mistake(
    Told.STRICT,
    "the 384 columns were joined of 128 + 128 + 128 by torch.cat and cut in 4 parts of 96 as they stand",
    symptom=ANOTHERS,
    mend=IN_ORDER,
)
def a_fused_weight_is_cut_as_it_stands_and_made_into_heads(mesh):
    fused_heads(mesh, torch.cat([*torch.randn(3, 64, 128)], -1))


@mistake(
    Told.STRICT,
    "the 512 columns were joined of 256 + 128 + 128 by torch.cat and cut in 4 parts of 128 as they stand",
    symptom=ANOTHERS,
    mend=IN_ORDER,
)
def weights_and_biases_of_groups_of_queries_are_joined_and_cut(mesh):
    """Stored as in torch, turned, and as long as a part or two."""
    weight = torch.concat([torch.randn(256, 64), torch.randn(128, 64), torch.randn(128, 64)]).T.contiguous().bfloat16()
    columns = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 1))
    weight = ttnn.from_torch(weight, layout=TILES, device=mesh, mesh_mapper=columns)
    bias = split(mesh, None, 1, (1, 512))
    fused = ttnn.linear(ttnn.typecast(split(mesh, shape=(1, 1, 32, 64)), ttnn.bfloat16), weight) + bias
    ttnn.experimental.nlp_create_qkv_heads(fused, num_heads=2, num_kv_heads=1, transpose_k_heads=False)


@unknowable(
    "A weight that was put in order when it was saved has the same shape, and the same calls follow: which columns are "
    "queries, keys and values is in no number. A comparison with the model in torch shows it.",
    symptom=ANOTHERS,
    mend=IN_ORDER,
)
def a_fused_weight_of_a_checkpoint_is_cut_as_it_stands_and_made_into_heads(mesh):
    fused_heads(mesh, torch.randn(64, 384))


@right
def a_fused_weight_is_put_in_order_device_by_device(mesh):
    parts = [one.chunk(4, -1) for one in torch.randn(3, 64, 128)]
    fused_heads(mesh, torch.cat([one for part in zip(*parts, strict=True) for one in part], -1))
    fused_heads(mesh, torch.cat([torch.cat(part, -1) for part in zip(*parts, strict=True)], -1))
    whole = torch.cat([*torch.randn(3, 64, 128)], -1)
    fused_heads(mesh, whole.reshape(64, 3, 4, 32).transpose(1, 2).reshape(64, 384))
    batch = ttnn.from_torch(
        torch.cat([torch.randn(3, 32, 96), torch.randn(5, 32, 96)]),
        layout=TILES,
        device=mesh,
        mesh_mapper=ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0)),
    )
    ttnn.transformer.split_query_key_value_and_split_heads(batch, num_heads=1)
    fused_heads(mesh, whole[:, torch.arange(384).reshape(3, 4, 32).transpose(0, 1).flatten()])


@right
def pieces_that_were_put_in_order_are_cut_apart(mesh):
    """Gates and what they let pass; rows are cut out of columns in any order."""
    gate, up = (one.chunk(4, -1) for one in torch.randn(2, 64, 256))
    columns = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    joined = torch.cat([one for pair in zip(gate, up, strict=True) for one in pair], -1)
    weight = ttnn.from_torch(joined, layout=TILES, device=mesh, mesh_mapper=columns)
    for cut in (lambda x: ttnn.split(x, 64, 2), lambda x: ttnn.chunk(x, 2, 2), lambda x: (x[:, :, :64], x[:, :, 64:])):
        first, second = cut(ttnn.matmul(split(mesh, shape=(1, 32, 64)), weight))
        ttnn.multiply(ttnn.silu(first), second)
    padded = torch.cat([torch.randn(64, 200), torch.zeros(64, 56)], -1)
    weight = ttnn.from_torch(padded, layout=TILES, device=mesh, mesh_mapper=columns)
    ttnn.slice(ttnn.matmul(split(mesh, shape=(1, 64, 64)), weight), [0, 0, 0], [1, 32, 64])


def columns_of(mesh, values):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    return ttnn.from_torch(values, layout=TILES, device=mesh, mesh_mapper=mapper)


@right
def pieces_that_a_permutation_put_in_order_are_cut_apart(mesh):
    """In the ways in which such weights are put in order, whether or not they came in one piece."""
    whole, turned = torch.randn(64, 384), torch.randn(384, 64)
    in_order = [
        whole.reshape(64, 3, 4, 32).transpose(1, 2).reshape(64, 384),
        whole.view(64, 3, 4, 32).permute(0, 2, 1, 3).contiguous().view(64, 384),
        whole.unflatten(-1, (3, 4, -1)).transpose(-3, -2).flatten(-3),
        turned.view(3, 4, 32, 64).transpose(0, 1).reshape(384, 64).T.contiguous(),
        whole[:, torch.arange(384).reshape(3, 4, 32).transpose(0, 1).flatten()],
        torch.index_select(whole, 1, torch.arange(384).reshape(3, 4, 32).transpose(0, 1).flatten()),
        torch.stack([one.reshape(64, 4, 32) for one in torch.randn(3, 64, 128)], dim=2).reshape(64, 384),
    ]
    for weight in in_order:
        query, key, _ = ttnn.split(ttnn.matmul(split(mesh, shape=(1, 32, 64)), columns_of(mesh, weight)), 32, 2)
        ttnn.multiply(query, key)


@right
def gates_and_values_of_each_device_lie_side_by_side(mesh):
    gate, up = torch.randn(2, 256, 64)
    weight = torch.cat([part for pair in zip(gate.chunk(4), up.chunk(4), strict=True) for part in pair]).T
    ttnn.swiglu(ttnn.matmul(split(mesh, shape=(1, 1, 32, 64)), columns_of(mesh, weight)), -1)


AS_THEY_STAND = "the 384 columns were joined of 128 + 128 + 128 by torch.cat and cut in 4 parts of 96 as they stand"


@mistake(Told.STRICT, AS_THEY_STAND, symptom=ANOTHERS, mend=IN_ORDER)
def weights_that_hstack_joined_are_made_into_heads(mesh):
    fused_heads(mesh, torch.hstack([*torch.randn(3, 64, 128)]))


@mistake(Told.STRICT, AS_THEY_STAND, symptom=ANOTHERS, mend=IN_ORDER)
def weights_that_were_stacked_in_a_row_are_made_into_heads(mesh):
    fused_heads(mesh, torch.stack([*torch.randn(3, 64, 128)], dim=1).reshape(64, 384))


@right
def parts_that_a_permutation_put_in_order_are_summed_and_taken_apart(mesh):
    """As the shifts, scales and gates of a diffusion model are."""
    weight = torch.randn(128, 768).unflatten(-1, (6, 4, -1)).transpose(-3, -2).flatten(-3)
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 0))
    weight = ttnn.from_torch(weight, layout=TILES, device=mesh, mesh_mapper=mapper)
    own = ttnn.reduce_scatter(ttnn.matmul(split(mesh, None, 3, (1, 1, 1, 128)), weight), 3, cluster_axis=1)
    six = ttnn.reshape(own, [1, 1, 1, 6, -1])
    shift, scale = (ttnn.squeeze(six[:, :, :, at : at + 1, :], 3) for at in (0, 1))
    ttnn.add(shift, scale)
    ttnn.all_gather(six, 4, cluster_axis=1)


@right
def weights_are_joined_on_each_device(mesh):
    weights, biases = ([columns_of(mesh, torch.randn(rows, 128)) for _ in range(3)] for rows in (64, 1))
    weight, bias, x = ttnn.concat(weights, -1), ttnn.concat(biases, -1), split(mesh, shape=(1, 32, 64))
    ttnn.transformer.split_query_key_value_and_split_heads(ttnn.linear(x, weight, bias=bias), num_heads=1)
    ttnn.split(ttnn.add(ttnn.matmul(x, ttnn.typecast(weight, ttnn.bfloat16)), bias), 32, 2)


@mistake(
    Told.STRICT,
    "concat: dim 1 is split over mesh axis 1",
    "part by part between each other",
    symptom="Columns of both tensors lie in turns.",
    mend="Gather both, then join them.",
)
def two_tensors_are_joined_on_each_device_and_gathered(mesh):
    joined = ttnn.concat([split(mesh, None, 1), split(mesh, None, 1)], 1)
    ttnn.all_gather(ttnn.relu(joined), 1, cluster_axis=1)


@mistake(
    Told.STRICT,
    "split: dim 2 is split over mesh axis 1",
    symptom=ANOTHERS,
    mend=IN_ORDER,
)
def pieces_that_were_stacked_and_laid_side_by_side_are_cut_apart(mesh):
    weight = torch.randn(3, 64, 128).permute(1, 0, 2).reshape(64, 384)
    ttnn.split(ttnn.matmul(split(mesh, shape=(1, 32, 64)), columns_of(mesh, weight)), 32, 2)


@mistake(
    Told.STRICT,
    "split: dim 2 is split over mesh axis 1",
    symptom=ANOTHERS,
    mend=IN_ORDER,
)
def pieces_that_were_joined_as_they_stand_are_cut_apart(mesh):
    columns = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    joined = torch.cat([*torch.randn(2, 64, 256)], -1)
    weight = ttnn.from_torch(joined, layout=TILES, device=mesh, mesh_mapper=columns)
    ttnn.split(ttnn.matmul(split(mesh, shape=(1, 32, 64)), weight), 64, 2)


@right
def columns_of_the_vocabulary_are_joined_on_each_device(mesh):
    """The columns of each weight were taken from those that a device is to have."""
    blocks = torch.randn(64, 4, 2, 32)
    columns = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, -1))
    weights = [
        ttnn.from_torch(blocks[:, :, i].flatten(1), layout=TILES, device=mesh, mesh_mapper=columns) for i in (0, 1)
    ]
    x = split(mesh, shape=(1, 32, 64))
    parts = [ttnn.to_memory_config(ttnn.linear(x, weight), ttnn.L1_MEMORY_CONFIG) for weight in weights]
    logits = ttnn.concat([ttnn.typecast(part, ttnn.bfloat16) for part in parts], -1)
    ttnn.to_torch(logits, mesh_composer=ttnn.ConcatMesh2dToTensor(mesh, tuple(mesh.shape), dims=(0, -1)))[:1]


@right
def one_head_of_each_device_is_cut_in_halves_and_turned(mesh):
    columns = ttnn.matmul(split(mesh, shape=(1, 32, 64)), split(mesh, None, 1, (64, 256)))
    head = ttnn.permute(ttnn.reshape(columns, (1, 32, 1, 64)), (0, 2, 1, 3))
    ttnn.concat([ttnn.neg(head[..., 32:]), head[..., :32]], -1)
