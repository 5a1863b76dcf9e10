"""Heads out of rows in the forms of single models, and back; on one device and split over several."""

from __future__ import annotations

import pytest
import torch
from operands import R, S, put, random

import softmesh as ttnn
from softmesh.errors import MeshError

GRID = (8, 8)


def heads(row: torch.Tensor, count: int) -> torch.Tensor:
    """[b, s, count * width] -> [b, count, s, width]"""
    return row.unflatten(-1, (count, -1)).transpose(1, 2)


def same(result: ttnn.Tensor, expected: torch.Tensor) -> None:
    assert tuple(ttnn.compose(result).shape) == tuple(expected.shape)
    assert torch.equal(ttnn.compose(result), expected)


@pytest.mark.parametrize("kv_heads", [None, 2])
@pytest.mark.parametrize("turned", [True, False])
def test_a_fused_row_comes_apart_into_queries_keys_and_values(device, kv_heads, turned):
    groups, width = 4 + 2 * (kv_heads or 4), 32
    x = random(2, 5, groups * width)
    q, k, v = ttnn.transformer.split_query_key_value_and_split_heads(
        put(x, device), num_heads=4, num_kv_heads=kv_heads, transpose_key=turned
    )
    parts = heads(x, groups).split((4, kv_heads or 4, kv_heads or 4), 1)
    same(q, parts[0])
    same(k, parts[1].transpose(2, 3) if turned else parts[1])
    same(v, parts[2])


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_a_sharded_row_holds_the_queries_of_each_key_beside_it(device, kv_heads):
    """A core has whole groups: it finds everything that its heads need in its own shard."""
    groups, width = 4 + 2 * kv_heads, 32
    x = random(2, 32, groups * width)
    cores = ttnn.CoreGrid(x=kv_heads, y=2)
    sharded = put(
        x,
        device,
        memory_config=ttnn.create_sharded_memory_config(x.shape, cores, ttnn.ShardStrategy.BLOCK),
    )
    parts = heads(x, groups).unflatten(1, (kv_heads, -1))
    expected = parts[:, :, :-2].flatten(1, 2), parts[:, :, -2], parts[:, :, -1]
    split = ttnn.transformer.split_query_key_value_and_split_heads
    created = ttnn.experimental.nlp_create_qkv_heads(
        put(
            x[:1].unsqueeze(0),
            device,
            memory_config=ttnn.create_sharded_memory_config(
                (1, 1, 32, groups * width), ttnn.CoreGrid(x=kv_heads, y=1), ttnn.ShardStrategy.WIDTH
            ),
        ),
        num_heads=4,
        num_kv_heads=kv_heads,
        transpose_k_heads=False,
    )
    for made, one, wanted in zip(
        split(sharded, num_heads=4, num_kv_heads=kv_heads, transpose_key=False),
        created,
        expected,
        strict=True,
    ):
        same(made, wanted)
        same(one, wanted[:1])


def test_rows_of_falcon_7b_have_one_key_head(device):
    x = random(1, 32, 4672)
    q, k, v = ttnn.transformer.split_query_key_value_and_split_heads(
        put(x, device), num_heads=71, transpose_key=False, use_falcon7b_backend=True
    )
    same(q, heads(x, 73)[:, :71])
    same(k, heads(x, 73)[:, 71:72])
    same(v, heads(x, 73)[:, 72:])


def test_a_row_of_queries_alone_leaves_keys_and_values_empty(device):
    x = random(1, 1, 32, 128)
    q, k, v = ttnn.experimental.nlp_create_qkv_heads(put(x, device), num_heads=4, num_kv_heads=0)
    same(q, heads(x[0], 4))
    assert list(k.shape) == [1, 0, 32, 32]
    assert list(v.shape) == [1, 0, 32, 32]


def test_keys_and_values_may_come_from_another_row(device):
    x, kv = random(2, 5, 4 * 32), random(2, 7, 2 * 4 * 32)
    q, k, v = ttnn.transformer.split_query_key_value_and_split_heads(put(x, device), put(kv, device), num_heads=4)
    same(q, heads(x, 4))
    same(k, heads(kv, 8)[:, :4].transpose(2, 3))
    same(v, heads(kv, 8)[:, 4:])
    q, k, v = ttnn.experimental.create_qkv_heads_from_separate_tensors(
        put(x.unsqueeze(1), device), put(kv.unsqueeze(1), device), num_heads=4, transpose_k_heads=False
    )
    pairs = heads(kv, 8).unflatten(1, (4, 2))
    same(q, heads(x, 4))
    same(k, pairs[:, :, 0])
    same(v, pairs[:, :, 1])


def test_rows_may_hold_the_queries_of_each_key_beside_it(device):
    x = random(2, 1, 5, (6 + 2 * 3) * 32)
    q, k, v = ttnn.experimental.create_qkv_heads(put(x, device), num_heads=6, num_kv_heads=3)
    groups = heads(x[:, 0], 12).unflatten(1, (3, 4))
    same(q, groups[:, :, :2].flatten(1, 2))
    same(k, groups[:, :, 2].transpose(2, 3))
    same(v, groups[:, :, 3])


def test_forms_of_fixed_sizes(device):
    x = random(1, 1, 3, 4672)
    q, k, v = ttnn.experimental.nlp_create_qkv_heads_falcon7b(put(x, device))
    for result, part in zip((q, k, v), heads(x[:, 0], 73).split((71, 1, 1), 1), strict=True):
        same(result, part)
    x = random(2, 1, 3, 2304)
    for result, part in zip(
        ttnn.experimental.nlp_create_qkv_heads_vit(put(x, device)),
        heads(x[:, 0], 36).chunk(3, 1),
        strict=True,
    ):
        same(result, part)
    x = random(2, 1, 3, 96)
    same(ttnn.experimental.nlp_create_qkv_heads_segformer(put(x, device))[0], heads(x[:, 0], 3))
    x = random(2, 1, 3, 3 * 16 * 32)
    q, k, v = ttnn.experimental.split_query_key_value_and_split_heads(put(x, device), GRID)
    parts = heads(x[:, 0], 48).chunk(3, 1)
    same(q, parts[0])
    same(k, parts[1].transpose(2, 3))
    same(v, parts[2])
    joined = ttnn.experimental.concatenate_heads(put(random(2, 16, 3, 64), device), GRID)
    same(joined, random(2, 16, 3, 64).transpose(1, 2).flatten(2).unsqueeze(1))


def rows_by_device(parts: list[torch.Tensor], n: int) -> torch.Tensor:
    """A row that holds each device's own heads: [q0 k0 v0 | q1 k1 v1 | ...], of [b, heads, s, width]."""
    own = [torch.cat(list(pieces), 1) for pieces in zip(*(part.chunk(n, 1) for part in parts), strict=True)]
    return torch.cat([piece.transpose(1, 2).flatten(2) for piece in own], -1)


def grouped_by_device(parts: list[torch.Tensor], n: int) -> torch.Tensor:
    q, k, v = parts
    size = q.shape[1] // k.shape[1]
    groups = [
        torch.cat([q[:, i * size : (i + 1) * size], k[:, i : i + 1], v[:, i : i + 1]], 1) for i in range(k.shape[1])
    ]
    return torch.cat(groups, 1).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("form", ["transformer", "experimental", "grouped", "separate"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_split_row_is_split_into_heads(mesh, form, axis):
    n = tuple(mesh.shape)[axis]
    words = tuple(S(3 if form != "transformer" else 2) if a == axis else R for a in range(2))
    q, k, v = random(2, 8, 3, 32), random(2, 4, 3, 32), random(2, 4, 3, 32) * 2
    if form == "experimental":
        k, v = q * 3, q * 5
    row = (grouped_by_device if form == "grouped" else rows_by_device)([q, k, v], n)
    if form == "transformer":
        made = ttnn.transformer.split_query_key_value_and_split_heads(
            put(row, mesh, words), num_heads=8 // n, num_kv_heads=4 // n
        )
    elif form == "experimental":
        made = ttnn.experimental.split_query_key_value_and_split_heads(
            put(row.unsqueeze(1), mesh, words), GRID, num_heads=8 // n
        )
    elif form == "grouped":
        made = ttnn.experimental.create_qkv_heads(
            put(row.unsqueeze(1), mesh, words), num_heads=8 // n, num_kv_heads=4 // n
        )
    else:
        queries = q.transpose(1, 2).flatten(2).unsqueeze(1)
        pairs = torch.stack([k, v], 2).flatten(1, 2).transpose(1, 2).flatten(2).unsqueeze(1)
        made = ttnn.experimental.create_qkv_heads_from_separate_tensors(
            put(queries, mesh, words), put(pairs, mesh, words), num_heads=8 // n, num_kv_heads=4 // n
        )
    kept = tuple(S(1) if a == axis else R for a in range(2))
    for result, expected in zip(made, (q, k.transpose(2, 3), v), strict=True):
        assert ttnn.placements(result) == kept
        same(result, expected)


def test_forms_of_fixed_sizes_keep_splits_of_batch_and_sequence(pair):
    for op, width in (("vit", 2304), ("falcon7b", 4672), ("segformer", 64)):
        x = random(2, 1, 4, width)
        run = getattr(ttnn.experimental, f"nlp_create_qkv_heads_{op}")
        whole = run(put(x, pair))
        for word in (S(0), S(2)):
            for split, one in zip(run(put(x, pair, (R, word))), whole, strict=True):
                assert ttnn.placements(split) == (R, word)
                same(split, ttnn.compose(one))
    joined = ttnn.experimental.concatenate_heads(put(random(2, 16, 3, 64), pair, (R, S(1))), GRID)
    assert ttnn.placements(joined) == (R, S(3))
    same(joined, random(2, 16, 3, 64).transpose(1, 2).flatten(2).unsqueeze(1))


def test_heads_name_what_does_not_fit(device):
    x = put(random(2, 5, 96), device)
    split = ttnn.transformer.split_query_key_value_and_split_heads
    with pytest.raises(MeshError, match="does not hold 5 heads"):
        split(x, num_heads=3, num_kv_heads=1)
    with pytest.raises(MeshError, match="cannot share 2 key heads"):
        split(x, num_heads=3, num_kv_heads=2)
    with pytest.raises(MeshError, match=r"must be \[b, s, features\]"):
        split(put(random(2, 1, 5, 96), device), num_heads=1)
    with pytest.raises(MeshError, match="takes a row of 4672 features"):
        split(x, num_heads=1, use_falcon7b_backend=True)
    with pytest.raises(MeshError, match=r"Invalid head size: 16. The head size must be a multiple of the tile"):
        split(x, num_heads=2)
    with pytest.raises(MeshError, match="rows of 4672 features"):
        ttnn.experimental.nlp_create_qkv_heads_falcon7b(put(random(1, 1, 5, 96), device))
    with pytest.raises(MeshError, match="must be 1"):
        ttnn.experimental.create_qkv_heads(put(random(1, 2, 5, 96), device), num_heads=1)
