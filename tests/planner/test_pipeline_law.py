"""The search for stages finds what brute force finds: of all cuts, all ways to lay a small graph, and all memories."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from typing import Any

import pytest
import torch
from brute_force import best_pipeline_of_all
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search_law import FINDERS, FREEDOMS, MESHES, OPS, thinned

import softmesh as ttnn
from softmesh.planner.capture import captured
from softmesh.planner.goal import Goal
from softmesh.planner.integer_program import Limits, PlacementSearch
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.pipeline_search import PipelineSearch
from softmesh.planner.placement_problem import PlacementProblem
from softmesh.planner.problem_setup import Freedom, problem_of
from softmesh.systems.chip import N300

FORMS = ["plain", "outputs", "first", "shared"]


def layers_of(words: list[tuple[str, int]], layers: int, form: str) -> OpGraph:
    """So many layers of these ops, each with a weight; in front of them and behind them an op of its own.

    By the form each layer's result is an output too, or each reads what is made before them or a weight of them all.
    """

    def program(device: ttnn.MeshDevice) -> Any:
        def put() -> ttnn.Tensor:
            return ttnn.from_torch(torch.zeros(256, 256), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

        model = {"layers": [put() for _ in range(layers)]}
        x = before = ttnn.relu(put())
        shared, made = put(), []
        for weight in model["layers"]:
            x = ttnn.add(x, weight)
            for op, which in words:
                x = OPS[op](x, (x, weight)[which])
            x = ttnn.multiply(x, {"first": before, "shared": shared}[form]) if form in ("first", "shared") else x
            made.append(x)
        return [*made, x] if form == "outputs" else ttnn.softmax(x, dim=-1)

    return captured(program, chip=N300)


def searched(problem: PlacementProblem, count: int, goal: Goal) -> PipelineSearch:
    made = PipelineSearch(PlacementSearch(problem), goal, count)
    limits = Limits(time.monotonic() + 120, 0.0)
    made.look(limits)
    assert made.close(limits)
    return made


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.tuples(st.sampled_from(["matmul", "multiply", "transpose"]), st.integers(0, 1)), max_size=1),
    layers=st.integers(2, 4),
    form=st.sampled_from(FORMS),
    count=st.integers(2, 3),
    shape=st.sampled_from(sorted(MESHES)),
    share=st.sampled_from([1.0, 0.8, 0.5]),
    missing=st.integers(0, 1),
    goal=st.sampled_from([Goal.PREFILL, Goal.DECODE]),
    freedom=st.sampled_from(FREEDOMS[:2]),
    seed=st.integers(0, 1 << 16),
)
def test_the_search_for_stages_equals_brute_force(
    words: list[tuple[str, int]],
    layers: int,
    form: str,
    count: int,
    shape: tuple[int, ...],
    share: float,
    missing: int,
    goal: Goal,
    freedom: Freedom,
    seed: int,
) -> None:
    graph = layers_of(words, layers, form)
    problem = problem_of(graph, shape, MESHES[shape], N300, freedom, FINDERS[shape], stages=count)
    problem = thinned(problem, random.Random(seed))
    if layers < count:
        return
    if share < 1 or missing:
        free = searched(problem, count, goal).best
        if free is None:
            assert best_pipeline_of_all(problem, count, goal) == math.inf
            return
        most = max(stage.memory for stage in free.stages)
        problem = dataclasses.replace(problem, memory_bytes=int(most * share) - missing)
    best, found = best_pipeline_of_all(problem, count, goal), searched(problem, count, goal)
    if best == math.inf:
        assert found.best is None
        assert found.bound == math.inf
        return
    assert found.best is not None
    assert all(stage.memory <= problem.memory_bytes for stage in found.best.stages)
    assert len(found.best.stages) == count
    if form == "first":  # several values are handed on, and what that takes is known to a hundredth
        assert found.bound <= best * (1 + 1e-6)
        assert best <= found.best.ranked_seconds <= best * 1.02
        return
    assert found.best.ranked_seconds == pytest.approx(best, rel=1e-6)
    assert found.bound == pytest.approx(best, rel=1e-5)
