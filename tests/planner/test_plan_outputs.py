"""What `softmesh plan` writes: the program, the picture, the page; and what it prints of what lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softmesh.cli import commands

MODEL = """
import torch
import ttnn

def model(device, rows=64):
    x, up, down = (
        ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for shape in ((1, 1, rows, 1024), (1024, 4096), (4096, 1024))
    )
    return ttnn.matmul(ttnn.gelu(ttnn.matmul(x, up)), down)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("SOFTMESH_SYSTEM", "")  # --system sets it for the process
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def called(*args: str) -> Result:
    return CliRunner().invoke(commands, list(args))


def test_the_program_the_picture_and_the_page_are_written(file: Path) -> None:
    outputs = {name: file.with_name(f"planned.{name}") for name in ("py", "svg", "html")}
    options = ["-o", str(outputs["py"]), "--svg", str(outputs["svg"]), "--html", str(outputs["html"]), "--why", "2"]
    made = called("plan", f"{file}:model", "--system", "N300", *options, "rows=32")
    assert made.exit_code == 0, made.output
    for word in ("matmul x, up", "runners-up", "one more GiB on each device", "what binds"):
        assert word in made.output
    assert outputs["svg"].read_text().startswith("<svg")
    assert "<h3>What binds</h3>" in outputs["html"].read_text()
    ran = called("run", "--system", "N300", str(outputs["py"]))
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("[1, 1, 32, 1024] mean ")


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("-o", "nowhere/planned.py", "There is no folder"),
        ("-o", ".", "is a folder"),
        ("--svg", "planned.jpg", "does not end in .svg or .png"),
        ("--html", "planned.svg", "does not end in .html"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_search(file: Path, option: str, name: str, words: str) -> None:
    made = called("plan", f"{file}:model", "--system", "no such system", option, str(file.parent / name))
    assert made.exit_code == 2
    assert words in made.output


def test_no_word_of_a_table_is_cut(file: Path) -> None:
    shown = called("plan", f"{file}:model", "--system", "N300", "--why", "1", "rows=32").output
    assert re.search(r"-> \w+\(dim \d, axis 1\) of \w+ ", shown)
    assert "\u2026" not in shown


LAYERS = """
import torch
import ttnn

def model(device, width=1024, rows=256):
    def weight(*shape):
        return ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    layers = [{"up": weight(width, 4 * width), "down": weight(4 * width, width)} for _ in range(12)]
    x = weight(1, 1, rows, width)
    for w in layers:
        x = ttnn.add(x, ttnn.matmul(ttnn.gelu(ttnn.matmul(x, w["up"])), w["down"]))
    return ttnn.relu(x)
"""
HEADS = """
import torch
import ttnn

def model(device):
    q, k = (ttnn.from_torch(torch.zeros(1, 8, 64, 64), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            for _ in range(2))
    return ttnn.relu(ttnn.matmul(q, k))
"""
PHONE = 500 - 2 * 14  # pixels between the margins of the page


def page_of(file: Path, *args: str) -> str:
    page = file.with_name("planned.html")
    made = called("plan", f"{file}:model", "--html", str(page), "--why", "1", *args)
    assert made.exit_code == 0, made.output
    return page.read_text()


@pytest.fixture
def layered(file: Path) -> Path:
    file.write_text(LAYERS)
    return file


def test_the_page_has_one_title_and_leads_to_every_layer_and_table(layered: Path) -> None:
    body = page_of(layered, "--system", "N300").partition("<body>")[2]
    (title,) = re.findall("<h1>(.*?)</h1>", body)
    assert title.startswith("decode on a ")
    assert body.count(title) == 1
    links = dict(re.findall('<a href="#([^"]*)">(.*?)</a>', body))
    assert set(links) <= set(re.findall('<section id="([^"]*)"', body))
    assert {"tensors (table)", "ops (table)"} <= set(links.values())
    assert any(name.startswith("layers ") and name.endswith(" times") for name in links.values())


def test_no_text_of_the_page_is_too_small_on_a_phone(layered: Path) -> None:
    pictures = re.findall("<svg.*?</svg>", page_of(layered, "--system", "N300"), re.DOTALL)
    assert len(pictures) > 2
    for picture in pictures:
        shrunk = min(1.0, PHONE / float(re.search(r'viewBox="0 0 ([\d.]+) ', picture)[1]))
        assert all(float(size) * shrunk >= 9 for size in re.findall(r'font-size="([\d.]+)"', picture))


def test_the_legend_has_the_marks_of_this_plan_and_no_others(layered: Path) -> None:
    whole, cut, moved = "all of it on every device", "cut: parts of one colour", "moved on each chip"
    alone = page_of(layered, "--system", "N150")
    assert (whole in alone, cut in alone, moved in alone) == (True, False, False)
    assert "links along" not in alone
    shared = page_of(layered, "--system", "N300")
    assert cut in shared
    assert ("yet added up" in shared) == (">sum</text>" in shared)
    assert "cut along another dim than the last two" not in shared


def test_the_legend_tells_what_a_stack_of_cards_is(tmp_path: Path) -> None:
    file = tmp_path / "heads.py"
    file.write_text(HEADS)
    page = page_of(file, "--system", "N300", "--mesh", "1x2", "--pin", "q=R,S1")
    assert "cut along another dim than the last two" in page
