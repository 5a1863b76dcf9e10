"""Gates, sparse products, sums and packed weights of a mixture of experts, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from operands import LOCAL, R, S, put, random

import softmesh as ttnn

TILE, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
GATES = ttnn.experimental.deepseek.moe
UTILS = ttnn.experimental.moe_compute_utils


def back(tensor: ttnn.Tensor) -> torch.Tensor:
    """The value of the whole mesh, along the dims that it is split by."""
    return ttnn.compose(tensor)


def shard(tensor: ttnn.Tensor, device: int = 0) -> torch.Tensor:
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[device])


# -- gates -----------------------------------------------------------------------------------------


def weight_of_expert_0(x: torch.Tensor, experts: torch.Tensor, among: torch.Tensor, k: int) -> torch.Tensor:
    best = (x + experts).topk(k, -1)
    return (torch.softmax(best.values + among, -1) * (best.indices == 0)).sum(-1, keepdim=True)


@pytest.mark.parametrize("words", [(R, R), (S(0), R), (R, S(2)), (S(2), S(2))], ids=str)
@pytest.mark.parametrize("k", [4, 32])
def test_moe_is_the_weight_of_the_first_expert(mesh, words, k):
    x = random(2, 1, 64, 64)
    experts, among = torch.zeros(1, 1, 1, 64), torch.zeros(1, 1, 1, k)
    experts[..., 60:], among[..., 2:] = -torch.inf, -torch.inf
    got = ttnn.moe(put(x, mesh, words), put(experts, mesh), put(among, mesh), k)
    assert got.dtype is ttnn.float32
    torch.testing.assert_close(back(got), weight_of_expert_0(x, experts, among, k))
    assert ttnn.placements(got) == words


def test_moe_over_experts_that_are_split_has_no_value_for_the_whole(mesh):
    x, masks = random(1, 1, 32, 64), (torch.zeros(1, 1, 1, 32), torch.zeros(1, 1, 1, 8))
    got = ttnn.moe(put(x, mesh, (S(3), R)), *(put(mask, mesh) for mask in masks), k=8)
    assert ttnn.placements(got) == (LOCAL, R)


def test_moe_writes_into_the_tensor_that_is_given(device):
    x, experts, among = random(1, 1, 32, 64), torch.zeros(1, 1, 1, 64), torch.zeros(1, 1, 1, 32)
    out = ttnn.from_torch(torch.zeros(1, 1, 32, 1), dtype=ttnn.float32, layout=TILE, device=device)
    assert ttnn.moe(put(x, device), put(experts, device), put(among, device), output_tensor=out) is out
    torch.testing.assert_close(ttnn.to_torch(out), weight_of_expert_0(x, experts, among, 32))


def test_moe_says_which_k_it_can_take(device):
    x = put(random(1, 1, 32, 64), device)
    with pytest.raises(RuntimeError, match=r"k=65 must be between 1 and 64"):
        ttnn.moe(x, x, x, 65)
    with pytest.raises(RuntimeError, match=r"topk_mask_tensor \[1, 1, 32, 64\] must have k=32 columns"):
        ttnn.moe(x, x, x)


def grouped(scores: torch.Tensor, bias: torch.Tensor, groups: int, counted: int, kept: int, k: int) -> torch.Tensor:
    """The chosen experts, row by row."""
    found = []
    for row in (scores + bias).reshape(-1, scores.shape[-1]):
        parts = row.reshape(groups, -1)
        strength = torch.stack([part.sort(descending=True).values[:counted].sum() for part in parts])
        allowed = strength.sort(descending=True).indices[:kept]
        size = parts.shape[1]
        members = torch.cat([torch.arange(int(g) * size, (int(g) + 1) * size) for g in allowed])
        found.append(members[row[members].sort(descending=True).indices[:k]])
    return torch.stack(found).reshape(*scores.shape[:-1], k)


@pytest.mark.parametrize("words", [(R, R), (S(2), R), (S(1), S(2))], ids=str)
def test_the_grouped_gate_takes_the_best_experts_of_the_best_groups(mesh, words):
    x, bias = random(1, 2, 32, 64), random(64).reshape(1, 1, 1, 64)
    weights, indices = ttnn.experimental.deepseek_grouped_gate(
        put(x, mesh, words),
        put(bias, mesh),
        n_groups=4,
        topk_groups=2,
        n_activated_experts=6,
        route_scale=2.0,
    )
    plain = torch.sigmoid(x)
    wanted = grouped(plain, bias, 4, 2, 2, 6)
    assert torch.equal(back(indices).long(), wanted)
    assert indices.dtype is ttnn.uint16
    chosen = plain.gather(-1, wanted)
    torch.testing.assert_close(back(weights), 2.0 * chosen / chosen.sum(-1, keepdim=True))
    assert ttnn.placements(weights) == ttnn.placements(indices) == words


def test_the_grouped_gate_names_sizes_that_do_not_fit(device):
    x = put(random(1, 1, 32, 64), device)
    with pytest.raises(RuntimeError, match="64 experts cannot form 7 groups"):
        ttnn.experimental.deepseek_grouped_gate(x, x, n_groups=7)
    with pytest.raises(RuntimeError, match="of those 50 experts cannot be taken"):
        ttnn.experimental.deepseek_grouped_gate(x, x, n_activated_experts=50)


def gate_operands(mesh: ttnn.MeshDevice, tokens: int, turned: bool, words: Any = (R, R)) -> tuple[Any, ...]:
    """Scores and biases of 256 experts for each token; biases and numbers may stand in another order."""
    x, bias = random(tokens, 256).bfloat16().float(), random(tokens, 257)[:, :256].bfloat16().float()
    places = torch.arange(256).reshape(16, 16)
    order = places.T.flatten() if turned else places.flatten()
    ids = order.expand(tokens, 256)
    pieces = [
        put(x.reshape(tokens, 16, 16), mesh, words, ttnn.bfloat16),
        put(bias.gather(1, ids).reshape(tokens, 16, 16), mesh, words, ttnn.bfloat16),
        put(ids.reshape(tokens, 16, 16).int(), mesh, words, ttnn.uint16),
        put(torch.ones(tokens, 1, 16), mesh, words, ttnn.bfloat16),
        put(torch.ones(tokens, 1, 16).int(), mesh, words, ttnn.uint16),
    ]
    names = ("input_tensor", "bias_tensor", "input_indices_tensor", "output_tensor", "output_indices_tensor")
    return x, bias, dict(zip(names, pieces, strict=True))


@pytest.mark.parametrize("turned", [False, True], ids=["in order", "transposed"])
@pytest.mark.parametrize("words", [(R, R), (S(0), R), (S(0), S(0))], ids=str)
def test_the_gate_of_deepseek_fills_its_output_tensors(mesh, turned, words):
    x, bias, operands = gate_operands(mesh, 8, turned, words)
    weights, indices = GATES.deepseek_moe_gate(**operands, enable_sigmoid=True)
    assert weights is operands["output_tensor"]
    assert indices is operands["output_indices_tensor"]
    plain = torch.sigmoid(x)
    wanted = grouped(plain, bias, 8, 2, 4, 8)
    assert torch.equal(back(indices)[:, 0, :8].long(), wanted)
    chosen = plain.gather(-1, wanted)
    shares = 2.5 * chosen / chosen.sum(-1, keepdim=True)
    torch.testing.assert_close(back(weights)[:, 0, :8].float(), shares, atol=0.01, rtol=0.01)
    assert not back(weights)[:, 0, 8:].any()
    assert ttnn.placements(weights) == words


def test_an_output_that_all_devices_shared_comes_apart_where_their_tokens_differ(mesh):
    x, bias, operands = gate_operands(mesh, 8, False, (S(0), S(0)))
    _, _, shared = gate_operands(mesh, 1, False)
    outputs = {name: shared[name] for name in ("output_tensor", "output_indices_tensor")}
    _, indices = GATES.deepseek_moe_gate(**{**operands, **outputs}, enable_sigmoid=True)
    wanted = grouped(torch.sigmoid(x), bias, 8, 2, 4, 8)
    for device in range(8):
        assert torch.equal(shard(indices, device)[0, 0, :8].long(), wanted[device])


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("in_groups", [False, True])
def test_the_general_gate_takes_any_number_of_experts(device, softmax, in_groups):
    x, bias, operands = gate_operands(device, 3, False)
    weights, indices = GATES.generalized_moe_gate(
        **operands,
        topk=5,
        scaling_factor=1.0,
        output_softmax=softmax,
        grouped=in_groups,
        enable_sigmoid=not softmax,
    )
    plain = x if softmax else torch.sigmoid(x)
    wanted = grouped(plain, bias, *((8, 2, 4) if in_groups else (1, 1, 1)), 5)
    assert torch.equal(ttnn.to_torch(indices)[:, 0, :5].long(), wanted)
    chosen = plain.gather(-1, wanted)
    shares = torch.softmax(chosen, -1) if softmax else chosen / chosen.sum(-1, keepdim=True)
    torch.testing.assert_close(ttnn.to_torch(weights)[:, 0, :5].float(), shares, atol=0.01, rtol=0.01)


def test_gates_refuse_outputs_without_room_and_indices_that_are_no_integers(device):
    _, _, operands = gate_operands(device, 2, False)
    with pytest.raises(RuntimeError, match=r"output_tensor .* must have room for 17 values"):
        GATES.generalized_moe_gate(**operands, topk=17)
    with pytest.raises(RuntimeError, match="hold integers"):
        GATES.deepseek_moe_gate(**{**operands, "input_indices_tensor": operands["bias_tensor"]})


# -- sparse products -------------------------------------------------------------------------------


def blocks(a: torch.Tensor, b: torch.Tensor, marks: torch.Tensor, of_a: bool, of_b: bool) -> torch.Tensor:
    """One product at a time."""
    experts, width = b.shape[1], b.shape[3]
    if not of_a:
        result = torch.zeros(*a.shape[:2], 1, experts, a.shape[2], width)
        for i, j, _, e in marks.nonzero().tolist():
            result[i, j, 0, e] = a[i, j] @ b[0, e]
        return result
    result = torch.zeros(a.shape[0], experts, a.shape[2], width)
    for _, _, i, e in marks.nonzero().tolist():
        result[i, e] = a[i, e] @ b[0, e]
    return result


FORMS = {  # a, sparsity: for 4 experts
    (False, True): ((2, 3, 32, 64), (2, 3, 1, 4)),
    (True, True): ((1, 4, 32, 64), (1, 1, 1, 4)),
    (True, False): ((3, 4, 32, 64), (1, 1, 3, 4)),
}


def some_marks(shape: tuple[int, ...], share: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape) + int(10 * share))
    marks = (torch.rand(shape, generator=generator) < share) * torch.rand(shape, generator=generator)
    marks.flatten()[0] = 0.5
    return marks.bfloat16().float()


@pytest.mark.parametrize("share", [0.2, 0.9])
@pytest.mark.parametrize("form", sorted(FORMS))
def test_sparse_matmul_computes_the_marked_blocks(device, form, share):
    a_shape, marks_shape = FORMS[form]
    a, b, marks = random(*a_shape), random(1, 4, 64, 32), some_marks(marks_shape, share)
    got = ttnn.sparse_matmul(
        put(a, device),
        put(b, device),
        sparsity=put(marks, device, dtype=ttnn.bfloat16, layout=ROWS),
        nnz=int((marks != 0).sum()),
        is_input_a_sparse=form[0],
        is_input_b_sparse=form[1],
        program_config=None,
    )
    torch.testing.assert_close(ttnn.to_torch(got), blocks(a, b, marks, *form), atol=1e-4, rtol=1e-4)


def test_sparse_matmul_adds_a_bias_to_the_blocks_it_computes_and_honours_dtype_and_output(device):
    a, b, bias = random(1, 2, 32, 64), random(1, 4, 64, 32), random(1, 4, 1, 32)
    marks = torch.tensor([[1.0, 0, 0, 0], [0, 0, 2.0, 0]]).reshape(1, 2, 1, 4)
    out = ttnn.from_torch(torch.ones(1, 2, 1, 4, 32, 32), dtype=ttnn.bfloat16, layout=TILE, device=device)
    got = ttnn.sparse_matmul(
        put(a, device),
        put(b, device),
        sparsity=put(marks, device, layout=ROWS),
        bias=put(bias, device),
        optional_output_tensor=out,
    )
    assert got is out
    wanted = blocks(a, b, marks, False, True)
    wanted[0, 0, 0, 0] += bias[0, 0]
    wanted[0, 1, 0, 2] += bias[0, 2]
    torch.testing.assert_close(ttnn.to_torch(got).float(), wanted.bfloat16().float(), atol=0.05, rtol=0.02)
    assert not ttnn.to_torch(got)[0, 0, 0, 1].any()


def test_an_output_of_sparse_matmul_may_have_places_for_the_computed_blocks_alone(pair):
    a, b = random(1, 3, 32, 64), random(1, 4, 64, 32)
    marks = torch.zeros(1, 3, 1, 4)
    marks[0, [0, 1, 2], 0, [3, 1, 2]] = 1.0
    given = {"sparsity": put(marks, pair, dtype=ttnn.bfloat16, layout=ROWS), "nnz": 3}
    operands = [put(a, pair), put(b, pair)]

    def into(*shape: int, **more: Any) -> ttnn.Tensor:
        target = ttnn.from_torch(torch.full(shape, 9.0), layout=TILE, device=pair, tile=more.pop("tile", None))
        return ttnn.sparse_matmul(*operands, optional_output_tensor=target, **(given | more))

    wanted = torch.stack([a[0, 0] @ b[0, 3], a[0, 1] @ b[0, 1], a[0, 2] @ b[0, 2]]).unsqueeze(0)
    torch.testing.assert_close(back(into(1, 3, 32, 32)), wanted, atol=1e-4, rtol=1e-4)
    whole = blocks(a, b, marks, False, True)
    torch.testing.assert_close(back(into(1, 3, 1, 4, 32, 32)), whole, atol=1e-4, rtol=1e-4)
    ids = ttnn.from_torch(torch.tensor([[[[2, 0]]]]), ttnn.uint16, layout=ROWS, device=pair)
    for shape, more, text in (
        ((1, 3, 32, 64), {}, r"Optional output tensor shape \[1, 3, 32, 64\] must match"),
        ((1, 3, 32, 32), {"nnz": None}, "when nnz is not provided"),
        ((1, 3, 1, 4, 32, 32), {"nnz": None, "indices": ids}, "must match the indexed output shape"),
        ((1, 3, 32, 32), {"tile": ttnn.Tile((16, 32))}, r"tile height \(16\) must equal to the in0 tile height \(32\)"),
    ):
        with pytest.raises(RuntimeError, match=text):
            into(*shape, **more)


@pytest.mark.parametrize(
    ("a", "b", "marks", "result"),
    [
        ((R, S(0)), (R, R), (R, S(0)), (R, S(0))),
        ((R, R), (R, S(1)), (R, S(3)), (R, S(3))),
        ((R, R), (S(3), R), (R, R), (S(5), R)),
        ((R, S(3)), (R, S(2)), (R, R), (R, ttnn.Partial("sum"))),
        ((S(2), R), (R, S(1)), (R, S(3)), (S(4), S(3))),
    ],
    ids=["tokens", "experts", "columns", "the summed dim", "rows and experts"],
)
def test_sparse_matmul_on_a_mesh_is_a_part_of_the_whole(mesh, a, b, marks, result):
    x, y, chosen = random(4, 1, 64, 128), random(1, 8, 128, 64), some_marks((4, 1, 1, 8), 0.3)
    got = ttnn.sparse_matmul(put(x, mesh, a), put(y, mesh, b), sparsity=put(chosen, mesh, marks, ttnn.bfloat16, ROWS))
    assert ttnn.placements(got) == result
    if isinstance(result[1], ttnn.Partial):
        total = sum(shard(got, device) for device in range(4))
    else:
        total = back(got)
    torch.testing.assert_close(total, blocks(x, y, chosen, False, True), atol=1e-3, rtol=1e-3)


def test_sparse_matmul_refuses_what_would_hang_or_mean_nothing(device):
    a, b = put(random(1, 2, 32, 64), device), put(random(1, 4, 64, 32), device)
    marks = put(torch.ones(1, 2, 1, 4), device, layout=ROWS)
    with pytest.raises(RuntimeError, match=r"nnz=3, and sparsity has \[8\] entries"):
        ttnn.sparse_matmul(a, b, sparsity=marks, nnz=3)
    with pytest.raises(RuntimeError, match=r"must be that of \[1, 2, 1, 4\]"):
        ttnn.sparse_matmul(a, b, sparsity=put(torch.ones(1, 1, 1, 4), device, layout=ROWS))
    with pytest.raises(RuntimeError, match=r"to be true; ttnn\.matmul"):
        ttnn.sparse_matmul(a, b, sparsity=marks, is_input_b_sparse=False)
    with pytest.raises(RuntimeError, match="width of the first tensor must be equal"):
        ttnn.sparse_matmul(b, b, sparsity=marks, is_input_a_sparse=True)


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(R, R), (S(2), R), (R, S(0)), (S(0), S(2))], ids=str)
@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=str)
def test_fast_reduce_adds_up_and_cuts(mesh, words, dtype):
    x = random(4, 1, 128, 96)
    got = ttnn.experimental.deepseek_moe_fast_reduce_nc(put(x, mesh, words, dtype), 0, split_size=32)
    assert len(got) == 3
    wanted = x.to(torch.bfloat16 if dtype is ttnn.bfloat16 else torch.float32).float().sum(0, keepdim=True)
    for piece, one in zip(got, wanted.split(32, -1), strict=True):
        is_whole = not any(isinstance(word, ttnn.Partial) for word in ttnn.placements(piece))
        assert is_whole is (S(0) not in words)
        assert piece.dtype is dtype
        if is_whole:
            torch.testing.assert_close(back(piece).float(), one, atol=0.05, rtol=0.02)


def test_fast_reduce_refuses_pieces_that_do_not_come_out_even(device):
    x = put(random(4, 1, 32, 96), device)
    with pytest.raises(RuntimeError, match="split_size=40 must divide the last dim"):
        ttnn.experimental.deepseek_moe_fast_reduce_nc(x, 0, split_size=40)
    with pytest.raises(RuntimeError, match="must lie in front of the last two"):
        ttnn.experimental.deepseek_moe_fast_reduce_nc(x, 2, split_size=32)


def test_rows_that_were_combined_become_tiles(mesh):
    x = random(8, 3, 64)
    config = ttnn.L1_MEMORY_CONFIG
    got = ttnn.experimental.deepseek_moe_post_combine_tilize(
        put(x, mesh, (S(0), R), layout=ROWS), output_memory_config=config
    )
    assert got.layout is TILE
    assert got.memory_config() == config
    assert torch.equal(back(got), x)
    with pytest.raises(RuntimeError, match="takes ROW_MAJOR"):
        ttnn.experimental.deepseek_moe_post_combine_tilize(got, output_memory_config=config)
