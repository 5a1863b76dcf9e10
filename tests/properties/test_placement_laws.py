"""The search of the planner against brute force, on problems small enough for both."""

from __future__ import annotations

import math

import pytest
from brute_force import best_of_all
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.cost.link_costs import Line
from softmesh.distributed.layouts import Layout, Value, all_layouts, is_whole
from softmesh.hardware.enums import DataType
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.planner.integer_program import Status, solved
from softmesh.planner.op_graph import GraphNode, GraphValue, OpGraph, Role
from softmesh.planner.op_strategies import OpStrategy
from softmesh.planner.placement_problem import Home, PlacementProblem
from softmesh.systems.chip import N300

MESH = (2, 2)
LINES = (Line(N300, 2, 1, False), Line(N300, 2, 2, False))
SHAPE = (128, 256)
LAYOUTS = list(all_layouts(Value(SHAPE, 16, MESH)))
WHOLE = [layout for layout in LAYOUTS if is_whole(layout)]
WHOLE_BYTES = math.prod(SHAPE) * 2


def _value(number: int, role: Role, version_of: int | None = None) -> GraphValue:
    return GraphValue(number, f"v{number}", SHAPE, DataType.BFLOAT16, TensorLayout.TILE, role, version_of)


def _strategy(draw: st.DrawFn, operands: int, results: int, writes: tuple[int, ...]) -> OpStrategy:
    layouts = st.sampled_from(LAYOUTS)
    needs = [draw(layouts) for _ in range(operands)]
    gives: list[Layout] = [draw(layouts) for _ in range(results)]
    for at, place in enumerate(writes):  # what is changed in place lies where it did
        needs[place] = gives[at] = draw(st.sampled_from(WHOLE))
    seconds = draw(st.integers(0, 60)) * 1e-6
    held = draw(st.sampled_from([0, 0, WHOLE_BYTES // 2]))
    dtypes = (DataType.BFLOAT16,) * operands
    return OpStrategy(("some",) * len(MESH), tuple(needs), tuple(gives), seconds, (), held, True, dtypes)


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    """Up to 6 ops; any op reads leaves and what was made before it, some in place, and any value may be returned."""
    values = [_value(n, Role.WEIGHT) for n in range(draw(st.integers(1, 2)))]
    leaves = len(values)
    nodes, strategies = [], []
    for number in range(draw(st.integers(1, 6))):
        numbers = st.sampled_from(range(len(values)))
        operands = tuple(draw(st.lists(numbers, min_size=1, max_size=2, unique=True)))
        newest = {value.version_of for value in values}
        writes = (0,) if operands[0] not in newest and draw(st.integers(0, 4)) == 0 else ()
        version_of = operands[0] if writes else None
        role = values[operands[0]].role if writes else Role.ACTIVATION
        values.append(_value(len(values), role, version_of))
        results = (len(values) - 1,)
        nodes.append(GraphNode(number, "op", (), operands, results, writes))
        count = draw(st.integers(1, 2 if number > 2 else 3))
        strategies.append(tuple(_strategy(draw, len(operands), 1, writes) for _ in range(count)))
    made = [value.number for value in values[leaves:] if value.version_of is None]
    outputs = tuple(made[-1:])
    homes = {number: _homes(draw, 2) for number in range(leaves)} | {number: _homes(draw, 2) for number in outputs}
    memory = draw(st.sampled_from([10, 6, 3, 2])) * WHOLE_BYTES
    graph = OpGraph(tuple(values), tuple(nodes), outputs)
    return PlacementProblem(graph, MESH, LINES, N300, tuple(strategies), homes, memory)


def _homes(draw: st.DrawFn, most: int) -> tuple[Home, ...]:
    layouts = draw(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=most, unique=True))
    return tuple(Home(layout, DataType.BFLOAT16) for layout in layouts)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_the_search_finds_what_brute_force_finds(problem: PlacementProblem) -> None:
    expected = best_of_all(problem)
    found = solved(problem, time_limit_s=30, gap=0.0)
    if expected is None:
        assert found.status is Status.INFEASIBLE
        assert found.cost is None
        return
    assert found.cost is not None
    assert found.cost.fits
    assert found.cost.ranked_seconds == pytest.approx(expected[1].ranked_seconds, rel=1e-6, abs=1e-10)
    assert found.bound <= found.cost.ranked_seconds * (1 + 1e-6) + 1e-10
