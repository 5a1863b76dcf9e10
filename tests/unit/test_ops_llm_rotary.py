"""Rotary embeddings against plain torch: both ways to pair columns, whole sequences and one token of each user."""

from __future__ import annotations

import pytest
import torch
from llm_operands import assert_close
from operands import LOCAL, R, S, put, random

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError

plain = ttnn.experimental.rotary_embedding
hf = ttnn.experimental.rotary_embedding_hf
llama = ttnn.experimental.rotary_embedding_llama
fused = ttnn.experimental.rotary_embedding_llama_fused_qk


def by_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def by_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Each pair (a, b) of neighbours as (a cos - b sin, b cos + a sin)."""
    return x * cos + torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2) * sin


def turning_matrix(count: int = 1) -> torch.Tensor:
    matrix = torch.zeros(1, 1, 32, 32)
    even = torch.arange(0, 32, 2)
    matrix[..., even, even + 1] = 1
    matrix[..., even + 1, even] = -1
    return matrix.repeat(1, 1, count, 1)


def angles(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    theta = random(*shape)
    return theta.cos(), theta.sin()


@pytest.mark.parametrize("op", [plain, hf])
@pytest.mark.parametrize(("rows", "length"), [(5, 5), (33, 64)])
def test_halves_are_turned_row_by_row(device, op, rows, length):
    x, (cos, sin) = random(2, 3, rows, 64), angles(1, 1, length, 64)
    result = op(*(put(t, device) for t in (x, cos, sin)))
    assert_close(result, by_halves(x, cos[:, :, :rows], sin[:, :, :rows]))


def test_a_token_index_turns_all_rows_alike(device):
    x, (cos, sin) = random(1, 3, 7, 64), angles(1, 1, 20, 64)
    tensors = [put(t, device) for t in (x, cos, sin)]
    for index in (0, 13):
        assert_close(plain(*tensors, index), by_halves(x, cos[:, :, index], sin[:, :, index]))
    assert device.num_program_cache_entries() == 1
    with pytest.raises(MeshError, match="lies outside the 20 rows"):
        plain(*tensors, 20)
    with pytest.raises(ArgumentError, match="token_index must be an int"):
        plain(*tensors, 1.5)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
def test_neighbours_are_turned_by_the_matrix(device, dtype):
    x, (cos, sin) = random(1, 4, 40, 64), angles(1, 1, 64, 64)
    result = llama(*(put(t, device, dtype=dtype) for t in (x, cos, sin, turning_matrix())))
    assert result.dtype is dtype
    x, cos, sin = (t.to(ttnn.to_torch(result).dtype).float() for t in (x, cos, sin))
    assert_close(result, by_pairs(x, cos[:, :, :40], sin[:, :, :40]), 2e-5 if dtype is ttnn.float32 else 1e-2)


@pytest.mark.parametrize("rows", [1, 32])
def test_in_decode_mode_each_user_has_an_angle_of_its_own(device, rows):
    """Of cos and sin the first row counts, where they come padded to a tile."""
    x, (cos, sin) = random(1, 5, 8, 64), angles(1, 5, rows, 64)
    tensors = [put(t, device) for t in (x, cos, sin)]
    first = cos[:, :, :1], sin[:, :, :1]
    assert_close(hf(*tensors, is_decode_mode=True), by_halves(x, *first))
    for count in (1, 5, 8):
        matrix = put(turning_matrix(count), device)
        assert_close(llama(*tensors, matrix, is_decode_mode=True), by_pairs(x, *first))


def test_each_user_is_turned_by_its_own_matrix(device):
    x, (cos, sin), matrices = random(1, 3, 8, 32), angles(1, 3, 1, 32), random(1, 1, 96, 32)
    result = llama(*(put(t, device) for t in (x, cos, sin, matrices)), is_decode_mode=True)
    turned = x @ matrices[0, 0].unflatten(0, (3, 32))
    assert_close(result, x * cos + turned * sin)


@pytest.mark.parametrize("count", [1, 8])
def test_queries_and_keys_are_turned_at_once(device, count):
    q, k, (cos, sin) = random(1, 4, 8, 64), random(1, 4, 2, 64), angles(1, 8, 1, 64)
    results = fused(*(put(t, device) for t in (q, k, cos, sin, turning_matrix(count))))
    assert isinstance(results, tuple)
    assert_close(results[0], by_pairs(q, cos[:, :4], sin[:, :4]))
    assert_close(results[1], by_pairs(k, cos[:, 4:], sin[:, 4:]))


def test_turned_queries_and_keys_lie_where_each_of_them_did(device):
    def on_cores(x: torch.Tensor, first: int) -> ttnn.Tensor:
        cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(first, 0), ttnn.CoreCoord(first + 1, 0))])
        memory = ttnn.create_sharded_memory_config(
            (32, 64), cores, ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
        )
        return put(x, device, memory_config=memory)

    q, k = on_cores(random(1, 2, 8, 64), 0), on_cores(random(1, 2, 4, 64), 2)
    results = fused(q, k, *(put(t, device) for t in angles(1, 4, 1, 64)), put(turning_matrix(), device))
    assert [result.memory_config() for result in results] == [q.memory_config(), k.memory_config()]


@pytest.mark.parametrize("words", [(S(1), R), (S(0), S(1)), (R, S(3))])
def test_heads_batch_and_tiles_of_columns_stay_split(mesh, words):
    x, (cos, sin) = random(2, 8, 5, 128), angles(1, 1, 9, 128)
    tables = tuple(S(3) if word is S(3) else R for word in words)
    result = llama(put(x, mesh, words), put(cos, mesh, tables), put(sin, mesh, tables), put(turning_matrix(), mesh))
    assert ttnn.placements(result) == words
    assert_close(result, by_pairs(x, cos[:, :, :5], sin[:, :, :5]))


def test_users_stay_split_with_their_angles(mesh):
    q, k, (cos, sin) = random(1, 4, 8, 64), random(1, 4, 4, 64), angles(1, 4, 1, 64)
    split = llama(
        put(q, mesh, (R, S(1))),
        put(cos, mesh, (R, S(1))),
        put(sin, mesh, (R, S(1))),
        put(turning_matrix(), mesh),
        is_decode_mode=True,
    )
    assert ttnn.placements(split) == (R, S(1))
    assert_close(split, by_pairs(q, cos, sin))
    doubled = [t.repeat_interleave(2, 1) for t in (cos, sin)]  # each device: its user for q, then for k
    results = fused(
        put(q, mesh, (S(2), S(1))),
        put(k, mesh, (S(2), S(1))),
        *(put(t, mesh, (R, S(1))) for t in doubled),
        put(turning_matrix(), mesh),
    )
    for result, x in zip(results, (q, k), strict=True):
        assert ttnn.placements(result) == (S(2), S(1))
        assert_close(result, by_pairs(x, cos, sin))


def test_a_split_of_paired_halves_or_of_rows_beside_a_long_table_has_no_common_value(pair):
    x, (cos, sin) = random(1, 2, 8, 128), angles(1, 1, 8, 64)
    split = plain(put(x, pair, (R, S(3))), put(cos, pair), put(sin, pair))
    assert ttnn.placements(split) == (R, LOCAL)
    rows = plain(put(x[..., :64].contiguous(), pair, (R, S(2))), put(cos, pair), put(sin, pair))
    assert ttnn.placements(rows) == (R, LOCAL)


def test_rotary_embeddings_name_what_does_not_fit(device):
    x, (cos, sin) = random(1, 2, 8, 64), angles(1, 1, 8, 64)
    x, cos, sin, matrix = (put(t, device) for t in (x, cos, sin, turning_matrix()))
    narrow, short = put(random(1, 2, 8, 32), device), put(random(1, 1, 4, 64), device)
    for words, call in {
        "a multiple of 64": lambda: plain(narrow, narrow, narrow),
        "must have one width": lambda: llama(narrow, cos, sin, matrix),
        "fewer rows than the 8 positions": lambda: hf(x, short, short),
        "must be alike": lambda: plain(x, cos, short),
        r"trans_mat must be \[1, 1, 32, 32\]": lambda: llama(x, cos, sin, x),
        r"in decode mode cos_cache .* must be \[1, 2, 1, 64\]": lambda: hf(
            x, put(random(1, 3, 1, 64), device), put(random(1, 3, 1, 64), device), is_decode_mode=True
        ),
        "holds 2 matrices for 4 users": lambda: fused(
            x,
            x,
            put(random(1, 4, 1, 64), device),
            put(random(1, 4, 1, 64), device),
            put(turning_matrix(2), device),
        ),
        "a row for each user of q, then one for each user of k": lambda: fused(x, x, cos, sin, matrix),
        "must be tilized": lambda: plain(ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT), cos, sin),
    }.items():
        with pytest.raises(MeshError, match=words):
            call()
