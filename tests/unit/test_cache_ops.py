"""fill_cache and update_cache: what they write, where, and who sees it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from operands import LOCAL, R, S, put, random

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError, PartialWarning
from softmesh.ops.kv_cache.kv_cache import fill_cache, update_cache


def filled(cache: torch.Tensor, values: torch.Tensor, user: int, start: int = 0) -> torch.Tensor:
    result = cache.clone()
    result[user, :, start : start + values.shape[2]] = values[0]
    return result


def updated(cache: torch.Tensor, values: torch.Tensor, position: int) -> torch.Tensor:
    result = cache.clone()
    result[:, :, position] = values[0].transpose(0, 1)
    return result


# -- what is written -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
@pytest.mark.parametrize(("user", "start"), [(0, 0), (2, 0), (1, 10)])
def test_fill_cache_writes_the_tokens_of_one_user_and_nothing_else(device, dtype, user, start):
    cache, values = random(3, 2, 16, 32), random(1, 2, 6, 32)
    target = put(cache, device, dtype=dtype)
    result = fill_cache(target, put(values, device, dtype=dtype), user, update_idx=start)
    assert result is target
    expected = filled(cache, values, user, start).to(ttnn.to_torch(target).dtype)
    assert torch.equal(ttnn.to_torch(target), expected)


@pytest.mark.parametrize("position", [0, 7, 15])
def test_update_cache_writes_one_token_of_each_user(device, position):
    cache, values = random(4, 2, 16, 32), random(1, 2, 4, 32)
    target = put(cache, device)
    assert update_cache(target, put(values, device), position) is target
    assert torch.equal(ttnn.to_torch(target), updated(cache, values, position))


def test_update_cache_reads_its_users_from_the_batch_offset_on(device):
    cache, values = random(4, 2, 16, 32), random(1, 2, 32, 32)
    target = put(cache, device)
    update_cache(target, put(values, device), 3, batch_offset=8)
    assert torch.equal(ttnn.to_torch(target), updated(cache, values[:, :, 8:12], 3))


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b])
def test_update_cache_rounds_the_tokens_to_the_dtype_of_the_cache(device, dtype):
    cache, values = random(4, 2, 16, 32), random(1, 2, 4, 32)
    target = put(cache, device, dtype=dtype)
    before = ttnn.to_torch(target)
    update_cache(target, put(values, device), 5)
    rounded = ttnn.to_torch(put(values, device, dtype=dtype))
    assert target.dtype is dtype
    assert torch.equal(ttnn.to_torch(target), updated(before, rounded, 5))


def test_other_positions_and_users_are_no_new_program(device):
    target, values = put(torch.zeros(4, 2, 16, 32), device), put(random(1, 2, 4, 32), device)
    for at in range(4):
        update_cache(target, values, at)
        fill_cache(target, values, at, update_idx=2 * at)
    assert device.num_program_cache_entries() == 2


# -- who sees it -----------------------------------------------------------------------------------


def test_views_of_the_cache_taken_before_see_the_write(pair):
    cache, values = random(2, 4, 8, 32), random(1, 4, 3, 32)
    target = put(cache, pair, (R, S(1)))
    views = ttnn.get_device_tensors(target)
    fill_cache(target, put(values, pair, (R, S(1))), 1)
    for view, expected in zip(views, filled(cache, values, 1).chunk(2, 1), strict=True):
        assert torch.equal(ttnn.to_torch(view), expected)


def test_views_see_a_write_that_makes_a_shared_cache_differ(pair):
    cache, values = random(2, 2, 8, 32), random(1, 4, 3, 32)
    target = put(cache, pair)
    views = ttnn.get_device_tensors(target)
    fill_cache(target, put(values, pair, (R, S(1))), 1)
    for view, half in zip(views, values.chunk(2, 1), strict=True):
        assert torch.equal(ttnn.to_torch(view), filled(cache, half, 1))


@pytest.mark.parametrize("words", [(R, R), (R, S(1))])
def test_a_reshape_taken_before_does_not_see_the_write(pair, words):
    cache, values = random(2, 4, 8, 32), random(1, 4, 3, 32)
    target = put(cache, pair, words)
    before = ttnn.reshape(target, (*tuple(target.shape)[:2], 4, 64))
    fill_cache(target, put(values, pair, words), 0)
    assert torch.equal(ttnn.compose(before), cache.reshape(2, 4, 4, 64))
    assert torch.equal(ttnn.compose(target), filled(cache, values, 0))


def test_a_cache_may_be_filled_from_itself(device):
    cache = random(2, 2, 8, 32)
    target = put(cache, device)
    fill_cache(target, target[1:2], 0)
    assert torch.equal(ttnn.to_torch(target), cache[1:2].expand(2, -1, -1, -1))


def test_the_callers_torch_tensor_is_left_alone(device):
    cache = torch.zeros(2, 2, 8, 32)
    update_cache(put(cache, device), put(random(1, 2, 2, 32), device), 0)
    assert not cache.any()


def test_one_devices_view_can_be_filled_alone(pair):
    cache, values = random(2, 2, 8, 32), random(1, 2, 3, 32)
    target = put(cache, pair)
    first = ttnn.get_device_tensors(target)[0]
    fill_cache(first, ttnn.get_device_tensors(put(values, pair))[0], 1)
    pieces = [ttnn.to_torch(view) for view in ttnn.get_device_tensors(target)]
    assert torch.equal(pieces[0], filled(cache, values, 1))
    assert torch.equal(pieces[1], cache)


def test_a_written_cache_is_not_copied_by_later_writes(device):
    target, values = put(torch.zeros(2, 2, 8, 32), device), put(random(1, 2, 2, 32), device)
    update_cache(target, values, 0)
    place = target.storage.data.data_ptr()
    fill_cache(target, values, 1)
    update_cache(target, values, 3)
    assert target.storage.data.data_ptr() == place


# -- placements ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(R, R), (R, S(1)), (S(3), S(1)), (S(1), R)])
def test_a_cache_filled_by_tokens_split_alike_stays_split(mesh, words):
    cache, values = random(2, 8, 8, 64), random(1, 8, 5, 64)
    target = put(cache, mesh, words)
    fill_cache(target, put(values, mesh, words), 1, update_idx=2)
    assert ttnn.placements(target) == words
    assert torch.equal(ttnn.compose(target), filled(cache, values, 1, 2))


@pytest.mark.parametrize(
    ("words", "input_words"), [((S(0), S(1)), (S(2), S(1))), ((R, S(0)), (R, S(2))), ((S(1), R), (S(1), R))]
)
def test_a_cache_updated_by_tokens_split_alike_stays_split(mesh, words, input_words):
    cache, values = random(4, 8, 8, 32), random(1, 8, 4, 32)
    target = put(cache, mesh, words)
    update_cache(target, put(values, mesh, input_words), 6)
    assert ttnn.placements(target) == words
    assert torch.equal(ttnn.compose(target), updated(cache, values, 6))


def test_each_device_fills_its_own_user_where_users_are_split(pair):
    cache, values = random(4, 2, 8, 32), random(2, 2, 8, 32)
    target = put(cache, pair, (R, S(0)))
    fill_cache(target, put(values, pair, (R, S(0))), 1)
    assert ttnn.placements(target) == (R, S(0))
    assert torch.equal(ttnn.compose(target)[1::2], values)
    assert torch.equal(ttnn.compose(target)[0::2], cache[0::2])


def test_tokens_that_all_devices_share_leave_a_split_cache_split(pair):
    cache, values = random(2, 4, 8, 32), random(1, 2, 3, 32)
    target = put(cache, pair, (R, S(1)))
    fill_cache(target, put(values, pair), 0)
    assert ttnn.placements(target) == (R, S(1))
    assert torch.equal(ttnn.compose(target), filled(cache, values.repeat(1, 2, 1, 1), 0))


@pytest.mark.parametrize(("word", "left"), [(S(1), S(1)), (S(2), LOCAL)])
def test_heads_that_are_split_split_a_shared_cache_and_positions_do_not(pair, word, left):
    cache = random(2, 2, 8, 32)
    values = random(1, 4, 4, 32) if word is S(1) else random(1, 2, 8, 32)
    target = put(cache, pair)
    fill_cache(target, put(values, pair, (R, word)), 1)
    assert ttnn.placements(target) == (R, left)
    for view, part in zip(ttnn.get_device_tensors(target), values.chunk(2, word.dim), strict=True):
        assert torch.equal(ttnn.to_torch(view), filled(cache, part, 1))


def test_a_cache_split_along_its_positions_is_local_after_a_write(pair):
    target = put(random(2, 2, 8, 32), pair, (R, S(2)))
    update_cache(target, put(random(1, 2, 2, 32), pair), 1)
    assert ttnn.placements(target) == (R, LOCAL)


def test_a_cache_takes_tokens_laid_out_on_another_grid_or_on_some_devices_only(mesh):
    cache, values = random(1, 2, 8, 32), random(1, 8, 4, 32)
    finer = ttnn.create_mesh_mapper(
        mesh, ttnn.MeshMapperConfig([ttnn.PlacementShard(1), ttnn.PlacementShard(2)], ttnn.MeshShape(4, 2))
    )
    target = put(cache, mesh)
    tokens = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=finer)
    fill_cache(target, tokens, 0)
    for view, part in zip(ttnn.get_device_tensors(target), ttnn.get_device_tensors(tokens), strict=True):
        assert torch.equal(ttnn.to_torch(view), filled(cache, ttnn.to_torch(part), 0))
    some = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig([ttnn.PlacementShard(1)], ttnn.MeshShape([4])))
    target = put(cache, mesh)
    tokens = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=some)
    fill_cache(target, tokens, 0)
    views = [ttnn.to_torch(view) for view in ttnn.get_device_tensors(target)]
    for view, part in zip(views, ttnn.get_device_tensors(tokens), strict=False):
        assert torch.equal(view, filled(cache, ttnn.to_torch(part), 0))
    assert all(torch.equal(view, cache) for view in views[4:])


# -- bad input -------------------------------------------------------------------------------------


def refuse(message: str, call: Any, *args: Any, error: type[Exception] = MeshError, **kwargs: Any) -> None:
    with pytest.raises(error, match=message):
        call(*args, **kwargs)


def test_fill_cache_names_what_does_not_fit_and_leaves_the_cache(device):
    cache = random(3, 2, 16, 32)
    target, values = put(cache, device), put(random(1, 2, 6, 32), device)
    refuse("batch_idx=3 does not lie within the 3 users", fill_cache, target, values, 3)
    refuse("batch_idx=-1 does not lie within", fill_cache, target, values, -1)
    refuse("6 from update_idx=11 on do not lie within the 16", fill_cache, target, values, 0, update_idx=11)
    refuse("batch_idx must be an int", fill_cache, target, values, 1.0, error=ArgumentError)
    refuse("must have 4 dims", fill_cache, target, put(random(2, 6, 32), device), 0)
    refuse("dim 0 of input_tensor", fill_cache, target, put(random(2, 2, 6, 32), device), 0)
    refuse("must agree in heads", fill_cache, target, put(random(1, 3, 6, 32), device), 0)
    refuse("must agree in heads", fill_cache, target, put(random(1, 2, 6, 16), device), 0)
    other = put(random(1, 2, 6, 32), device, dtype=ttnn.bfloat16)
    refuse("Input and cache tensors must have same dtype!", fill_cache, target, other, 0)
    rows = put(random(1, 2, 6, 32), device, layout=ttnn.ROW_MAJOR_LAYOUT)
    refuse("must be tilized", fill_cache, target, rows, 0)
    refuse("'batch_idx' is missing", fill_cache, target, values, error=ArgumentError)
    assert torch.equal(ttnn.to_torch(target), cache)


def test_update_cache_names_what_does_not_fit_and_leaves_the_cache(device):
    cache = random(3, 2, 16, 32)
    target, values = put(cache, device), put(random(1, 2, 3, 32), device)
    refuse("update_idx=16 does not lie within the 16 positions", update_cache, target, values, 16)
    refuse("update_idx=-1 does not lie within", update_cache, target, values, -1)
    refuse("update_idx must be an int", update_cache, target, values, 0.5, error=ArgumentError)
    refuse("must hold the 3 users", update_cache, target, values, 0, batch_offset=1)
    refuse("must hold the 3 users", update_cache, target, put(random(1, 2, 2, 32), device), 0)
    refuse("must agree in heads", update_cache, target, put(random(1, 1, 3, 32), device), 0)
    assert torch.equal(ttnn.to_torch(target), cache)


def test_addends_that_nobody_summed_are_named(pair):
    a, b = put(random(1, 2, 3, 64), pair, (R, S(3))), put(random(1, 1, 64, 32), pair, (R, S(2)))
    addends = ttnn.matmul(a, b)
    assert ttnn.placements(addends) == (R, ttnn.Partial())
    target = put(torch.zeros(3, 2, 8, 32), pair)
    refuse("input_tensor is still Partial", fill_cache, target, addends, 0, error=PartialWarning)
    refuse("input is still Partial", update_cache, target, addends, 0, error=PartialWarning)
    whole = put(random(1, 2, 3, 32), pair)
    refuse("cache_tensor is still Partial", fill_cache, addends, whole, 0, error=PartialWarning)
