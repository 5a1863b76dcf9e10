"""The examples of training: identical losses by host and by fabric, and forms whose losses lie on each other."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from warm_python import warm_python

import softmesh as ttnn
from softmesh.alias import aliased

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES / "char_gpt"))
with aliased():
    from tiny_gpt.curves import Curve, drawn, table
    from tiny_gpt.forms import FORMS, Plan, losses
    from tiny_gpt.model import Shape
    from tiny_gpt.text import Text
sys.path.remove(str(EXAMPLES / "char_gpt"))

STEPS = 6


@pytest.fixture(scope="module")
def alone() -> list[float]:
    return list(losses(FORMS[0], Text(), Shape(Text().vocabulary), Plan(steps=STEPS)))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@pytest.mark.parametrize("form", FORMS[1:], ids=lambda form: form.name)
def test_every_form_has_the_losses_of_one_device(alone, form):
    text = Text()
    found = list(losses(form, text, Shape(text.vocabulary), Plan(steps=STEPS)))
    assert found == pytest.approx(alone, abs=2e-6)
    assert found[-1] < found[0] - 0.5


def test_a_batch_is_the_text_and_what_comes_next():
    text = Text()
    ids, targets = text.batch(step=3, rows=4, tokens=16)
    assert torch.equal(ids[:, 1:], targets[:, :-1])
    assert torch.equal(ids, text.batch(3, 4, 16)[0])
    assert not torch.equal(ids, text.batch(4, 4, 16)[0])
    assert len(text.alphabet) <= text.vocabulary


def test_the_table_says_how_far_a_form_strays_and_the_picture_has_a_curve_for_each():
    curves = [Curve("one", [3.0, 2.0], 1.0), Curve("other", [3.0, 2.25], 2.0)]
    told = table(curves).splitlines()
    assert told[1].split() == ["one", "3.00000", "2.00000", "0.0e+00", "0.500"]
    assert told[2].split() == ["other", "3.00000", "2.25000", "2.5e-01", "1.000"]
    assert drawn(curves).count("<polyline") == 2


def test_the_mlp_learns_the_same_by_host_and_by_fabric():
    command = [*warm_python(), "-m", "softmesh", "run", str(EXAMPLES / "train_mlp.py"), "--steps", "10"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    assert "The losses are the same to the last bit." in result.stdout


@pytest.mark.parametrize(
    ("script", "given", "told"),
    [
        ("char_gpt/run.py", ["--forms", "TP 9"], "TP 8"),
        ("char_gpt/run.py", ["--steps", "0"], "--steps must be at least 1, got 0"),
        (
            "char_gpt/run.py",
            ["--forms", "1 device", "--steps", "1", "--plot", "no/such/losses.svg"],
            "--plot must be a file in a folder that exists, got no/such/losses.svg",
        ),
        (
            "char_gpt/run.py",
            ["--forms", "1 device", "--steps", "1", "--plot", "."],
            "--plot must be a file in a folder that exists, got .",
        ),
        (
            "char_gpt/stage.py",
            ["--steps", "1", "--losses", "no/such/losses.json"],
            "--losses must be a file in a folder that exists, got no/such/losses.json",
        ),
        ("train_pipeline.py", ["nosuch"], "must be one of gpipe, 1f1b, interleaved, got 'nosuch'"),
    ],
)
def test_a_script_refuses_what_it_cannot_do(script, given, told, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [script, *given])
    monkeypatch.syspath_prepend(str(EXAMPLES / "char_gpt"))
    with pytest.raises(SystemExit) as ended, aliased():
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.err.startswith("usage: ")
    assert told in printed.err
    assert printed.out == ""  # nothing has run
