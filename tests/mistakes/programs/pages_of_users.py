"""Paged caches: pages that go from one user to another."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn

TILES, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
decode = ttnn.transformer.paged_scaled_dot_product_attention_decode
PAGE_IS_GONE = "The first user goes on with what the other one has said, most often in the middle of a sentence."


def numbers(mesh, *values):
    return ttnn.from_torch(torch.tensor(values), dtype=ttnn.int32, layout=ROWS, device=mesh)


def put(mesh, *shape):
    return ttnn.from_torch(torch.randn(*shape), ttnn.bfloat16, layout=TILES, device=mesh)


def cache(mesh):
    return ttnn.zeros((8, 1, 32, 32), ttnn.bfloat16, TILES, mesh)


def fill(mesh, pages, user, *table, prompt=None):
    prompt = put(mesh, 1, 1, 32, 32) if prompt is None else prompt
    ttnn.experimental.paged_fill_cache(pages, prompt, numbers(mesh, *table), batch_idx=user)


def step(mesh, pages, table, positions):
    decode(
        put(mesh, 1, len(table), 1, 32), pages, pages, numbers(mesh, *table), cur_pos_tensor=numbers(mesh, *positions)
    )


def write(mesh, pages, table, positions):
    cores = ttnn.create_sharded_memory_config((1, 2, 32, 32), ttnn.CoreGrid(y=1, x=2), ttnn.ShardStrategy.HEIGHT)
    tokens = ttnn.to_memory_config(put(mesh, 1, 2, 32, 32), cores)
    ttnn.experimental.paged_update_cache(
        pages, tokens, update_idxs_tensor=numbers(mesh, *positions), page_table=numbers(mesh, *table)
    )


@mistake(
    Told.STRICT,
    "user 0 reads page 3, which was its own and has gone to user 1 since",
    symptom=PAGE_IS_GONE,
    mend="Free a page when its user has ended, and not before.",
)
def a_page_is_filled_for_another_user_while_its_user_decodes_on(mesh):
    pages = cache(mesh)
    fill(mesh, pages, 0, [3], [1])
    fill(mesh, pages, 1, [2], [3])
    step(mesh, pages, [[3], [3]], [9, 9])


@mistake(
    Told.STRICT,
    "user 0 reads page 3, which was its own and has gone to user 1 since",
    symptom=PAGE_IS_GONE,
    mend="Free a page when its user has ended, and not before.",
)
def a_page_goes_to_another_user_between_two_steps(mesh):
    pages = cache(mesh)
    fill(mesh, pages, 0, [3, 4], [1, 2])
    for _ in range(2):
        step(mesh, pages, [[3, 4], [1, 2]], [33, 9])
    fill(mesh, pages, 1, [3, 4], [3, 2])
    step(mesh, pages, [[3, 4], [5, 6]], [34, 9])


@mistake(
    Told.STRICT,
    "user 0 reads page 4, which was its own and has gone to user 1 since",
    symptom=PAGE_IS_GONE,
    mend="Free a page when its user has ended, and not before.",
)
def another_user_goes_on_writing_in_a_page_that_is_taken(mesh):
    pages = cache(mesh)
    write(mesh, pages, [[3, 4], [1, 2]], [32, 31])
    write(mesh, pages, [[3, 4], [1, 4]], [33, 32])
    step(mesh, pages, [[3, 4], [1, 4]], [33, 32])


@mistake(
    Told.STRICT,
    "user 0 reads page 3, which was its own and has gone to user 1 since",
    symptom="Both prompts were the same, and the first user goes on with the tokens of the other one.",
    mend="Give the table of all users to each fill: a page that two of them share is in the rows of both.",
)
def a_page_goes_to_another_user_with_the_same_prompt(mesh):
    pages, prompt = cache(mesh), put(mesh, 1, 1, 32, 32)
    fill(mesh, pages, 0, [3], [1], prompt=prompt)
    fill(mesh, pages, 1, [2], [3], prompt=prompt)
    step(mesh, pages, [[3], [3]], [9, 9])


@right
def pages_of_users_who_have_ended_go_to_others(mesh):
    pages = cache(mesh)
    fill(mesh, pages, 0, [3], [1])
    fill(mesh, pages, 1, [3], [1])
    step(mesh, pages, [[3], [1]], [9, 9])
    fill(mesh, pages, 1, [2], [3])
    fill(mesh, pages, 0, [2], [3])
    step(mesh, pages, [[2], [3]], [9, 9])
    write(mesh, pages, [[2, 5], [3, 6]], [32, 32])
    step(mesh, pages, [[2, 5], [3, 6]], [32, 32])


@right
def two_users_share_the_page_of_a_prefix(mesh):
    """The second one does not fill it, or fills it with the same."""
    pages, prompt = cache(mesh), put(mesh, 1, 1, 32, 32)
    fill(mesh, pages, 0, [3, 1], [3, 2], prompt=prompt)
    step(mesh, pages, [[3, 1], [3, 2]], [9, 9])
    fill(mesh, pages, 1, [3, 1], [3, 2], prompt=prompt)
    step(mesh, pages, [[3, 1], [3, 2]], [10, 10])
