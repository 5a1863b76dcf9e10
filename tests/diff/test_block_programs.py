"""Mistakes in programs written op by op are named where they were made; right ways to write them raise no alarm."""

from __future__ import annotations

import pytest
from block_cases import MISTAKES, OTHERWISE, RIGHT, Case, outcome
from seeded_mesh import Form

pytestmark = [
    pytest.mark.usefixtures("idle_machine"),
    pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning"),
]


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.name)
def test_a_mistake_is_named_by_op_line_chips_and_cause(case: Case) -> None:
    found = outcome(case.form).first
    assert found is not None
    assert found.op in case.ops
    assert case.lines & {site.line for site in (found.site, *found.callers)}, found
    assert tuple(map(tuple, found.coords)) == case.coords
    assert found.cause in case.causes, found.explanation


@pytest.mark.parametrize("form", RIGHT.values(), ids=RIGHT)
def test_a_right_program_raises_no_alarm(form: Form) -> None:
    found = outcome(form)
    assert found.agrees, found


@pytest.mark.parametrize("forms", OTHERWISE.values(), ids=OTHERWISE)
def test_a_program_that_is_written_otherwise_raises_no_alarm(forms: tuple[Form, Form]) -> None:
    found = outcome(*forms)
    assert found.agrees, found
