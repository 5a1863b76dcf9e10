"""Attention of sequences that are split over devices, against the whole in torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from llm_operands import assert_close, attention
from operands import LOCAL, R, S, put, random

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.ops.attention import blockwise
from softmesh.ops.attention.key_ranges import ranges_in_order

N, L, WIDTH = 64, 16, 32
BALANCED = torch.cat([torch.arange(N).chunk(8)[i] for i in (0, 7, 1, 6, 2, 5, 3, 4)])
CAUSAL = torch.ones(N, N, dtype=torch.bool).tril()


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def qkv(length: int = N, heads: int = 4) -> list[torch.Tensor]:
    return [random(1, heads, length, WIDTH) * s for s in (1.0, 0.5, 2.0)]


def route(mesh: ttnn.MeshDevice) -> dict[str, Any]:
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))])
    return {
        "multi_device_global_semaphore": [ttnn.create_global_semaphore(mesh, cores, 0)],
        "num_links": 1,
        "cluster_axis": 1,
        "mesh_device": mesh,
        "topology": ttnn.Topology.Linear,
        "dim": 2,
        "program_config": None,
    }


def ring(mesh: ttnn.MeshDevice, own: list[torch.Tensor], joint: list[torch.Tensor] | None = None, **more: Any) -> Any:
    buffers = [put(torch.zeros(1, 4, N, WIDTH), mesh, (S(1), R)) for _ in range(2)]
    result = ttnn.transformer.ring_joint_scaled_dot_product_attention(
        *(put(x, mesh, (S(1), S(2))) for x in own),
        *(put(x, mesh, (S(1), R)) for x in joint or []),
        persistent_output_buffer_k=buffers[0],
        persistent_output_buffer_v=buffers[1],
        joint_strategy="rear",
        ccl_core_grid_offset=(0, 0),
        **route(mesh),
        **more,
    )
    for buffer, x in zip(buffers, own[1:], strict=True):
        assert torch.equal(ttnn.compose(buffer), x)
    return result


def test_each_device_attends_to_all_parts_and_to_the_joint_sequence(mesh):
    own, joint, valid = qkv(), qkv(L), 50
    out, joint_out, sums = ring(mesh, own, joint, logical_n=valid)
    keys = [torch.cat([x[:, :, :valid], j], 2) for x, j in zip(own[1:], joint[1:], strict=True)]
    assert (ttnn.placements(out), ttnn.placements(joint_out)) == ((S(1), S(2)), (S(1), R))
    assert_close(out, attention(own[0], *keys))
    assert_close(joint_out, attention(joint[0], *keys))
    scores = torch.cat([own[0][:, :2, : N // 4], joint[0][:, :2]], 2) @ keys[0][:, :2].transpose(2, 3) * WIDTH**-0.5
    first = ttnn.to_torch(ttnn.get_device_tensors(sums)[0])
    maxima, totals = (part.unflatten(2, (2, 32))[..., :16, :].flatten(2, 3) for part in first.chunk(2, 2))
    torch.testing.assert_close(maxima, scores.amax(-1, keepdim=True), rtol=1e-4, atol=1e-4)
    exact = torch.exp(scores - maxima).sum(-1, keepdim=True)
    torch.testing.assert_close(totals, exact, rtol=1e-4, atol=1e-4)


def test_results_are_bfloat16_and_without_a_joint_sequence_have_no_rows_of_it(mesh):
    own = [put(x, mesh, (S(1), S(2)), ttnn.bfloat8_b) for x in qkv(128)]
    buffers = [put(torch.zeros(1, 4, 128, WIDTH), mesh, (S(1), R), ttnn.bfloat8_b) for _ in range(2)]
    results = ttnn.transformer.ring_joint_scaled_dot_product_attention(
        *own,
        persistent_output_buffer_k=buffers[0],
        persistent_output_buffer_v=buffers[1],
        joint_strategy="rear",
        logical_n=128,
        ccl_core_grid_offset=(0, 0),
        **route(mesh),
    )
    assert [list(result.shape) for result in results] == [[1, 2, 32, 32], [1, 2, 0, 32], [1, 2, 64, 1]]
    assert {result.dtype for result in results} == {ttnn.bfloat16}


def test_a_sink_takes_its_share_of_every_row(mesh):
    own, sink = qkv(), random(1, 4, 1, 1)
    out = ring(mesh, own, logical_n=N, is_causal=True, attention_sink=put(sink, mesh, (S(1), R)))[0]
    scores = (own[0] @ own[1].transpose(2, 3) * WIDTH**-0.5).masked_fill(~CAUSAL, float("-inf"))
    more = (sink * WIDTH**-0.5).expand(1, 4, N, 1)
    assert_close(out, torch.cat([scores, more], -1).softmax(-1)[..., :-1] @ own[2])


def test_a_joint_sequence_may_be_split_too(mesh):
    own, joint, shown = qkv(), qkv(128), 100
    buffers = [put(torch.zeros(1, 4, n, WIDTH), mesh, (S(1), R)) for n in (N, N, 128, 160)]
    out, joint_out, sums = ttnn.transformer.ring_joint_scaled_dot_product_attention(
        *(put(x, mesh, (S(1), S(2))) for x in (*own, *joint)),
        persistent_output_buffer_k=buffers[0],
        persistent_output_buffer_v=buffers[1],
        persistent_output_buffer_joint_k=buffers[2],
        persistent_output_buffer_joint_v=buffers[3],
        joint_strategy="rear",
        logical_n=50,
        logical_l=shown,
        ccl_core_grid_offset=(0, 0),
        **route(mesh),
    )
    keys = [torch.cat([x[:, :, :50], j[:, :, :shown]], 2) for x, j in zip(own[1:], joint[1:], strict=True)]
    assert (ttnn.placements(out), ttnn.placements(joint_out)) == ((S(1), S(2)), (S(1), S(2)))
    assert_close(out, attention(own[0], *keys))
    assert_close(joint_out, attention(joint[0], *keys))
    assert list(sums.shape) == [1, 2, 2 * (32 + 32), 1]


@pytest.mark.parametrize("is_causal", [True, False])
def test_more_keys_than_queries_are_a_prefix_or_another_sequence(mesh, is_causal):
    queries, (_, k, v) = qkv(32)[0], qkv(128)
    out = ttnn.transformer.ring_joint_scaled_dot_product_attention(
        *(put(x, mesh, (S(1), S(2))) for x in (queries, k, v)),
        persistent_output_buffer_k=put(torch.zeros(1, 4, 128, WIDTH), mesh, (S(1), R)),
        persistent_output_buffer_v=put(torch.zeros(1, 4, 160, WIDTH), mesh, (S(1), R)),
        joint_strategy="rear",
        logical_n=100,
        is_causal=is_causal,
        is_cross=not is_causal,
        ccl_core_grid_offset=(0, 0),
        **route(mesh),
    )[0]
    seen = torch.arange(128) < 100
    mask = torch.arange(128) <= torch.arange(68, 100).unsqueeze(-1) if is_causal else seen.expand(32, 128)
    assert_close(out, attention(queries, k, v, mask & seen))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("is_causal", [True, False])
def test_blocks_of_scores_give_what_all_of_them_give(monkeypatch, kv_heads, is_causal):
    monkeypatch.setattr(blockwise, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(blockwise, "_BLOCK_KEYS", 5)
    q = torch.randn(3, 1, 2, 4, 20, 8)  # on three devices, which share keys
    k, v = (torch.randn(1, 1, 2, kv_heads, 30, 8) for _ in range(2))
    asking = torch.arange(3).reshape(3, 1, 1) * 4 + torch.arange(20)
    keys = torch.arange(30)
    seen_keys = ranges_in_order(asking, 30, True, 9) if is_causal else None
    found = blockwise.attended(q, k, v, seen_keys, 0.3, with_maxima=True)
    scores = q @ k.repeat_interleave(4 // kv_heads, -3).transpose(-2, -1) * 0.3
    seen = torch.ones(3, 1, 1, 1, 20, 30, dtype=torch.bool)
    if is_causal:
        ahead = keys - asking.reshape(3, 1, 1, 1, 20, 1)
        seen = seen & (ahead <= 0) & (ahead > -9)
    scores = scores.masked_fill(~seen, float("-inf"))
    torch.testing.assert_close(found.values, scores.softmax(-1) @ v.repeat_interleave(4 // kv_heads, -3))
    torch.testing.assert_close(found.maxima, scores.amax(-1, keepdim=True))
    lse = scores.logsumexp(-1, keepdim=True)
    torch.testing.assert_close(found.log_sums, lse)


@pytest.mark.parametrize("order", [torch.arange(N), BALANCED])
@pytest.mark.parametrize("window", [None, 20])
def test_causal_parts_see_what_lies_before_them_in_the_sequence(mesh, order, window):
    own = qkv()
    parts = [x[:, :, order] for x in own]
    is_balanced = order is BALANCED
    out = ring(mesh, parts, logical_n=N, is_causal=True, is_balanced=is_balanced, sliding_window_size=window)[0]
    seen = CAUSAL if window is None else CAUSAL & ~torch.ones(N, N, dtype=torch.bool).tril(-window)
    assert_close(out, attention(*own, seen)[:, :, order])


def test_the_experimental_form_gives_the_same(mesh):
    own, joint = qkv(), qkv(L)
    buffers = [put(torch.zeros(1, 4, N, WIDTH), mesh, (S(1), R)) for _ in range(2)]
    out, joint_out, _ = ttnn.transformer.exp_ring_joint_scaled_dot_product_attention(
        *(put(x, mesh, (S(1), S(2))) for x in own),
        *(put(x, mesh, (S(1), R)) for x in joint),
        persistent_output_buffer_k=buffers[0],
        persistent_output_buffer_v=buffers[1],
        joint_strategy="rear",
        logical_n=N,
        **route(mesh),
    )
    expected = ring(mesh, own, joint, logical_n=N)
    assert torch.equal(ttnn.compose(out), ttnn.compose(expected[0]))
    assert torch.equal(ttnn.compose(joint_out), ttnn.compose(expected[1]))


@pytest.mark.parametrize("order", [torch.arange(N), BALANCED])
def test_latent_parts_take_their_values_from_the_gathered_keys(mesh, order):
    q, kv = random(1, 4, N, 64), random(1, 1, N, 64)
    out, sums = ttnn.transformer.ring_mla(
        put(q[:, :, order], mesh, (R, S(2))),
        put(kv[:, :, order], mesh, (R, S(2))),
        persistent_output_buffer_kv=put(torch.zeros(1, 1, N, 64), mesh),
        head_dim_v=32,
        logical_n=N,
        ccl_core_grid_offset=(0, 0),
        is_balanced=order is BALANCED,
        **route(mesh),
    )
    assert (ttnn.placements(out), tuple(sums.shape)) == ((R, S(2)), (1, 4, N // 4, 1))
    assert_close(out, attention(q, kv, kv[..., :32], CAUSAL)[:, :, order])


@pytest.mark.parametrize("ring_id", [None, 2])
def test_a_ring_shares_out_the_queries_of_a_whole_sequence(mesh, ring_id):
    own = qkv()
    out = ttnn.transformer.ring_distributed_scaled_dot_product_attention(
        *(put(x, mesh, (S(1), R)) for x in own), 4, ring_id
    )
    whole = attention(*own, CAUSAL)[:, :, BALANCED]
    assert ttnn.placements(out) == (S(1), LOCAL if ring_id is None else R)
    for i, view in enumerate(ttnn.get_device_tensors(out)):
        place = i % 4 if ring_id is None else ring_id
        expected = whole[:, i // 4 * 2 : i // 4 * 2 + 2].chunk(4, 2)[place]
        torch.testing.assert_close(ttnn.to_torch(view), expected, rtol=1e-4, atol=2e-5)


def test_an_indexer_gathers_the_keys_that_it_scores(mesh):
    q, k, w = random(1, 4, 8, WIDTH), random(1, 1, 16, WIDTH), random(1, 1, 8, 4)
    scores = ttnn.experimental.ring_indexer_score_dsa(
        put(q, mesh, (R, S(2))),
        put(torch.zeros(1, 1, 16, WIDTH), mesh),
        put(w, mesh, (R, S(2))),
        put(k, mesh, (R, S(2))),
        route(mesh)["multi_device_global_semaphore"],
        cluster_axis=1,
        topology=ttnn.Topology.Linear,
        chunk_start_idx=8,
        key_compression_ratio=1,
    )
    expected = (torch.relu(q @ k.transpose(2, 3)) * w.transpose(1, 3)).sum(1, keepdim=True)
    hidden = torch.arange(16) > torch.arange(8, 16).unsqueeze(-1)
    assert ttnn.placements(scores) == (R, S(2))
    assert_close(scores, expected.masked_fill(hidden, float("-inf")))


@pytest.mark.parametrize("start", [0, 32])
def test_shares_of_a_chunk_see_the_pages_up_to_their_own_positions(mesh, start):
    rows, block = 64, 16
    q, k, v = random(1, 4, rows, WIDTH), random(1, 2, 96, WIDTH), random(1, 2, 96, WIDTH)
    pages = torch.randperm(8)[:6]
    caches = [torch.zeros(8, 2, block, WIDTH) for _ in range(2)]
    for cache, x in zip(caches, (k, v), strict=True):
        cache[pages] = x[0].unflatten(1, (6, block)).transpose(0, 1)
    table = put(pages.reshape(1, 6), mesh, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT)
    share = ttnn.transformer.ring_distributed_scaled_dot_product_attention
    operands = [put(x, mesh) for x in (q, *caches)]
    out = share(*operands, 4, page_table=table, chunk_start_idx=start)
    keys = start + rows
    mask = torch.arange(keys) <= torch.arange(start, keys).unsqueeze(-1)
    whole = attention(q, *(x[:, :, :keys].repeat_interleave(2, 1) for x in (k, v)), mask)
    for place, piece in enumerate(ttnn.get_device_tensors(out)[:4]):
        chunks = whole.chunk(8, 2)
        wanted = torch.cat([chunks[place], chunks[7 - place]], 2)
        torch.testing.assert_close(ttnn.to_torch(piece), wanted, atol=1e-4, rtol=1e-4)
    with pytest.raises(MeshError, match="reach beyond the 96 positions"):
        share(*operands, 4, page_table=table, chunk_start_idx=64)
    with pytest.raises(ArgumentError, match="or none of them"):
        share(*operands, 4, page_table=table)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_one_sequence_of_several_caches_is_gathered(mesh, as_tensor):
    q, k, v = random(1, 4, N, WIDTH), random(3, 4, N, WIDTH), random(3, 4, N, WIDTH)
    length = put(torch.tensor([50]), mesh, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT) if as_tensor else 50
    buffers = [put(torch.zeros(1, 4, N, WIDTH), mesh, (S(1), R)) for _ in range(2)]
    out = ttnn.transformer.ring_joint_scaled_dot_product_attention(
        *(put(x, mesh, (S(1), S(2))) for x in (q, k, v)),
        persistent_output_buffer_k=buffers[0],
        persistent_output_buffer_v=buffers[1],
        joint_strategy="rear",
        logical_n=length,
        kv_cache_batch_idx=2,
        ccl_core_grid_offset=(0, 0),
        **route(mesh),
    )[0]
    assert_close(out, attention(q, k[2:], v[2:], (torch.arange(N) < 50).expand(N, N)))
    assert torch.equal(ttnn.compose(buffers[0]), k[2:])


@pytest.mark.parametrize("is_latent", [False, True])
def test_a_slot_on_the_devices_picks_the_caches_of_one_sequence_and_layer(mesh, is_latent):
    layers, layer, q = 2, 1, random(1, 4, N, WIDTH)
    caches = [random(3 * layers, 1 if is_latent else 4, N, WIDTH) for _ in range(1 if is_latent else 2)]
    slot = put(torch.tensor([0]), mesh, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    own = put(q, mesh, (R, S(2)))
    kept = [put(x, mesh, (R, S(2))) for x in caches]
    chosen = {
        "slot_id": slot,
        "kv_cache_num_layers": layers,
        "kv_cache_layer_idx": layer,
        "ccl_core_grid_offset": (0, 0),
    }

    def step() -> ttnn.Tensor:
        buffers = [put(torch.zeros(1, *x.shape[1:]), mesh) for x in caches]
        if is_latent:
            return ttnn.transformer.ring_mla(
                own,
                *kept,
                persistent_output_buffer_kv=buffers[0],
                head_dim_v=16,
                logical_n=N,
                **chosen,
                **route(mesh),
            )[0]
        return ttnn.transformer.ring_joint_scaled_dot_product_attention(
            own,
            *kept,
            persistent_output_buffer_k=buffers[0],
            persistent_output_buffer_v=buffers[1],
            joint_strategy="rear",
            logical_n=N,
            is_causal=True,
            **chosen,
            **route(mesh),
        )[0]

    for which in (0, 2):
        host = ttnn.from_torch(torch.tensor([which]), dtype=ttnn.uint32)
        ttnn.copy_host_to_device_tensor(host, slot)
        row = which * layers + layer
        k, v = caches[0][row : row + 1], caches[-1][row : row + 1]
        wanted = attention(
            q, *((k.expand(1, 4, -1, -1), v[..., :16].expand(1, 4, -1, -1)) if is_latent else (k, v)), CAUSAL
        )
        assert_close(step(), wanted)
    chosen["kv_cache_layer_idx"] = 2
    with pytest.raises(MeshError, match="kv_cache_layer_idx=2 must lie within kv_cache_num_layers=2"):
        step()
    chosen.update(slot_id=None)
    with pytest.raises(ArgumentError, match="go with slot_id"):
        step()


def test_rings_name_what_does_not_fit(mesh):
    own, joint = qkv(), qkv(L)
    with pytest.raises(NotModelled, match="kv_actual_isl is not modelled"):
        ring(mesh, own, logical_n=N, kv_actual_isl=1)
    with pytest.raises(MeshError, match="kv_cache_batch_idx=1 must lie within 0 to 0"):
        ring(mesh, own, logical_n=N, kv_cache_batch_idx=1)
    with pytest.raises(MeshError, match="logical_n=0 must be at least 1"):
        ring(mesh, own, logical_n=0)
    with pytest.raises(MeshError, match="a causal sequence has no joint one"):
        ring(mesh, own, joint, logical_n=N, is_causal=True)
    with pytest.raises(ArgumentError, match="or none of them"):
        ring(mesh, own, joint[:2], logical_n=N)
    with pytest.raises(ArgumentError, match="argument 'logical_n' is missing"):
        ring(mesh, own)
    share = ttnn.transformer.ring_distributed_scaled_dot_product_attention
    with pytest.raises(MeshError, match="fits 0 axes"):
        share(*(put(x, mesh) for x in own), 3)
    with pytest.raises(MeshError, match="must lie within 0 to 3"):
        share(*(put(x, mesh) for x in own), 4, 4)
    with pytest.raises(MeshError, match="cut into 8 chunks"):
        share(*(put(x[:, :, :60].contiguous(), mesh) for x in own), 4, 0)
