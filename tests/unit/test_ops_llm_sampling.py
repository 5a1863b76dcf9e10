"""sampling and manual_seed: whom it can draw, how often, and which streams of numbers begin anew."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from llm_operands import ints
from operands import LOCAL, R, S, Words, put, random

import softmesh as ttnn
from softmesh.errors import ArgumentError, MeshError

WIDTH = 64


def settings(value: float, device: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.bfloat16) -> ttnn.Tensor:
    return put(torch.full((32,), value), device, dtype=dtype, layout=ttnn.ROW_MAJOR_LAYOUT)


def operands(
    device: ttnn.MeshDevice,
    k: float = 32,
    p: float = 1.0,
    temp: float = 1.0,
    words: Words = (R, R),
    scale: float = 1.0,
) -> list[ttnn.Tensor]:
    tokens = torch.randperm(32 * WIDTH, generator=torch.Generator().manual_seed(1)).reshape(1, 1, 32, WIDTH)
    return [
        put(random(1, 1, 32, WIDTH) * scale, device, words, ttnn.bfloat16),
        ints(tokens, device, words),
        settings(k, device, ttnn.uint32),
        settings(p, device),
        settings(temp, device),
    ]


def best(device: ttnn.MeshDevice, count: int, scale: float = 1.0) -> torch.Tensor:
    """[32, count]: the tokens of each user's largest values, of equal ones the first."""
    values, tokens = (ttnn.compose(t)[0, 0] for t in operands(device, scale=scale)[:2])
    return tokens.gather(1, values.float().sort(descending=True, stable=True).indices[:, :count])


def drawn(*args: Any, **kwargs: Any) -> torch.Tensor:
    result = ttnn.sampling(*args, **kwargs)
    assert (tuple(result.shape), result.dtype) == ((1, 1, 1, 32), ttnn.uint32)
    return ttnn.compose(result).flatten()


@pytest.mark.parametrize(("k", "p"), [(1, 1.0), (32, 0.0)])
def test_one_candidate_is_the_largest(device, k, p):
    assert torch.equal(drawn(*operands(device, k, p)).long(), best(device, 1)[:, 0].long())


@pytest.mark.parametrize("k", [2, 5])
def test_only_the_k_largest_are_drawn_and_all_of_them(device, k):
    given = operands(device, k, scale=0.01)
    draws = torch.stack([drawn(*given) for _ in range(40)])
    found = best(device, k, scale=0.01)
    for user in range(32):
        assert set(draws[:, user].tolist()) <= set(found[user].tolist())
    assert len(set(draws.flatten().tolist())) > 32 * k * 0.9


def test_candidates_end_where_their_chances_exceed_p(device):
    """Two values of 0 and 62 of -20: half of the chances each, so p = 0.4 leaves one, p = 0.6 two."""
    values = torch.full((1, 1, 32, WIDTH), -20.0)
    values[..., [7, 40]] = 0.0
    tokens = torch.arange(WIDTH).expand(1, 1, 32, WIDTH)
    for p, expected in ((0.4, 1), (0.6, 2)):
        given = [put(values, device, dtype=ttnn.bfloat16), ints(tokens, device), *operands(device, p=p)[2:]]
        seen = set(torch.stack([drawn(*given) for _ in range(10)]).flatten().tolist())
        assert seen <= {7, 40}
        assert len(seen) == expected


def test_draws_follow_the_softmax_of_the_values_times_temp(device):
    values = torch.full((1, 1, 32, WIDTH), -1000.0)
    values[..., 0], values[..., 1] = 1.0, 0.0
    given = [
        put(values, device, dtype=ttnn.bfloat16),
        ints(torch.arange(WIDTH).expand(1, 1, 32, WIDTH), device),
    ]
    for temp in (1.0, 2.0):
        whole = [*given, *operands(device, temp=temp)[2:]]
        draws = torch.stack([drawn(*whole) for _ in range(50)]).float()
        chance = torch.softmax(torch.tensor([1.0, 0.0]) * temp, 0)[1]
        assert abs(float(draws.mean()) - float(chance)) < 0.05


def test_a_seed_repeats_what_follows_it(device):
    given = operands(device, scale=0.01)
    ttnn.manual_seed(5, device=device)
    first, second = drawn(*given), drawn(*given)
    ttnn.manual_seed(5, device=device)
    assert torch.equal(drawn(*given), first)
    assert torch.equal(drawn(*given), second)
    assert not torch.equal(first, second)
    assert torch.equal(drawn(*given, seed=5), first)
    assert torch.equal(drawn(*given, seed=5), first)
    assert torch.equal(drawn(*given), second)
    assert not torch.equal(drawn(*given, seed=6), first)


def test_single_users_can_begin_anew(device):
    given = operands(device, scale=0.01)
    ttnn.manual_seed(5, device=device)
    first = drawn(*given)
    ttnn.manual_seed(seeds=5, user_ids=3, device=device)
    ttnn.manual_seed(5, user_ids=ints([10, 11], device))
    ttnn.manual_seed(ints([5, 99], device), user_ids=ints([20, 21], device))
    again = drawn(*given)
    assert [user for user in (3, 10, 11, 20) if again[user] != first[user]] == []
    assert int((again != first).sum()) > 20


def test_all_devices_draw_the_same_and_split_candidates_differ(pair):
    result = ttnn.sampling(*operands(pair))
    assert ttnn.placements(result) == (R, R)
    split = operands(pair, words=(R, S(3)))
    assert ttnn.placements(ttnn.sampling(*split)) == (R, LOCAL)


def test_devices_may_be_given_seeds_of_their_own(pair):
    given = operands(pair, scale=0.01)
    ttnn.manual_seed(ints([1, 2], pair, (R, S(0))), user_ids=ints([0, 0], pair, (R, S(0))))
    result = ttnn.sampling(*given)
    assert ttnn.placements(result) == (R, LOCAL)
    a, b = (ttnn.to_torch(view).flatten() for view in ttnn.get_device_tensors(result))
    assert torch.equal(a[1:], b[1:])


def test_results_go_where_they_are_told(device):
    out = put(torch.zeros(1, 1, 1, 32), device, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    assert ttnn.sampling(*operands(device, k=1), output_tensor=out) is out
    assert torch.equal(ttnn.to_torch(out).flatten().long(), best(device, 1)[:, 0].long())


def test_a_replay_goes_on_drawing_where_the_program_would(device):
    given = operands(device, scale=0.01)
    ttnn.manual_seed(7, device=device)
    expected = [drawn(*given) for _ in range(4)]
    ttnn.manual_seed(7, device=device)
    assert torch.equal(drawn(*given), expected[0])
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    result = ttnn.sampling(*given)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    for one in expected[1:]:
        ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
        assert torch.equal(ttnn.compose(result).flatten(), one)
    ttnn.release_trace(device, trace)


def test_random_numbers_take_no_memory_of_the_device(device):
    given = operands(device)
    kept = [ttnn.sampling(*given)]
    for _ in range(3):
        kept.append(ttnn.sampling(*given))
    gaps = {b.buffer_address() - a.buffer_address() for a, b in pairwise(kept)}
    assert len(gaps) == 1
    assert device.num_program_cache_entries() == 1


def test_sampling_names_what_does_not_fit(device):
    values, tokens, *others = operands(device)
    for words, call in {
        "must be divisible by 32": lambda: ttnn.sampling(
            put(random(1, 1, 32, 40), device, dtype=ttnn.bfloat16), tokens, *others
        ),
        "Only BFLOAT16 is supported for inputs!": lambda: ttnn.sampling(
            put(random(1, 1, 32, WIDTH), device), tokens, *others
        ),
        "must hold a token": lambda: ttnn.sampling(values, values, *others),
        r"p \[16\] must be \[32\]": lambda: ttnn.sampling(
            values, tokens, others[0], put(random(16), device), others[2]
        ),
        "k must hold integers": lambda: ttnn.sampling(values, tokens, others[1], *others[1:]),
        "Seeds were provided as a tensor, so user_ids must not be": lambda: ttnn.manual_seed(ints([1], device)),
        "must lie within 0 to 31": lambda: ttnn.manual_seed(1, user_ids=32, device=device),
        "must have one length": lambda: ttnn.manual_seed(ints([1], device), user_ids=ints([1, 2], device)),
    }.items():
        with pytest.raises(MeshError, match=words):
            call()
    with pytest.raises(ArgumentError, match="it needs device=mesh_device"):
        ttnn.manual_seed(3)
    with pytest.raises(ArgumentError, match="Did you mean 'user_ids'"):
        ttnn.manual_seed(3, user_id=1, device=device)


@pytest.mark.parametrize("users", [1, 2, 13])
def test_fewer_users_than_32_have_a_token_each_and_the_streams_of_the_first(device, users):
    values, tokens, k, p, temp = operands(device)
    few = [
        ttnn.slice(values, [0, 0, 0, 0], [1, 1, users, WIDTH]),
        ttnn.slice(tokens, [0, 0, 0, 0], [1, 1, users, WIDTH]),
        *(ttnn.slice(setting, [0], [users]) for setting in (k, p, temp)),
    ]
    some = ttnn.sampling(*few, seed=5)
    assert tuple(some.shape) == (1, 1, 1, users)
    assert torch.equal(ttnn.compose(some).flatten(), drawn(values, tokens, k, p, temp, seed=5)[:users])


def test_of_equal_values_the_first_is_the_largest(device):
    values = -torch.rand(1, 1, 32, WIDTH, generator=torch.Generator().manual_seed(3))
    values[..., [9, 40, 63]] = 2.0
    values[:, :, 16:, :] = -1.0  # all of them
    tokens = torch.arange(WIDTH).expand(1, 1, 32, WIDTH)
    found = drawn(put(values, device, dtype=ttnn.bfloat16), ints(tokens, device), *operands(device, p=0.0)[2:])
    assert found.tolist() == [9] * 16 + [0] * 16


def test_more_users_than_32_and_odd_widths_are_refused(device):
    given = operands(device)
    for shape, text in (((1, 2, 32, WIDTH), "between 1 and 32 users"), ((1, 1, 32, 96), "power of two")):
        values, tokens = put(torch.ones(shape), device, dtype=ttnn.bfloat16), ints(torch.zeros(shape).int(), device)
        with pytest.raises(MeshError, match=text):
            ttnn.sampling(values, tokens, *given[2:])


def test_the_largest_seed_leaves_streams_as_they_are(device):
    given = operands(device)
    ttnn.manual_seed(seeds=42, device=device)
    drawn(*given)
    following = drawn(*given)
    ttnn.manual_seed(seeds=42, device=device)
    drawn(*given)
    ttnn.manual_seed(seeds=2**32 - 1, device=device)
    assert torch.equal(drawn(*given), following)
