"""Gates and experts of DeepSeek's prefill, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from operands import LOCAL, R, S, put, random

import softmesh as ttnn

ROWS = ttnn.ROW_MAJOR_LAYOUT
P = ttnn.experimental.deepseek_prefill
SCORES = {
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: torch.softmax(x, -1),
    "sqrtsoftplus": lambda x: torch.nn.functional.softplus(x).sqrt(),
}


def ints(values: Any, mesh: ttnn.MeshDevice, words: Any = (R, R)) -> ttnn.Tensor:
    return put(torch.as_tensor(values).int(), mesh, words, ttnn.uint32, ROWS)


def shards(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    return [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]


# -- gates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("stable", [False, True])
def test_grouped_topk_chooses_by_any_score(mesh, name, stable):
    x, bias = random(1, 1, 64, 32), random(1, 1, 1, 32)
    weights, indices = P.moe_grouped_topk(
        put(x, mesh, (S(2), R)),
        put(bias, mesh),
        n_groups=4,
        topk_groups=2,
        n_activated_experts=4,
        route_scale=3.0,
        score_func=name,
        stable_sort=stable,
        weights_layout=ROWS,
    )
    plain = SCORES[name](x)
    biased = (plain + bias).reshape(1, 1, 64, 4, 8)
    best = biased.topk(2, -1).values.sum(-1).topk(2, -1).indices
    allowed = torch.full_like(biased, -torch.inf).scatter(
        3, best[..., None].expand(*best.shape, 8), biased.gather(3, best[..., None].expand(*best.shape, 8))
    )
    wanted = allowed.flatten(-2).topk(4, -1).indices
    assert torch.equal(ttnn.compose(indices).long(), wanted)
    assert weights.layout is ROWS
    chosen = plain.gather(-1, wanted)
    torch.testing.assert_close(ttnn.compose(weights), 3.0 * chosen / chosen.sum(-1, keepdim=True))
    assert ttnn.placements(weights) == (S(2), R)


def test_equal_scores_come_in_the_experts_order_where_that_is_asked_for(device):
    x = put(torch.zeros(1, 1, 32, 16), device)
    _, indices = P.moe_grouped_topk(x, x, n_groups=1, summed_experts_per_group=1, topk_groups=1, stable_sort=True)
    assert (ttnn.to_torch(indices).int() == torch.arange(8)).all()


def test_gates_name_scores_they_do_not_know_and_what_is_not_modelled(device):
    x = put(random(1, 1, 32, 64), device)
    with pytest.raises(RuntimeError, match="score_func='relu' is none of sigmoid, softmax, sqrtsoftplus"):
        P.moe_grouped_topk(x, x, score_func="relu")
    with pytest.raises(ttnn.NotModelled, match="padding_config"):
        P.moe_grouped_topk(x, x, padding_config=x)


@pytest.mark.parametrize("words", [(R, R), (S(2), R), (S(2), S(2))], ids=str)
def test_a_table_of_ids_names_the_experts(mesh, words):
    x, table = random(1, 1, 64, 16), random(10, 16).topk(3, -1).indices
    ids = torch.arange(64) % 10
    weights, indices = P.moe_hash_gate(
        put(x, mesh, words),
        ints(ids.reshape(1, 1, 1, 64), mesh, tuple(S(3) if word is S(2) else R for word in words)),
        ints(table, mesh),
        n_activated_experts=3,
        route_scale=2.0,
    )
    wanted = table[ids].reshape(1, 1, 64, 3)
    assert torch.equal(ttnn.compose(indices).long(), wanted)
    chosen = SCORES["sqrtsoftplus"](x).gather(-1, wanted)
    torch.testing.assert_close(ttnn.compose(weights), 2.0 * chosen / chosen.sum(-1, keepdim=True))
    assert ttnn.placements(indices) == words


def test_a_table_of_ids_is_checked(device):
    x, table = put(random(1, 1, 32, 16), device), ints(torch.zeros(4, 3), device)
    with pytest.raises(RuntimeError, match="input_ids names 7, and tid2eid has 4 rows"):
        P.moe_hash_gate(x, ints(torch.full((32,), 7), device), table, n_activated_experts=3)
    with pytest.raises(RuntimeError, match="must name one id for each row"):
        P.moe_hash_gate(x, ints(torch.zeros(3), device), table, n_activated_experts=3)
    with pytest.raises(RuntimeError, match=r"must be \[ids, 2\] integers"):
        P.moe_hash_gate(x, ints(torch.zeros(32), device), table, n_activated_experts=2)


@pytest.mark.parametrize("words", [(R, R), (S(0), R), (R, S(0))], ids=str)
def test_counting_how_often_experts_are_chosen(mesh, words):
    chosen = random(16, 20).topk(3, -1).indices
    mask = torch.arange(20) % 3 != 0
    got = P.masked_bincount(ints(chosen, mesh, words), ints(mask, mesh), 20, 3)
    wanted = torch.bincount(chosen.flatten(), minlength=20) * mask
    total = sum(shard.long() for shard in shards(got))
    copies = 8 // max(2 if words[0] is S(0) else 1, 4 if words[1] is S(0) else 1)
    assert torch.equal(total, wanted * copies)
    parts = tuple(ttnn.Partial("sum") if word is S(0) else R for word in words)
    assert ttnn.placements(got) == parts
    with pytest.raises(RuntimeError, match="must have an entry for each of n_routed_experts=21"):
        P.masked_bincount(ints(chosen, mesh), ints(mask, mesh), 21, 3)


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(R, R), (S(2), R), (S(2), S(2))], ids=str)
def test_answers_times_weights_are_added_up(mesh, words):
    x, weights = random(1, 1, 64, 4, 32), random(1, 1, 64, 4)
    weights[..., 1], x[..., 1, :] = 0.0, torch.nan  # nobody answered there
    got = P.post_combine_reduce(put(x, mesh, words), put(weights, mesh, words))
    wanted = (x.nan_to_num(0.0) * weights.unsqueeze(-1)).sum(-2)
    torch.testing.assert_close(ttnn.compose(got), wanted, atol=1e-4, rtol=1e-4)
    assert ttnn.placements(got) == words


def test_sums_refuse_other_forms(device):
    x, weights = put(random(1, 1, 32, 4, 32), device), put(random(1, 1, 32, 4), device)
    with pytest.raises(RuntimeError, match="must be the last but one"):
        P.post_combine_reduce(x, weights, expert_dim=2)
    with pytest.raises(RuntimeError, match=r"must be \[1, 1, 32, 4\]: one for each answer"):
        P.post_combine_reduce(x, x)
    with pytest.raises(ttnn.NotModelled, match="indices and expert_dispatch_table"):
        P.post_combine_reduce(x, weights, weights)


# -- runs of rows ----------------------------------------------------------------------------------

STARTS, COUNTS = [0, 32, 64, 96], [5, 0, 32, 7]


def test_an_expert_s_rows_are_taken_out_and_put_back(mesh):
    """Devices of the first row of the mesh have experts 0 and 1, those of the second 2 and 3."""
    x = random(1, 1, 128, 32)
    lists = [ints(STARTS, mesh), ints(COUNTS, mesh), ints([0, 1, 2, 3], mesh, (S(0), R))]
    for local in range(2):
        rows = P.extract(put(x, mesh), *lists, local_expert_id=local, max_dispatched_tokens_per_expert=32)
        target = put(torch.zeros(1, 1, 128, 32), mesh)
        got = P.insert(target, rows, *lists, local_expert_id=local)
        assert got is target
        assert ttnn.placements(rows) == ttnn.placements(got) == (LOCAL, R)
        for device, (own, whole) in enumerate(zip(shards(rows), shards(got), strict=True)):
            expert = 2 * (device // 4) + local
            first, count = STARTS[expert], COUNTS[expert]
            assert torch.equal(own[0, 0, :count], x[0, 0, first : first + count])
            assert not own[0, 0, count:].any()
            wanted = torch.zeros(1, 1, 128, 32)
            wanted[:, :, first : first + count] = x[:, :, first : first + count]
            assert torch.equal(whole, wanted)


def test_runs_that_do_not_fit_are_refused(device):
    x, table = put(random(1, 1, 128, 32), device), ints([0, 2], device)
    lists = [ints(STARTS, device), ints(COUNTS, device), table]
    with pytest.raises(RuntimeError, match="an expert has 32 tokens, and there is room for 16"):
        P.extract(x, *lists, local_expert_id=1, max_dispatched_tokens_per_expert=16)
    with pytest.raises(RuntimeError, match="local_expert_id=2, and a device has 2 experts"):
        P.extract(x, *lists, local_expert_id=2, max_dispatched_tokens_per_expert=16)
    far = [ints([100, 100, 120, 0], device), *lists[1:]]
    with pytest.raises(RuntimeError, match="leaves the 128 rows"):
        P.extract(x, *far, local_expert_id=1, max_dispatched_tokens_per_expert=32)
    with pytest.raises(RuntimeError, match="must agree in all dims but the rows"):
        P.insert(x, put(random(1, 1, 32, 64), device), *lists, local_expert_id=0)


# -- products --------------------------------------------------------------------------------------


def answer(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down


def matrices(count: int) -> list[list[torch.Tensor]]:
    return [[random(1, 1, a, b + i)[..., :b] / 8 for i in range(count)] for a, b in ((64, 96), (64, 96), (96, 64))]


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=str)
def test_one_expert(mesh, dtype):
    x, ((gate,), (up,), (down,)) = random(1, 1, 32, 64), matrices(1)
    output = put(torch.zeros(1, 1, 32, 64), mesh, (R, R), dtype)
    operands = [put(one, mesh, (R, R), dtype) for one in (x, gate, up, down)]
    got = P.routed_expert_ffn(*operands, output=output)
    assert got is output
    torch.testing.assert_close(shards(got)[5].float(), answer(x, gate, up, down), atol=0.05, rtol=0.05)


def test_an_expert_whose_inner_columns_are_split_leaves_a_sum_to_be_reduced(mesh):
    x, ((gate,), (up,), (down,)) = random(1, 1, 32, 64), matrices(1)
    got = P.routed_expert_ffn(
        put(x, mesh), put(gate, mesh, (S(3), R)), put(up, mesh, (S(3), R)), put(down, mesh, (S(2), R))
    )
    assert ttnn.placements(got) == (ttnn.Partial("sum"), R)
    total = shards(got)[0] + shards(got)[4]
    torch.testing.assert_close(total, answer(x, gate, up, down), atol=1e-3, rtol=1e-3)


def oai(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    first, second = (x @ gate).clamp(max=7.0), (x @ up).clamp(-7.0, 7.0)
    return (first * torch.sigmoid(1.702 * first) * (second + 1)) @ down


@pytest.mark.parametrize(("kind", "wanted"), [("Silu", answer), ("SwiGluOai", oai)])
def test_all_experts_of_a_device_answer_in_the_place_of_their_rows(mesh, kind, wanted):
    x, (gates, ups, downs) = random(1, 1, 128, 64), matrices(2)
    lists = [ints(STARTS, mesh), ints(COUNTS, mesh), ints([0, 1, 2, 3], mesh, (S(0), R))]
    got = P.unified_routed_expert_moe(
        put(x, mesh),
        *lists,
        *([put(one, mesh) for one in some] for some in (gates, ups, downs)),
        32,
        activation=getattr(ttnn.RoutedExpertActivation, kind),
    )
    for device, whole in enumerate(shards(got)):
        expected = x.clone()
        for local in range(2):
            expert = 2 * (device // 4) + local
            rows = slice(STARTS[expert], STARTS[expert] + COUNTS[expert])
            expected[0, 0, rows] = wanted(x[0, 0, rows], gates[local], ups[local], downs[local])
        torch.testing.assert_close(whole, expected, atol=1e-3, rtol=1e-3)


def test_experts_refuse_lists_of_different_lengths_and_unknown_activations(device):
    x, (gates, ups, downs) = put(random(1, 1, 128, 64), device), matrices(1)
    lists = [ints(STARTS, device), ints(COUNTS, device), ints([0], device)]
    weights = [[put(one, device) for one in some] for some in (gates, ups, downs)]
    with pytest.raises(RuntimeError, match="equally many"):
        P.unified_routed_expert_moe(x, *lists, weights[0], weights[1], [], 32)
    with pytest.raises(ttnn.NotModelled, match="SituGlu"):
        P.unified_routed_expert_moe(x, *lists, *weights, 32, activation=ttnn.RoutedExpertActivation.SituGlu)
