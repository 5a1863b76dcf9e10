"""Layers split over a mesh: outputs and gradients are those of one device, on every mesh and for every placement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import torch
from small_models import opened

import softmesh as ttnn
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.placement.placements import Partial
from softmesh.train import (
    MLP,
    ColumnParallelLinear,
    Embedding,
    Initial,
    LayerNorm,
    Linear,
    Module,
    MultiHeadAttention,
    RMSNorm,
    RowParallelLinear,
    TransformerBlock,
    VocabParallelEmbedding,
    broadcast,
    cross_entropy,
    mse_loss,
    on_mesh,
    parameter,
    sync_gradients,
    vocab_parallel_cross_entropy,
)
from softmesh.train.axes import Axis
from softmesh.train.equivalence.values import Value, whole

BATCH, TOKENS, FEATURES, HEADS, ROWS = 8, 4, 16, 8, 32
MESHES = {
    (1, 8): ("dp", "tp"),
    (2, 2, 2): ("dp", "cp", "tp"),
    (2, 4): ("dp", "tp"),
    (4, 2): ("dp", "tp"),
    (8, 1): ("dp", "tp"),
}
Splits = dict[Axis, int]
Results = dict[str, torch.Tensor]


class Logits(Module):
    """A split vocabulary, trained itself."""

    def __init__(self, mesh: ttnn.MeshDevice, initial: Initial) -> None:
        values = initial.normal(1, 1, TOKENS, ROWS, std=1.0)
        self.weight = parameter(values, mesh, {"tp": 3}, initial.dtype)

    def forward(self, x: ttnn.Tensor) -> ttnn.Tensor:
        chance = torch.Generator().manual_seed(3)
        targets = torch.randint(0, ROWS, (BATCH, TOKENS), generator=chance, dtype=torch.int32)
        mesh = x.device()
        each = ttnn.multiply(ttnn.sum(broadcast(x, "tp"), dim=-1, keepdim=True), 0.1)
        logits = ttnn.add(each, self.weight)
        return vocab_parallel_cross_entropy(logits, on_mesh(targets, mesh, {"dp": 0}, ttnn.uint32), "tp")


class Case(NamedTuple):
    build: Callable[[ttnn.MeshDevice, Initial], Module]
    x: Splits = {}  # beside the rows of the batch
    out: Splits = {}
    ids: bool = False


CASES: dict[str, Case] = {
    "attention": Case(lambda mesh, i: MultiHeadAttention(mesh, FEATURES, HEADS, i, tp="tp")),
    "block": Case(lambda mesh, i: TransformerBlock(mesh, FEATURES, HEADS, i, tp="tp")),
    "column": Case(lambda mesh, i: ColumnParallelLinear(mesh, FEATURES, 32, i, axis="tp"), out={"tp": 3}),
    "column gathered": Case(lambda mesh, i: ColumnParallelLinear(mesh, FEATURES, 32, i, axis="tp", gather_output=True)),
    "column without bias": Case(
        lambda mesh, i: ColumnParallelLinear(mesh, FEATURES, 32, i, axis="tp", bias=False), out={"tp": 3}
    ),
    "embedding": Case(lambda mesh, i: Embedding(mesh, ROWS, FEATURES, i, std=1.0), ids=True),
    "layer norm": Case(lambda mesh, i: LayerNorm(mesh, FEATURES, i)),
    "linear": Case(lambda mesh, i: Linear(mesh, FEATURES, 32, i)),
    "mlp": Case(lambda mesh, i: MLP(mesh, FEATURES, 32, i, tp="tp")),
    "rms norm": Case(lambda mesh, i: RMSNorm(mesh, FEATURES, i)),
    "row": Case(lambda mesh, i: RowParallelLinear(mesh, FEATURES, 32, i, axis="tp"), x={"tp": 3}),
    "row of whole input": Case(
        lambda mesh, i: RowParallelLinear(mesh, FEATURES, 32, i, axis="tp", input_is_parallel=False)
    ),
    "vocabulary": Case(lambda mesh, i: VocabParallelEmbedding(mesh, ROWS, FEATURES, i, axis="tp", std=1.0), ids=True),
    "vocabulary loss": Case(Logits),
}


def run(case: Case, mesh: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.float32) -> Results:
    """The output, and the gradients of parameters and input, for one given gradient of the output."""
    module, x = case.build(mesh, Initial(5, dtype)), entering(case, mesh, dtype)
    out = module(x)
    if out.logical_volume() == 1:
        out.backward()
    else:
        shape = [int(n) for n in whole("out", Value.of(out)).shape]
        given = torch.randn(shape, generator=torch.Generator().manual_seed(8))
        out.backward(on_mesh(given, mesh, {"dp": 0, **case.out}, dtype, ttnn.TILE_LAYOUT))
    sync_gradients(module, ["dp"], average=out.logical_volume() == 1)
    leaves = dict(module.named_parameters())
    if not case.ids:
        leaves["x"] = x
    found = {name: combined(name, leaf.grad) for name, leaf in leaves.items()}
    return {"out": averaged(out), **found}


def entering(case: Case, mesh: ttnn.MeshDevice, dtype: ttnn.DataType) -> ttnn.Tensor:
    chance = torch.Generator().manual_seed(7)
    if case.ids:
        ids = torch.randint(0, ROWS, (BATCH, TOKENS), generator=chance, dtype=torch.int32)
        return on_mesh(ids, mesh, {"dp": 0}, ttnn.uint32)
    values = torch.randn(BATCH, 1, TOKENS, FEATURES, generator=chance)
    return on_mesh(values, mesh, {"dp": 0, **case.x}, dtype, ttnn.TILE_LAYOUT).requires_grad_()


def combined(name: str, gradient: ttnn.Tensor | None) -> torch.Tensor:
    assert gradient is not None, name
    assert not any(isinstance(word, Partial) for word in ttnn.placements(gradient)), (
        name,
        ttnn.placements(gradient),
    )
    return whole(name, Value.of(gradient)).float()


def averaged(out: ttnn.Tensor) -> torch.Tensor:
    return out.pieces().mean().detach() if out.logical_volume() == 1 else whole("out", Value.of(out)).float()


@pytest.fixture(scope="module")
def alone() -> dict[str, Results]:
    """What one device computes."""
    with opened(1, 1) as mesh:
        return {name: run(case, mesh) for name, case in CASES.items()}


@pytest.fixture(scope="module", params=MESHES, ids=lambda shape: "x".join(map(str, shape)))
def grid(request: pytest.FixtureRequest, alone: dict[str, Results]) -> Iterator[ttnn.MeshDevice]:
    names = ("dp", "cp", "tp") if len(request.param) == 3 else ("dp", "tp")
    with opened(*request.param, names=names) as mesh:
        yield mesh


on_2x4 = pytest.mark.parametrize("grid", [(2, 4)], indirect=True, ids=["2x4"])


def assert_close(found: Results, expected: Results, tolerance: float) -> None:
    """To within a share of the largest of all gradients; gradients of split losses are of each loss."""
    assert sorted(found) == sorted(expected)
    scale = max(float(values.abs().max()) for values in expected.values())
    for name, values in found.items():
        assert values.shape == expected[name].shape, name
        error = float((values - expected[name]).abs().max())
        assert error <= tolerance * scale, f"{name} is off by {error / scale:.1e}"


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_layer_and_its_gradients_are_those_of_one_device(
    grid: ttnn.MeshDevice, alone: dict[str, Results], name: str
) -> None:
    found = run(CASES[name], grid)
    if name == "vocabulary loss":  # each group of devices along dp has a loss of its own, of fewer rows
        found["x"] = found["x"] / grid.shape[0]
    assert_close(found, alone[name], 1e-6)


@on_2x4
@pytest.mark.parametrize("name", sorted(set(CASES) - {"vocabulary loss"}))
def test_bfloat16_stays_within_its_rounding(grid: ttnn.MeshDevice, alone: dict[str, Results], name: str) -> None:
    assert_close(run(CASES[name], grid, ttnn.bfloat16), alone[name], 3e-2)


@on_2x4
def test_a_block_has_the_gradients_that_torch_gives_it(grid: ttnn.MeshDevice) -> None:
    found = run(CASES["block"], grid)
    block = CASES["block"].build(grid, Initial(5))
    leaves = {
        name: whole(name, Value.of(tensor)).detach().clone().requires_grad_()
        for name, tensor in block.named_parameters()
    }
    x = whole("x", Value.of(entering(CASES["block"], grid, ttnn.float32))).detach().clone().requires_grad_()
    out = block_in_torch(leaves, x)
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(8)))
    expected = {"out": out.detach(), "x": x.grad, **{name: leaf.grad for name, leaf in leaves.items()}}
    assert_close(found, expected, 1e-5)


def leaf_of(tensor: ttnn.Tensor) -> torch.Tensor:
    return whole("a leaf", Value.of(tensor)).detach().clone().requires_grad_()


def block_in_torch(p: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    def linear(name: str, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(y, p[f"{name}.weight"][0, 0], p[f"{name}.bias"].flatten())

    def norm(name: str, y: torch.Tensor) -> torch.Tensor:
        weight, bias = p[f"{name}.weight"].flatten(), p[f"{name}.bias"].flatten()
        return torch.nn.functional.layer_norm(y, (FEATURES,), weight, bias, 1e-5)

    y = norm("norm_1", x)
    by_head = linear("attention.asking", y).reshape(BATCH, TOKENS, HEADS, 3, -1).transpose(1, 2)
    attended = torch.nn.functional.scaled_dot_product_attention(*by_head.unbind(-2), is_causal=True)
    x = x + linear("attention.out", attended.transpose(1, 2).reshape(x.shape))
    return x + linear("mlp.down", torch.nn.functional.gelu(linear("mlp.up", norm("norm_2", x))))


@on_2x4
def test_models_of_one_seed_start_out_the_same_whole_and_split(grid: ttnn.MeshDevice) -> None:
    split = TransformerBlock(grid, FEATURES, HEADS, Initial(1), tp="tp")
    same = TransformerBlock(grid, FEATURES, HEADS, Initial(1))
    for (name, a), (_, b) in zip(split.named_parameters(), same.named_parameters(), strict=True):
        assert torch.equal(whole(name, Value.of(a)), whole(name, Value.of(b))), name


@on_2x4
def test_cross_entropy_is_torchs_mean_over_each_devices_rows(grid: ttnn.MeshDevice) -> None:
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(BATCH, 1, TOKENS, ROWS, generator=chance)
    targets = torch.randint(0, ROWS, (BATCH, TOKENS), generator=chance, dtype=torch.int32)
    given = on_mesh(logits, grid, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT).requires_grad_()
    loss = cross_entropy(given, on_mesh(targets, grid, {"dp": 0}, ttnn.uint32))
    loss.backward()
    halves = [
        torch.nn.functional.cross_entropy(a.reshape(-1, ROWS), b.reshape(-1).long())
        for a, b in zip(logits.chunk(2), targets.chunk(2), strict=True)
    ]
    assert torch.allclose(loss.pieces(), torch.stack(halves).repeat_interleave(4))
    leaf = logits.clone().requires_grad_()
    torch.nn.functional.cross_entropy(leaf.reshape(-1, ROWS), targets.reshape(-1).long()).backward()
    assert torch.allclose(combined("logits", given.grad) / 2, leaf.grad, atol=1e-7)


@on_2x4
def test_mean_squares_are_torchs(grid: ttnn.MeshDevice) -> None:
    a, b = torch.randn(2, 4, 1, 4, 8, generator=torch.Generator().manual_seed(0))
    ours = [on_mesh(values, grid, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT) for values in (a, b)]
    ours[0].requires_grad_()
    loss = mse_loss(*ours)
    loss.backward()
    assert math.isclose(float(loss.pieces().detach().mean()), float(torch.nn.functional.mse_loss(a, b)), rel_tol=1e-6)
    assert torch.allclose(combined("a", ours[0].grad) / 2, 2 * (a - b) / a.numel(), atol=1e-7)


@on_2x4
def test_what_does_not_divide_is_refused_by_name(grid: ttnn.MeshDevice) -> None:
    i = Initial()
    with pytest.raises(MeshError, match="ColumnParallelLinear: out_features: 30 does not divide among the 4 devices"):
        ColumnParallelLinear(grid, 16, 30, i, axis="tp")
    with pytest.raises(MeshError, match=r"RowParallelLinear: in_features: 18 does not divide .* Use a multiple of 4"):
        RowParallelLinear(grid, 18, 16, i, axis="tp")
    with pytest.raises(MeshError, match="VocabParallelEmbedding: rows: 33 does not divide"):
        VocabParallelEmbedding(grid, 33, 16, i, axis="tp")
    with pytest.raises(MeshError, match="MultiHeadAttention: heads: 6 does not divide"):
        MultiHeadAttention(grid, 48, 6, i, tp="tp")
    with pytest.raises(MeshError, match="MultiHeadAttention: 16 features do not divide among 3 heads"):
        MultiHeadAttention(grid, 16, 3, i)


@on_2x4
def test_axes_that_are_not_there_are_refused_with_those_that_are(grid: ttnn.MeshDevice) -> None:
    with pytest.raises(ArgumentValueError, match=r"'pp': the axes of .* are 'dp', 'tp'"):
        ColumnParallelLinear(grid, 16, 32, Initial(), axis="pp")
    with pytest.raises(ArgumentValueError, match=r"Mesh axis 2: .* has the axes 0 to 1"):
        RowParallelLinear(grid, 16, 32, Initial(), axis=2)
    with pytest.raises(ArgumentError, match="axis must be an int or a string, got True"):
        VocabParallelEmbedding(grid, 16, 32, Initial(), axis=True)


@on_2x4
def test_axes_without_names_are_asked_to_be_named(grid: ttnn.MeshDevice) -> None:
    names, grid.axis_names = grid.axis_names, None
    try:
        with pytest.raises(ArgumentValueError, match=r"mesh\.axis_names = \('dp', 'tp'\)"):
            MLP(grid, 16, 32, Initial(), tp="tp")
    finally:
        grid.axis_names = names


@on_2x4
def test_losses_refuse_what_they_cannot_mean(grid: ttnn.MeshDevice) -> None:
    logits = on_mesh(torch.zeros(2, 1, TOKENS, ROWS), grid, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT)
    split = on_mesh(torch.zeros(2, 1, TOKENS, ROWS), grid, {"dp": 0, "tp": 3}, ttnn.float32, ttnn.TILE_LAYOUT)
    targets = on_mesh(torch.zeros(2, TOKENS, dtype=torch.int32), grid, {"dp": 0}, ttnn.uint32)
    few = on_mesh(torch.zeros(2, 3, dtype=torch.int32), grid, {"dp": 0}, ttnn.uint32)
    with pytest.raises(MeshError, match="the vocabulary is split over devices; use vocab_parallel_cross_entropy"):
        cross_entropy(split, targets)
    with pytest.raises(MeshError, match=r"cross_entropy: \[1, 3\] targets for logits .* each of the 4 rows"):
        cross_entropy(logits, few)
    with pytest.raises(MeshError, match=r"vocab_parallel_cross_entropy: \[1, 3\] targets for logits"):
        vocab_parallel_cross_entropy(split, few, "tp")
    with pytest.raises(MeshError, match="targets are indices"):
        cross_entropy(logits, logits)
    with pytest.raises(ArgumentValueError, match="the axes of"):
        vocab_parallel_cross_entropy(split, targets, "vocabulary")
    with pytest.raises(MeshError, match=r"mse_loss: shapes differ: \[1, 1, 4, 32\] and \[1, 1, 4, 8\]"):
        mse_loss(logits, split)


@on_2x4
def test_ids_outside_the_vocabulary_are_refused(grid: ttnn.MeshDevice) -> None:
    whole_rows = on_mesh(torch.zeros(2, 1, TOKENS, ROWS), grid, {"dp": 0}, ttnn.float32, ttnn.TILE_LAYOUT)
    split = on_mesh(torch.zeros(2, 1, TOKENS, ROWS), grid, {"dp": 0, "tp": 3}, ttnn.float32, ttnn.TILE_LAYOUT)
    outside = on_mesh(torch.full((2, TOKENS), ROWS + 1, dtype=torch.int32), grid, {"dp": 0}, ttnn.uint32)
    with pytest.raises(MeshError, match=r"vocab_parallel_cross_entropy: a target is 33, .* the rows 0 to 31"):
        vocab_parallel_cross_entropy(split, outside, "tp")
    with pytest.raises(MeshError, match="cross_entropy: a target is 33"):
        cross_entropy(whole_rows, outside)
    with pytest.raises(MeshError, match="VocabParallelEmbedding: an id is 33"):
        VocabParallelEmbedding(grid, ROWS, 8, Initial(), axis="tp")(outside)


def test_a_module_tells_its_parameters_by_their_paths(alone: dict[str, Results]) -> None:
    assert "attention.asking.weight" in alone["block"]
    assert "mlp.down.bias" in alone["block"]
