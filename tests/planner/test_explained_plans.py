"""What a plan says of itself: its parts add up, what lost costs no less, and more of something never costs more."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
import torch
from planned_models import decode, drawn_plan, mlp, opened, problem_on
from rich.console import Console

import softmesh as ttnn
from softmesh.planner.explanation.own_ops import share_own_ops_could_save
from softmesh.planner.explanation.plan_explanation import PlanExplanation
from softmesh.planner.layout_plan import LayoutPlan
from softmesh.planner.problem_setup import Freedom
from softmesh.report.plans.plan_terminal import PlanTables
from softmesh.report.plans.shown_plans import plan


@pytest.fixture(scope="module")
def found() -> LayoutPlan:
    with opened((2, 4), "T3000") as mesh:
        return plan(mlp, mesh, freedom=SPLIT)


@pytest.fixture(scope="module")
def explained(found: LayoutPlan) -> PlanExplanation:
    return found.explained(5, 6.0)


@pytest.fixture(scope="module")
def drawn() -> LayoutPlan:
    """Of three layers, with many moves."""
    with opened((2, 4), "T3000") as mesh:
        return drawn_plan(problem_on(decode, mesh), 1)


SPLIT = Freedom(
    allows_home=lambda value, home: (
        value.name not in ("up", "down") or any(isinstance(word, ttnn.Shard) for word in home.layout)
    )
)


def test_the_rows_of_a_plan_add_up_to_its_time(found: LayoutPlan, drawn: LayoutPlan) -> None:
    for one in (found, drawn):
        explained = one.explained(0)
        rows = sum(row.total_seconds * row.layers for row in explained.ops)
        parts = sum(part.seconds for part in explained.bottlenecks.parts)
        assert rows == pytest.approx(one.seconds)
        assert parts == pytest.approx(one.seconds)
        assert sum(row.bytes_on_each for row in explained.tensors) == one.cost.kept_bytes
        assert max(row.memory for row in explained.ops) == one.cost.peak


def test_every_collective_is_in_the_table_with_bytes_and_time(drawn: LayoutPlan) -> None:
    rows = drawn.explained(0).ops
    told = [one for row in rows for one in row.sent for _ in range(row.layers)]
    steps = [step for move in drawn.cost.moves for step in move.way.steps]
    inside = [
        step
        for own, at in zip(drawn.problem.strategies, drawn.assignment.strategies, strict=True)
        for step in own[at].inside
    ]
    assert sum(one.bytes_per_link for one in told) == sum(s.cost.bytes_per_link for s in (*steps, *inside))
    assert {one.what.partition("(")[0] for one in told} >= {"all_gather", "reduce_scatter"}


def test_layers_that_are_alike_are_one_row() -> None:
    with opened((1, 8), "T3000") as mesh:
        rows = plan(decode, mesh).explained(0).ops
    assert ("0-2", 3) in {(row.layer, row.layers) for row in rows}
    assert sum(row.reads == "wq" for row in rows) == 1


def test_runners_up_cost_no_less_and_say_why(found: LayoutPlan, explained: PlanExplanation) -> None:
    assert 1 <= len(explained.lost) <= 5
    seconds = [one.seconds for one in explained.lost if one.seconds is not None]
    assert seconds == sorted(seconds)
    launches = found.cost.ranked_seconds - found.cost.seconds  # of equally fast ones the simpler one is taken
    assert all(one >= found.seconds - launches - found.seconds * 1e-3 for one in seconds)
    assert all(one.what and one.reason for one in explained.lost)
    assert any("up" in one.what or "down" in one.what for one in explained.lost)


def test_more_of_something_never_costs_more(found: LayoutPlan, explained: PlanExplanation) -> None:
    told = {change.what: change for change in explained.changes}
    links = [change for what, change in told.items() if what.startswith("one more link")]
    assert links
    assert all(change.seconds is not None and change.seconds <= found.seconds for change in links)
    assert told["one more GiB on each device"].said.startswith("changes nothing: ")
    assert any(what.startswith("twice the chips, as a 2x8 mesh") for what in told)


def test_where_memory_is_short_more_of_it_helps() -> None:
    with opened((1, 8), "T3000") as mesh:
        free = plan(mlp, mesh)
        less = plan(mlp, mesh, freedom=Freedom(memory_share=0.9 * free.cost.peak / free.problem.memory_bytes))
        tight = plan(mlp, mesh, freedom=Freedom(memory_share=1.05 * less.cost.peak / free.problem.memory_bytes))
        explained = tight.explained(1, 4.0)
    assert explained.bottlenecks.is_tight
    assert any("nearly all there is" in line for line in explained.binding)
    (gib,) = [change for change in explained.changes if "GiB" in change.what]
    assert gib.seconds == pytest.approx(free.seconds, rel=1e-2)


@pytest.fixture(scope="module")
def pipeline() -> LayoutPlan:
    return plan(blocks, "T3000", {"rows": 2048}, goal="prefill", stages=2)


def blocks(device: ttnn.MeshDevice, rows: int, count: int = 4) -> ttnn.Tensor:
    def weight(*shape: int) -> ttnn.Tensor:
        return ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    layers = [{"up": weight(1024, 4096), "down": weight(4096, 1024)} for _ in range(count)]
    x = weight(1, 1, rows, 1024)
    for w in layers:
        x = ttnn.add(x, ttnn.linear(ttnn.linear(x, w["up"], activation="gelu"), w["down"]))
    return x


def test_a_pipeline_waits_for_its_slowest_stage(pipeline: LayoutPlan) -> None:
    explained = pipeline.explained(0)
    assert sum(part.seconds for part in explained.bottlenecks.parts) == pytest.approx(pipeline.seconds)
    assert explained.binding[0] == "stage 0 of 2 sets the pace"
    assert any("handing values on" in line for line in explained.binding)


def test_what_a_pipeline_is_compared_with_is_a_pipeline(pipeline: LayoutPlan) -> None:
    """Of each other plan the pace is told, and not the time of all its stages together."""
    explained = pipeline.explained(5, 60.0)
    others = [one for one in explained.lost if not one.what.startswith("a ")]
    assert others
    for one in others:
        assert one.seconds is not None
        assert pipeline.seconds * 0.999 <= one.seconds < sum(stage.seconds for stage in pipeline.stages)
    more = {one.what: one.seconds for one in explained.changes}
    assert more["one more link along each axis and between stages"] < pipeline.seconds
    assert more["one more GiB on each device"] == pipeline.seconds
    (twice,) = [
        seconds for what, seconds in more.items() if what.startswith("twice the chips, as a ") and "stage" in what
    ]
    assert twice is not None
    assert twice < pipeline.seconds


def test_what_ops_of_its_own_would_change_is_told() -> None:
    def attention(device: ttnn.MeshDevice) -> ttnn.Tensor:
        q, k, v = (
            ttnn.from_torch(torch.zeros(1, 1, 16384, 128), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            for _ in range(3)
        )
        return ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)

    with opened((1, 4), "T3000") as mesh:
        found, free = plan(attention, mesh), plan(attention, mesh, freedom=Freedom(plain_only=False))
    (own,) = [one for one in found.explained(1, 4.0).changes if "--own-ops" in one.what]
    assert own.seconds == pytest.approx(free.seconds, rel=0.02)
    assert free.seconds < found.seconds / 2
    assert share_own_ops_could_save(found) > 0.5
    assert not [one for one in free.explained(1, 4.0).changes if "--own-ops" in one.what]
    assert share_own_ops_could_save(free) == 0


def test_text_page_and_picture_name_the_ops_and_what_is_sent(drawn: LayoutPlan, explained: PlanExplanation) -> None:
    text, console = str(explained), Console(file=io.StringIO(), width=160)
    console.print(PlanTables(explained))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for word in ("matmul down", "linear up", "runners-up", "one more link along axis", "what binds"):
        assert word in text
        assert word in shown
    assert "<table>" in explained._repr_html_()
    assert explained.page().startswith("<!DOCTYPE html>")
    picture = ElementTree.fromstring(drawn.svg())
    words = {element.text or "" for element in picture.iter()}
    assert any(word.startswith("all_gather(") for word in words)
    assert {"matmul wq", "matmul down"} <= words
    assert repr(drawn).startswith("LayoutPlan(decode on a 2x4 mesh: ")
