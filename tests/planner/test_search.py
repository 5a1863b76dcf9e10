"""Plans of small functions: what the search finds is what a user would write, and its cost is the evaluator's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from planned_models import loaded

import softmesh as ttnn
from softmesh import Shard
from softmesh.alias import aliased
from softmesh.planner.integer_program import Status
from softmesh.planner.layout_plan import plan
from softmesh.planner.problem_setup import Freedom


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as opened:
        yield opened
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)


def mlp(device: ttnn.MeshDevice, width: int = 4096, rows: int = 32) -> ttnn.Tensor:
    def weight(*shape: int) -> ttnn.Tensor:
        return ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    x, up, down = weight(1, 1, rows, width), weight(width, 4 * width), weight(4 * width, width)
    return ttnn.add(x, ttnn.matmul(ttnn.gelu(ttnn.matmul(x, up)), down))


def test_an_mlp_of_few_rows_is_split_by_columns_then_by_rows(mesh: ttnn.MeshDevice) -> None:
    found = plan(mlp, mesh)
    assert found.status is Status.OPTIMAL
    assert found.layout("up")[1] == Shard(1)
    assert found.layout("down")[1] == Shard(0)
    kinds = [step.kind for move in found.cost.moves for step in move.way.steps if step.travels]
    assert kinds in (["all_reduce"], ["reduce_scatter"])
    assert found.gap <= 1e-4
    assert found.seconds == pytest.approx(sum(found.cost.by_node) + found.cost.move_seconds)


def test_many_rows_are_shared_and_the_weights_are_not(mesh: ttnn.MeshDevice) -> None:
    found = plan(mlp, mesh, {"width": 256, "rows": 32768})
    assert found.layout("x")[1] == Shard(2)
    assert not [step for move in found.cost.moves for step in move.way.steps if step.travels]


def test_a_plan_keeps_within_the_memory_it_may_use(mesh: ttnn.MeshDevice) -> None:
    generous = plan(mlp, mesh, {"width": 512, "rows": 16384})
    whole = 2 * (4 * 512 * 512) * 2  # both weights, on every device
    assert generous.cost.kept_bytes > whole
    share = generous.cost.peak * 0.9 / generous.problem.memory_bytes
    tight = plan(mlp, mesh, {"width": 512, "rows": 16384}, freedom=Freedom(memory_share=share))
    assert tight.cost.peak <= tight.problem.memory_bytes < generous.cost.peak
    assert tight.seconds >= generous.seconds


def test_what_fits_nowhere_is_said(mesh: ttnn.MeshDevice) -> None:
    with pytest.raises(RuntimeError, match="nothing fits the memory"):
        plan(mlp, mesh, freedom=Freedom(memory_share=1e-6))


def attention(device: ttnn.MeshDevice, length: int = 32768) -> ttnn.Tensor:
    """One head: nothing but the sequence is there to be split."""

    q, k, v = (
        ttnn.from_torch(torch.zeros(1, 1, length, 128), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for _ in range(3)
    )
    return ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_a_long_context_goes_around_a_ring_where_its_keys_fit_no_device(mesh: ttnn.MeshDevice) -> None:
    length = 32768
    whole = length * 128 * 2  # bytes of the keys
    free = Freedom(plain_only=False, memory_share=2.1 * whole / plan(attention, mesh).problem.memory_bytes)
    found = plan(attention, mesh, freedom=free)
    (strategy,) = found.strategies
    assert strategy.split_names[1] == "ring of keys"
    assert found.cost.peak < whole * 2.1
    one_block = plan(attention, mesh, freedom=Freedom(plain_only=False)).strategies[0]
    assert strategy.seconds >= one_block.seconds / 2  # each device sees all keys, one block after the other


def test_what_fits_only_around_a_ring_is_told(mesh: ttnn.MeshDevice) -> None:
    whole = 32768 * 128 * 2
    share = 2.1 * whole / plan(attention, mesh).problem.memory_bytes
    with pytest.raises(RuntimeError, match=r"nothing fits the memory .* or ops of softmesh's own by --own-ops"):
        plan(attention, mesh, freedom=Freedom(memory_share=share))
    with pytest.raises(RuntimeError, match=r"nothing fits the memory .* smaller dtype\.$"):
        plan(attention, mesh, freedom=Freedom(memory_share=share / 100))


def test_queries_that_see_all_keys_are_split_by_plain_ops() -> None:
    def encoded(device: ttnn.MeshDevice) -> ttnn.Tensor:
        q, k, v = (
            ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            for values in torch.randn(3, 1, 1, 4096, 64, generator=torch.Generator().manual_seed(0))
        )
        return ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=False)

    found = plan(encoded, "N300")
    assert found.strategies[0].split_names[1] == "split queries that see all keys"
    q, k, v = torch.randn(3, 1, 1, 4096, 64, generator=torch.Generator().manual_seed(0))
    ttnn.use_system("N300")
    with aliased():
        (made,) = loaded(found.source())["run"]({"q": q, "k": k, "v": v})
    ttnn.use_system(None)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert ttnn.pearson_correlation_coefficient(expected, made.float()) > 0.999


def test_plain_ops_have_no_ring(mesh: ttnn.MeshDevice) -> None:
    assert plan(attention, mesh).strategies[0].split_names[1] == "all"
