"""The planner takes the cheapest strategy there is, and its steps do what they say."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from unified_operands import SUM, every_layout, mesh_of, spread, value_of, words_of

import softmesh as ttnn
from softmesh import Replicate, Shard, distributed
from softmesh.cost.launches import launch_seconds
from softmesh.cost.link_costs import Line
from softmesh.cost.mesh_lines import lines_of
from softmesh.distributed.layout_planner import Plan, Problem, plan_of, ranking
from softmesh.distributed.layouts import Layout, Value, all_layouts, is_whole
from softmesh.distributed.redistribution import Step, Way, routes, steps_from
from softmesh.distributed.redistribution_ops import runner
from softmesh.distributed.split_choices import Split
from softmesh.systems.chip import N300

R = Replicate()


def line(devices: int, *, is_ring: bool = False) -> Line:
    return Line(N300, devices, 2, is_ring)


LINES = (line(2), line(4))
LAUNCH = launch_seconds(N300)


def ranked(way: Way) -> float:
    return way.seconds + way.launches * LAUNCH


def ranked_step(step: Step) -> float:
    return step.cost.seconds + step.launches * LAUNCH


def cost_of(layouts: list[Layout], value: Value) -> dict[tuple[Layout, Layout], float]:
    """From each layout to each other, by relaxing all steps until nothing gets cheaper (Floyd and Warshall)."""
    known = {(a, a): 0.0 for a in layouts}
    for layout in layouts:
        for step in steps_from(layout, value, LINES):
            pair = layout, step.after
            known[pair] = min(known.get(pair, float("inf")), ranked_step(step))
    for between, start, end in itertools.product(layouts, repeat=3):
        if (start, between) in known and (between, end) in known:
            through = known[start, between] + known[between, end]
            known[start, end] = min(known.get((start, end), float("inf")), through)
    return known


@pytest.mark.parametrize("shape", [(32, 64), (6, 8)])
def test_every_way_between_layouts_is_the_cheapest(shape):
    value = Value(shape, 16, (2, 4))
    layouts = list(all_layouts(value))
    known = cost_of(layouts, value)
    found = routes(value, LINES)
    for start in layouts:
        ways = found.ways_from(start)
        for end in layouts:
            assert ranked(ways[end]) == pytest.approx(known[start, end])


def test_the_way_to_the_nearest_goal_is_the_cheapest_of_all_to_any():
    value = Value((32, 64), 16, (2, 4))
    layouts = list(all_layouts(value))
    known = cost_of(layouts, value)
    ways = routes(value, LINES).ways_to(is_whole, [(SUM, SUM), (SUM, R)])
    for start in ((SUM, SUM), (SUM, R)):
        assert ranked(ways[start]) == pytest.approx(min(known[start, end] for end in layouts if is_whole(end)))


def step_to(kind: str, start: Layout, end: Layout, shape: tuple[int, ...], form: ttnn.Layout | None) -> float:
    found = steps_from(start, Value(shape, 16, (2, 4), form=form), LINES)
    return next(ranked_step(step) for step in found if step.kind == kind and step.after == end)


def test_cutting_through_tiles_costs_the_ops_that_do_it():
    parts = (R, Shard(1))
    between = step_to("partition", (R, R), parts, (32, 128), ttnn.TILE_LAYOUT)
    assert between == step_to("partition", (R, R), parts, (32, 128), ttnn.ROW_MAJOR_LAYOUT)
    through = step_to("partition", (R, R), parts, (64, 64), ttnn.TILE_LAYOUT)
    assert through > 2 * LAUNCH + step_to("partition", (R, R), parts, (64, 64), ttnn.ROW_MAJOR_LAYOUT)


@pytest.mark.parametrize("form", [ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT])
def test_an_exchange_that_no_op_of_ttnns_does_costs_a_gather_and_a_cut(form: ttnn.Layout):
    shape = (32, 512)
    exchanged = step_to("all_to_all", (R, Shard(1)), (R, Shard(0)), shape, form)
    gathered = step_to("all_gather", (R, Shard(1)), (R, R), shape, form)
    cut = step_to("partition", (R, R), (R, Shard(0)), shape, form)
    assert exchanged == pytest.approx(gathered + cut)
    whole = (128, 512)
    assert step_to("all_to_all", (R, Shard(1)), (R, Shard(0)), whole, ttnn.TILE_LAYOUT) == step_to(
        "all_to_all", (R, Shard(1)), (R, Shard(0)), whole, None
    )


def problem_of(plan: Plan) -> Problem:
    return plan.problem


def brute_force(problem: Problem) -> float:
    """The cheapest over all choices, with redistributions searched apart from those of the planner."""
    values = (*problem.operands, problem.result)
    tables = [_table(value, problem.lines) for value in values]
    best = float("inf")
    for choices in itertools.product(*problem.choices):
        needs = [tuple(choice.needs[i] for choice in choices) for i in range(len(problem.operands))]
        gives = tuple(choice.gives for choice in choices)
        if not all(v.can_be(layout) for v, layout in zip(values, [*needs, gives], strict=True)):
            continue
        seconds = problem.seconds(Split(problem.mesh, choices))
        for table, start, end in zip(tables, problem.layouts, needs, strict=False):
            seconds += table[start, end]
        goals = [problem.wanted] if problem.wanted is not None else filter(is_whole, all_layouts(problem.result))
        best = min(best, seconds + min(tables[-1][gives, goal] for goal in goals))
    return best


_TABLES: dict[Value, dict[tuple[Layout, Layout], float]] = {}


def _table(value: Value, lines: tuple[Line, ...]) -> dict[tuple[Layout, Layout], float]:
    assert lines == lines_of(mesh_of(2, 4))
    if value not in _TABLES:
        layouts = list(all_layouts(value))
        known = {(a, b): float("inf") for a in layouts for b in layouts} | {(a, a): 0.0 for a in layouts}
        for layout in layouts:
            for step in steps_from(layout, value, lines):
                known[layout, step.after] = min(known[layout, step.after], ranked_step(step))
        for between, start, end in itertools.product(layouts, repeat=3):
            known[start, end] = min(known[start, end], known[start, between] + known[between, end])
        _TABLES[value] = known
    return _TABLES[value]


def test_the_chosen_strategy_is_never_costlier_than_brute_force():
    mesh, draw = mesh_of(2, 4), random.Random(0)
    a, b = torch.randn(64, 256), torch.randn(256, 512)
    layouts = every_layout(2, mesh)
    with ttnn.lenient():
        for _ in range(25):
            x, w = spread(a, mesh, draw.choice(layouts)), spread(b, mesh, draw.choice(layouts))
            request = draw.choice([None, *layouts])
            plan = distributed.matmul.planned((x, w), {}, request)[0].plan
            assert plan.ranked_seconds == pytest.approx(brute_force(plan.problem))


def test_the_same_problem_has_the_same_plan_every_time():
    mesh = mesh_of(2, 4)
    x, w = (spread(torch.randn(64, 64), mesh, words) for words in ((R, Shard(0)), (Shard(1), R)))
    with ttnn.lenient():
        plans = []
        for _ in range(2):
            distributed.matmul._plans.clear()
            routes.cache_clear()
            plans.append(distributed.matmul.planned((x, w), {})[0].plan)
    assert plans[0].strategy.split == plans[1].strategy.split
    assert [str(step) for _, step in plans[0].inserted] == [str(step) for _, step in plans[1].inserted]


def test_runners_up_come_cheapest_first_and_none_is_cheaper():
    mesh = mesh_of(2, 4)
    x, w = (spread(torch.randn(64, 64), mesh, words) for words in ((R, Shard(0)), (Shard(1), R)))
    with ttnn.lenient():
        plan = distributed.matmul.planned((x, w), {})[0].plan
    plans, too_big = ranking(plan.problem)
    seconds = [other.ranked_seconds for other in plans]
    assert seconds == sorted(seconds)
    assert plan.ranked_seconds == seconds[0]
    assert too_big == []


def test_what_does_not_fit_the_memory_of_a_chip_is_not_chosen():
    mesh = mesh_of(2, 4)
    x, w = (spread(torch.randn(64, 64), mesh, words) for words in ((R, R), (R, R)))
    with ttnn.lenient():
        problem = distributed.matmul.planned((x, w), {}, [R, R])[0].plan.problem
    whole = next(plan for plan in ranking(problem)[0] if set(plan.strategy.gives) == {R})
    tight = Problem(**{**vars(problem), "memory": whole.strategy.bytes_on_each - 1})
    assert set(plan_of(tight).strategy.gives) != {R}
    assert any(set(strategy.gives) == {R} for strategy in ranking(tight)[1])
    with pytest.raises(ttnn.MeshError, match=r"fits their memory: the least takes [\d,]+ B on each, of 1 B"):
        plan_of(Problem(**{**vars(problem), "memory": 1}))


@pytest.mark.parametrize("shape", [(24, 40), (8, 8, 8)])
def test_each_step_leads_to_the_layout_it_names_and_keeps_the_value(shape):
    mesh = mesh_of(2, 4)
    values = torch.randn(shape)
    value = Value(shape, 32, (2, 4))
    with ttnn.lenient():
        for layout in all_layouts(value):
            tensor = spread(values, mesh, layout)
            for step in steps_from(layout, value, lines_of(mesh)):
                moved = runner(step, value)(tensor)
                assert words_of(moved) == step.after, (layout, step)
                torch.testing.assert_close(value_of(moved), values, atol=1e-4, rtol=1e-4)


def test_what_travels_costs_more_than_what_does_not():
    value = Value((1024, 1024), 16, (2, 4))
    for layout in all_layouts(value):
        for step in steps_from(layout, value, LINES):
            assert step.cost.seconds > 0
            assert (step.cost.bytes_per_link > 0) == step.travels
