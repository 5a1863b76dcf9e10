"""Memory that was written in part: caches of keys and values, and what reads beyond what is there."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
USERS, HEADS, LENGTH, WIDTH = 2, 4, 64, 32
NEVER = "nothing was written to since ttnn.empty"
SOME = "some was never written since ttnn.empty"
OLD = "Answers differ from run to run: positions that were never written weigh as much as the others."
attend = ttnn.transformer.scaled_dot_product_attention
attend_one = ttnn.transformer.scaled_dot_product_attention_decode
update = ttnn.experimental.paged_update_cache


def copies(mesh, *shape, dtype=ttnn.bfloat16, layout=TILES):
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return ttnn.from_torch(values, dtype, layout=layout, device=mesh)


def empty(mesh, *shape, layout=TILES):
    return ttnn.empty(shape or (USERS, HEADS, LENGTH, WIDTH), ttnn.bfloat16, layout, mesh)


def prompt(mesh, length=32):
    return copies(mesh, 1, HEADS, length, WIDTH)


def token(mesh):
    return copies(mesh, 1, USERS, HEADS, WIDTH)


def filled(mesh, length=32, users=(0, 1)):
    """Keys and values of the first positions of some users."""
    caches = [empty(mesh), empty(mesh)]
    for cache in caches:
        for user in users:
            ttnn.fill_cache(cache, prompt(mesh, length), user)
    return caches


def read(tensor):
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


# -- attention over a cache ------------------------------------------------------------------------


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Cut the cache at the length of the prompt, or mask the rest.")
def a_prompt_attends_to_the_whole_cache(mesh):
    keys, values = filled(mesh)
    read(attend(copies(mesh, USERS, HEADS, 32, WIDTH), keys, values, is_causal=False))


@right
def a_prompt_attends_to_its_own_positions(mesh):
    caches = [ttnn.slice(cache, [0, 0, 0, 0], [USERS, HEADS, 32, WIDTH]) for cache in filled(mesh)]
    read(attend(copies(mesh, USERS, HEADS, 32, WIDTH), *caches, is_causal=True))


@mistake(
    Told.WARNING,
    NEVER,
    symptom=OLD,
    mend="The position of a token is the number of those before it: it is written there, and seen up to there.",
)
def a_token_attends_beyond_what_was_written(mesh):
    keys, values = filled(mesh)
    read(attend_one(token(mesh), keys, values, cur_pos=[32, 32]))


@right
def tokens_are_written_and_attend_up_to_themselves(mesh):
    keys, values = filled(mesh)
    for position in range(32, 40):
        for cache in (keys, values):
            update(cache, token(mesh), update_idxs=[position] * USERS)
        read(attend_one(token(mesh), keys, values, cur_pos=[position] * USERS))


@mistake(
    Told.WARNING,
    NEVER,
    symptom=OLD,
    mend="Write the keys of each token too: paged_fused_update_cache writes both.",
)
def only_the_values_of_a_token_are_written(mesh):
    keys, values = filled(mesh)
    update(values, token(mesh), update_idxs=[32, 32])
    read(attend_one(token(mesh), keys, values, cur_pos=[32, 32]))


@mistake(
    Told.STRICT,
    SOME,
    symptom="One user's answer is made of what lay in memory.",
    mend="Fill the cache of every user that decodes; a position of -1 skips a user.",
)
def a_user_without_a_prompt_decodes(mesh):
    keys, values = filled(mesh, users=[0])
    read(attend_one(token(mesh), keys, values, cur_pos=[31, 31]))


@right
def a_user_without_a_prompt_is_skipped(mesh):
    keys, values = filled(mesh, users=[0])
    read(attend_one(token(mesh), keys, values, cur_pos=[31, -1]))


def scores(mesh, keys):
    return ttnn.matmul(copies(mesh, USERS, HEADS, 32, WIDTH), ttnn.transpose(keys, -2, -1))


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Add a mask that hides the positions behind the last.")
def scores_of_a_whole_cache_are_not_masked(mesh):
    keys, values = filled(mesh)
    read(ttnn.matmul(ttnn.softmax(scores(mesh, keys), dim=-1), values))


@right
def scores_of_a_whole_cache_are_masked(mesh):
    keys, values = filled(mesh)
    hidden = torch.zeros(1, 1, 32, LENGTH)
    hidden[..., 32:] = -1e9
    mask = ttnn.from_torch(hidden, ttnn.bfloat16, layout=TILES, device=mesh)
    weights = ttnn.softmax(ttnn.add(scores(mesh, keys), mask), dim=-1)
    seen = [ttnn.slice(one, [0, 0, 0, 0], [USERS, HEADS, 32, 32]) for one in (weights, values)]
    read(ttnn.matmul(*seen))


@right
def a_mask_is_given_to_attention(mesh):
    keys, values = filled(mesh)
    hidden = torch.zeros(USERS, 1, 32, LENGTH)
    hidden[..., 32:] = float("-inf")
    mask = ttnn.from_torch(hidden, ttnn.bfloat16, layout=TILES, device=mesh)
    read(attend(copies(mesh, USERS, HEADS, 32, WIDTH), keys, values, attn_mask=mask, is_causal=False))


# -- pages -----------------------------------------------------------------------------------------


def table(mesh, pages):
    return ttnn.from_torch(torch.tensor(pages, dtype=torch.int32), ttnn.int32, layout=ROWS, device=mesh)


def in_pages(mesh, pages):
    """The prompts of both users, in the first page of each."""
    caches = [empty(mesh, 8, HEADS, 32, WIDTH) for _ in range(2)]
    for cache in caches:
        for user in range(USERS):
            ttnn.experimental.paged_fill_cache(cache, prompt(mesh), table(mesh, pages), batch_idx=user)
    return caches


def paged(mesh, caches, pages, positions):
    at = ttnn.from_torch(torch.tensor(positions, dtype=torch.int32), ttnn.int32, layout=ROWS, device=mesh)
    attend_pages = ttnn.transformer.paged_scaled_dot_product_attention_decode
    return attend_pages(token(mesh), *caches, table(mesh, pages), cur_pos_tensor=at)


@mistake(
    Told.WARNING,
    NEVER,
    symptom="Answers are made of pages that belong to nobody.",
    mend="One table of pages for what is written and for what is read.",
)
def pages_are_read_by_another_table_than_they_were_written_by(mesh):
    caches = in_pages(mesh, [[0, 1], [2, 3]])
    read(paged(mesh, caches, [[4, 5], [6, 7]], [31, 31]))


@right
def pages_are_written_and_read_by_one_table(mesh):
    pages = [[0, 1], [2, 3]]
    caches = in_pages(mesh, pages)
    for position in range(32, 36):
        for cache in caches:
            update(cache, token(mesh), update_idxs=[position] * USERS, page_table=table(mesh, pages))
        read(paged(mesh, caches, pages, [position] * USERS))


# -- windows of a tensor ---------------------------------------------------------------------------


def half_written(mesh, layout=ROWS):
    made = empty(mesh, 64, 64, layout=layout)
    part = copies(mesh, 32, 64, layout=layout)
    ttnn.experimental.slice_write(part, made, [0, 0], [32, 64], [1, 1])
    return made


@mistake(Told.STRICT, SOME, symptom=OLD, mend="Read what was written (ttnn.slice), or begin with ttnn.zeros.")
def a_tensor_that_was_half_written_is_read(mesh):
    read(half_written(mesh))


@mistake(Told.STRICT, SOME, symptom=OLD, mend="Read what was written (ttnn.slice), or begin with ttnn.zeros.")
def what_is_made_of_a_tensor_that_was_half_written_is_read(mesh):
    read(ttnn.relu(ttnn.add(half_written(mesh), 1.0)))


@mistake(Told.STRICT, SOME, symptom=OLD, mend="Write all of it first.")
def a_copy_of_a_tensor_that_was_half_written_is_read(mesh):
    made = ttnn.zeros((64, 64), ttnn.bfloat16, ROWS, mesh)
    ttnn.copy(half_written(mesh), made)
    read(made)


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Sum what was written only.")
def a_tensor_that_was_half_written_is_summed(mesh):
    read(ttnn.sum(half_written(mesh, TILES), dim=0))


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Write all rows of a factor before it is multiplied.")
def a_factor_was_half_written(mesh):
    read(ttnn.matmul(copies(mesh, 32, 64), half_written(mesh, TILES)))


@mistake(Told.STRICT, SOME, symptom=OLD, mend="Write all of it before it is gathered.")
def a_tensor_that_was_half_written_is_gathered(mesh):
    read(ttnn.all_gather(half_written(mesh), 1, cluster_axis=1))


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Cut where what was written ends.")
def the_other_half_is_cut_out(mesh):
    read(ttnn.slice(half_written(mesh), [32, 0], [64, 64]))


@right
def what_was_written_is_cut_out(mesh):
    made = half_written(mesh)
    read(ttnn.slice(made, [0, 0], [32, 64]))
    read(ttnn.sum(ttnn.to_layout(made, TILES), dim=1)[:32])
    read(ttnn.matmul(ttnn.to_layout(made, TILES), copies(mesh, 64, 32))[:32])


@right
def both_halves_are_written(mesh):
    made = half_written(mesh)
    ttnn.experimental.slice_write(copies(mesh, 32, 64, layout=ROWS), made, [32, 0], [64, 64], [1, 1])
    read(made)
    read(ttnn.sum(ttnn.to_layout(made, TILES), dim=0))


@right
def zeros_are_written_behind_a_prompt(mesh):
    caches = filled(mesh)
    for cache in caches:
        for user in range(USERS):
            rest = ttnn.zeros((1, HEADS, 32, WIDTH), ttnn.bfloat16, TILES, mesh)
            ttnn.fill_cache(cache, rest, user, update_idx=32)
    read(attend(copies(mesh, USERS, HEADS, 32, WIDTH), *caches, is_causal=False))
    read(caches[0])


@right
def a_tensor_that_was_half_written_is_copied_over(mesh):
    made = half_written(mesh)
    ttnn.copy(copies(mesh, 64, 64, layout=ROWS), made)
    read(made)


@right
def a_cache_that_was_half_written_is_only_there(mesh):
    for cache in filled(mesh):
        ttnn.deallocate(cache)


@right
def a_cache_of_zeros_is_read_as_a_whole(mesh):
    cache = ttnn.zeros((USERS, HEADS, LENGTH, WIDTH), ttnn.bfloat16, TILES, mesh)
    ttnn.fill_cache(cache, prompt(mesh), 0)
    read(cache)


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Cut where what was written ends.")
def the_third_of_several_cuts_is_too_long(mesh):
    keys, _ = filled(mesh, 48)
    for length in (16, 32, 64):
        read(ttnn.sum(ttnn.slice(keys, [0, 0, 0, 0], [USERS, HEADS, length, WIDTH]), dim=2))


# -- what is written is itself not there ---------------------------------------------------------------


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Write the prompt before it goes into the cache.")
def values_that_nobody_wrote_go_into_a_cache(mesh):
    cache = ttnn.zeros((USERS, HEADS, LENGTH, WIDTH), ttnn.bfloat16, TILES, mesh)
    ttnn.fill_cache(cache, empty(mesh, 1, HEADS, 32, WIDTH), 0)
    read(ttnn.sum(ttnn.slice(cache, [0, 0, 0, 0], [1, HEADS, 32, WIDTH]), dim=2))


@mistake(
    Told.STRICT,
    SOME,
    symptom="Tokens go to positions of their own in each run, and others are lost.",
    mend="Write the positions before the first step: ttnn.copy_host_to_device_tensor.",
)
def positions_that_nobody_wrote_say_where_tokens_go(mesh):
    cache = ttnn.zeros((USERS, HEADS, LENGTH, WIDTH), ttnn.bfloat16, TILES, mesh)
    update(cache, token(mesh), update_idxs_tensor=ttnn.empty((USERS,), ttnn.int32, ROWS, mesh))
    read(cache)


@right
def another_user_than_the_one_that_nobody_wrote_is_read(mesh):
    cache = ttnn.zeros((USERS, HEADS, LENGTH, WIDTH), ttnn.bfloat16, TILES, mesh)
    ttnn.fill_cache(cache, empty(mesh, 1, HEADS, 32, WIDTH), 0)
    read(ttnn.slice(cache, [1, 0, 0, 0], [2, HEADS, LENGTH, WIDTH]))


@mistake(
    Told.WARNING,
    NEVER,
    symptom="Normalisation goes astray for as long as the momentum remembers.",
    mend="Running statistics begin with ttnn.zeros and ttnn.ones.",
)
def running_statistics_begin_in_empty_memory(mesh):
    mean, variance = (empty(mesh, 1, 32, 1, 1) for _ in range(2))
    ttnn.batch_norm(copies(mesh, 8, 32, 8, 8), running_mean=mean, running_var=variance, training=True)
    read(mean)


@right
def running_statistics_begin_with_values(mesh):
    mean, variance = (make((1, 32, 1, 1), ttnn.bfloat16, TILES, mesh) for make in (ttnn.zeros, ttnn.ones))
    ttnn.batch_norm(copies(mesh, 8, 32, 8, 8), running_mean=mean, running_var=variance, training=True)
    read(mean)


@right
def padding_behind_a_prompt_is_set_to_zero(mesh):
    caches = ttnn.experimental.deepseek_prefill
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 2))
    new = ttnn.from_torch(torch.ones(1, 1, 128, 32), ttnn.bfloat16, layout=TILES, device=mesh, mesh_mapper=mapper)
    cache = empty(mesh, 2, 1, 64, 32)
    caches.update_padded_kv_cache(cache, new, 0, 0, 2, 0, 1)
    caches.zero_padded_kv_cache(cache, 0, 0, 2, 100, 128, 1)
    read(ttnn.slice(cache, [0, 0, 0, 0], [1, 1, 32, 32]))


@right
def weights_and_numbers_of_experts_go_into_empty_memory(mesh):
    gate = ttnn.experimental.deepseek.moe.deepseek_moe_gate
    numbers = torch.arange(256, dtype=torch.int32).reshape(1, 16, 16)
    outputs = [ttnn.empty((1, 16, 16), *kind, mesh) for kind in ((ttnn.bfloat16, TILES), (ttnn.uint16, ROWS))]
    gate(
        copies(mesh, 1, 16, 16),
        bias_tensor=copies(mesh, 1, 16, 16),
        input_indices_tensor=ttnn.from_torch(numbers, ttnn.uint16, layout=ROWS, device=mesh),
        output_tensor=outputs[0],
        output_indices_tensor=outputs[1],
    )
    read(outputs[0])
    read(outputs[1])


# -- caches that are split, or written by a trace ----------------------------------------------------


def by_heads(mesh, *shape):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims=(None, 1))
    return ttnn.from_torch(torch.ones(*shape), ttnn.bfloat16, layout=TILES, device=mesh, mesh_mapper=mapper)


def split_caches(mesh):
    caches = [empty(mesh, 1, 2, LENGTH, WIDTH) for _ in range(2)]
    for cache in caches:
        ttnn.fill_cache(cache, by_heads(mesh, 1, 8, 32, WIDTH), 0)
    return caches


@mistake(Told.WARNING, NEVER, symptom=OLD, mend="Mask what lies behind the prompt, or cut it off.")
def a_cache_that_is_split_by_heads_is_read_as_a_whole(mesh):
    read(attend(by_heads(mesh, 1, 8, 32, WIDTH), *split_caches(mesh), is_causal=False))


@right
def a_cache_that_is_split_by_heads_is_read_up_to_its_end(mesh):
    caches = [ttnn.slice(cache, [0, 0, 0, 0], [1, 2, 32, WIDTH]) for cache in split_caches(mesh)]
    read(attend(by_heads(mesh, 1, 8, 32, WIDTH), *caches, is_causal=True))


@right
def a_cache_is_written_and_read_by_a_trace(mesh):
    keys, values = filled(mesh)
    new, at = token(mesh), table(mesh, [32] * USERS)

    def step():
        for cache in (keys, values):
            update(cache, new, update_idxs_tensor=at)
        return attend_one(new, keys, values, cur_pos_tensor=at)

    step()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    out = step()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    for position in range(32, 36):
        now = ttnn.from_torch(torch.full((USERS,), position, dtype=torch.int32), ttnn.int32, layout=ROWS)
        ttnn.copy_host_to_device_tensor(now, at)
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
        read(out)
    ttnn.release_trace(mesh, trace)
