"""Caches written at each user's own position, by pages and by turns of devices: what is written, and who keeps what."""

from __future__ import annotations

import contextlib
import inspect
import re

import pytest
import torch
from llm_operands import ints, some_pages
from operands import LOCAL, R, S, put, random

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError, NotModelled

USERS, HEADS, BLOCK, PAGES, BLOCKS, WIDTH = 4, 2, 32, 3, 14, 32
update = ttnn.experimental.paged_update_cache
fused = ttnn.experimental.paged_fused_update_cache
fill = ttnn.experimental.paged_fill_cache
prefill = ttnn.experimental.deepseek_prefill


def after_update(
    cache: torch.Tensor, new: torch.Tensor, at: list[int], table: torch.Tensor | None = None
) -> torch.Tensor:
    result = cache.clone()
    for user, position in enumerate(at):
        if position < 0:
            continue
        place, row = (user, position) if table is None else (int(table[user, position // BLOCK]), position % BLOCK)
        if place >= 0:
            result[place, :, row] = new[0, user, : cache.shape[1]].to(cache.dtype)
    return result


def after_fill(cache: torch.Tensor, new: torch.Tensor, pages: torch.Tensor, count: int | None = None) -> torch.Tensor:
    result = cache.clone()
    for position in range(new.shape[2] if count is None else count):
        block = int(pages[position // BLOCK])
        if block >= 0:
            result[block, :, position % BLOCK] = new[0, :, position]
    return result


# -- one token of each user ------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["numbers", "tensor"])
def test_each_user_is_written_at_its_own_position(device, by):
    cache, new, at = random(USERS, HEADS, 16, WIDTH), random(1, USERS, 32, WIDTH), [0, 7, -1, 15]
    target = put(cache, device)
    where = {"update_idxs": at} if by == "numbers" else {"update_idxs_tensor": ints(at, device)}
    assert update(target, put(new, device), **where) is target
    assert torch.equal(ttnn.to_torch(target), after_update(cache, new, at))


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16, ttnn.bfloat8_b])
def test_pages_are_written_and_rounded_to_the_dtype_of_the_cache(device, dtype):
    cache, new, at = random(BLOCKS, HEADS, BLOCK, WIDTH), random(1, USERS, HEADS, WIDTH), [0, 33, 95, -1]
    table = some_pages(USERS, PAGES, BLOCKS)
    table[1, 1] = -1
    target = put(cache, device, dtype=dtype)
    before, rounded = ttnn.to_torch(target), ttnn.to_torch(put(new, device, dtype=dtype))
    update(target, put(new, device), update_idxs_tensor=ints(at, device), page_table=ints(table, device))
    assert torch.equal(ttnn.to_torch(target), after_update(before, rounded, at, table))


def on_every_core(values: torch.Tensor, device: ttnn.MeshDevice, dtype: ttnn.DataType, cores: int = 3) -> ttnn.Tensor:
    """A copy in the L1 of each core, [cores * rows, columns]."""
    rows = values if values.dim() == 2 else values[None]
    memory = ttnn.create_sharded_memory_config(
        tuple(rows.shape),
        ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (cores - 1, 0))]),
        ttnn.ShardStrategy.HEIGHT,
        use_height_and_width_as_shard_shape=True,
    )
    layout = ttnn.ROW_MAJOR_LAYOUT
    return put(rows.repeat(cores, 1).int(), device, dtype=dtype, layout=layout, memory_config=memory)


def test_every_core_may_have_a_copy_of_pages_and_positions(device):
    cache, new, at = random(BLOCKS, HEADS, BLOCK, WIDTH), random(1, USERS, HEADS, WIDTH), [0, 33, 95, -1]
    table = some_pages(USERS, PAGES, BLOCKS)
    pages = on_every_core(table, device, ttnn.uint16)
    positions = on_every_core(torch.tensor(at), device, ttnn.int32)
    target, other = put(cache, device), put(cache, device)
    update(target, put(new, device), update_idxs_tensor=positions, page_table=pages)
    fused(other, put(new, device), put(cache, device), put(new, device), update_idxs_tensor=positions, page_table=pages)
    expected = after_update(cache, new, at, table)
    assert torch.equal(ttnn.to_torch(target), expected)
    assert torch.equal(ttnn.to_torch(other), expected)
    q, attend = put(random(1, USERS, 4, WIDTH), device), ttnn.transformer.paged_scaled_dot_product_attention_decode
    shared = attend(q, target, target, pages, cur_pos_tensor=positions)
    plain = attend(q, target, target, ints(table, device), cur_pos_tensor=ints(at, device))
    assert torch.equal(ttnn.to_torch(shared), ttnn.to_torch(plain))
    wrong = on_every_core(table[:2], device, ttnn.uint16)
    with pytest.raises(MeshError, match=r"page_table \[2, 3\] must have a row for each of the 4 users"):
        update(target, put(new, device), update_idxs_tensor=positions, page_table=wrong)


@pytest.mark.parametrize("cores", [2, USERS])
def test_every_user_of_a_sharded_token_has_a_core(device, cores):
    memory = ttnn.create_sharded_memory_config(
        (USERS * 32 // cores, WIDTH),
        ttnn.CoreGrid(x=cores, y=1),
        ttnn.ShardStrategy.HEIGHT,
        use_height_and_width_as_shard_shape=True,
    )
    cache, new = random(USERS, HEADS, 16, WIDTH), random(1, USERS, 32, WIDTH)
    target, token = put(cache, device), put(new, device, memory_config=memory)
    if cores == USERS:
        update(target, token, update_idxs=[3] * USERS)
        assert torch.equal(ttnn.to_torch(target), after_update(cache, new, [3] * USERS))
        return
    with pytest.raises(MeshError, match=r"num_cores \(2\) must equal the number of users \(4\)"):
        update(target, token, update_idxs=[3] * USERS)
    with pytest.raises(MeshError, match="num_cores"):
        fused(target, token, target, token, update_idxs=[3] * USERS)


def test_each_of_two_caches_is_told_by_its_own_line(device, monkeypatch):
    """Of memory that was written in part."""
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    shape, token = (USERS, HEADS, 32, WIDTH), random(1, USERS, HEADS, WIDTH)
    keys = ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
    values = ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
    line = inspect.currentframe().f_lineno
    for position in (3, 4):
        fused(keys, put(token, device), values, put(token, device), update_idxs=[position] * USERS)
    for cache, made in ((keys, line - 2), (values, line - 1)):
        with pytest.warns(ttnn.SoftmeshWarning, match=rf"since ttnn\.empty \(test_ops_llm_caches\.py:{made}\)"):
            ttnn.to_torch(cache)


def test_users_may_share_one_cache(device):
    cache, new = random(1, HEADS, 16, WIDTH), random(1, 3, HEADS, WIDTH)
    target = put(cache, device)
    update(target, put(new, device), update_idxs=[2, 9, 4], share_cache=True)
    expected = cache.clone()
    expected[0, :, [2, 9, 4]] = new[0].transpose(0, 1)
    assert torch.equal(ttnn.to_torch(target), expected)


def test_positions_beyond_the_modulo_begin_again(device):
    cache, new = random(2 * USERS, HEADS, 32, WIDTH), random(1, USERS, HEADS, WIDTH)
    table = torch.arange(2 * USERS).flip(0).reshape(USERS, 2)
    given = {"update_idxs": [3, 32, 45, -1], "cache_position_modulo": 32}
    target = put(cache, device)
    update(target, put(new, device), page_table=ints(table, device), **given)
    expected = cache.clone()
    for user, position in enumerate([3, 0, 13]):
        expected[table[user, 0], :, position] = new[0, user]
    assert torch.equal(ttnn.to_torch(target), expected)
    with pytest.raises(MeshError, match="cache_position_modulo is only supported in paged mode"):
        update(put(random(USERS, HEADS, 16, WIDTH), device), put(new, device), **given)


def test_a_core_holds_the_token_of_one_user(device):
    new = random(1, USERS, 32, WIDTH)
    for cores, fits in ((USERS, True), (USERS // 2, False)):
        height = 32 * USERS // cores
        shards = ttnn.create_sharded_memory_config(
            (height, WIDTH),
            ttnn.CoreGrid(x=cores, y=1),
            ttnn.ShardStrategy.HEIGHT,
            use_height_and_width_as_shard_shape=True,
        )
        token = ttnn.to_memory_config(put(new, device), shards)
        cache = put(random(USERS, HEADS, 16, WIDTH), device)
        with contextlib.nullcontext() if fits else pytest.raises(MeshError, match=r"num_cores \(2\) must equal"):
            update(cache, token, update_idxs=[0] * USERS)


@pytest.mark.parametrize(("heads", "block", "width"), [(1, 64, 32), (1, 32, 64), (4, 32, 32)])
def test_blocks_may_be_written_as_other_heads_of_other_widths(device, heads, block, width):
    """A cache of another shape, with the same tiles in each block."""
    shape = (4, 2, 64, 32) if heads == 4 else (4, 2, 32, 32)
    cache, new, table = random(*shape), random(1, 2, heads, width), torch.tensor([[3, 0], [1, 2]])
    target, at = put(cache, device), ints([block + 3, 5], device)
    update(
        target,
        put(new, device),
        update_idxs_tensor=at,
        page_table=ints(table, device),
        block_size=block,
        num_kv_heads=heads,
    )
    tiles = lambda x: x.unflatten(2, (-1, 32)).unflatten(4, (-1, 32)).transpose(3, 4).flatten(1, 3)  # noqa: E731
    other = put(torch.zeros(4, heads, block, width), device)
    update(other, put(new, device), update_idxs_tensor=at, page_table=ints(table, device))
    written = tiles(ttnn.to_torch(other))
    expected = torch.where(written == 0, tiles(cache), written)
    assert torch.equal(tiles(ttnn.to_torch(target)), expected)


def test_keys_and_values_are_written_together_and_both_come_back(device):
    k, v = random(BLOCKS, HEADS, BLOCK, WIDTH), random(BLOCKS, HEADS, BLOCK, WIDTH).flip(0)
    new_k, new_v, at = random(1, USERS, HEADS, WIDTH), random(1, USERS, HEADS, WIDTH).flip(1), [5, 40, -1, 64]
    table = some_pages(USERS, PAGES, BLOCKS)
    targets = put(k, device), put(v, device)
    made = fused(
        targets[0],
        put(new_k, device),
        targets[1],
        put(new_v, device),
        update_idxs_tensor=ints(at, device),
        page_table=ints(table, device),
    )
    assert [a is b for a, b in zip(made, targets, strict=True)] == [True, True]
    for target, cache, new in zip(targets, (k, v), (new_k, new_v), strict=True):
        assert torch.equal(ttnn.to_torch(target), after_update(cache, new, at, table))
    assert device.num_program_cache_entries() == 1


# -- a whole sequence of one user ------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, 32, 64, 70, 96])
@pytest.mark.parametrize("by", ["number", "tensor"])
def test_a_sequence_fills_the_pages_of_its_user(device, count, by):
    cache, new, table = (
        random(BLOCKS, HEADS, BLOCK, WIDTH),
        random(1, HEADS, count, WIDTH),
        some_pages(USERS, PAGES, BLOCKS),
    )
    target = put(cache, device)
    user = {"batch_idx": 2} if by == "number" else {"batch_idx_tensor": ints([2], device)}
    assert fill(target, put(new, device), ints(table, device), **user) is target
    assert torch.equal(ttnn.to_torch(target), after_fill(cache, new, table[2]))


def test_pages_numbered_minus_one_and_what_is_not_valid_are_left_alone(device):
    cache, new, table = (
        random(BLOCKS, HEADS, BLOCK, WIDTH),
        random(1, HEADS, 70, WIDTH),
        some_pages(1, PAGES, BLOCKS),
    )
    table[0, 1] = -1
    target = put(cache, device)
    fill(target, put(new, device), ints(table, device))
    assert torch.equal(ttnn.to_torch(target), after_fill(cache, new, table[0]))
    target = put(cache, device)
    fill(target, put(new, device), ints(table, device), valid_seq_len_tensor=ints([66], device))
    assert torch.equal(ttnn.to_torch(target), after_fill(cache, new, table[0], 66))


def test_of_positions_that_meet_in_one_place_the_last_stays(device):
    cache, new, table = (
        random(BLOCKS, HEADS, BLOCK, WIDTH),
        random(1, HEADS, 90, WIDTH),
        some_pages(1, PAGES, BLOCKS),
    )
    target = put(cache, device)
    fill(target, put(new, device), ints(table, device), cache_position_modulo=64)
    expected = cache.clone()
    for position in range(90):
        place = position % 64
        expected[table[0, place // BLOCK], :, place % BLOCK] = new[0, :, position]
    assert torch.equal(ttnn.to_torch(target), expected)
    with pytest.raises(MeshError, match=r"cache_position_modulo \(40\) must be a positive multiple of effective"):
        fill(target, put(new, device), ints(table, device), cache_position_modulo=40)
    with pytest.raises(MeshError, match="valid_seq_len tensor must contain exactly 1 element, got logical_volume=2"):
        fill(target, put(new, device), ints(table, device), valid_seq_len_tensor=ints([6, 7], device))
    with pytest.raises(MeshError, match="paged_fill_cache geometry mismatch: cache has"):
        fill(target, put(new, device), ints(table, device), block_size=7 * BLOCK)
    token = put(random(1, BLOCKS, HEADS, WIDTH), device)
    with pytest.raises(MeshError, match="block_size_override is only supported in paged mode"):
        ttnn.experimental.paged_update_cache(target, token, update_idxs=[0] * BLOCKS, block_size=BLOCK)


# -- the older names, and positions ----------------------------------------------------------------


def test_the_names_of_kv_cache_write_what_fill_and_update_write(device):
    cache, long, short = random(3, 2, 16, WIDTH), random(1, 2, 6, WIDTH), random(1, 2, 32, WIDTH)
    mine, other = put(cache, device), put(cache, device)
    assert ttnn.kv_cache.fill_cache_for_user_(mine, put(long, device), 1, update_idx=4) is mine
    ttnn.fill_cache(other, put(long, device), 1, update_idx=4)
    assert torch.equal(ttnn.to_torch(mine), ttnn.to_torch(other))
    assert ttnn.kv_cache.update_cache_for_token_(mine, put(short, device), 9, 5) is mine
    ttnn.update_cache(other, put(short, device), 9, batch_offset=5)
    assert torch.equal(ttnn.to_torch(mine), ttnn.to_torch(other))
    with pytest.raises(MeshError, match="batch_index=3 does not lie within the 3 users"):
        ttnn.kv_cache.fill_cache_for_user_(mine, put(long, device), 3)
    with pytest.raises(MeshError, match="update_index=16 does not lie within the 16 positions"):
        ttnn.kv_cache.update_cache_for_token_(mine, put(short, device), 16)


def test_the_names_of_kv_cache_keep_splits(mesh):
    cache, long, short = random(4, 8, 16, WIDTH), random(1, 8, 6, WIDTH), random(1, 8, 4, WIDTH)
    target = put(cache, mesh, (S(0), S(1)))
    ttnn.kv_cache.update_cache_for_token_(target, put(short, mesh, (S(2), S(1))), 9)
    ttnn.kv_cache.fill_cache_for_user_(target, put(long, mesh, (R, S(1))), 1)
    expected = cache.clone()
    expected[:, :, 9] = short[0].transpose(0, 1)
    expected[1::2, :, :6] = long
    assert ttnn.placements(target) == (S(0), S(1))
    assert torch.equal(ttnn.compose(target), expected)


@pytest.mark.parametrize("words", [(R, R), (R, S(0))])
def test_plus_one_counts_in_place_and_may_skip_users_who_pause(pair, words):
    position = ints([3, -1, 0, 99], pair, words)
    assert ttnn.plus_one(position) is position
    assert ttnn.compose(position).tolist() == [4, 0, 1, 100]
    position = ints([3, -1, 0, 99], pair, words)
    ttnn.plus_one(position, None, True)
    assert ttnn.compose(position).tolist() == [4, -1, 1, 100]
    assert ttnn.placements(position) == words
    last = put(torch.tensor([2**31 + 5]), pair, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    assert int(ttnn.compose(ttnn.plus_one(last))[0]) & (2**32 - 1) == 2**31 + 6
    with pytest.raises(MeshError, match="counts in"):
        ttnn.plus_one(put(torch.ones(4), pair))
    with pytest.raises(MeshError, match="no negative entries"):
        ttnn.plus_one(last, skip_negative_entries=True)


# -- placements ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "input_words", "by_user"),
    [
        ((R, S(1)), (R, S(2)), (R, R)),
        ((S(0), S(1)), (S(1), S(2)), (S(0), R)),
        ((R, R), (R, R), (R, R)),
    ],
)
def test_a_paged_cache_stays_split_as_it_is_written(mesh, words, input_words, by_user):
    """Where users are split, each device has blocks of its own."""
    n = 2 if by_user[0] is S(0) else 1
    cache, new, at = random(n * BLOCKS, 8, BLOCK, WIDTH), random(1, USERS, 8, WIDTH), [5, 40, -1, 64]
    table = some_pages(USERS, PAGES, BLOCKS)
    target = put(cache, mesh, words)
    update(
        target,
        put(new, mesh, input_words),
        update_idxs_tensor=ints(at, mesh, by_user),
        page_table=ints(table, mesh, by_user),
    )
    whole = table.clone()
    whole[USERS // n :] += BLOCKS * (n - 1)
    assert ttnn.placements(target) == words
    assert torch.equal(ttnn.compose(target), after_update(cache, new, at, whole))


def test_heads_that_are_split_split_the_caches_that_all_shared(pair):
    cache, new = random(USERS, 2, 16, WIDTH), random(1, USERS, 4, WIDTH)
    k, v = put(cache, pair), put(cache, pair)
    fused(k, put(new, pair, (R, S(2))), v, put(new[:, :, :2].contiguous(), pair), update_idxs=[1, 2, 3, 4])
    assert (ttnn.placements(k), ttnn.placements(v)) == ((R, S(1)), (R, R))
    for view, half in zip(ttnn.get_device_tensors(k), new.chunk(2, 2), strict=True):
        assert torch.equal(ttnn.to_torch(view), after_update(cache, half, [1, 2, 3, 4]))
    assert torch.equal(ttnn.compose(v), after_update(cache, new[:, :, :2], [1, 2, 3, 4]))


def test_only_the_devices_that_are_named_write(mesh):
    cache, new, table = (
        random(BLOCKS, HEADS, BLOCK, WIDTH),
        random(1, HEADS, 40, WIDTH),
        some_pages(1, PAGES, BLOCKS),
    )
    target = put(cache, mesh)
    chosen = {
        ttnn.MeshCoordinate(1, 0),
        ttnn.MeshCoordinate(1, 1),
        ttnn.MeshCoordinate(1, 2),
        ttnn.MeshCoordinate(1, 3),
    }
    fill(target, put(new, mesh), ints(table, mesh), mesh_coords=chosen)
    assert ttnn.placements(target) == (LOCAL, R)
    pieces = [ttnn.to_torch(view) for view in ttnn.get_device_tensors(target)]
    assert all(torch.equal(piece, cache) for piece in pieces[:4])
    assert all(torch.equal(piece, after_fill(cache, new, table[0])) for piece in pieces[4:])
    token = random(1, 1, HEADS, WIDTH)
    one = {ttnn.MeshCoordinate(0, 2)}
    split = put(random(4 * HEADS, HEADS, BLOCK, WIDTH), mesh, (R, S(0)))
    before = ttnn.compose(split)
    blocks = ints([[0]], mesh)
    update(split, put(token, mesh), update_idxs=[3], page_table=blocks, mesh_coords=one)
    assert ttnn.placements(split) == (LOCAL, S(0))
    after = [ttnn.to_torch(view) for view in ttnn.get_device_tensors(split)]
    changed = [not torch.equal(a, b) for a, b in zip(after, [*before.chunk(4), *before.chunk(4)], strict=True)]
    assert changed == [False, False, True] + [False] * 5
    with pytest.raises(MeshError, match="which is not on the mesh"):
        fill(target, put(new, mesh), ints(table, mesh), mesh_coords={ttnn.MeshCoordinate(2, 0)})
    with pytest.raises(ArgumentError, match="mesh_coords"):
        fill(target, put(new, mesh), ints(table, mesh), mesh_coords=[(0, 0)])


def test_naming_all_devices_is_naming_none(pair):
    cache, new = random(USERS, HEADS, 16, WIDTH), random(1, USERS, HEADS, WIDTH)
    target = put(cache, pair)
    update(
        target,
        put(new, pair),
        update_idxs=[1, 2, 3, 4],
        mesh_coords={ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1)},
    )
    assert ttnn.placements(target) == (R, R)


def test_each_device_may_fill_another_user(pair):
    cache, new, table = (
        random(BLOCKS, HEADS, BLOCK, WIDTH),
        random(2, HEADS, 40, WIDTH),
        some_pages(USERS, PAGES, BLOCKS),
    )
    target = put(cache, pair)
    fill(target, put(new, pair, (R, S(0))), ints(table, pair), batch_idx_tensor=ints([3, 1], pair, (R, S(0))))
    assert ttnn.placements(target) == (R, S(0))
    for view, user, i in zip(ttnn.get_device_tensors(target), (3, 1), (0, 1), strict=True):
        assert torch.equal(ttnn.to_torch(view), after_fill(cache, new[i : i + 1], table[user]))


# -- traces ----------------------------------------------------------------------------------------


def test_a_replay_writes_both_caches_at_positions_that_count_on(pair):
    new, table = random(1, USERS, HEADS, WIDTH), some_pages(USERS, PAGES, BLOCKS)
    k, v = (put(torch.zeros(BLOCKS, HEADS, BLOCK, WIDTH), pair) for _ in range(2))
    at, pages, tokens = ints([0, 31, 5, -1], pair), ints(table, pair), put(new, pair)

    def step() -> None:
        fused(
            k,
            tokens,
            v,
            tokens,
            update_idxs_tensor=at,
            page_table=pages,
            mesh_coords={ttnn.MeshCoordinate(0, 1)},
        )
        ttnn.plus_one(at, skip_negative_entries=True)

    step()
    trace = ttnn.begin_trace_capture(pair, cq_id=0)
    step()
    ttnn.end_trace_capture(pair, trace, cq_id=0)
    assert ttnn.compose(at).tolist() == [1, 32, 6, -1]
    for _ in range(2):
        ttnn.execute_trace(pair, trace, cq_id=0, blocking=True)
    ttnn.release_trace(pair, trace)
    expected = torch.zeros(BLOCKS, HEADS, BLOCK, WIDTH)
    for shift in range(3):
        expected = after_update(expected, new, [shift, 31 + shift, 5 + shift, -1], table)
    assert ttnn.compose(at).tolist() == [3, 34, 8, -1]
    for cache in (k, v):
        pieces = [ttnn.to_torch(view) for view in ttnn.get_device_tensors(cache)]
        assert not pieces[0].any()
        assert torch.equal(pieces[1], expected)


# -- positions that devices hold in turn -----------------------------------------------------------


@pytest.mark.parametrize("by", ["numbers", "tensors"])
def test_a_chunk_goes_to_the_rows_that_each_device_holds_in_turn(mesh, by):
    """Four devices hold 8 of each 32 positions; slot 1 and layer 2 of 3 are row 5 of the cache."""
    cache, new = random(6, 1, 24, WIDTH), random(1, 1, 32, WIDTH)
    target = put(cache, mesh)
    if by == "numbers":
        prefill.update_padded_kv_cache(target, put(new, mesh, (R, S(2))), 1, 2, 3, 40, 1, 66)
    else:
        numbers = [ints([n], mesh) for n in (1, 40)]
        prefill.update_padded_kv_cache(
            target, put(new, mesh, (R, S(2))), *numbers, 2, 3, cluster_axis=1, valid_global=ints([66], mesh)
        )
    for i, view in enumerate(ttnn.get_device_tensors(target)):
        device = i % 4
        expected = cache.clone()
        for row in range(8):
            stretch = 1 if device >= 1 else 2  # positions 40 .. 71: device 0 comes last
            position = 32 * stretch + 8 * device + row
            if position < 66:
                expected[5, 0, 8 * stretch + row] = new[0, 0, 8 * device + row]
        assert torch.equal(ttnn.to_torch(view), expected)


def test_padding_behind_the_last_position_becomes_zero(mesh):
    cache = random(2, 1, 24, WIDTH)
    target = put(cache, mesh)
    prefill.zero_padded_kv_cache(target, 1, 0, 1, 37, 32, 1, pad_align=16)
    for i, view in enumerate(ttnn.get_device_tensors(target)):
        expected = cache.clone()
        for row in range(24):
            position = 32 * (row // 8) + 8 * (i % 4) + row % 8
            if 37 <= position < 48:
                expected[1, 0, row] = 0
        assert torch.equal(ttnn.to_torch(view), expected)


def test_a_row_is_turned_by_its_position_in_the_whole_sequence(mesh):
    q, cos, sin, matrix = (
        random(1, 2, 32, 64),
        random(1, 1, 128, 32),
        random(1, 1, 128, 32).flip(2),
        random(1, 1, 32, 32),
    )
    prefix = random(1, 2, 32, 32)
    run = prefill.rotary_embedding_indexed
    result = run(
        put(q[..., :32].contiguous(), mesh, (R, S(2))),
        put(cos, mesh),
        put(sin, mesh),
        put(matrix, mesh),
        64,
        1,
    )
    turned = lambda x, at: x * cos[:, :, at] + x @ matrix[0, 0] * sin[:, :, at]  # noqa: E731
    at = torch.arange(64, 96)
    assert ttnn.placements(result) == (R, S(2))
    torch.testing.assert_close(ttnn.compose(result), turned(q[..., :32], at), rtol=1e-4, atol=1e-4)
    result = run(
        put(q, mesh, (R, S(2))),
        *(put(x, mesh) for x in (cos, sin, matrix)),
        ints([64], mesh),
        1,
        rotary_dim=32,
        rotary_offset=16,
        concat_prefix=put(prefix, mesh, (R, S(2))),
    )
    expected = torch.cat([prefix, q[..., :16], turned(q[..., 16:48], at), q[..., 48:]], -1)
    torch.testing.assert_close(ttnn.compose(result), expected, rtol=1e-4, atol=1e-4)
    both = run(
        put(q[..., :32].contiguous(), mesh, (S(2), S(2))),
        *(put(x, mesh) for x in (cos, sin, matrix)),
        0,
        1,
        seq_subshard_axis=0,
    )
    order = torch.arange(32).unflatten(0, (4, 2, 4)).transpose(0, 1).flatten()  # device (r, c) holds part 2c + r
    torch.testing.assert_close(ttnn.compose(both)[:, :, :], turned(q[..., :32], order), rtol=1e-4, atol=1e-4)


# -- bad input -------------------------------------------------------------------------------------


def test_caches_name_what_does_not_fit(device):
    cache, table = (
        put(random(BLOCKS, HEADS, BLOCK, WIDTH), device),
        ints(some_pages(USERS, PAGES, BLOCKS), device),
    )
    new, long = put(random(1, USERS, HEADS, WIDTH), device), put(random(1, HEADS, 40, WIDTH), device)

    def refuse(words: str, call: object, *args: object, error: type[Exception] = MeshError, **kwargs: object) -> None:
        with pytest.raises(error, match=re.escape(words)):
            call(*args, **kwargs)  # type: ignore[operator]

    refuse("pass update_idxs or update_idxs_tensor", update, cache, new, page_table=table, error=ArgumentError)
    refuse("2 positions for 4 users", update, cache, new, update_idxs=[1, 2], page_table=table)
    refuse(
        "a sequence of ints, got [1, 2, 3, 4.0]",
        update,
        cache,
        new,
        update_idxs=[1, 2, 3, 4.0],
        page_table=table,
        error=ArgumentError,
    )
    refuse("96 does not lie within the 96 positions", update, cache, new, update_idxs=[96] * 4, page_table=table)
    refuse("holds 4 users, and cache_tensor", update, cache, new, update_idxs=[1] * 4)
    refuse(
        "share_cache=True is for caches without",
        update,
        cache,
        new,
        update_idxs=[1] * 4,
        page_table=table,
        share_cache=True,
    )
    refuse(
        "must hold the 2 heads",
        update,
        cache,
        put(random(1, USERS, 1, WIDTH), device),
        update_idxs=[1] * 4,
        page_table=table,
    )
    refuse("Did you mean 'update_idxs'", update, cache, new, update_idx=[1] * 4, error=ArgumentError)
    refuse("batch_idx=4 must lie within the 4 rows", fill, cache, long, table, batch_idx=4)
    refuse("do not fit the 96", fill, cache, put(random(1, HEADS, 97, WIDTH), device), table)
    refuse(
        "must have same dtype!",
        fill,
        cache,
        put(random(1, HEADS, 8, WIDTH), device, dtype=ttnn.bfloat16),
        table,
    )
    wild = ints(torch.full((1, PAGES), BLOCKS), device)
    refuse(f"{BLOCKS} does not lie within the {BLOCKS} blocks", fill, cache, long, wild)
    padded = put(random(2, HEADS, 64, WIDTH), device)
    refuse(
        "must be a multiple of 40",
        prefill.update_padded_kv_cache,
        padded,
        long,
        0,
        0,
        1,
        7,
        None,
        error=NotModelled,
    )
    refuse(
        "tp_axis",
        prefill.update_padded_kv_cache,
        padded,
        long,
        0,
        0,
        1,
        0,
        None,
        tp_axis=1,
        error=NotModelled,
    )
    refuse("slots and layers", prefill.update_padded_kv_cache, padded, long, 2, 0, 1, 0, None)
    assert torch.equal(ttnn.to_torch(cache), random(BLOCKS, HEADS, BLOCK, WIDTH))
