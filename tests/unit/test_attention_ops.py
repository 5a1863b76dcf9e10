"""Attention and its head reshapes against plain torch, on one device and on meshes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operands import R, S, Words, put, random

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError, NotModelled, PartialWarning
from softmesh.ops.attention.decode import scaled_dot_product_attention_decode as sdpa_decode
from softmesh.ops.attention.prefill import scaled_dot_product_attention as sdpa
from softmesh.ops.attention.qkv_heads import (
    concatenate_heads,
    nlp_concat_heads,
    nlp_concat_heads_decode,
    nlp_create_qkv_heads,
    nlp_create_qkv_heads_decode,
)


def positions(values: list[int], device: ttnn.MeshDevice, words: Words = (R, R)) -> ttnn.Tensor:
    return put(torch.tensor(values, dtype=torch.int32), device, words, ttnn.int32, ttnn.ROW_MAJOR_LAYOUT)


def qkv(b: int, heads: int, kv_heads: int, s: int, width: int = 32) -> tuple[torch.Tensor, ...]:
    return random(b, heads, s, width), random(b, kv_heads, s, width), random(b, kv_heads, s, width).flip(-2)


def softmax_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor | None = None,
    bias: torch.Tensor | float = 0.0,
    scale: float | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """The textbook form, head by head copies and all."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1) * factor + bias
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    if sink is None:
        return torch.softmax(scores, -1) @ v
    joined = torch.cat([scores, (sink * factor).expand(*scores.shape[:-1], 1)], -1)
    return torch.softmax(joined, -1)[..., :-1] @ v


def causal(s: int) -> torch.Tensor:
    return torch.ones(s, s, dtype=torch.bool).tril()


def pcc(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten().float(), b.flatten().float()]))[0, 1])


def assert_close(result: ttnn.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ttnn.compose(result), expected, rtol=1e-4, atol=1e-5)


class Recorder:
    def __init__(self) -> None:
        self.commands: list[ttnn.Command] = []

    def on_command(self, command: ttnn.Command) -> None:
        self.commands.append(command)


# -- whole sequences -------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 2), (6, 1)])
def test_causal_attention_shares_each_key_head_among_its_queries(device, heads, kv_heads):
    q, k, v = qkv(2, heads, kv_heads, 40)
    result = sdpa(*(put(x, device) for x in (q, k, v)))
    assert_close(result, softmax_attention(q, k, v, causal(40)))


def test_bfloat16_attention_is_rounded_once_and_stays_bfloat16(device):
    q, k, v = qkv(2, 8, 2, 64)
    result = sdpa(*(put(x, device, dtype=ttnn.bfloat16) for x in (q, k, v)))
    exact = softmax_attention(*(x.bfloat16().float() for x in (q, k, v)), visible=causal(64))
    assert result.dtype is ttnn.bfloat16
    assert pcc(ttnn.compose(result), exact) > 0.99
    torch.testing.assert_close(ttnn.compose(result), exact.bfloat16(), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, 1, 5, 7), (1, 1, 5, 7), (2, 8, 5, 7), (1, 8, 1, 7)])
def test_a_mask_is_added_to_the_scaled_scores_and_repeated_where_it_is_one(device, shape):
    q, _, _ = qkv(2, 8, 4, 5)
    _, k, v = qkv(2, 8, 4, 7)
    mask = random(*shape) * 3
    result = sdpa(*(put(x, device) for x in (q, k, v)), attn_mask=put(mask, device), is_causal=False, scale=0.3)
    assert_close(result, softmax_attention(q, k, v, bias=mask, scale=0.3))


def test_without_mask_or_causality_every_key_is_seen(device):
    q, k, v = qkv(1, 2, 2, 9)
    assert_close(sdpa(*(put(x, device) for x in (q, k, v)), is_causal=False), softmax_attention(q, k, v))


def test_a_causal_window_reaches_back_and_counts_the_query_itself(device):
    q, k, v = qkv(1, 4, 2, 16)
    visible = causal(16) & ~torch.ones(16, 16, dtype=torch.bool).tril(-5)
    result = sdpa(*(put(x, device) for x in (q, k, v)), sliding_window_size=5)
    assert_close(result, softmax_attention(q, k, v, visible))


def test_a_window_without_causality_is_centred_on_the_query(device):
    q, k, v = qkv(1, 4, 2, 16)
    at = torch.arange(16)
    mask = random(1, 1, 16, 16)
    result = sdpa(
        *(put(x, device) for x in (q, k, v)),
        is_causal=False,
        sliding_window_size=6,
        attn_mask=put(mask, device),
    )
    assert_close(result, softmax_attention(q, k, v, (at - at[:, None]).abs() <= 3, bias=mask))


@pytest.mark.parametrize("is_causal", [True, False])
def test_an_attention_sink_takes_weight_and_gives_nothing(device, is_causal):
    q, k, v = qkv(2, 4, 2, 12)
    sink = random(1, 4, 1, 1) * 8
    result = sdpa(*(put(x, device) for x in (q, k, v)), is_causal=is_causal, attention_sink=put(sink, device))
    visible = causal(12) if is_causal else None
    assert_close(result, softmax_attention(q, k, v, visible, sink=sink))


def test_output_concat_heads_puts_the_heads_of_a_token_side_by_side(device):
    q, k, v = qkv(2, 4, 2, 12)
    result = sdpa(*(put(x, device) for x in (q, k, v)), output_concat_heads=True)
    expected = softmax_attention(q, k, v, causal(12)).transpose(1, 2).reshape(2, 1, 12, 4 * 32)
    assert_close(result, expected)


@pytest.mark.parametrize("words", [(R, R), (S(0), R), (R, S(0)), (R, S(1)), (S(0), S(1)), (S(1), S(0))])
def test_batch_and_head_splits_of_queries_and_keys_come_through(mesh, words):
    q, k, v = qkv(4, 8, 4, 8)
    result = sdpa(*(put(x, mesh, words) for x in (q, k, v)))
    assert ttnn.placements(result) == words
    assert_close(result, softmax_attention(q, k, v, causal(8)))


def test_batch_and_head_splits_come_through_on_a_row_of_two(pair):
    q, k, v = qkv(2, 8, 2, 8)
    for word in (S(0), S(1)):
        result = sdpa(*(put(x, pair, (R, word)) for x in (q, k, v)), is_causal=False)
        assert ttnn.placements(result) == (R, word)
        assert_close(result, softmax_attention(q, k, v))


def test_heads_of_queries_may_be_split_over_keys_that_all_devices_share(mesh):
    q, k, v = qkv(2, 8, 1, 8)
    result = sdpa(put(q, mesh, (R, S(1))), put(k, mesh), put(v, mesh))
    assert ttnn.placements(result) == (R, S(1))
    assert_close(result, softmax_attention(q, k, v, causal(8)))


def test_concatenated_heads_are_split_along_the_row(mesh):
    q, k, v = qkv(2, 8, 4, 8)
    result = sdpa(*(put(x, mesh, (S(0), S(1))) for x in (q, k, v)), output_concat_heads=True)
    assert ttnn.placements(result) == (S(0), S(3))
    assert_close(result, softmax_attention(q, k, v, causal(8)).transpose(1, 2).reshape(2, 1, 8, -1))


def test_masks_and_sinks_may_be_split_with_the_queries(mesh):
    q, k, v = qkv(2, 8, 4, 8)
    mask, sink = random(2, 8, 8, 8), random(1, 8, 1, 1)
    result = sdpa(
        *(put(x, mesh, (S(0), S(1))) for x in (q, k, v)),
        attn_mask=put(mask, mesh, (S(0), S(1))),
        attention_sink=put(sink, mesh, (R, S(1))),
        is_causal=False,
    )
    assert ttnn.placements(result) == (S(0), S(1))
    assert_close(result, softmax_attention(q, k, v, bias=mask, sink=sink))


def test_queries_split_by_row_stay_split_where_order_plays_no_part(pair):
    q, k, v = qkv(1, 4, 2, 8)
    split = put(q, pair, (R, S(2)))
    result = sdpa(split, put(k, pair), put(v, pair), is_causal=False)
    assert ttnn.placements(result) == (R, S(2))
    assert_close(result, softmax_attention(q, k, v))


def test_causal_attention_over_a_split_sequence_is_local(pair):
    q, k, v = qkv(1, 4, 2, 8)
    result = sdpa(*(put(x, pair, (R, S(2))) for x in (q, k, v)))
    assert ttnn.placements(result) == (R, ttnn.Local())
    halves = [softmax_attention(*parts, causal(4)) for parts in zip(*(x.chunk(2, 2) for x in (q, k, v)), strict=True)]
    for piece, half in zip(ttnn.get_device_tensors(result), halves, strict=True):
        torch.testing.assert_close(ttnn.to_torch(piece), half, rtol=1e-4, atol=1e-5)


def test_operands_split_in_different_ways_give_a_local_result(pair):
    q, k, v = random(1, 4, 8, 32), random(2, 4, 8, 32), random(2, 4, 8, 32)
    result = sdpa(put(q, pair), put(k, pair, (R, S(0))), put(v, pair, (R, S(0))))
    assert ttnn.placements(result) == (R, S(0))
    crossed = put(random(1, 8, 8, 32), pair, (R, S(1)))
    assert ttnn.placements(sdpa(crossed, put(k, pair, (R, S(0))), put(v, pair, (R, S(0))))) == (
        R,
        ttnn.Local(),
    )


def test_a_mask_broadcast_along_its_own_split_gives_a_local_result(pair):
    q, k, v = qkv(1, 4, 4, 8)
    mask = put(random(1, 2, 8, 8), pair, (R, S(1)))
    result = sdpa(*(put(x, pair) for x in (q, k, v)), attn_mask=mask, is_causal=False)
    assert ttnn.placements(result) == (R, ttnn.Local())


def test_an_observer_sees_the_arithmetic_of_both_products(device):
    q, k, v = (put(x, device) for x in qkv(2, 4, 2, 16))
    recorder = Recorder()
    with ttnn.observe(recorder):
        sdpa(q, k, v)
    (command,) = recorder.commands
    assert command.name == "transformer.scaled_dot_product_attention"
    assert command.cost.flops == 2 * (2 * 2 * 4 * 16 * 16 * 32)


# -- one new token of each user --------------------------------------------------------------------


def decode_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    current: list[int],
    window: int | None = None,
    **more: Any,
) -> torch.Tensor:
    """q [1, users, heads, width]; skipped users are 0."""
    at, latest = torch.arange(k.shape[2]), torch.tensor(current)[:, None]
    visible = (at <= latest) & (at > latest - (window or k.shape[2]))
    result = softmax_attention(q[0].unsqueeze(2), k, v, visible[:, None, None], **more)
    result[latest[:, 0] < 0] = 0
    return result.squeeze(2).unsqueeze(0)


def decode_inputs(users: int, heads: int, kv_heads: int, length: int = 24) -> tuple[torch.Tensor, ...]:
    _, k, v = qkv(users, heads, kv_heads, length)
    return random(1, users, heads, 32), k, v


@pytest.mark.parametrize("current", [[3, 23, 0], [7, 7, 7], [5, -1, 9], [-1, -1, -1]])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (4, 4), (6, 1)])
def test_each_user_sees_its_cache_up_to_its_position(device, current, heads, kv_heads):
    q, k, v = decode_inputs(3, heads, kv_heads)
    result = sdpa_decode(*(put(x, device) for x in (q, k, v)), cur_pos=current)
    assert_close(result, decode_reference(q, k, v, current))
    by_tensor = sdpa_decode(*(put(x, device) for x in (q, k, v)), cur_pos_tensor=positions(current, device))
    assert torch.equal(ttnn.compose(by_tensor), ttnn.compose(result))


def test_new_positions_are_no_new_program(device):
    q, k, v = decode_inputs(2, 4, 2)
    tensors = [put(x, device) for x in (q, k, v)]
    for at in range(6):
        assert_close(sdpa_decode(*tensors, cur_pos=[at, at + 3]), decode_reference(q, k, v, [at, at + 3]))
    assert device.num_program_cache_entries() == 1


def test_bfloat16_decode_agrees_with_torch(device):
    q, k, v = decode_inputs(3, 8, 2)
    result = sdpa_decode(*(put(x, device, dtype=ttnn.bfloat16) for x in (q, k, v)), cur_pos=[4, 9, 20])
    assert result.dtype is ttnn.bfloat16
    assert pcc(ttnn.compose(result), decode_reference(q, k, v, [4, 9, 20])) > 0.99


@pytest.mark.parametrize("current", [[3, 23], [9, -1]])
def test_a_decode_window_ends_at_the_position(device, current):
    q, k, v = decode_inputs(2, 8, 2)
    result = sdpa_decode(*(put(x, device) for x in (q, k, v)), cur_pos=current, sliding_window_size=6, scale=0.2)
    assert_close(result, decode_reference(q, k, v, current, window=6, scale=0.2))


@pytest.mark.parametrize("current", [[3, 23], [9, -1], [8, 8]])
def test_a_decode_sink_is_read_from_the_first_column(device, current):
    q, k, v = decode_inputs(2, 8, 2)
    sink = random(8, 32) * 4
    result = sdpa_decode(*(put(x, device) for x in (q, k, v)), cur_pos=current, attention_sink=put(sink, device))
    assert_close(result, decode_reference(q, k, v, current, sink=sink[:, :1].reshape(1, 8, 1, 1)))


@pytest.mark.parametrize("shape", [(3, 1, 8, 24), (1, 1, 1, 24)])
def test_decode_without_causality_follows_the_mask(device, shape):
    q, k, v = decode_inputs(3, 8, 2)
    mask = random(*shape) * 2
    result = sdpa_decode(*(put(x, device) for x in (q, k, v)), is_causal=False, attn_mask=put(mask, device))
    by_head = mask.transpose(1, 2)
    expected = softmax_attention(q[0].unsqueeze(2), k, v, bias=by_head).squeeze(2).unsqueeze(0)
    assert_close(result, expected)


def test_all_users_may_share_one_cache(device):
    q, k, v = decode_inputs(3, 8, 2)
    k, v = k[:1], v[:1]
    result = sdpa_decode(*(put(x, device) for x in (q, k, v)), cur_pos=[3, 9, 20], share_cache=True)
    assert_close(result, decode_reference(q, k.expand(3, -1, -1, -1), v.expand(3, -1, -1, -1), [3, 9, 20]))


@pytest.mark.parametrize(
    ("q_words", "kv_words"), [((S(1), S(2)), (S(0), S(1))), ((R, S(1)), (R, S(0))), ((S(2), R), (S(1), R))]
)
def test_users_and_heads_of_a_decode_step_may_be_split(mesh, q_words, kv_words):
    q, k, v = decode_inputs(4, 16, 4)
    users_word = tuple(S(0) if word is S(0) else R for word in kv_words)
    current = positions([3, 23, -1, 9], mesh, users_word)
    result = sdpa_decode(put(q, mesh, q_words), put(k, mesh, kv_words), put(v, mesh, kv_words), cur_pos_tensor=current)
    assert ttnn.placements(result) == q_words
    assert_close(result, decode_reference(q, k, v, [3, 23, -1, 9]))


def test_positions_alone_may_differ_between_devices(pair):
    q, k, v = decode_inputs(2, 4, 2)
    for current in ([3, 9, 5, -1], [6, 6, 6, 6]):
        result = sdpa_decode(*(put(x, pair) for x in (q, k, v)), cur_pos_tensor=positions(current, pair, (R, S(0))))
        assert ttnn.placements(result) == (R, S(1))
        both = [decode_reference(q, k, v, half) for half in (current[:2], current[2:])]
        assert_close(result, torch.cat(both, 1))


def words_for(rank: int) -> st.SearchStrategy[Words]:
    """A word for each mesh axis, no dim twice."""
    word = st.one_of(st.just(R), st.integers(0, rank - 1).map(S))
    return st.tuples(word, word).filter(lambda words: words[0] is R or words[0] is not words[1])


def spread(local: tuple[int, ...], mesh: ttnn.MeshDevice, words: Words) -> ttnn.Tensor:
    """Random values of which each device has a piece of the shape `local`."""
    shape = list(local)
    for word, extent in zip(words, mesh.shape, strict=True):
        if isinstance(word, ttnn.Shard):
            shape[word.dim] *= extent
    return put(random(*shape), mesh, words)


def on_each_device(*tensors: ttnn.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    pieces = [[ttnn.to_torch(piece) for piece in ttnn.get_device_tensors(tensor)] for tensor in tensors]
    return zip(*pieces, strict=True)


SEVERAL = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SEVERAL
@given(st.tuples(*[words_for(4)] * 4))
def test_attention_on_a_mesh_is_attention_on_each_device(mesh, words):
    shapes = ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8), (2, 1, 3, 5))
    q, k, v, mask = (spread(shape, mesh, each) for shape, each in zip(shapes, words, strict=True))
    result = sdpa(q, k, v, attn_mask=mask, is_causal=False)
    for own_q, own_k, own_v, own_mask, own_result in on_each_device(q, k, v, mask, result):
        expected = softmax_attention(own_q, own_k, own_v, bias=own_mask)
        torch.testing.assert_close(own_result, expected, rtol=1e-4, atol=1e-5)


@SEVERAL
@given(st.tuples(*[words_for(4)] * 3), st.lists(st.integers(-1, 5), min_size=2, max_size=2))
def test_a_decode_step_on_a_mesh_is_one_on_each_device(mesh, words, current):
    shapes = ((1, 2, 4, 8), (2, 2, 6, 8), (2, 2, 6, 8))
    q, k, v = (spread(shape, mesh, each) for shape, each in zip(shapes, words, strict=True))
    result = sdpa_decode(q, k, v, cur_pos=current)
    for own_q, own_k, own_v, own_result in on_each_device(q, k, v, result):
        expected = decode_reference(own_q, own_k, own_v, current)
        torch.testing.assert_close(own_result, expected, rtol=1e-4, atol=1e-5)


# -- heads -----------------------------------------------------------------------------------------


def test_decode_heads_are_cut_from_each_users_row_and_joined_again(device):
    fused = random(1, 1, 4, (8 + 2 * 2) * 32)
    q, k, v = nlp_create_qkv_heads_decode(put(fused, device), num_heads=8, num_kv_heads=2)
    rows = fused.reshape(1, 4, 12, 32)
    for result, expected in zip((q, k, v), rows.split([8, 2, 2], 2), strict=True):
        assert torch.equal(ttnn.compose(result), expected)
    joined = nlp_concat_heads_decode(q, num_heads=8)
    assert list(joined.shape) == [1, 1, 32, 256]  # the rows of a whole tile
    assert torch.equal(ttnn.compose(joined)[:, :, :4], fused[..., : 8 * 32])
    shards = joined.memory_config().shard_spec
    assert joined.memory_config().memory_layout is ttnn.TensorMemoryLayout.WIDTH_SHARDED
    assert (shards.shape, shards.num_cores()) == ([32, 32], 8)


def test_padding_heads_are_dropped_when_decode_heads_are_joined(device):
    padded = random(1, 4, 32, 16)
    joined = nlp_concat_heads_decode(put(padded, device, dtype=ttnn.bfloat16), num_heads=5)
    assert torch.equal(ttnn.compose(joined)[:, :, :4], padded[:, :, :5].reshape(1, 1, 4, 80).bfloat16())


def test_a_row_split_over_devices_holds_each_devices_own_heads(mesh):
    fused = random(1, 1, 64, 4 * (2 + 1 + 1) * 32)  # four devices along a row of the mesh, 2 + 1 + 1 heads each
    x = put(fused, mesh, (S(2), S(3)))
    q, k, v = nlp_create_qkv_heads_decode(x, num_heads=2, num_kv_heads=1)
    assert [ttnn.placements(t) for t in (q, k, v)] == [(S(1), S(2))] * 3
    own = fused.reshape(1, 64, 4, 4, 32)
    for result, expected in zip((q, k, v), own.split([2, 1, 1], 3), strict=True):
        assert torch.equal(ttnn.compose(result), expected.flatten(2, 3))
    joined = nlp_concat_heads_decode(q, num_heads=2)
    assert ttnn.placements(joined) == (S(2), S(3))
    assert torch.equal(ttnn.compose(joined), ttnn.compose(q).reshape(1, 1, 64, -1))


def test_a_slice_of_users_starts_at_each_devices_offset(pair):
    fused = random(1, 1, 8, 4 * 32)
    offset = positions([0, 4], pair, (R, S(0)))
    q, k, v = nlp_create_qkv_heads_decode(
        put(fused, pair), num_heads=2, num_kv_heads=1, batch_offset=offset, slice_size=4
    )
    rows = fused.reshape(1, 8, 4, 32)
    for at, (start, piece) in enumerate(zip((0, 4), ttnn.get_device_tensors(q), strict=True)):
        assert torch.equal(ttnn.to_torch(piece), rows[:, start : start + 4, :2]), at
    assert [tuple(t.shape) for t in (k, v)] == [(1, 4, 1, 32)] * 2
    assert ttnn.placements(q) == (R, ttnn.Local())


@pytest.mark.parametrize("transpose", [True, False])
def test_prefill_heads_are_cut_from_each_tokens_row(device, transpose):
    fused = random(2, 1, 6, (4 + 2 * 2) * 32)
    q, k, v = nlp_create_qkv_heads(put(fused, device), num_heads=4, num_kv_heads=2, transpose_k_heads=transpose)
    expected = fused.reshape(2, 6, 8, 32).transpose(1, 2).split([4, 2, 2], 1)
    assert torch.equal(ttnn.compose(q), expected[0])
    assert torch.equal(ttnn.compose(k), expected[1].mT if transpose else expected[1])
    assert torch.equal(ttnn.compose(v), expected[2])


def test_keys_and_values_may_come_from_a_tensor_of_their_own(pair):
    rows, kv_rows = random(2, 1, 6, 4 * 32), random(2, 1, 6, 2 * 2 * 32)
    q, k, v = nlp_create_qkv_heads(put(rows, pair, (R, S(3))), put(kv_rows, pair), num_heads=2, num_kv_heads=2)
    assert [ttnn.placements(t) for t in (q, k, v)] == [(R, S(1)), (R, R), (R, R)]
    assert torch.equal(ttnn.compose(q), rows.reshape(2, 6, 4, 32).transpose(1, 2))
    keys, values = kv_rows.reshape(2, 6, 4, 32).transpose(1, 2).split([2, 2], 1)
    assert torch.equal(ttnn.compose(k), keys.mT)
    assert torch.equal(ttnn.compose(v), values)


def test_splits_follow_their_dim_through_prefill_heads(mesh):
    fused = random(4, 1, 8, 6 * 32)
    q, k, v = nlp_create_qkv_heads(put(fused, mesh, (S(0), S(2))), num_heads=2, num_kv_heads=2)
    assert [ttnn.placements(t) for t in (q, k, v)] == [(S(0), S(2)), (S(0), S(3)), (S(0), S(2))]
    parts = fused.reshape(4, 8, 6, 32).transpose(1, 2).split(2, 1)
    for result, expected in zip((q, k, v), (parts[0], parts[1].mT, parts[2]), strict=True):
        assert torch.equal(ttnn.compose(result), expected)


@pytest.mark.parametrize(
    ("word", "joined_word", "concat_word"), [(S(0), S(0), S(0)), (S(1), S(3), S(2)), (S(2), S(2), S(1))]
)
def test_joining_heads_keeps_batch_heads_and_sequence_split(pair, word, joined_word, concat_word):
    values = random(2, 4, 6, 32)
    rows = values.transpose(1, 2).reshape(2, 6, 128)
    x = put(values, pair, (R, word))
    joined, concatenated = nlp_concat_heads(x), concatenate_heads(x)
    assert ttnn.placements(joined) == (R, joined_word)
    assert ttnn.placements(concatenated) == (R, concat_word)
    assert torch.equal(ttnn.compose(joined), rows.unsqueeze(1))
    assert torch.equal(ttnn.compose(concatenated), rows)


def test_a_split_within_a_head_is_local_after_joining(pair):
    x = put(random(1, 4, 6, 64), pair, (R, S(3)))
    assert ttnn.placements(nlp_concat_heads(x)) == (R, ttnn.Local())


def test_uneven_splits_survive_only_where_their_dim_does(pair):
    q, k, v = qkv(3, 3, 3, 8)
    with ttnn.lenient():
        by_batch = [put(x, pair, (R, S(0))) for x in (q, k, v)]
        by_head = [put(x, pair, (R, S(1))) for x in (q, k, v)]
    expected = softmax_attention(q, k, v, causal(8))
    for split in (by_batch, by_head):
        assert_close(sdpa(*split), expected)
    rows = q.transpose(1, 2).reshape(3, 1, 8, -1)
    assert torch.equal(ttnn.compose(nlp_concat_heads(by_batch[0])), rows)
    assert ttnn.placements(nlp_concat_heads(by_head[0])) == (R, ttnn.Local())
    assert ttnn.placements(sdpa(*by_head, output_concat_heads=True)) == (R, ttnn.Local())


# -- bad input -------------------------------------------------------------------------------------


def refuse(message: str, call: Any, *args: Any, error: type[Exception] = MeshError, **kwargs: Any) -> None:
    with pytest.raises(error, match=message):
        call(*args, **kwargs)


def test_attention_names_what_does_not_fit(device):
    q, k, v = (put(x, device) for x in qkv(2, 8, 4, 8))
    refuse("input_tensor_q must have 4 dims", sdpa, put(random(8, 8, 32), device), k, v)
    refuse("8 query heads cannot share 3 key heads", sdpa, q, *[put(random(2, 3, 8, 32), device)] * 2)
    refuse("must have one shape", sdpa, q, k, put(random(2, 2, 8, 32), device))
    refuse("width 32, those of input_tensor_k 16", sdpa, q, *[put(random(2, 4, 8, 16), device)] * 2)
    refuse("has batch 2, input_tensor_k 1", sdpa, q, *[put(random(1, 4, 8, 32), device)] * 2)
    refuse("as many queries as keys, got 8 and 9", sdpa, q, *[put(random(2, 4, 9, 32), device)] * 2)
    mask = put(random(1, 1, 8, 8), device)
    refuse("attn_mask is given and is_causal=True", sdpa, q, k, v, attn_mask=mask)
    narrow = put(random(1, 1, 8, 1), device)
    refuse("does not fit", sdpa, q, k, v, attn_mask=narrow, is_causal=False)
    refuse("attention_sink", sdpa, q, k, v, attention_sink=put(random(1, 4, 1, 1), device))
    refuse("at least 1", sdpa, q, k, v, sliding_window_size=0)
    refuse("must be tilized", sdpa, ttnn.to_layout(q, ttnn.ROW_MAJOR_LAYOUT), k, v)
    refuse("cu_window_seqlens", sdpa, q, k, v, cu_window_seqlens=mask)
    refuse("must hold integers", sdpa, q, k, v, cu_window_seqlens=mask, is_causal=False)
    refuse("Did you mean 'is_causal'", sdpa, q, k, v, is_casual=True, error=ArgumentError)
    assert tuple(sdpa(q, k, v).shape) == (2, 8, 8, 32)


def test_decode_names_what_does_not_fit(device):
    q, k, v = (put(x, device) for x in decode_inputs(2, 8, 2))
    refuse(
        r"must be \[1, users, heads, width\]",
        sdpa_decode,
        put(random(2, 2, 8, 32), device),
        k,
        v,
        cur_pos=[1, 1],
    )
    refuse("1 positions for 2 users", sdpa_decode, q, k, v, cur_pos=[1])
    refuse("0 positions for 2 users", sdpa_decode, q, k, v)
    refuse("cur_pos 24 lies outside the cache", sdpa_decode, q, k, v, cur_pos=[1, 24])
    refuse("sequence of ints", sdpa_decode, q, k, v, cur_pos=[1.0, 2.0], error=ArgumentError)
    refuse("so input_tensor_k must have batch 1", sdpa_decode, q, k, v, cur_pos=[1, 2], share_cache=True)
    refuse("holds 3 users", sdpa_decode, put(random(1, 3, 8, 32), device), k, v, cur_pos=[1, 2, 3])
    refuse("positions play no part", sdpa_decode, q, k, v, cur_pos=[1, 2], is_causal=False)
    refuse("is_causal=True", sdpa_decode, q, k, v, cur_pos=[1, 2], attn_mask=put(random(2, 1, 8, 24), device))
    wide = put(torch.zeros(2), device, layout=ttnn.ROW_MAJOR_LAYOUT)
    refuse("Expect cur_pos to be INT32", sdpa_decode, q, k, v, cur_pos_tensor=wide)
    refuse(r"must be \[2\]", sdpa_decode, q, k, v, cur_pos_tensor=positions([1, 2, 3], device))
    beyond = positions([1, 99], device)
    refuse("cur_pos 99 lies outside the cache", sdpa_decode, q, k, v, cur_pos_tensor=beyond)
    assert tuple(sdpa_decode(q, k, v, cur_pos=[1, 23]).shape) == (1, 2, 8, 32)


def test_head_ops_name_what_does_not_fit(device):
    flat, fused = put(random(6, 192), device), put(random(1, 1, 6, 192), device)
    refuse("must be", nlp_create_qkv_heads, flat, num_heads=2)
    refuse("must be", nlp_create_qkv_heads_decode, flat, num_heads=2)
    refuse("must be", nlp_concat_heads, flat)
    refuse("must be", concatenate_heads, flat)
    refuse("does not hold 15 heads", nlp_create_qkv_heads, fused, num_heads=5)
    refuse("does not hold 11 heads", nlp_create_qkv_heads_decode, fused, num_heads=5, num_kv_heads=3)
    refuse("3 query heads cannot share 2", nlp_create_qkv_heads, fused, num_heads=3, num_kv_heads=2)
    refuse("must agree", nlp_create_qkv_heads, fused, put(random(1, 1, 5, 192), device), num_heads=3)
    refuse("must be 1", nlp_create_qkv_heads, put(random(1, 2, 6, 192), device), num_heads=2)
    refuse("num_heads=9", nlp_concat_heads_decode, put(random(1, 4, 8, 32), device), num_heads=9)
    refuse("together", nlp_create_qkv_heads_decode, fused, num_heads=2, slice_size=2, error=ArgumentError)
    far = positions([5], device)
    refuse(
        "do not lie within the 6 users",
        nlp_create_qkv_heads_decode,
        fused,
        num_heads=2,
        slice_size=2,
        batch_offset=far,
    )
    refuse("kv_tied", nlp_create_qkv_heads, fused, num_heads=2, kv_tied=True, error=NotModelled)


def partial_sum(device: ttnn.MeshDevice, *shape: int) -> ttnn.Tensor:
    """A tensor whose devices along a row of the mesh hold addends."""
    a = put(torch.ones(*shape[:-1], 2 * 32), device, (R, S(len(shape) - 1)))
    b = put(torch.ones(1, 1, 2 * 32, shape[-1]), device, (R, S(2)))
    made = ttnn.matmul(a, b)
    assert ttnn.placements(made) == (R, ttnn.Partial())
    return made


def test_addends_that_nobody_summed_are_named(pair):
    addends, whole = partial_sum(pair, 1, 4, 8, 32), put(random(1, 4, 8, 32), pair)
    for index, name in enumerate("qkv"):
        operands = [addends if i == index else whole for i in range(3)]
        refuse(f"input_tensor_{name} is still Partial", sdpa, *operands, error=PartialWarning)
    one_user = put(random(4, 4, 8, 32), pair)
    refuse(
        "input_tensor_q is still",
        sdpa_decode,
        addends,
        one_user,
        one_user,
        cur_pos=[1] * 4,
        error=PartialWarning,
    )


def test_moving_heads_about_carries_addends_along(pair):
    fused, addends = partial_sum(pair, 1, 1, 8, 96), partial_sum(pair, 1, 4, 8, 32)
    moved = [
        *nlp_create_qkv_heads(fused, num_heads=1),
        *nlp_create_qkv_heads_decode(fused, num_heads=1),
        nlp_concat_heads(addends),
        concatenate_heads(addends),
        nlp_concat_heads_decode(addends, num_heads=8),
    ]
    assert {ttnn.placements(tensor) for tensor in moved} == {(R, ttnn.Partial())}
