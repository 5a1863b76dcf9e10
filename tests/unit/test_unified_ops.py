"""Unified ops beyond products: what they exchange, and what they leave where it is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from unified_operands import SUM, commands_of, mesh_of, spread, value_of, words_of

import softmesh as ttnn
from softmesh import Partial, Replicate, Shard, distributed

R = Replicate()


@pytest.fixture(autouse=True)
def _lenient():
    with ttnn.lenient():
        yield


@pytest.fixture
def mesh() -> ttnn.MeshDevice:
    return mesh_of(2, 4)


def close(result: ttnn.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(value_of(result), expected, atol=1e-4, rtol=1e-4)


class Gathered:
    """The shapes that all_gathers were given."""

    def __init__(self) -> None:
        self.shapes: list[list[int]] = []

    def on_command(self, command: ttnn.Command) -> None:
        if command.name == "all_gather":
            self.shapes.append(list(command.inputs[0].shape))


def test_a_norm_over_a_split_dim_exchanges_statistics_and_not_the_tensor(mesh):
    a, weight = torch.randn(64, 4096), torch.randn(4096)
    x, w = spread(a, mesh, (R, Shard(1))), spread(weight, mesh, (R, R))
    with ttnn.observe(Gathered()) as gathered, commands_of() as names:
        y = distributed.rms_norm(x, weight=w, epsilon=1e-5, output_topology=[R, Shard(1)])
    assert [n for n in names if "norm" in n] == ["rms_norm_pre_all_gather", "rms_norm_post_all_gather"]
    assert all(shape[-1] == 32 for shape in gathered.shapes)
    close(y, F.rms_norm(a, (4096,), weight, 1e-5))


def test_a_softmax_over_a_split_dim_exchanges_two_numbers_for_each_row(mesh):
    a = torch.randn(64, 4096)
    x = spread(a, mesh, (R, Shard(1)))
    with ttnn.observe(Gathered()) as gathered:
        y = distributed.softmax(x, dim=-1, output_topology=[R, Shard(1)])
    assert [shape[-1] for shape in gathered.shapes] == [2]
    close(y, a.softmax(-1))


def test_a_softmax_of_bfloat16_is_rounded_once(mesh):
    a = torch.randn(32, 512).bfloat16()
    split = distributed.softmax(spread(a, mesh, (R, Shard(1)), ttnn.bfloat16), dim=-1)
    whole = ttnn.softmax(spread(a, mesh, (R, R), ttnn.bfloat16), dim=-1)
    apart = (value_of(split).float() - value_of(whole).float()).abs()
    assert (apart <= value_of(whole).float() * 2**-7).all()


def test_contributions_go_through_linear_ops_and_are_combined_before_others(mesh):
    a, b = torch.randn(32, 32), torch.randn(32, 32)
    x, y = spread(a, mesh, (R, SUM)), spread(b, mesh, (R, SUM))
    with commands_of() as names:
        total = distributed.neg(distributed.add(x, y, output_topology=[R, SUM]), output_topology=[R, SUM])
    assert names == ["add", "neg"]
    close(total, -(a + b))
    with commands_of() as names:
        positive = distributed.relu(x, output_topology=[R, R])
    assert "all_reduce" in names or "reduce_scatter" in names
    close(positive, a.relu())


def test_what_all_share_is_added_to_a_sum_once(mesh):
    a, b = torch.randn(32, 32), torch.randn(32, 32)
    close(distributed.add(spread(a, mesh, (SUM, SUM)), spread(b, mesh, (R, R))), a + b)


@pytest.mark.parametrize("how", ["avg", "max", "min", "prod"])
def test_contributions_that_combine_otherwise_than_by_adding_are_understood(mesh, how):
    a = torch.rand(4, 32, 32) + 0.5
    rows = spread(a, mesh, (R, Shard(0)))
    plain = {"avg": "mean", "max": "max", "min": "min", "prod": "prod"}[how]
    contributions = getattr(ttnn, plain)(rows, 0)
    assert contributions.view_distribution().placements == (R, Partial(how))
    expected = {"avg": a.mean(0), "max": a.amax(0), "min": a.amin(0), "prod": a.prod(0)}[how]
    close(distributed.gelu(contributions), F.gelu(expected))


def test_a_mean_over_a_split_dim_counts_all_elements(mesh):
    a = torch.randn(16, 64)
    y = distributed.mean(spread(a, mesh, (Shard(0), Shard(1))), dim=(0, 1))
    close(y, a.mean())


def test_a_table_split_by_rows_is_looked_up_where_the_rows_are(mesh):
    table, ids = torch.randn(4096, 512), torch.randint(0, 4096, (2, 32))
    indices = spread(ids, mesh, (R, R), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    with commands_of() as names:
        y = distributed.embedding(indices, spread(table, mesh, (R, Shard(0))), output_topology=[R, R])
    assert "all_gather" not in names
    assert names[-1] == "all_reduce"
    close(y, F.embedding(ids, table))


def test_an_index_outside_a_split_table_is_refused(mesh):
    indices = spread(torch.tensor([[5, 64]]), mesh, (R, R), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)
    table = spread(torch.randn(64, 2048), mesh, (R, Shard(0)))
    with pytest.raises(ttnn.MeshError, match="index 64 is outside the table of 64 rows"):
        distributed.embedding(indices, table)


def heads(batch: int, count: int, rows: int, width: int = 32) -> torch.Tensor:
    return torch.randn(batch, count, rows, width)


def test_attention_with_split_heads_sends_nothing(mesh):
    q, k, v = heads(2, 8, 64), heads(2, 4, 64), heads(2, 4, 64)
    with commands_of() as names:
        y = distributed.scaled_dot_product_attention(*(spread(t, mesh, (Shard(0), Shard(1))) for t in (q, k, v)))
    assert names == ["transformer.scaled_dot_product_attention"]
    assert words_of(y) == (Shard(0), Shard(1))
    close(y, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))


RING = {
    "causal": {"is_causal": True},
    "all keys": {"is_causal": False},
    "a window": {"is_causal": True, "sliding_window_size": 100},
}


@pytest.mark.parametrize("kind", sorted(RING))
def test_attention_along_a_split_sequence_passes_keys_around_the_ring(mesh, kind):
    q, k, v = heads(1, 2, 512), heads(1, 2, 512), heads(1, 2, 512)
    split = [spread(t, mesh, (R, Shard(2))) for t in (q, k, v)]
    with commands_of() as names:
        y = distributed.scaled_dot_product_attention(*split, output_topology=[R, Shard(2)], **RING[kind])
    assert "distributed.ring_attention" in names
    assert "all_gather" not in names
    whole = [spread(t, mesh, (R, R)) for t in (q, k, v)]
    close(y, value_of(ttnn.transformer.scaled_dot_product_attention(*whole, **RING[kind])))


def test_a_ring_takes_a_mask_and_a_sink(mesh):
    q, k, v = heads(1, 4, 512), heads(1, 2, 512), heads(1, 2, 512)
    mask, sink = torch.randn(1, 1, 512, 512), torch.randn(1, 4, 1, 1)
    options = {"is_causal": False, "attn_mask": mask, "attention_sink": sink}
    split = {name: spread(t, mesh, (R, R)) for name, t in options.items() if name != "is_causal"}
    with commands_of() as names:
        y = distributed.scaled_dot_product_attention(
            *(spread(t, mesh, (R, Shard(2))) for t in (q, k, v)), is_causal=False, **split
        )
    assert "distributed.ring_attention" in names
    whole = [spread(t, mesh, (R, R)) for t in (q, k, v)]
    close(y, value_of(ttnn.transformer.scaled_dot_product_attention(*whole, is_causal=False, **split)))


def test_redistribution_takes_the_cheapest_collectives_and_none_where_none_is_needed(mesh):
    a = torch.randn(64, 64)
    x = spread(a, mesh, (R, Shard(0)))
    assert distributed.redistribute(x, [R, Shard(0)]) is x
    with commands_of() as names:
        y = distributed.redistribute(x, [R, Shard(1)])
    assert names == ["distributed.all_to_all"]
    close(y, a)
    with commands_of() as names:
        distributed.redistribute(spread(a, mesh, (R, SUM)), [R, Shard(1)])
    assert names == ["reduce_scatter"]


def test_a_reshape_keeps_a_split_that_it_can_follow(mesh):
    a = torch.randn(8, 64, 32)
    x = spread(a, mesh, (Shard(0), Shard(1)))
    with commands_of() as names:
        y = distributed.reshape(x, (8, 4, 16, 32))
    assert len(names) == 1
    assert words_of(y) == (Shard(0), Shard(1))
    close(y, a.reshape(8, 4, 16, 32))


def test_a_reshape_that_cannot_follow_moves_the_split_first(mesh):
    a = torch.randn(8, 6, 32)
    y = distributed.reshape(spread(a, mesh, (R, Shard(2))), (8, 192))
    close(y, a.reshape(8, 192))


def test_rows_of_a_reshape_stay_in_order_where_a_piece_has_only_one(mesh):
    a = torch.randn(8, 3)
    y = distributed.reshape(spread(a, mesh, (R, Shard(0))), (4, 6))
    assert words_of(y) == (R, Shard(0))
    close(y, a.reshape(4, 6))


def test_an_op_with_several_results_gives_them_all(mesh):
    a = torch.randn(16, 64)
    parts = distributed.split(spread(a, mesh, (Shard(0), Shard(1))), 16, 1)
    assert len(parts) == 4
    for part, expected in zip(parts, a.split(16, 1), strict=True):
        close(part, expected)
    with pytest.raises(ttnn.ArgumentError, match=r"it has 4 results"):
        distributed.split(spread(a, mesh, (R, R)), 16, 1, output_topology=[R, R])


def test_an_op_that_nothing_is_known_of_is_done_whole(mesh):
    a = torch.randn(16, 64)
    y = distributed.cumsum(spread(a, mesh, (Shard(0), Shard(0))), 0)
    close(y, a.cumsum(0))


def test_a_number_may_stand_for_an_operand(mesh):
    a = torch.randn(16, 64)
    x = spread(a, mesh, (Shard(0), SUM))
    close(distributed.multiply(x, 3.0), a * 3)
    close(distributed.add(x, 3.0), a + 3)
    close(distributed.div(x, 2.0), a / 2)


def test_namespaces_of_ops_have_their_unified_forms(mesh):
    own = distributed.transformer.scaled_dot_product_attention
    assert own is distributed.scaled_dot_product_attention
    assert distributed.sub is distributed.subtract
    a = torch.randn(16, 64)
    y = distributed.experimental.gelu_bw(spread(a, mesh, (R, Shard(0))), spread(a, mesh, (R, Shard(1))))
    whole = spread(a, mesh, (R, R))
    close(y, value_of(ttnn.experimental.gelu_bw(whole, whole)))
