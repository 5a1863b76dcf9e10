"""Every seeded mistake is named at its op, line and chips, with its cause; right programs raise no alarm."""

from __future__ import annotations

from functools import partial

import pytest
import seeded_llama
from seeded_cases import MISTAKES, RIGHT, WRITTEN_OTHERWISE, AnyForm, Case, program_of, runs

from softmesh.diff import Cause, assert_same, compare

pytestmark = [
    pytest.mark.usefixtures("idle_machine"),
    pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning"),
]


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.name)
def test_a_mistake_is_named_by_op_line_chips_and_cause(case: Case) -> None:
    found = compare(*runs(case.form)).first
    assert found is not None
    assert found.op in case.ops
    assert (found.site.file, found.site.line in case.lines) == (case.program.__file__, True), found.site
    assert tuple(map(tuple, found.coords)) == case.coords
    assert found.cause in case.causes, found.explanation


@pytest.mark.parametrize("form", RIGHT.values(), ids=RIGHT)
def test_a_right_program_raises_no_alarm(form: AnyForm) -> None:
    assert_same(*runs(form))


@pytest.mark.parametrize("forms", WRITTEN_OTHERWISE.values(), ids=WRITTEN_OTHERWISE)
def test_a_program_that_is_written_otherwise_raises_no_alarm(forms: tuple[AnyForm, AnyForm]) -> None:
    mesh, one_device = (partial(program_of(form).run, form) for form in forms)
    assert_same(mesh, one_device)


def test_one_run_of_24_layers_tells_layer_op_chips_and_pcc_of_a_wrong_gather() -> None:
    mistake = "scattered and gathered along other dims"
    form = seeded_llama.Form(layers=24, scatters=True, mistake=mistake, mistaken_layer=17, steps=0)
    with pytest.raises(AssertionError) as raised:
        assert_same(*runs(form))
    text = str(raised.value)
    assert "all_gather at seeded_llama.py" in text
    assert "in layer 17," in text
    assert all(f"(0, {column})" in text for column in range(8))
    assert "PCC 0." in text
    assert Cause.WRONG_DIM.value in text
