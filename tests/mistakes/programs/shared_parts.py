"""Values of one part of what is split, which all devices share: gates, positions, gradients, optimizers."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
decode = ttnn.transformer.scaled_dot_product_attention_decode
decode_pages = ttnn.transformer.paged_scaled_dot_product_attention_decode


def put(mesh, values, rows=None, columns=None, layout=TILES, dtype=ttnn.float32):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(rows, columns))
    return ttnn.from_torch(values, dtype, layout=layout, device=mesh, mesh_mapper=mapper)


def numbers(mesh, values, columns=None):
    return put(mesh, torch.tensor(values), None, columns, ROWS, ttnn.int32)


def heads(mesh, columns=None, shape=(1, 8, 4, 32)):
    return put(mesh, torch.randn(*shape), None, columns, dtype=ttnn.bfloat16)


# -- gates and scales ------------------------------------------------------------------------------------

FIRST_PART = "One part of the result is right; the others were computed with the values of the first one."
ALIKE = "Split it with the mapper of the tensor that it goes with."


@mistake(
    Told.STRICT,
    "multiply: dim 1 is split over mesh axis 1, and input_tensor_b [1, 32, 1, 1] is the same on all 4 devices",
    symptom=FIRST_PART,
    mend=ALIKE,
)
def gates_of_the_first_channels_for_all_parts(mesh):
    ttnn.multiply(put(mesh, torch.randn(1, 128, 32, 32), None, 1), put(mesh, torch.rand(1, 32, 1, 1)))


@mistake(
    Told.STRICT,
    "multiply: dim 0 is split over mesh axis 1, and input_tensor_b [32, 1] is the same on all 4 devices",
    symptom=FIRST_PART,
    mend=ALIKE,
)
def weights_of_the_first_samples_for_all_parts(mesh):
    ttnn.multiply(put(mesh, torch.randn(128, 64), None, 0), put(mesh, torch.rand(32, 1)))


@mistake(
    Told.STRICT,
    "multiply: dim 1 is split over mesh axis 1, and input_tensor_b [1, 64] is the same on all 4 devices",
    symptom=FIRST_PART,
    mend=ALIKE,
)
def the_scale_of_a_norm_is_not_split_as_the_columns_are(mesh):
    ttnn.multiply(put(mesh, torch.randn(32, 256), None, 1), put(mesh, torch.rand(1, 64)))


@mistake(
    Told.STRICT,
    "where: dim 0 is split over mesh axis 1, and predicate [32, 1] is the same on all 4 devices",
    symptom=FIRST_PART,
    mend=ALIKE,
)
def a_choice_for_the_first_rows_for_all_parts(mesh):
    x = put(mesh, torch.randn(128, 64), None, 0)
    ttnn.where(put(mesh, torch.arange(32).reshape(32, 1) % 2.0), x, 0.0)


@mistake(
    Told.STRICT,
    "multiply: dim 1 is split over mesh axis 1, and input_tensor_b [32, 64] is the same on all 4 devices",
    symptom=FIRST_PART,
    mend=ALIKE,
)
def scores_of_the_first_columns_for_all_parts(mesh):
    ttnn.multiply(put(mesh, torch.randn(32, 256), None, 1), put(mesh, torch.randn(32, 64)))


@mistake(
    Told.STRICT,
    "add: dim 0 is split over mesh axis 1, and input_tensor_b [2, 1, 32] is the same on all 4 devices",
    symptom="All users but the first ones are at the places of the first ones.",
    mend="Split the positions as the users are.",
)
def positions_of_the_first_users_are_looked_up_for_all(mesh):
    table = put(mesh, torch.randn(64, 32), layout=ROWS, dtype=ttnn.bfloat16)
    places = ttnn.embedding(put(mesh, torch.tensor([[7], [40]]), layout=ROWS, dtype=ttnn.uint32), table, layout=TILES)
    ttnn.add(put(mesh, torch.randn(8, 1, 32), None, 0, dtype=ttnn.bfloat16), places)


@right
def gates_that_are_split_or_hold_for_every_part(mesh):
    x = put(mesh, torch.randn(1, 128, 32, 32), None, 1)
    ttnn.multiply(x, put(mesh, torch.rand(1, 128, 1, 1), None, 1))
    ttnn.multiply(x, put(mesh, torch.full((1, 32, 1, 1), 0.5)))
    ttnn.multiply(x, put(mesh, torch.rand(1, 1, 32, 1)))
    ttnn.add(x, put(mesh, torch.zeros(1, 32, 1, 1)))


@right
def one_head_of_each_device_is_turned_by_angles_that_all_share(mesh):
    """Split columns are one head on each device."""
    angles = torch.outer(torch.arange(32), 0.1 ** torch.arange(16))
    for turned in (angles, torch.cat([angles, angles], -1), angles.repeat_interleave(2, -1)):
        columns = put(mesh, torch.randn(1, 1, 32, 4 * turned.shape[-1]), None, 3)
        ttnn.multiply(columns, put(mesh, turned.cos()[None, None]))
        ttnn.multiply(columns, put(mesh, turned.sin()[None, None]))


# -- optimizers ------------------------------------------------------------------------------------------

TRAINING = "Training goes nowhere: parameters take steps along the gradients of others."


def bfloat16(mesh, rows=None, columns=None, values=None):
    values = torch.randn(128, 128) if values is None else values
    return put(mesh, values, rows, columns, dtype=ttnn.bfloat16)


def moments(mesh):
    return [bfloat16(mesh, values=torch.zeros(128, 32)) for _ in range(2)]


@mistake(
    Told.STRICT,
    "moreh_adamw: over mesh axis 1 dim 1 of param_in [32, 32] and dim 0 of grad [32, 32] are split",
    symptom=TRAINING,
    mend="Split gradients as their parameters.",
)
def parameters_and_gradients_of_adamw_are_split_along_other_dims(mesh):
    zeros = [bfloat16(mesh, values=torch.zeros(32, 32)) for _ in range(2)]
    x, gradient = torch.randn(32, 128), torch.randn(128, 32)
    ttnn.moreh_adamw(bfloat16(mesh, None, 1, x), bfloat16(mesh, None, 0, gradient), *zeros, lr=0.1, step=1)


@mistake(
    Told.STRICT,
    "moreh_sgd: over mesh axis 1 dim 1 of param_in [32, 32] and dim 0 of grad [32, 32] are split",
    symptom=TRAINING,
    mend="Split gradients as their parameters.",
)
def parameters_and_gradients_of_sgd_are_split_along_other_dims(mesh):
    x, gradient = torch.randn(32, 128), torch.randn(128, 32)
    ttnn.moreh_sgd(bfloat16(mesh, None, 1, x), bfloat16(mesh, None, 0, gradient), lr=0.1)


@mistake(
    Told.STRICT,
    "moreh_adam: dim 1 is split over mesh axis 1, and grad [128, 32] is the same on all 4 devices",
    symptom=TRAINING,
    mend="Split gradients as their parameters.",
)
def all_parts_of_a_parameter_take_the_gradient_of_the_first(mesh):
    gradient = bfloat16(mesh, values=torch.randn(128, 32))
    ttnn.moreh_adam(bfloat16(mesh, None, 1), gradient, *moments(mesh), lr=0.1, step=1)


@right
def parameters_and_gradients_are_split_alike(mesh):
    """Moments begin as zeros, which are the same everywhere."""
    ttnn.moreh_adamw(bfloat16(mesh, None, 1), bfloat16(mesh, None, 1), *moments(mesh), lr=0.1, step=1)
    ttnn.moreh_sgd(bfloat16(mesh, None, 1), bfloat16(mesh, None, 1), lr=0.1)
    ttnn.moreh_sgd(bfloat16(mesh), bfloat16(mesh), lr=0.1)


@mistake(
    Told.STRICT,
    "gelu_bw: over mesh axis 1",
    symptom=TRAINING,
    mend="Split the gradient of a result as the result is.",
)
def a_gradient_that_is_split_along_another_dim_goes_back_through_an_op(mesh):
    ttnn.gelu_bw(bfloat16(mesh, None, 1, torch.randn(32, 128)), bfloat16(mesh, None, 0, torch.randn(128, 32)))


# -- positions of users, and what else each of them has of its own ---------------------------------------

FIRST_USERS = "The first users answer well; all others read and write at the places of the first ones."
OF_THE_SAME = "is the same on all 4 devices"


def caches(mesh, columns=0, users=8):
    return [heads(mesh, columns, (users, 1, 64, 32)) for _ in range(2)]


@mistake(
    Told.STRICT,
    "decode: dim 1 is split over mesh axis 1, and cur_pos_tensor [2]",
    OF_THE_SAME,
    symptom=FIRST_USERS,
    mend="Split the positions as the users are.",
)
def users_are_split_and_decode_at_the_positions_of_the_first(mesh):
    decode(heads(mesh, 1), *caches(mesh), cur_pos_tensor=numbers(mesh, [7, 40]))


@mistake(
    Told.STRICT,
    "decode: dim 1 is split over mesh axis 1, and the 2 numbers in its list are the same on all 4 devices",
    symptom=FIRST_USERS,
    mend="Give positions as a tensor that is split as the users are.",
)
def users_are_split_and_decode_at_positions_in_a_list(mesh):
    decode(heads(mesh, 1), *caches(mesh), cur_pos=[7, 40])


@mistake(
    Told.STRICT,
    "paged_update_cache: dim 0 is split over mesh axis 1, and update_idxs_tensor [2]",
    OF_THE_SAME,
    symptom=FIRST_USERS,
    mend="Split the positions as the users are.",
)
def users_are_split_and_write_at_the_positions_of_the_first(mesh):
    token = heads(mesh, 1, (1, 8, 32, 32))
    cores = ttnn.create_sharded_memory_config((1, 2, 32, 32), ttnn.CoreGrid(y=1, x=2), ttnn.ShardStrategy.HEIGHT)
    token = ttnn.to_memory_config(token, cores)
    ttnn.experimental.paged_update_cache(caches(mesh)[0], token, update_idxs_tensor=numbers(mesh, [7, 40]))


def paged(mesh, table, positions, cache_columns=None, table_columns=None):
    pages = [heads(mesh, cache_columns, (16, 1, 32, 32)) for _ in range(2)]
    decode_pages(heads(mesh, 1), *pages, numbers(mesh, table, table_columns), cur_pos_tensor=positions)


@mistake(
    Told.STRICT,
    "paged_update_cache: dim 0 is split over mesh axis 1, and the 2 numbers in its list",
    symptom=FIRST_USERS,
    mend="Give positions as a tensor that is split as the users are.",
)
def users_are_split_and_fill_an_empty_cache_at_positions_in_a_list(mesh):
    empty = put(mesh, torch.zeros(2, 1, 64, 32), dtype=ttnn.bfloat16)
    cores = ttnn.create_sharded_memory_config((1, 2, 32, 32), ttnn.CoreGrid(y=1, x=2), ttnn.ShardStrategy.HEIGHT)
    token = ttnn.to_memory_config(heads(mesh, 1, (1, 8, 32, 32)), cores)
    ttnn.experimental.paged_update_cache(empty, token, update_idxs=[7, 40])


@mistake(
    Told.STRICT,
    "decode: dim 1 is split over mesh axis 1, and page_table_tensor [2, 2]",
    OF_THE_SAME,
    symptom="All users attend to what the first ones have said.",
    mend="Split the table of pages as the users are.",
)
def users_are_split_and_read_the_pages_of_the_first(mesh):
    paged(mesh, [[0, 1], [2, 3]], numbers(mesh, [40] * 8, 0))


@mistake(
    Told.STRICT,
    "decode: dim 1 is split over mesh axis 1, and cur_pos_tensor [2]",
    OF_THE_SAME,
    symptom=FIRST_USERS,
    mend="Split the positions as the users are.",
)
def users_are_split_with_their_pages_and_not_with_their_positions(mesh):
    paged(mesh, [[2 * i, 2 * i + 1] for i in range(8)], numbers(mesh, [7, 40]), table_columns=0)


@mistake(
    Told.STRICT,
    "rotary_embedding_llama: dim 1 is split over mesh axis 1, and cos_cache [1, 2, 1, 32]",
    symptom=FIRST_USERS,
    mend="Split the angles as the users are.",
)
def users_are_split_and_turned_by_the_angles_of_the_first(mesh):
    turned(mesh, put(mesh, torch.rand(1, 2, 1, 32), dtype=ttnn.bfloat16))


def turned(mesh, angles):
    matrix = put(mesh, torch.eye(32).reshape(1, 1, 32, 32), dtype=ttnn.bfloat16)
    ttnn.experimental.rotary_embedding_llama(heads(mesh, 1), angles, angles, matrix, is_decode_mode=True)


@mistake(
    Told.STRICT,
    "decode: dim 1 is split over mesh axis 1, and input_tensor_k [2, 1, 64, 32]",
    symptom="All users attend to what the first ones have said.",
    mend="Split caches as the users are.",
)
def users_are_split_and_read_the_caches_of_the_first(mesh):
    decode(heads(mesh, 1), *caches(mesh, None, 2), cur_pos_tensor=numbers(mesh, [40] * 8, 0))


@right
def users_are_split_with_all_that_is_theirs(mesh):
    """Or all of them are at one position."""
    decode(heads(mesh, 1), *caches(mesh), cur_pos_tensor=numbers(mesh, [7, 40] * 4, 0))
    decode(heads(mesh, 1), *caches(mesh), cur_pos_tensor=numbers(mesh, [40, 40]))
    decode(heads(mesh, 1), *caches(mesh), cur_pos=[40, 40])
    decode(heads(mesh, 2, (1, 2, 8, 32)), *[heads(mesh, 1, (2, 4, 64, 32))] * 2, cur_pos_tensor=numbers(mesh, [7, 40]))
    turned(mesh, put(mesh, torch.rand(1, 1, 1, 32).expand(1, 2, 1, 32), dtype=ttnn.bfloat16))
    turned(mesh, put(mesh, torch.rand(1, 8, 1, 32), None, 1, dtype=ttnn.bfloat16))


@right
def the_same_users_are_asked_at_other_positions_on_each_device(mesh):
    decode(heads(mesh, None, (1, 2, 4, 32)), *caches(mesh, None, 2), cur_pos_tensor=numbers(mesh, [7, 40] * 4, 0))


@right
def every_device_numbers_its_own_pages_alike(mesh):
    """Blocks of the cache are split with the users, and a page table counts those of a device."""
    paged(mesh, [[0, 1], [2, 3]], numbers(mesh, [40] * 8, 0), cache_columns=0)
    paged(mesh, [[2 * i, 2 * i + 1] for i in range(8)], numbers(mesh, [40] * 8, 0), table_columns=0)


# -- cuts of a part ----------------------------------------------------------------------------------------


@mistake(
    Told.STRICT,
    "padded_slice: dim 2 is split over mesh axis 1",
    "cuts these places out of its own part",
    symptom="Rows of every part, where the first rows of the whole were meant.",
    mend="Gather the tensor first.",
)
def a_padded_slice_of_parts(mesh):
    x = put(mesh, torch.randn(1, 1, 256, 32), None, 2, ROWS)
    shards = ttnn.create_sharded_memory_config((1, 1, 32, 32), ttnn.CoreGrid(y=1, x=1), ttnn.ShardStrategy.HEIGHT)
    ttnn.experimental.padded_slice(x, [0, 0, 0, 0], [1, 1, 32, 32], [1, 1, 1, 1], memory_config=shards)


@right
def a_padded_slice_of_what_every_device_has(mesh):
    x = put(mesh, torch.randn(1, 1, 256, 32), layout=ROWS)
    shards = ttnn.create_sharded_memory_config((1, 1, 32, 32), ttnn.CoreGrid(y=1, x=1), ttnn.ShardStrategy.HEIGHT)
    ttnn.experimental.padded_slice(x, [0, 0, 0, 0], [1, 1, 32, 32], [1, 1, 1, 1], memory_config=shards)
