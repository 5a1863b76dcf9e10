"""How a plan compares, in words: numbers that are compared differ, and every sentence is true of the numbers."""

from __future__ import annotations

import dataclasses
import doctest
import re

import pytest
import torch

import softmesh as ttnn
from softmesh.estimation.plan_text import summary
from softmesh.planner.constraints import MeshShapeIs
from softmesh.planner.explanation import compared_words
from softmesh.planner.explanation.compared_words import lost_words, told_apart
from softmesh.planner.goal import SLOWER_AT_BEST, Candidate
from softmesh.planner.integer_program import Status
from softmesh.planner.layout_plan import LayoutPlan, plan


def mlp(device: ttnn.MeshDevice) -> ttnn.Tensor:
    x, up, down = (
        ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for shape in ((1, 1, 32, 1024), (1024, 4096), (4096, 1024))
    )
    return ttnn.matmul(ttnn.gelu(ttnn.matmul(x, up)), down)


@pytest.fixture(scope="module")
def found() -> LayoutPlan:
    return plan(mlp, "T3000")


def lines(found: LayoutPlan) -> dict[str, str]:
    return {line.split()[0]: line for line in summary(found)}


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(compared_words).failed == 0


@pytest.mark.parametrize("apart", [1e-1, 1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("seconds", [3.4e-7, 1.1363e-5, 0.0204871, 0.99999, 74.2])
def test_times_that_differ_are_printed_with_digits_that_differ(seconds: float, apart: float) -> None:
    one, other = told_apart(seconds, seconds * (1 + apart))
    assert one != other


def test_a_plan_without_a_gap_is_the_optimum_and_says_nothing_of_bounds(found: LayoutPlan) -> None:
    told = lines(found)
    assert re.fullmatch(r"decode +[\d.]+ us, the optimum of the 2 meshes compared", told["decode"])
    assert "bound" not in told
    assert "0.00" not in "\n".join(summary(found))


def test_a_gap_is_told_with_the_numbers_that_it_is_made_of(found: LayoutPlan) -> None:
    ranked = found.ranked_seconds
    short = dataclasses.replace(found, bound=ranked * 0.9996, gap=4e-4, status=Status.TIME_LIMIT)
    told = lines(short)
    assert told["decode"].endswith("the optimum of the 2 meshes compared takes at most 0.04% less")
    took, least = re.findall(r"(?:it takes|less than) ([\d.]+) us", told["bound"])
    assert float(least) < float(took)
    assert "stopped by --time-limit" in told["search"]


@pytest.mark.parametrize("factor", [1.3, 1.01, 1.00001, 0.9995])
def test_a_mesh_that_lost_by_its_bound_is_told_without_a_contradiction(found: LayoutPlan, factor: float) -> None:
    said = lost_words(found, Candidate((1, 8), 1, None, found.ranked_seconds * factor, SLOWER_AT_BEST))
    if factor > 1.001:
        assert float(re.search(r"less than ([\d.]+) us", said)[1]) > float(lines(found)["decode"].split()[1])
    else:
        assert said in ("no plan on it is faster", "no plan on it saves more than 0.05%")


@pytest.mark.parametrize(("factor", "end"), [(1.3, "30% longer"), (1.00061, "0.061% longer"), (0.9999, "are counted")])
def test_a_mesh_that_was_searched_is_told_with_its_time(found: LayoutPlan, factor: float, end: str) -> None:
    said = lost_words(found, Candidate((1, 8), 1, found.seconds * factor, 0.0, "it takes longer"))
    assert said.endswith(end)
    assert said.split()[0] != lines(found)["decode"].split()[1]


def test_meshes_that_nobody_asked_for_are_not_told() -> None:
    told = summary(plan(mlp, "T3000", constraints=[MeshShapeIs((1, 4))]))
    assert not [line for line in told if line.startswith("not")]
    assert any(line.endswith("the optimum for this mesh") for line in told)
