"""Which mesh of a system is opened, in how many stages, and what a search does that runs out of time."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

import softmesh as ttnn
from softmesh import Replicate, train
from softmesh.errors import ArgumentError
from softmesh.estimation.plan_text import summary
from softmesh.hardware import FabricConfig
from softmesh.planner import integer_program, layout_plan, system_search
from softmesh.planner.capture import captured
from softmesh.planner.constraints import MemoryShare, MeshShapeIs, Pinned
from softmesh.planner.first_assignment import first_assignment
from softmesh.planner.goal import Goal
from softmesh.planner.integer_program import PlacementSearch, Status, solved
from softmesh.planner.layout_plan import plan
from softmesh.planner.linear_model import Answer, Costs, LinearModel
from softmesh.planner.narrower_problems import narrowed, widened
from softmesh.planner.parallel_degrees import degrees
from softmesh.planner.pipeline_cuts import boundaries, cut
from softmesh.planner.problem_setup import problem_of
from softmesh.planner.repeated_layers import classes_of
from softmesh.planner.system_meshes import meshes_of


def mlps(device: ttnn.MeshDevice, layers: int = 8, width: int = 1024, rows: int = 128) -> ttnn.Tensor:
    def weight(*shape: int) -> ttnn.Tensor:
        return ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    model = {"layers": [{"up": weight(width, 4 * width), "down": weight(4 * width, width)} for _ in range(layers)]}
    x = weight(1, 1, rows, width)
    for layer in model["layers"]:
        x = ttnn.add(x, ttnn.matmul(ttnn.gelu(ttnn.matmul(x, layer["up"])), layer["down"]))
    return x


def test_a_system_offers_meshes_that_no_other_stands_for() -> None:
    offered = {mesh.shape: mesh for mesh in meshes_of("Galaxy")}
    assert set(offered) == {(8, 4), (1, 32)}
    assert all(line.is_ring for line in offered[8, 4].lines)
    assert [mesh.shape for mesh in meshes_of("N300")] == [(1, 2)]
    assert [mesh.shape for mesh in meshes_of("N150")] == [(1, 1)]


def test_a_fabric_that_is_asked_for_is_the_one() -> None:
    assert {mesh.opening.fabric for mesh in meshes_of("Galaxy", fabric=FabricConfig.FABRIC_2D)} == {
        FabricConfig.FABRIC_2D
    }


def test_what_others_have_taken_and_what_is_down_is_left_alone() -> None:
    rest = meshes_of("T3000", taken=["2x2@0,0"])
    assert {mesh.shape for mesh in rest} == {(2, 2), (1, 4)}
    assert all(mesh.opening.offset == (0, 2) for mesh in rest)
    assert all(math.prod(mesh.shape) < 32 for mesh in meshes_of("Galaxy", down=["chip:5"]))
    with pytest.raises(RuntimeError, match="offers no mesh"):
        meshes_of("N300", taken=["1x2"])
    with pytest.raises(RuntimeError, match="No system is called"):
        meshes_of("T3001")


def test_a_plan_tells_what_is_to_be_opened() -> None:
    found = plan(mlps, "T3000", {"layers": 1})
    assert found.opening is not None
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(found.opening.fabric)
    with ttnn.create_mesh_device(ttnn.MeshShape(*found.opening.shape)) as mesh:
        assert tuple(mesh.shape) == found.mesh_shape
    ttnn.set_fabric_config(FabricConfig.DISABLED)
    ttnn.use_system(None)
    assert math.prod(degrees(found).values()) == 8
    assert found.bound <= found.cost.ranked_seconds
    assert found.candidates[0].why == ""
    assert all(one.why for one in found.candidates[1:])


def test_a_pipeline_serves_calls_that_follow_each_other() -> None:
    one = plan(mlps, "T3000", goal="prefill", stages=1)
    found = plan(mlps, "T3000", goal=Goal.PREFILL)
    assert len(found.stages) > 1
    assert degrees(found)["pipeline"] == len(found.stages)
    assert found.seconds < one.seconds
    assert found.seconds == max(stage.seconds + stage.send_seconds for stage in found.stages)
    assert found.stages[0].first == 0
    assert found.stages[-1].end == len(found.problem.graph.nodes)
    assert all(a.end == b.first for a, b in zip(found.stages, found.stages[1:], strict=False))
    assert math.prod(found.mesh_shape) * len(found.stages) == 8


@pytest.mark.parametrize(("goal", "stages"), [("decode", 1), ("decode", 2), ("prefill", 1), ("prefill", 4)])
def test_a_bound_and_the_time_it_bounds_are_of_one_measure(goal: str, stages: int) -> None:
    found = plan(mlps, "T3000", goal=goal, stages=stages)
    assert found.seconds <= found.ranked_seconds
    assert found.bound <= found.own_bound <= found.ranked_seconds
    for said in (line for line in summary(found) if line.startswith("bound")):  # there is one where there is a gap
        took, least = (float(amount) for amount in re.findall(r"(?:takes|than) ([\d.]+) [um]s", said))
        assert least < took


def test_what_fits_no_mesh_may_fit_a_pipeline() -> None:
    """All weights on every device are 134 MB, of 77 that may be used; half of the layers are less."""
    whole = [Pinned("layers.*", (Replicate(), Replicate())), MemoryShare(0.006)]
    found = plan(mlps, "T3000", constraints=whole)
    assert len(found.stages) > 1
    assert found.memory <= found.problem.memory_bytes
    assert found.seconds == pytest.approx(sum(stage.seconds + stage.send_seconds for stage in found.stages))
    with pytest.raises(RuntimeError, match="cannot be kept together"):
        plan(mlps, "T3000", constraints=whole, stages=1)


def test_layers_are_shared_evenly_by_stages() -> None:
    (mesh,) = meshes_of("N300")
    graph = captured(mlps, {"layers": 8}, chip=mesh.chip)
    problem = problem_of(graph, (1, 1), mesh.lines[:1] * 2, mesh.chip)
    answer = solved(problem)
    assert answer.assignment is not None
    assert answer.cost is not None
    starts = boundaries(problem)
    assert len(starts) == 7
    halves = cut(problem, answer.assignment, answer.cost, 2)
    assert halves is not None
    assert [stage.layers for stage in halves] == [4, 4]
    assert sum(stage.seconds for stage in halves) == pytest.approx(answer.cost.seconds)
    assert max(stage.memory for stage in halves) < answer.cost.peak


def test_the_slowest_stage_of_a_cut_is_as_fast_as_can_be() -> None:
    """Against every way of cutting eight layers into three."""
    (mesh,) = meshes_of("N150")
    graph = captured(mlps, {"layers": 8}, chip=mesh.chip)
    problem = problem_of(graph, (1, 1), mesh.lines, mesh.chip)
    answer = solved(problem)
    assert answer.assignment is not None
    assert answer.cost is not None
    found = cut(problem, answer.assignment, answer.cost, 3)
    assert found is not None
    starts = (*boundaries(problem), len(graph.nodes))
    work = [0.0]
    for seconds in answer.cost.by_node:
        work.append(work[-1] + seconds)
    best = min(
        max(work[a] - work[0], work[b] - work[a], work[-1] - work[b])
        for i, a in enumerate(starts)
        for b in starts[i + 1 :]
    )
    assert max(stage.seconds for stage in found) == pytest.approx(best, rel=1e-3)


def test_a_search_that_runs_out_of_time_returns_its_best_plan_and_the_gap() -> None:
    (mesh, *_) = meshes_of("Galaxy", fabric=FabricConfig.FABRIC_1D_RING)
    graph = captured(mlps, {"layers": 3, "rows": 4096}, chip=mesh.chip)
    galaxy = next(one for one in meshes_of("Galaxy") if one.shape == (8, 4))
    problem = problem_of(graph, galaxy.shape, galaxy.lines, galaxy.chip)
    started = time.monotonic()
    found = solved(problem, time_limit_s=1.0, gap=0.0)
    assert time.monotonic() - started < 60  # the limit was kept, whatever the machine does beside
    if found.assignment is None:
        assert found.status is Status.TIME_LIMIT
        assert found.gap == math.inf
        return
    assert found.cost is not None
    assert found.cost.fits
    assert 0 <= found.gap <= 1
    assert found.bound <= found.cost.ranked_seconds * (1 + 1e-6)


def steps(count: int) -> Callable[[ttnn.MeshDevice], ttnn.Tensor]:
    """Steps of training that follow each other; AdamW's numbers are others in each."""

    def model(device: ttnn.MeshDevice) -> ttnn.Tensor:
        weight = train.Linear(device, 256, 256, train.Initial(0))
        optimizer = train.AdamW(weight, lr=1e-3)
        for _ in range(count):
            x, y = (
                ttnn.from_torch(torch.zeros(1, 1, 64, 256), layout=ttnn.TILE_LAYOUT, device=device) for _ in range(2)
            )
            loss = train.mse_loss(weight(x), y)
            loss.backward()
            optimizer.step()
        return loss

    return model


def test_steps_that_differ_in_numbers_only_are_decided_once() -> None:
    mesh = next(one for one in meshes_of("T3000") if one.shape == (2, 4))
    graphs = [captured(steps(count), chip=mesh.chip) for count in (3, 9)]
    short, long = (PlacementSearch(problem_of(graph, mesh.shape, mesh.lines, mesh.chip)) for graph in graphs)
    assert len(graphs[1].nodes) > 2 * len(graphs[0].nodes)
    assert long.program.model.size < tuple(1.1 * n for n in short.program.model.size)


@pytest.mark.parametrize("model", [steps(3), mlps])
def test_a_plan_for_a_system_is_no_slower_than_one_for_any_of_its_meshes(model: Callable[..., ttnn.Tensor]) -> None:
    found = plan(model, "T3000", gap=0.0)
    for shape in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4)):
        alone = plan(model, "T3000", gap=0.0, constraints=[MeshShapeIs(shape)])
        assert found.ranked_seconds <= alone.ranked_seconds * (1 + 1e-6)


def step(device: ttnn.MeshDevice) -> ttnn.Tensor:
    class Model(train.Module):
        def __init__(self) -> None:
            initial = train.Initial(0)
            self.up, self.down = (train.Linear(device, n, m, initial) for n, m in ((256, 1024), (1024, 256)))

    model = Model()
    x, y = (ttnn.from_torch(torch.zeros(1, 1, 512, 256), layout=ttnn.TILE_LAYOUT, device=device) for _ in range(2))
    loss = train.mse_loss(model.down(ttnn.gelu(model.up(x))), y)
    loss.backward()
    train.AdamW(model, lr=1e-3).step()
    return loss


@pytest.mark.parametrize("model", [mlps, step])
def test_a_mesh_that_cannot_be_solved_in_time_takes_nothing_from_what_others_find(
    model: Callable[..., ttnn.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if programs for both axes of a mesh took all the time they may have, and smaller ones none."""
    alone = [plan(model, "T3000", constraints=[MeshShapeIs(shape)]).seconds for shape in ((1, 8), (1, 4), (1, 2))]
    now, largest, solving = 0.0, 0, LinearModel.relaxed

    def slow(self: LinearModel, limit: float, costs: Costs) -> Answer:
        nonlocal now, largest
        largest = max(largest, self.size[0])
        if self.size[0] < largest / 2:
            return solving(self, 60.0, costs)
        now += max(limit, 0.1)
        return Answer(None, 0.0, True, False)

    monkeypatch.setattr(LinearModel, "relaxed", slow)
    for module in (layout_plan, system_search, integer_program):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    found = plan(model, "T3000")
    assert found.status is Status.TIME_LIMIT
    assert found.seconds <= min(alone) * 1.02


def test_a_plan_for_one_axis_is_one_of_the_whole_mesh_and_takes_as_long() -> None:
    mesh = next(one for one in meshes_of("T3000") if one.shape == (2, 4))
    problem = problem_of(captured(mlps, {"layers": 2}, chip=mesh.chip), mesh.shape, mesh.lines, mesh.chip)
    for axis in (0, 1):
        narrow = narrowed(problem, axis)
        assert narrow is not None
        found = solved(narrow)
        assert found.assignment is not None
        assert found.cost is not None
        cost = problem.cost(widened(found.assignment, narrow, problem))
        assert cost.seconds == pytest.approx(found.cost.seconds)
        assert cost.peak == found.cost.peak
        assert cost.seconds >= solved(problem).bound * 0.999


def test_a_step_with_gradients_is_not_cut_whatever_its_goal() -> None:
    with pytest.raises(ArgumentError, match="not cut into stages"):
        plan(step, "T3000", stages=2)
    with pytest.raises(RuntimeError, match="cannot be kept together"):
        plan(step, "T3000", constraints=[MemoryShare(1e-5)])


def test_there_is_a_plan_before_the_search_begins() -> None:
    (mesh,) = meshes_of("N300")
    graph = captured(mlps, {"layers": 2}, chip=mesh.chip)
    problem = problem_of(graph, mesh.shape, mesh.lines, mesh.chip)
    found = first_assignment(problem, classes_of(problem))
    best = solved(problem).cost
    assert found is not None
    assert best is not None
    assert found[1].fits
    assert best.ranked_seconds * (1 - 1e-4) <= found[1].ranked_seconds <= best.ranked_seconds * 3
    least = dataclasses.replace(problem, memory_bytes=int(best.peak * 0.5))
    tight, answer = first_assignment(least, classes_of(least)), solved(least)
    assert tight is None or (answer.cost is not None and tight[1].peak <= least.memory_bytes)
