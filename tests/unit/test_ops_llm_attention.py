"""Attention over pages, chunks, latent keys, joint sequences and chosen keys, against plain torch and on meshes."""

from __future__ import annotations

import re

import pytest
import torch
from llm_operands import assert_close, attention, in_pages, ints, some_pages
from operands import LOCAL, R, S, put, random

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError, NotModelled, PartialWarning

USERS, HEADS, KV, BLOCK, PAGES, BLOCKS, WIDTH = 4, 8, 4, 32, 3, 14, 32
paged_decode = ttnn.transformer.paged_scaled_dot_product_attention_decode
chunked = ttnn.transformer.chunked_scaled_dot_product_attention
decode = ttnn.transformer.scaled_dot_product_attention_decode
sdpa = ttnn.transformer.scaled_dot_product_attention


def up_to(positions: list[int], length: int, window: int | None = None) -> torch.Tensor:
    """[users, 1, 1, length]: what each user sees."""
    at, latest = torch.arange(length), torch.tensor(positions).unsqueeze(-1)
    seen = at <= latest if window is None else (at <= latest) & (at > latest - window)
    return seen.reshape(len(positions), 1, 1, length)


def caches() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    k = random(BLOCKS, KV, BLOCK, WIDTH)
    return k, k.flip(0) * 0.7, some_pages(USERS, PAGES, BLOCKS)


# -- pages, one token of each user -----------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 40])
def test_decode_over_pages_sees_each_users_pages_in_their_order(device, window):
    (k, v, table), q, at = caches(), random(1, USERS, HEADS, WIDTH), [0, 31, 70, 95]
    result = paged_decode(
        put(q, device),
        put(k, device),
        put(v, device),
        ints(table, device),
        cur_pos_tensor=ints(at, device),
        sliding_window_size=window,
    )
    seen = up_to(at, PAGES * BLOCK, window)
    expected = attention(q.transpose(0, 1).transpose(1, 2), in_pages(k, table), in_pages(v, table), seen)
    assert tuple(result.shape) == (1, USERS, HEADS, WIDTH)
    assert_close(result, expected.transpose(1, 2).transpose(0, 1))


def test_pages_that_nobody_reads_may_be_numbered_anyhow(device):
    (k, v, table), q = caches(), random(1, USERS, HEADS, WIDTH)
    wild = table.clone()
    wild[:, 2] = torch.tensor([-1, 999, -5, 77])
    wild[3, 0] = -1
    run = lambda pages: ttnn.to_torch(  # noqa: E731
        paged_decode(
            *(put(x, device) for x in (q, k, v)),
            ints(pages, device),
            cur_pos_tensor=ints([5, 63, 40, -1], device),
        )
    )
    assert torch.equal(run(table), run(wild))
    assert not run(wild)[0, 3].any()


def test_a_page_that_is_read_and_does_not_exist_is_named(device):
    (k, v, table), q = caches(), random(1, USERS, HEADS, WIDTH)
    table[1, 1] = BLOCKS
    with pytest.raises(MeshError, match=f"names block {BLOCKS} for positions that are read"):
        paged_decode(
            *(put(x, device) for x in (q, k, v)),
            ints(table, device),
            cur_pos_tensor=ints([5, 40, 5, 5], device),
        )


def test_decode_over_pages_takes_masks_and_sinks_as_decode_does(device):
    (k, v, table), q = caches(), random(1, USERS, HEADS, WIDTH)
    mask, sink = random(USERS, 1, HEADS, PAGES * BLOCK), random(HEADS, 32) * 4
    operands = [put(x, device) for x in (q, k, v)]
    whole = [put(q, device), *(put(in_pages(x, table), device) for x in (k, v))]
    options = {"is_causal": False, "attn_mask": put(mask, device), "scale": 0.3}
    assert_close(paged_decode(*operands, ints(table, device), **options), ttnn.to_torch(decode(*whole, **options)))
    options = {"cur_pos_tensor": ints([9, 50, 95, 0], device), "attention_sink": put(sink, device)}
    assert_close(paged_decode(*operands, ints(table, device), **options), ttnn.to_torch(decode(*whole, **options)))


def test_positions_counted_round_and_round_see_the_latest_of_each_place(device):
    (k, v, table), q = caches(), random(1, USERS, HEADS, WIDTH)
    modulo, at = 64, [10, 63, 64, 200]
    result = paged_decode(
        *(put(x, device) for x in (q, k, v)),
        ints(table, device),
        cur_pos_tensor=ints(at, device),
        cache_position_modulo=modulo,
        sliding_window_size=50,
    )
    held = torch.arange(PAGES * BLOCK)
    latest = torch.tensor(at).unsqueeze(-1)
    position = latest - (latest - held) % modulo
    seen = (held < modulo) & (position >= 0) & (position > latest - 50)
    expected = attention(q.permute(1, 2, 0, 3), in_pages(k, table), in_pages(v, table), seen.reshape(USERS, 1, 1, -1))
    assert_close(result, expected.permute(2, 0, 1, 3))


@pytest.mark.parametrize("width", [WIDTH, 2 * WIDTH])
def test_a_geometry_override_reads_the_tiles_of_a_block_in_another_order(device, width):
    heads = KV * WIDTH // width
    q = random(1, USERS, HEADS, width)
    k, v, table = caches()
    tiles = lambda x: x.unflatten(2, (-1, 32)).unflatten(4, (-1, 32)).transpose(3, 4).flatten(1, 3)  # noqa: E731

    def other(x: torch.Tensor) -> torch.Tensor:
        """The same tiles as heads of 64 positions (of 32, where they are twice as wide)."""
        rows, columns = 64 // 32 if width == WIDTH else 1, width // 32
        shape = (BLOCKS, -1, rows, columns, 32, 32)
        return tiles(x).reshape(shape).transpose(3, 4).reshape(BLOCKS, -1, 32 * rows, width)

    override = ttnn.PagedCacheGeometryOverride(
        block_size=64 if width == WIDTH else 32, num_kv_heads=KV // 2 if width == WIDTH else heads
    )
    assert override.active()
    assert not ttnn.PagedCacheGeometryOverride().active()
    run = lambda k, v, **more: paged_decode(  # noqa: E731
        put(q, device),
        put(k, device),
        put(v, device),
        ints(table, device),
        cur_pos_tensor=ints([40, 3, 90, 60], device),
        **more,
    )
    assert_close(run(k, v, paged_cache_geometry=override), ttnn.to_torch(run(other(k), other(v))))


# -- chunks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 32, 64])
@pytest.mark.parametrize("window", [None, 20])
def test_a_chunk_sees_everything_up_to_each_of_its_queries(device, start, window):
    (k, v, table), q = caches(), random(USERS, HEADS, 32, WIDTH)
    result = chunked(*(put(x, device) for x in (q, k, v)), ints(table, device), start, sliding_window_size=window)
    at, asking = torch.arange(PAGES * BLOCK), torch.arange(32).unsqueeze(-1) + start
    seen = (at <= asking) & (at > asking - (window or 1000))
    assert_close(result, attention(q, in_pages(k, table), in_pages(v, table), seen))


def test_the_start_of_a_chunk_may_be_a_tensor_and_sinks_take_weight(pair):
    (k, v, table), q, sink = caches(), random(USERS, HEADS, 32, WIDTH), random(1, HEADS, 1, 1) * 4
    result = chunked(
        *(put(x, pair) for x in (q, k, v)),
        ints(table, pair),
        chunk_start_idx_tensor=ints([64, 0], pair, (R, S(0))),
        attention_sink=put(sink, pair),
    )
    assert ttnn.placements(result) == (R, LOCAL)
    at, rows = torch.arange(PAGES * BLOCK), torch.arange(32).unsqueeze(-1)
    for view, start in zip(ttnn.get_device_tensors(result), (64, 0), strict=True):
        expected = attention(q, in_pages(k, table), in_pages(v, table), at <= rows + start, sink=sink)
        torch.testing.assert_close(ttnn.to_torch(view), expected, rtol=1e-4, atol=2e-5)


def test_another_start_is_no_new_program(device):
    (k, v, table), q = caches(), random(USERS, HEADS, 32, WIDTH)
    operands = [*(put(x, device) for x in (q, k, v)), ints(table, device)]
    for start in (0, 32, 64):
        chunked(*operands, start)
    assert device.num_program_cache_entries() == 1


# -- latent keys -----------------------------------------------------------------------------------


def test_latent_prefill_takes_the_values_from_the_keys_or_from_a_tensor(device):
    q, k, v = random(2, 4, 24, 96), random(2, 1, 24, 96), random(2, 1, 24, 64)
    causal = torch.ones(24, 24, dtype=torch.bool).tril()
    mla = ttnn.transformer.flash_mla_prefill
    tensors = put(q, device), put(k, device)
    assert_close(mla(*tensors, 64, scale=0.2), attention(q, k, k[..., :64], causal, 0.2))
    assert_close(mla(*tensors, put(v, device)), attention(q, k, v, causal))
    assert_close(mla(*tensors, head_dim_v=32, is_causal=False), attention(q, k, k[..., :32]))
    with pytest.raises(ArgumentError, match="pass one of them"):
        mla(*tensors)
    with pytest.raises(MeshError, match="must lie within 1 to 96"):
        mla(*tensors, 97)


def test_latent_decode_is_decode_with_the_first_columns_of_the_keys(device):
    q, k, at = random(1, 3, 8, 96), random(3, 1, 40, 96), [0, 17, 39]
    mla = ttnn.transformer.flash_multi_latent_attention_decode
    expected = attention(q.permute(1, 2, 0, 3), k, k[..., :64], up_to(at, 40)).permute(2, 0, 1, 3)
    assert_close(mla(put(q, device), put(k, device), head_dim_v=64, cur_pos=at), expected)
    v = put(k[..., :64].contiguous(), device)
    assert_close(mla(put(q, device), put(k, device), v, 64, cur_pos_tensor=ints(at, device)), expected)
    with pytest.raises(ArgumentError, match="'head_dim_v' is missing"):
        mla(put(q, device), put(k, device), cur_pos=at)


def test_latent_attention_over_pages_in_decode_and_in_chunks(device):
    k, table = random(BLOCKS, 1, BLOCK, 96), some_pages(USERS, PAGES, BLOCKS)
    whole, at = in_pages(k, table), [3, 50, 95, 0]
    q = random(1, USERS, 8, 96)
    result = ttnn.transformer.paged_flash_multi_latent_attention_decode(
        put(q, device), put(k, device), None, 64, ints(table, device), cur_pos_tensor=ints(at, device)
    )
    seen = up_to(at, PAGES * BLOCK)
    assert_close(result, attention(q.permute(1, 2, 0, 3), whole, whole[..., :64], seen).permute(2, 0, 1, 3))
    q = random(USERS, 8, 32, 96)
    result = ttnn.transformer.chunked_flash_mla_prefill(put(q, device), put(k, device), 64, ints(table, device), 32)
    seen = torch.arange(PAGES * BLOCK) <= torch.arange(32, 64).unsqueeze(-1)
    assert_close(result, attention(q, whole, whole[..., :64], seen))


# -- two sequences, windows ------------------------------------------------------------------------


def test_joint_sequences_attend_to_each_other_and_come_apart_again(device):
    own, joint = (
        [random(2, 4, 40, 32) * s for s in (1, 0.5, 2)],
        [random(2, 4, 9, 32) * s for s in (1, 2, 0.3)],
    )
    results = ttnn.transformer.joint_scaled_dot_product_attention(
        *(put(x, device) for x in own + joint), joint_strategy="rear", program_config=None
    )
    whole = attention(*(torch.cat(pair, 2) for pair in zip(own, joint, strict=True)))
    assert_close(results[0], whole[:, :, :40])
    assert_close(results[1], whole[:, :, 40:])
    with pytest.raises(MeshError, match="must be 'rear'"):
        ttnn.transformer.joint_scaled_dot_product_attention(
            *(put(x, device) for x in own + joint), joint_strategy="front", program_config=None
        )


@pytest.mark.parametrize("offset", [0, 3])
def test_queries_see_the_keys_of_their_own_window_only(device, offset):
    q, k, v = random(1, 2, 9, 32), random(1, 2, 12, 32), random(1, 2, 12, 32).flip(2)
    result = sdpa(
        *(put(x, device) for x in (q, k, v)),
        is_causal=False,
        cu_window_seqlens=ints([0, 4, 5, 12], device),
        windowed_q_token_offset=offset,
    )
    window = torch.tensor([0] * 4 + [1] + [2] * 7)
    asking = torch.arange(9) + offset
    assert_close(result, attention(q, k, v, window[asking].unsqueeze(-1) == window))


# -- chosen keys -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
def test_sparse_attention_sees_the_rows_that_are_named(device, dtype):
    q, kv = random(1, 4, 6, 64), random(2, 1, 20, 64)
    chosen = torch.stack([torch.randperm(20, generator=torch.Generator().manual_seed(i))[:5] for i in range(6)])
    chosen[2, 1:] = 2**32 - 1
    chosen[3] = 2**32 - 1
    indices = put(chosen.reshape(1, 1, 6, 5), device, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    result = ttnn.transformer.sparse_sdpa(
        put(q, device, dtype=dtype),
        put(kv, device, dtype=dtype),
        indices,
        48,
        kv_format=ttnn.transformer.SparseKVFormat.BF16,
        cache_batch_idx=1,
    )
    seen = torch.zeros(6, 21, dtype=torch.bool).scatter(1, chosen.clamp(max=20), True)[:, :20]
    q, kv = (x.to(ttnn.to_torch(result).dtype).float() for x in (q, kv))
    expected = attention(q, kv[1:], kv[1:, :, :, :48], seen)
    assert_close(result, expected, 2e-5 if dtype is ttnn.float32 else 1e-2)
    assert not ttnn.to_torch(result)[0, :, 3].any()


def test_positions_of_a_block_cyclic_cache_find_their_rows(pair):
    """Devices 0 and 1 held chunks of 4 positions in turn; the cache has all of device 0 first."""
    q, kv = random(1, 2, 3, 32), random(1, 1, 16, 32)
    chosen = torch.tensor([[0, 5, 15], [8, 9, 4], [12, 3, 7]])
    held = torch.cat([torch.arange(16).unflatten(0, (-1, 4))[d::2].flatten() for d in range(2)])
    run = lambda cache, **more: ttnn.transformer.sparse_sdpa(  # noqa: E731
        put(q, pair),
        put(cache, pair),
        put(chosen.reshape(1, 1, 3, 3), pair, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT),
        32,
        kv_format=ttnn.SparseKVFormat.BF16,
        **more,
    )
    cyclic = run(kv[:, :, held], block_cyclic_sp_axis=1, block_cyclic_chunk_local=4)
    assert_close(cyclic, ttnn.compose(run(kv)))


def test_sparse_attention_reads_packed_rows(device):
    latent, rope = random(1, 1, 10, 512), random(1, 1, 10, 64)
    prefill = ttnn.experimental.deepseek_prefill
    small, scales = prefill.per_token_cast_to_fp8(put(latent, device))
    packed = prefill.pack_scaled_fp8_kv_cache(small, scales, put(rope, device, dtype=ttnn.bfloat16))
    assert tuple(packed.shape) == (1, 1, 10, 656)
    q, chosen = random(1, 2, 2, 576), torch.tensor([[0, 3, 4], [9, 1, 2]])
    indices = put(chosen.reshape(1, 1, 2, 3), device, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    result = ttnn.transformer.sparse_sdpa(
        put(q, device), packed, indices, 512, kv_format=ttnn.SparseKVFormat.SCALED_FP8
    )
    back = ttnn.to_torch(prefill.per_token_cast_back(small, scales, ttnn.float32))
    kv = torch.cat([back, rope.bfloat16().float()], -1)
    seen = torch.zeros(2, 10, dtype=torch.bool).scatter(1, chosen, True)
    assert_close(result, attention(q, kv, kv[..., :512], seen))
    with pytest.raises(MeshError, match=r"a cache of SparseKVFormat\.SCALED_FP8 holds DataType\.UINT8"):
        ttnn.transformer.sparse_sdpa(
            put(q, device), put(q, device), indices, 8, kv_format=ttnn.SparseKVFormat.SCALED_FP8
        )


def test_blocks_of_keys_are_seen_up_to_each_query(pair):
    """Two devices share the queries of a chunk that begins at position 20."""
    q, k, v = random(1, 4, 8, 32), random(1, 2, 32, 32), random(1, 2, 32, 32).flip(2)
    chosen = torch.randint(0, 4, (1, 2, 8, 2), generator=torch.Generator().manual_seed(3))
    chosen[0, 0, 1] = -1
    result = ttnn.transformer.sparse_sdpa_msa(
        put(q, pair, (R, S(2))),
        put(k, pair),
        put(v, pair),
        ints(chosen, pair, (R, S(2))),
        block_size=8,
        chunk_start_idx=20,
        cluster_axis=1,
    )
    picked = torch.zeros(1, 2, 8, 5, dtype=torch.bool).scatter(3, chosen % 5, True)[..., :4]
    seen = picked.repeat_interleave(8, -1) & (torch.arange(32) <= torch.arange(20, 28).unsqueeze(-1))
    assert ttnn.placements(result) == (R, S(2))
    assert_close(result, attention(q, k, v, seen.repeat_interleave(2, 1)))


def test_an_indexer_scores_all_keys_and_the_best_are_found(pair):
    q, k, w = random(1, 4, 6, 32), random(1, 1, 10, 32), random(1, 1, 6, 4)
    scores = ttnn.experimental.indexer_score_dsa(
        put(q, pair, (R, S(2))),
        put(k, pair),
        put(w, pair, (R, S(2))),
        chunk_start_idx=3,
        kv_len=9,
        seq_shard_axes=[1],
    )
    expected = (torch.relu(q @ k.transpose(-2, -1)) * w.transpose(1, 3)).sum(1, keepdim=True)
    hidden = (torch.arange(10) > torch.arange(3, 9).unsqueeze(-1)) | (torch.arange(10) >= 9)
    expected = expected.masked_fill(hidden, float("-inf"))
    assert ttnn.placements(scores) == (R, S(2))
    assert_close(scores, expected)
    best = ttnn.experimental.topk_large_indices(scores, k=6)
    values, places = expected.topk(6, -1)
    places = torch.where(values == float("-inf"), 2**32 - 1, places)
    assert torch.equal(ttnn.compose(best).long() & (2**32 - 1), places)


@pytest.mark.parametrize("by", ["number", "tensor"])
def test_only_the_valid_entries_of_a_row_can_be_largest(device, by):
    x = random(1, 1, 3, 40)
    length = {"valid_length": 20} if by == "number" else {"valid_length_tensor": ints([20], device)}
    found = ttnn.experimental.topk_large_indices(put(x, device), k=4, valid_length_offset=-5, **length)
    assert torch.equal(ttnn.to_torch(found).long(), x[..., :15].topk(4, -1).indices)


# -- parts of attention ----------------------------------------------------------------------------


def test_products_of_each_users_queries_with_its_own_matrix(device):
    a, b = random(2, 6, 4, 32), random(4, 3, 32, 48)
    grouped = ttnn.experimental.group_attn_matmul(put(a, device), put(b, device), compute_with_storage_grid_size=(8, 8))
    assert_close(grouped, torch.einsum("lhbk,bhkn->lhbn", a, b.repeat_interleave(2, 1)), 1e-4)
    plain = ttnn.experimental.attn_matmul(
        put(a, device),
        put(b[:, :1].contiguous(), device),
        compute_with_storage_grid_size=(8, 8),
        dtype=ttnn.bfloat16,
    )
    assert plain.dtype is ttnn.bfloat16
    assert_close(plain, torch.einsum("lhbk,bkn->lhbn", a, b[:, 0]).bfloat16(), 5e-2)
    with pytest.raises(MeshError, match="must have one head"):
        ttnn.experimental.attn_matmul(put(a, device), put(b, device), compute_with_storage_grid_size=(8, 8))


@pytest.mark.parametrize("transposed", [True, False])
def test_products_with_the_first_tokens_of_a_cache_come_in_whole_tiles(device, transposed):
    cache, tokens = random(4, 1, 96, 32), 40
    a = random(1, 6, 4, 32) if transposed else random(1, 6, 4, 64)
    result = ttnn.experimental.attn_matmul_from_cache(
        put(a, device),
        put(cache, device),
        num_tokens=tokens,
        transpose_hw=transposed,
        compute_with_storage_grid_size=(8, 8),
    )
    rows = cache[:, 0, :64]
    assert_close(result, torch.einsum("lhbk,bnk->lhbn" if transposed else "lhbk,bkn->lhbn", a, rows), 1e-4)


@pytest.mark.parametrize("head_major", [False, True])
def test_the_gated_delta_rule_forgets_and_corrects(device, head_major):
    b, s, heads, value_heads, width, value_width = 2, 5, 2, 4, 8, 6
    q, k = random(b, s, heads, width), random(b, s, heads, width).flip(1)
    v, g, beta = (
        random(b, s, value_heads, value_width),
        -random(b, s, value_heads).abs(),
        random(b, s, value_heads).sigmoid(),
    )
    start = random(b, value_heads, width, value_width)
    out, last = ttnn.transformer.chunk_gated_delta_rule(
        *(put(x, device) for x in (q, k, v, g, beta)),
        initial_state=put(start, device),
        output_final_state=True,
        use_qk_l2norm=True,
        output_head_major=head_major,
    )
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    state, made = start.clone(), torch.zeros(b, s, value_heads, value_width)
    for i in range(b):
        for h in range(value_heads):
            for t in range(s):
                now = state[i, h] * g[i, t, h].exp()
                error = v[i, t, h] - k[i, t, h // 2] @ now
                state[i, h] = now + beta[i, t, h] * torch.outer(k[i, t, h // 2], error)
                made[i, t, h] = q[i, t, h // 2] * width**-0.5 @ state[i, h]
    assert_close(out, made.transpose(1, 2) if head_major else made)
    assert_close(last, state)
    assert ttnn.transformer.chunk_gated_delta_rule(*(put(x, device) for x in (q, k, v, g, beta)))[1] is None


# -- on meshes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "kept"),
    [
        ({"heads": 0, "users": 1}, (S(2), S(1))),
        ({"users": 0}, (S(1), R)),
        ({"heads": 1}, (R, S(2))),
    ],
)
def test_decode_over_pages_stays_split_by_users_and_heads(mesh, split, kept):
    """Each device that holds some of the users has blocks of its own for them."""
    (k, v, table), q, at = caches(), random(1, USERS, HEADS, WIDTH), [5, 40, -1, 70]
    on = lambda **dims: tuple(  # noqa: E731
        next((S(dims[what]) for what, axis in split.items() if axis == a and what in dims), R) for a in range(2)
    )
    n = tuple(mesh.shape)[split["users"]] if "users" in split else 1
    own = [x.repeat(n, 1, 1, 1) for x in (k, v)]
    result = paged_decode(
        put(q, mesh, on(users=1, heads=2)),
        *(put(x, mesh, on(users=0, heads=1)) for x in own),
        ints(table, mesh, on(users=0)),
        cur_pos_tensor=ints(at, mesh, on(users=0)),
    )
    seen = up_to(at, PAGES * BLOCK)
    expected = attention(q.permute(1, 2, 0, 3), in_pages(k, table), in_pages(v, table), seen).permute(2, 0, 1, 3)
    assert ttnn.placements(result) == kept
    assert_close(result, expected)


MESH_CASES = {
    "chunked": lambda put, ints: chunked(
        put(random(2, 8, 32, 32), 1),
        put(random(6, 4, 32, 32), 1),
        put(random(6, 4, 32, 32) * 0.3, 1),
        ints([[0, 3], [5, 1]]),
        32,
    ),
    "mla prefill": lambda put, ints: ttnn.transformer.flash_mla_prefill(
        put(random(2, 8, 16, 64), 1), put(random(2, 1, 16, 64)), 32
    ),
    "mla decode": lambda put, ints: ttnn.transformer.flash_multi_latent_attention_decode(
        put(random(1, 2, 8, 64), 2), put(random(2, 1, 16, 64)), head_dim_v=32, cur_pos=[3, 15]
    ),
    "paged mla decode": lambda put, ints: ttnn.transformer.paged_flash_multi_latent_attention_decode(
        put(random(1, 2, 8, 64), 2),
        put(random(6, 1, 32, 64)),
        None,
        32,
        ints([[0, 3], [5, 1]]),
        cur_pos_tensor=ints([3, 60]),
    ),
    "chunked mla": lambda put, ints: ttnn.transformer.chunked_flash_mla_prefill(
        put(random(2, 8, 32, 64), 1), put(random(6, 1, 32, 64)), 32, ints([[0, 3], [5, 1]]), 32
    ),
    "sparse": lambda put, ints: ttnn.transformer.sparse_sdpa(
        put(random(1, 8, 4, 32), 1),
        put(random(1, 1, 12, 32)),
        ints([[[[0, 5], [1, 2], [3, 11], [4, 4]]]]),
        16,
        kv_format=ttnn.SparseKVFormat.BF16,
    ),
    "joint": lambda put, ints: ttnn.transformer.joint_scaled_dot_product_attention(
        *[put(random(1, 8, 12, 32) * s, 1) for s in (1, 2, 3)],
        *[put(random(1, 8, 5, 32) * s, 1) for s in (1, 2, 3)],
        joint_strategy="rear",
        program_config=None,
    )[1],
    "products": lambda put, ints: ttnn.experimental.group_attn_matmul(
        put(random(1, 8, 2, 32), 1), put(random(2, 4, 32, 16), 1), compute_with_storage_grid_size=(8, 8)
    ),
    "products with a cache": lambda put, ints: ttnn.experimental.attn_matmul_from_cache(
        put(random(1, 8, 2, 32), 1),
        put(random(2, 1, 64, 32)),
        num_tokens=33,
        transpose_hw=True,
        compute_with_storage_grid_size=(8, 8),
    ),
}


@pytest.mark.parametrize("name", sorted(MESH_CASES))
def test_heads_that_are_split_stay_split_and_compute_what_one_device_does(mesh, device, name):
    run = MESH_CASES[name]
    dims: list[int] = []

    def on_mesh(x: torch.Tensor, dim: int | None = None) -> ttnn.Tensor:
        dims.append(dim if dim is not None else -1)
        return put(x, mesh, (R, R if dim is None else S(dim)))

    split = run(on_mesh, lambda values: ints(values, mesh))
    whole = run(lambda x, dim=None: put(x, device), lambda values: ints(values, device))
    assert ttnn.placements(split) == (R, S(dims[0]))
    assert_close(split, ttnn.to_torch(whole))


def test_a_delta_rule_split_by_heads_stays_split(mesh, device):
    shapes = [(1, 3, 4, 8), (1, 3, 4, 8), (1, 3, 8, 6), (1, 3, 8), (1, 3, 8)]
    values = [random(*shape) * 0.3 for shape in shapes]
    run = ttnn.transformer.chunk_gated_delta_rule
    split, state = run(*(put(x, mesh, (R, S(2))) for x in values), output_final_state=True)
    whole, end = run(*(put(x, device) for x in values), output_final_state=True)
    assert (ttnn.placements(split), ttnn.placements(state)) == ((R, S(2)), (R, S(1)))
    assert_close(split, ttnn.to_torch(whole))
    assert_close(state, ttnn.to_torch(end))


def test_query_heads_without_their_key_heads_have_no_common_value(pair):
    (k, v, table), q = caches(), random(1, USERS, HEADS, WIDTH)
    result = paged_decode(
        put(q, pair, (R, S(2))),
        put(k, pair),
        put(v, pair),
        ints(table, pair),
        cur_pos_tensor=ints([1] * 4, pair),
    )
    assert ttnn.placements(result) == (R, LOCAL)


def test_keys_that_are_still_partial_sums_are_announced(pair):
    k, v, table = caches()
    q = put(random(1, USERS, HEADS, WIDTH), pair)
    sums = ttnn.sum(put(torch.stack([k, k]), pair, (R, S(0))), 0)
    with pytest.warns(PartialWarning, match="input_tensor_k is still Partial"):
        paged_decode(q, sums, put(v, pair), ints(table, pair), cur_pos_tensor=ints([1] * 4, pair))


# -- bad input -------------------------------------------------------------------------------------


def test_attention_over_pages_names_what_does_not_fit(device):
    (k, v, table), q = caches(), put(random(1, USERS, HEADS, WIDTH), device)
    k, v, at, pages = put(k, device), put(v, device), ints([1] * USERS, device), ints(table, device)

    def refuse(words: str, *args: object, error: type[Exception] = MeshError, **kwargs: object) -> None:
        with pytest.raises(error, match=re.escape(words)):
            paged_decode(*args, **kwargs)

    refuse("needs a cur_pos_tensor", q, k, v, pages)
    refuse("a row for each of the 4 users", q, k, v, ints(table[:2], device), cur_pos_tensor=at)
    refuse("Expect cur_pos to be INT32 and ROW_MAJOR", q, k, v, pages, cur_pos_tensor=put(torch.ones(4), device))
    refuse("lies outside the cache, which holds 96", q, k, v, pages, cur_pos_tensor=ints([96] * 4, device))
    refuse("must lie within 1 to 96", q, k, v, pages, cur_pos_tensor=at, cache_position_modulo=97)
    refuse("spec_multi_pos_tiles", q, k, v, pages, cur_pos_tensor=at, spec_multi_pos_tiles=1, error=NotModelled)
    wide = put(random(1, USERS, HEADS, 64), device)
    refuse("have width 64, those of input_tensor_k 32", wide, k, v, pages, cur_pos_tensor=at)
    half = ttnn.PagedCacheGeometryOverride(num_kv_heads=2)
    refuse("block_size must be > 0", q, k, v, pages, cur_pos_tensor=at, paged_cache_geometry=half)
    odd = ttnn.PagedCacheGeometryOverride(block_size=16, num_kv_heads=2)
    refuse("must make up the same tiles", q, k, v, pages, cur_pos_tensor=at, paged_cache_geometry=odd)
    refuse("Did you mean 'cur_pos_tensor'", q, k, v, pages, cur_pos_tensors=at, error=ArgumentError)
    with pytest.raises(MeshError, match="reaches beyond the 96 positions"):
        chunked(put(random(USERS, HEADS, 32, WIDTH), device), k, v, pages, 65)
    with pytest.raises(ArgumentError, match="one of them"):
        chunked(put(random(USERS, HEADS, 32, WIDTH), device), k, v, pages)
