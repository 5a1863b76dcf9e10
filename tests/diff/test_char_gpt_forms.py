"""The parallel forms of the GPT example train as one device does, and the finder says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import softmesh as ttnn
from softmesh.diff import assert_same

EXAMPLE = Path(__file__).parents[2] / "examples" / "char_gpt"

pytestmark = [
    pytest.mark.usefixtures("idle_machine"),
    pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning"),
]


@pytest.fixture
def gpt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setitem(sys.modules, "ttnn", ttnn)
    from tiny_gpt import forms

    yield forms
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    for name in [name for name in sys.modules if name.startswith("tiny_gpt")]:
        del sys.modules[name]


@pytest.mark.parametrize(("name", "blocks"), [("DP 8", 1), ("TP 8", 1), ("DP 2 x TP 4", 1), ("FSDP 8", 4)])
def test_a_parallel_form_raises_no_alarm(name: str, blocks: int, gpt: Any) -> None:
    text, plan = gpt.Text(), gpt.Plan(steps=2, warmup=2)
    shape = gpt.Shape(text.vocabulary, blocks=blocks)
    by_name = {form.name: form for form in gpt.FORMS}
    mesh, one_device = (
        lambda form=by_name[each]: list(gpt.losses(form, text, shape, plan)) for each in (name, "1 device")
    )
    assert_same(mesh, one_device)
