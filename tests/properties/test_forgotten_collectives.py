"""A contribution used as if it were the whole is announced; one that stays a contribution is not.

First as a law over all ops, then one by one the ways in which a placement can go wrong unseen.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_calls import calls, names_with_calls
from strategies import LAWS, REDUCTIONS, Like, Words, draw_values, mesh_of, placed, quietly, seeds

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard

SUM = Partial("sum")
OnTwo = Callable[[ttnn.Tensor], ttnn.Tensor]


def on_two(like: Like, word: Any, seed: int = 0) -> ttnn.Tensor:
    return placed(mesh_of((1, 2)), like, (REPLICATE, word), seed)


def on_four(like: Like, words: Words, seed: int = 0) -> ttnn.Tensor:
    return placed(mesh_of((2, 2)), like, words, seed)


def heard(run: Callable[[], object]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run()
    return result, [str(one.message) for one in caught if one.category is ttnn.PartialWarning]


def last_word(tensor: ttnn.Tensor) -> Any:
    return ttnn.placements(tensor)[-1]


def as_list(results: Any) -> list[ttnn.Tensor]:
    return list(results) if isinstance(results, list | tuple) else [results]


# -- over all ops ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names_with_calls())
@settings(LAWS, max_examples=4)
@given(data=st.data())
def test_a_contribution_stays_one_or_a_warning_names_the_op_and_the_collective(name: str, data: st.DataObject) -> None:
    op = OPERATIONS[name]
    call = data.draw(calls(name, [ttnn.float32]))
    which = data.draw(st.integers(0, len(call.operands) - 1))
    word = Partial(data.draw(st.sampled_from(sorted(REDUCTIONS))))
    words = [word if index == which else REPLICATE for index in range(len(call.operands))]
    tensors = [on_two(like, w, data.draw(seeds)) for like, w in zip(call.operands, words, strict=True)]
    results, texts = heard(lambda: call.run(op, tensors, call.shape))
    if not texts:
        assert not call.reads_values or {last_word(result) for result in as_list(results)} == {word}
        return
    assert name in texts[0]
    assert "ttnn.all_reduce(" in texts[0]
    assert "mesh axis 1" in texts[0]
    assert {last_word(result) for result in as_list(results)} == {LOCAL}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SOFTMESH_STRICT", "1")
        is_share = "divided by 2 before" in texts[0]  # it may be right, and is never refused
        told = pytest.warns(ttnn.PartialWarning) if is_share else pytest.raises(ttnn.PartialError)
        with told as caught:
            call.run(op, tensors, call.shape)
        assert name in str(caught[0].message if is_share else caught.value)


ROW = Like((2, 4), values="whole")
MATRIX = Like((4, 2), values="whole")

LINEAR: dict[str, Callable[[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor], Any]] = {
    "neg": lambda x, same, whole: ttnn.neg(x),
    "add": lambda x, same, whole: x + same,
    "subtract": lambda x, same, whole: x - same,
    "rsub": lambda x, same, whole: ttnn.rsub(x, same),
    "multiply": lambda x, same, whole: whole * x,
    "multiply by a number": lambda x, same, whole: 2.0 * x,
    "div": lambda x, same, whole: x / whole,
    "matmul": lambda x, same, whole: ttnn.matmul(x, ttnn.transpose(whole, 0, 1)),
    "matmul from the right": lambda x, same, whole: ttnn.matmul(whole, x, transpose_b=True),
    "linear": lambda x, same, whole: ttnn.linear(x, ttnn.transpose(whole, 0, 1)),
    "sum": lambda x, same, whole: ttnn.sum(x, 0),
    "mean": lambda x, same, whole: ttnn.mean(x),
    "cumsum": lambda x, same, whole: ttnn.cumsum(x, 1),
    "deg2rad": lambda x, same, whole: ttnn.deg2rad(x),
}
KEEPING: dict[str, OnTwo] = {
    "clone": lambda x: ttnn.clone(x),
    "identity": lambda x: ttnn.identity(x),
    "assign": lambda x: ttnn.assign(x, memory_config=ttnn.L1_MEMORY_CONFIG),
    "typecast": lambda x: ttnn.typecast(x, ttnn.bfloat16),
    "to_layout": lambda x: ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT),
    "untilize": lambda x: ttnn.untilize(x),
    "to_memory_config": lambda x: ttnn.to_memory_config(x, ttnn.L1_MEMORY_CONFIG),
    "reshape": lambda x: ttnn.reshape(x, [8]),
    "permute": lambda x: ttnn.permute(x, [1, 0]),
    "slice": lambda x: x[:, 1:3],
    "pad with zeros": lambda x: ttnn.pad(x, [(0, 0), (0, 2)], 0.0),
    "repeat": lambda x: ttnn.repeat(x, [2, 1]),
    "split": lambda x: ttnn.split(x, 2, 1)[0],
    "concat with itself": lambda x: ttnn.concat([x, x], 0),
    "stack with itself": lambda x: ttnn.stack([x, x], 0),
}


@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_op_takes_addends_without_a_warning(name: str, op: str) -> None:
    x, same, whole = on_two(ROW, Partial(op), 1), on_two(ROW, Partial(op), 2), on_two(ROW, REPLICATE, 3)
    result, texts = heard(lambda: LINEAR[name](x, same, whole))
    assert not texts
    assert last_word(result) is Partial(op)


@pytest.mark.parametrize("op", sorted(REDUCTIONS))
@pytest.mark.parametrize("name", KEEPING)
def test_an_op_that_keeps_values_keeps_contributions_of_any_kind(name: str, op: str) -> None:
    result, texts = heard(lambda: KEEPING[name](on_two(ROW, Partial(op), 1)))
    assert not texts
    assert last_word(result) is Partial(op)


@pytest.mark.parametrize("op", ["avg", "max", "min"])
def test_what_all_devices_share_joins_contributions_that_it_does_not_change(op: str) -> None:
    joined, texts = heard(lambda: ttnn.concat([on_two(ROW, Partial(op)), on_two(ROW, REPLICATE)], 0))
    assert not texts
    assert last_word(joined) is Partial(op)


def test_a_sum_to_which_each_device_adds_a_bias_is_still_to_be_summed() -> None:
    x, weight, bias = on_two(ROW, SUM), on_two(MATRIX, REPLICATE), on_two(Like((2,)), REPLICATE)
    result, texts = heard(lambda: ttnn.linear(x, weight, bias=bias))
    assert not texts
    assert last_word(result) is SUM


def test_an_average_of_products_takes_a_bias_that_all_devices_share() -> None:
    x, weight, bias = on_two(ROW, Partial("avg")), on_two(MATRIX, REPLICATE), on_two(Like((2,)), REPLICATE)
    result, texts = heard(lambda: ttnn.linear(x, weight, bias=bias))
    assert not texts
    assert last_word(result) is Partial("avg")


# -- what must not go unseen -----------------------------------------------------------------------

SPLIT_BY_INDEX = Like((2, 4), ttnn.uint32, values="below 4")
NOT_LINEAR: dict[str, tuple[str, Callable[[], Any]]] = {
    "the largest turned over is the smallest": ("neg", lambda: ttnn.neg(on_two(ROW, Partial("max")))),
    "factors scaled one by one": ("deg2rad", lambda: ttnn.deg2rad(on_two(ROW, Partial("prod")))),
    "running sums of maxima": ("cumsum", lambda: ttnn.cumsum(on_two(ROW, Partial("max")), 0)),
    "fractions cut off": ("typecast", lambda: ttnn.typecast(on_two(Like((2, 4)), SUM), ttnn.int32)),
    "a filler added by each device": ("pad", lambda: ttnn.pad(on_two(ROW, SUM), [(0, 0), (0, 2)], 1.0)),
    "a number added by each device": ("add", lambda: on_two(ROW, SUM) + 1.0),
    "a residual added by each device": ("add", lambda: on_two(ROW, SUM) + on_two(ROW, REPLICATE)),
    "joined to a whole": ("concat", lambda: ttnn.concat([on_two(ROW, SUM), on_two(ROW, REPLICATE)], 0)),
    "a bias added before an activation": (
        "linear",
        lambda: ttnn.linear(
            on_two(ROW, SUM), on_two(MATRIX, REPLICATE), bias=on_two(Like((2,)), REPLICATE), activation="relu"
        ),
    ),
    "an activation of each product": (
        "matmul",
        lambda: ttnn.matmul(on_two(ROW, Shard(1)), on_two(MATRIX, Shard(0)), activation="relu"),
    ),
    "two sums multiplied": ("multiply", lambda: on_two(ROW, SUM) * on_two(ROW, SUM)),
    "a split divisor": ("div", lambda: on_two(ROW, REPLICATE) / on_two(ROW, SUM)),
    "picked by a split index": (
        "gather",
        lambda: ttnn.gather(on_two(ROW, SUM), 1, on_two(SPLIT_BY_INDEX, Shard(1))),
    ),
    "a weight": (
        "layer_norm",
        lambda: ttnn.layer_norm(on_two(ROW, Shard(0)), weight=on_two(Like((4,)), SUM)),
    ),
    "a residual beside a split weight": (
        "layer_norm",
        lambda: ttnn.layer_norm(
            on_two(ROW, REPLICATE),
            weight=on_two(Like((4,)), Shard(0)),
            residual_input_tensor=on_two(ROW, SUM),
        ),
    ),
    "an input and its residual": (
        "rms_norm",
        lambda: ttnn.rms_norm(on_two(ROW, SUM), residual_input_tensor=on_two(ROW, SUM)),
    ),
    "a residual": (
        "rms_norm_pre_all_gather",
        lambda: ttnn.rms_norm_pre_all_gather(on_two(ROW, REPLICATE), residual_input_tensor=on_two(ROW, SUM)),
    ),
}


@pytest.mark.parametrize("case", NOT_LINEAR)
def test_an_addend_used_as_the_sum_does_not_go_unseen(case: str) -> None:
    name, run = NOT_LINEAR[case]
    result, texts = heard(run)
    assert len(texts) == 1
    assert texts[0].startswith(f"{name}: ")
    assert "all_reduce" in texts[0]
    assert last_word(result) is LOCAL


@pytest.mark.parametrize("operand", ["input_tensor_a", "input_tensor_b", "bias"])
def test_the_warning_names_the_operand_that_is_a_contribution(operand: str) -> None:
    likes = {"input_tensor_a": ROW, "input_tensor_b": MATRIX, "bias": Like((2,), values="whole")}
    tensors = {n: on_two(like, Partial("max") if n == operand else REPLICATE) for n, like in likes.items()}
    _, texts = heard(lambda: ttnn.linear(**tensors))
    assert f"linear: {operand} is still Partial(max)" in texts[0]


@pytest.mark.parametrize("operand", ["input_tensor", "residual_input_tensor"])
def test_the_warning_of_a_norm_names_its_operand(operand: str) -> None:
    residual = on_two(ROW, SUM if operand == "residual_input_tensor" else REPLICATE)
    x = on_two(ROW, SUM if operand == "input_tensor" else REPLICATE)
    _, texts = heard(lambda: ttnn.layer_norm(x, residual_input_tensor=residual))
    assert f"layer_norm: {operand} is still Partial(sum)" in texts[0]


# -- splits that do not survive --------------------------------------------------------------------


def test_a_factor_broadcast_along_its_own_split_leaves_no_split() -> None:
    a, b = on_two(Like((1, 2, 2)), Shard(0)), on_two(Like((3, 2, 2)), REPLICATE)
    assert last_word(ttnn.matmul(a, b)) is LOCAL


def test_a_split_bias_does_not_give_meaning_to_a_meaningless_product() -> None:
    a, b = on_two(ROW, Shard(1)), on_two(Like((4, 4)), REPLICATE)
    assert last_word(ttnn.matmul(a, b)) is LOCAL
    assert last_word(ttnn.linear(a, b, bias=on_two(Like((4,)), Shard(0)))) is LOCAL


def test_a_split_bias_splits_a_shared_product() -> None:
    a, b, bias = on_two(ROW, REPLICATE), on_two(MATRIX, REPLICATE), on_two(Like((2,)), Shard(0))
    assert last_word(ttnn.linear(a, b, bias=bias)) is Shard(1)


SPLITS_IN_TWO_WAYS: dict[str, Callable[[ttnn.Tensor, ttnn.Tensor], Any]] = {
    "add": lambda a, b: a + b,
    "where": lambda a, b: ttnn.where(a, b, 0.0),
    "concat": lambda a, b: ttnn.concat([a, b], 1),
    "matmul": lambda a, b: ttnn.matmul(ttnn.unsqueeze(a, 1), ttnn.unsqueeze(b, 2)),
}


@pytest.mark.parametrize("name", SPLITS_IN_TWO_WAYS)
def test_slices_along_different_mesh_axes_are_different_slices(name: str) -> None:
    a, b = on_four(ROW, (Shard(0), REPLICATE), 1), on_four(ROW, (REPLICATE, Shard(0)), 2)
    assert ttnn.placements(SPLITS_IN_TWO_WAYS[name](a, b)) == (LOCAL, LOCAL)


@pytest.mark.parametrize("word", [Shard(0), Shard(1), SUM])
def test_what_only_some_of_the_devices_compute_is_not_the_whole(word: Placement) -> None:
    mesh = mesh_of((1, 3))
    config = ttnn.MeshMapperConfig([ttnn.PlacementReplicate()], ttnn.MeshShape([2]))
    on_first_two = ttnn.from_torch(
        torch.ones(2, 4),
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.create_mesh_mapper(mesh, config),
    )
    assert on_first_two is not None
    result = placed(mesh, ROW, (REPLICATE, word), 0) + on_first_two
    assert len(result.device_coords()) == 2
    assert ttnn.placements(result) == (LOCAL,)


def test_slices_of_slices_stay_slices() -> None:
    a, b = on_four(ROW, (Shard(0), Shard(0)), 1), on_four(ROW, (Shard(0), REPLICATE), 2)
    assert ttnn.placements(a + b) == (Shard(0), Shard(0))


@pytest.mark.parametrize(
    ("words", "merged"),
    [((Shard(0), Shard(1)), (Shard(0), Shard(0))), ((Shard(1), Shard(0)), (LOCAL, LOCAL))],
)
def test_two_split_dims_merge_only_where_the_outer_axis_splits_the_outer_dim(words: Words, merged: Words) -> None:
    t = on_four(Like((1, 3)), words)
    assert ttnn.placements(ttnn.reshape(t, [3])) == merged
    assert ttnn.placements(ttnn.squeeze(t, 0)) == merged


def test_rows_picked_from_a_longer_shared_table_are_no_slices() -> None:
    table, index = on_two(Like((4, 4)), REPLICATE), on_two(SPLIT_BY_INDEX, Shard(0))
    assert last_word(ttnn.gather(table, 1, index)) is LOCAL


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_largest_of_scaled_values_is_a_contribution_to_the_largest_of_the_whole(name: str) -> None:
    reduce, x = getattr(ttnn, name), on_two(ROW, Shard(1))
    assert last_word(reduce(x, 1, keepdim=True, scalar=2.0)) is Partial(name)
    parts = reduce(x, 1, keepdim=True, scalar=-2.0)
    assert last_word(parts) is Partial(name)
    with pytest.warns(ttnn.PartialWarning):
        reduce(parts, 1, scalar=-2.0)


@pytest.mark.parametrize("name", ["rms_norm_pre_all_gather", "layer_norm_pre_all_gather"])
def test_statistics_follow_the_split_of_a_residual(name: str) -> None:
    stats = getattr(ttnn, name)(on_two(ROW, REPLICATE), residual_input_tensor=on_two(ROW, Shard(0)))
    assert last_word(stats) is Shard(0)


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_a_row_whose_residual_is_split_has_no_norm_as_a_whole(name: str) -> None:
    result = getattr(ttnn, name)(on_two(ROW, REPLICATE), residual_input_tensor=on_two(ROW, Shard(1)))
    assert last_word(result) is LOCAL


def test_statistics_that_were_not_gathered_normalise_no_whole_row() -> None:
    x = on_two(ROW, Shard(1))
    for word, expected in ((REPLICATE, Shard(1)), (Shard(1), LOCAL), (LOCAL, LOCAL)):
        stats = on_two(Like((2, 32), values="positive"), word)
        assert last_word(ttnn.rms_norm_post_all_gather(x, stats)) is expected


def test_a_weight_split_across_its_blocks_is_no_slice_of_the_row() -> None:
    x, stats = on_two(ROW, Shard(1)), on_two(Like((2, 32), values="positive"), REPLICATE)
    for dim, expected in ((0, Shard(1)), (1, LOCAL)):
        weight = on_two(Like((2, 2)), Shard(dim))
        assert last_word(ttnn.rms_norm_post_all_gather(x, stats, weight=weight)) is expected


@pytest.mark.parametrize(
    ("kv_heads", "q_word", "kv_word", "expected"),
    [
        (2, Shard(1), Shard(1), Shard(1)),
        (1, Shard(1), REPLICATE, Shard(1)),
        (2, Shard(1), REPLICATE, LOCAL),  # whole heads 2 and 3 belong to key head 1, here they meet 0 and 1
        (1, REPLICATE, Shard(1), LOCAL),
    ],
)
def test_split_query_heads_are_slices_only_beside_their_own_key_heads(
    kv_heads: int, q_word: Placement, kv_word: Placement, expected: Placement
) -> None:
    key = Like((1, kv_heads, 4, 8))
    q = on_two(Like((1, 2, 4, 8)), q_word)
    result = ttnn.transformer.scaled_dot_product_attention(q, on_two(key, kv_word), on_two(key, kv_word))
    assert last_word(result) is expected
    one_token = ttnn.permute(q, [0, 2, 1, 3])[:, :1]  # [1, users, heads, width]
    step = ttnn.transformer.scaled_dot_product_attention_decode(
        one_token, on_two(key, kv_word), on_two(key, kv_word), cur_pos=[3]
    )
    assert last_word(step) is (Shard(2) if expected is Shard(1) else expected)


# -- uneven splits ---------------------------------------------------------------------------------


def uneven(shape: Sequence[int], dim: int) -> ttnn.Tensor:
    mesh = mesh_of((1, 2))
    with ttnn.lenient():
        made = ttnn.from_torch(
            draw_values(tuple(shape), "whole", 0),
            ttnn.float32,
            layout=ttnn.TILE_LAYOUT,
            device=mesh,
            mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim),
        )
    assert made is not None
    return made


def test_a_mesh_axis_of_one_device_is_never_split() -> None:
    assert ttnn.placements(uneven((2, 3), 1)) == (REPLICATE, Shard(1, 3))


def test_a_weight_of_an_uneven_number_of_blocks_is_no_slice_of_the_row() -> None:
    x, stats = on_two(ROW, Shard(1)), on_two(Like((2, 32), values="positive"), REPLICATE)
    normalised = ttnn.rms_norm_post_all_gather(x, stats, weight=uneven((3, 2), 0))
    assert last_word(normalised) is LOCAL
    alone = ttnn.rms_norm_post_all_gather(on_two(ROW, REPLICATE), stats, weight=uneven((3, 2), 0))
    assert last_word(alone) is LOCAL


def test_contributions_are_never_made_of_filler() -> None:
    vector, matrix = uneven((1, 1, 1, 5), 3), uneven((2, 5), 1)
    filled = ttnn.exp(vector)  # the filler, 0, is now 1
    for run in (
        lambda: ttnn.moreh_dot(filled, filled),
        lambda: ttnn.sum(filled, 3),
        lambda: ttnn.mean(filled),
        lambda: ttnn.matmul(matrix, matrix, transpose_b=True),
        lambda: ttnn.matmul(matrix, on_two(Like((3, 2)), Shard(0))),
        lambda: ttnn.matmul(on_two(Like((2, 3)), Shard(1)), ttnn.transpose(matrix, 0, 1)),
    ):
        with pytest.raises(ttnn.MeshError, match="split unevenly"):
            run()


# -- pieces taken apart and put together -----------------------------------------------------------

words_of_two = st.sampled_from([REPLICATE, Shard(0), Shard(1), SUM, Partial("max")])


@LAWS
@given(st.tuples(words_of_two, words_of_two))
def test_shards_put_together_again_claim_nothing_that_was_not_true_before(words: Words) -> None:
    ops = {word.op for word in words if isinstance(word, Partial)}
    words = words if len(ops) < 2 else (words[0], REPLICATE)
    t = on_four(ROW, words)
    again = ttnn.combine_device_tensors(tensors=ttnn.get_device_tensors(t))
    assert torch.equal(again.pieces(), t.pieces())
    if LOCAL in ttnn.placements(again):
        return
    with quietly():
        assert torch.equal(ttnn.compose(again), ttnn.compose(t))


@LAWS
@given(st.tuples(words_of_two, words_of_two), st.integers(0, 3))
def test_a_value_written_to_one_device_is_no_contribution(words: Words, position: int) -> None:
    ops = {word.op for word in words if isinstance(word, Partial)}
    words = words if len(ops) < 2 else (words[0], REPLICATE)
    t = on_four(ROW, words)
    host = ttnn.from_torch(torch.ones(2, 4), ttnn.float32, layout=ttnn.TILE_LAYOUT)
    assert host is not None
    ttnn.copy_host_to_device_tensor(host, ttnn.get_device_tensors(t)[position])
    assert ttnn.placements(t) == tuple(w if isinstance(w, Shard) else LOCAL for w in words)


@pytest.mark.parametrize("word", [REPLICATE, Shard(0), Shard(1), SUM, LOCAL])
def test_a_tensor_meets_one_of_its_shards_on_that_shards_device(word: Any) -> None:
    t = on_two(ROW, word)
    for shard in ttnn.get_device_tensors(t):
        doubled = t + shard
        assert doubled.device_coords() == shard.device_coords()
        assert torch.equal(doubled.pieces(), 2 * shard.pieces())


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1), (1, 3), (2, 3)])
def test_the_number_of_devices_does_not_change_what_a_reduction_over_all_of_them_means(
    shape: tuple[int, int],
) -> None:
    x = draw_values((4, 6), "whole", 1)
    mesh = mesh_of(shape)
    t = ttnn.from_torch(x, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 1))
    with quietly():
        assert float(ttnn.compose(ttnn.sum(t))) == float(x.sum())
        assert float(ttnn.compose(ttnn.max(t))) == float(x.max())
        assert torch.equal(ttnn.compose(ttnn.sum(t, 1)), x.sum(1))
