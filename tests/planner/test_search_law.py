"""The search finds what brute force finds: on random small graphs, meshes, choices and memories."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import pytest
import torch
from brute_force import best_of_all
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import softmesh as ttnn
from softmesh.cost.link_costs import Line
from softmesh.planner.capture import captured
from softmesh.planner.constraints import NotReplicated, TileAligned, UsersAxis, WeightDtypes
from softmesh.planner.integer_program import Status, solved
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.op_strategies import StrategyFinder
from softmesh.planner.placement_problem import Assignment, PlacementProblem
from softmesh.planner.problem_setup import Freedom, problem_of
from softmesh.systems.chip import N300

MESHES = {shape: tuple(Line(N300, n, 1, False) for n in shape) for shape in ((1, 2), (2, 2), (1, 4))}
FINDERS = {shape: StrategyFinder(shape, N300, lines) for shape, lines in MESHES.items()}
OPS = {
    "relu": lambda a, b: ttnn.relu(a),
    "add": ttnn.add,
    "multiply": ttnn.multiply,
    "matmul": ttnn.matmul,
    "softmax": lambda a, b: ttnn.softmax(a, dim=-1),
    "linear": lambda a, b: ttnn.linear(a, b, activation="silu"),
    "add_": lambda a, b: (ttnn.add_(a, b), a)[1],
    "transpose": lambda a, b: ttnn.transpose(a, -2, -1),
}
FREEDOMS = [
    Freedom(plain_only=False),
    Freedom(dtypes=(WeightDtypes("*", (ttnn.bfloat8_b,)),)),
    Freedom(constraints=(UsersAxis(0),)),
    Freedom(constraints=(TileAligned(), NotReplicated("*"))),
]
MOST = 600  # assignments that brute force tries


def graph_of(words: list[tuple[str, int, int]]) -> OpGraph:
    """Each op reads two of the values that are there so far, the last one among them."""

    def program(device: ttnn.MeshDevice) -> ttnn.Tensor:
        values = [
            ttnn.from_torch(torch.zeros(256, 256), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            for _ in range(2)
        ]
        for op, a, b in words:
            values.append(OPS[op](values[a % len(values)], values[b % len(values)]))
        return values[-1]

    return captured(program, chip=N300)


def thinned(problem: PlacementProblem, choose: random.Random) -> PlacementProblem:
    """With fewer choices, so that all assignments can be tried."""
    strategies, homes = [list(own) for own in problem.strategies], {n: list(h) for n, h in problem.homes.items()}
    several = [*strategies, *homes.values()]
    while math.prod(map(len, several)) > MOST:
        longest = max(several, key=len)
        longest.pop(choose.randrange(len(longest)))
    return dataclasses.replace(
        problem,
        strategies=tuple(map(tuple, strategies)),
        homes={number: tuple(own) for number, own in homes.items()},
    )


def some_ops(least: int, most: int) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    """Ops by name, each with two of the values before it."""
    return st.lists(
        st.tuples(st.sampled_from(sorted(OPS)), st.integers(0, 7), st.integers(0, 7)), min_size=least, max_size=most
    )


@settings(max_examples=60, deadline=None)
@given(
    words=some_ops(1, 6),
    shape=st.sampled_from(sorted(MESHES)),
    share=st.sampled_from([1.0, 0.9, 0.6]),
    missing=st.integers(0, 1),
    freedom=st.sampled_from(FREEDOMS),
    seed=st.integers(0, 1 << 16),
)
def test_the_search_equals_brute_force(
    words: list[tuple[str, int, int]], shape: tuple[int, ...], share: float, missing: int, freedom: Freedom, seed: int
) -> None:
    """Also where a byte is missing to what would be the best."""
    graph = graph_of(words)
    assume(all(one.allows_mesh(shape) for one in freedom.constraints))
    problem = problem_of(graph, shape, MESHES[shape], N300, freedom, FINDERS[shape])
    problem = thinned(problem, random.Random(seed))
    free = best_of_all(problem)
    if free is not None:
        problem = dataclasses.replace(problem, memory_bytes=int(free[1].peak * share) - missing)
    best, found = best_of_all(problem), solved(problem, gap=0.0)
    if best is None:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.cost is not None
    assert found.cost.fits
    assert found.cost.ranked_seconds == pytest.approx(best[1].ranked_seconds, rel=1e-6)
    assert found.bound == pytest.approx(best[1].ranked_seconds, rel=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_byte_less_than_it_takes_is_not_enough(seed: int) -> None:
    """Of every plan of a graph: the limit of memory is one byte below what it holds."""
    graph = graph_of([("matmul", 0, 1), ("add_", 2, 1), ("softmax", 0, 0), ("linear", 3, 1)])
    problem = thinned(problem_of(graph, (2, 2), MESHES[2, 2], N300, FREEDOMS[0], FINDERS[2, 2]), random.Random(seed))
    extents = [*map(len, problem.strategies), *map(len, problem.homes.values())]
    peaks = set()
    for chosen in itertools.product(*map(range, extents)):
        nodes, homes = chosen[: len(graph.nodes)], chosen[len(graph.nodes) :]
        peaks.add(problem.cost(Assignment(nodes, dict(zip(problem.homes, homes, strict=True)))).peak)
    assert len(peaks) > 3
    for peak in sorted(peaks):
        tight = dataclasses.replace(problem, memory_bytes=peak - 1)
        best, found = best_of_all(tight), solved(tight, gap=0.0)
        if best is None:
            assert found.status is Status.INFEASIBLE
        else:
            assert found.cost is not None
            assert found.cost.ranked_seconds == pytest.approx(best[1].ranked_seconds, rel=1e-6)


def layers_of(words: list[tuple[str, int, int]], count: int) -> OpGraph:
    """So many layers with weights of their own."""

    def program(device: ttnn.MeshDevice) -> ttnn.Tensor:
        def weight() -> ttnn.Tensor:
            return ttnn.from_torch(torch.zeros(256, 256), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

        shared = weight()
        x = weight()
        for _ in range(count):
            values = [shared, weight(), x]
            for op, a, b in words:
                values.append(OPS[op](values[a % len(values)], values[b % len(values)]))
            x = ttnn.add(x, values[-1])
        return x

    return captured(program, chip=N300)


@settings(max_examples=8, deadline=None)
@given(
    words=some_ops(3, 5),
    shape=st.sampled_from(sorted(MESHES)),
    share=st.sampled_from([1.0, 0.9, 0.7]),
)
def test_what_the_search_minimises_is_what_the_evaluator_says(
    words: list[tuple[str, int, int]], shape: tuple[int, ...], share: float
) -> None:
    """Also where equal layers are decided once, and where memory is scarce."""
    problem = problem_of(layers_of(words, 6), shape, MESHES[shape], N300, FREEDOMS[0], FINDERS[shape])
    free = solved(problem, 300.0, gap=0.0)
    assert free.cost is not None
    tight = dataclasses.replace(problem, memory_bytes=int(free.cost.peak * share))
    found = free if share == 1 else solved(tight, 300.0, gap=0.0)
    if found.status is Status.INFEASIBLE:
        return
    assert found.cost is not None
    assert found.cost.fits
    assert found.cost.ranked_seconds == pytest.approx(found.bound, rel=1e-5)
    assert found.cost.ranked_seconds >= free.cost.ranked_seconds * (1 - 1e-6)


def projections(device: ttnn.MeshDevice) -> ttnn.Tensor:
    x, gate, up = (
        ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for shape in ((32, 2048), (2048, 2048), (2048, 2048))
    )
    return ttnn.multiply(ttnn.linear(x, gate, activation="silu"), ttnn.matmul(x, up))


@pytest.mark.parametrize("seed", range(6))
def test_products_that_may_be_one_are_searched_as_by_brute_force(seed: int) -> None:
    choose = random.Random(seed)
    problem = problem_of(captured(projections, chip=N300), (2, 2), MESHES[2, 2], N300, FREEDOMS[0], FINDERS[2, 2])
    (join,) = problem.joins
    numbers = choose.sample(range(1 + max(one.joined or 0 for one in problem.strategies[join.nodes[0]])), 3)
    strategies, homes = list(problem.strategies), dict(problem.homes)
    for node, weight in zip(join.nodes, join.weights(problem.graph), strict=True):
        together = [one for one in strategies[node] if one.joined in numbers]
        alone = [one for one in strategies[node] if one.joined is None]
        strategies[node] = (*together, *choose.sample(alone, 2))
        needed = [home for home in homes[weight.number] if home.layout == choose.choice(together).needs[1]]
        homes[weight.number] = tuple(dict.fromkeys([*needed, choose.choice(homes[weight.number])]))
    problem = dataclasses.replace(problem, strategies=tuple(strategies), homes=homes)
    x = problem.graph.named("x").number
    thin = thinned(dataclasses.replace(problem, homes=homes | {x: homes[x][:1]}), choose)
    best, found = best_of_all(thin), solved(thin, gap=0.0)
    assert best is not None
    assert found.cost is not None
    assert found.cost.ranked_seconds == pytest.approx(best[1].ranked_seconds, rel=1e-6)
    assert found.bound == pytest.approx(best[1].ranked_seconds, rel=1e-5)
