"""docs/code-tour.md tells the truth: it names every package and root module, and the calls it follows go that way."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import softmesh as ttnn
from softmesh.dispatch.operation import OPERATIONS
from softmesh.report.layers_picture import Layers
from softmesh.runtime.device_lifecycle import open_meshes

ROOT = Path(__file__).parent.parent.parent
TOUR = (ROOT / "docs" / "code-tour.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "softmesh"
STEP = re.compile(r"^\d+\. `(?P<file>[\w/]+\.py)` `(?P<name>[\w.]+)`: \S", re.MULTILINE)


def section(title: str) -> str:
    """What stands below a heading of this text, up to the next of its kind."""
    kind = title.split(" ")[0]
    return re.split(rf"^{kind} ", TOUR.split(f"\n{title}", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


WALKS = {number: STEP.findall(section(f"### {number}. ")) for number in range(1, 6)}


def rows(title: str) -> list[str]:
    return [row.split(" | ")[0].strip("| ") for row in section(title).splitlines() if row.startswith("| ")][1:]


def test_the_table_names_every_package_and_root_module_in_the_order_of_the_layers() -> None:
    held = [unit for layer in Layers.read(ROOT / "docs" / "layers.yaml").layers for unit in layer.holds]
    assert rows("## Every package and root module") == [f"`{unit}`" for unit in held]


def test_the_glossary_has_fifteen_words() -> None:
    assert len(rows("## Fifteen words")) == 15


def test_every_file_and_folder_that_the_tour_names_is_there() -> None:
    found = (*ROOT.glob("*.py"), *PACKAGE.rglob("*"), *ROOT.glob("tests/unit/*.py"))
    paths = [f"/{path.relative_to(ROOT)}" + "/" * path.is_dir() for path in found]
    named = re.findall(r"`([\w/]+\.py|[\w/]+/)`", TOUR)
    assert len(named) > 100
    for name in named:
        assert any(path.endswith(f"/{name}") for path in paths), name


@pytest.mark.parametrize("number", WALKS)
def test_the_functions_of_a_walk_are_where_it_says(number: int) -> None:
    assert len(WALKS[number]) >= 9
    for file, name in WALKS[number]:
        assert name in set(_defined(ast.parse((PACKAGE / file).read_text(encoding="utf-8")))), f"{file} {name}"


def _defined(node: ast.AST, within: str = "") -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield within + child.name
            yield from _defined(child, f"{within}{child.name}.")


# -- the program that the first four walks follow ----------------------------------------------------

PROGRAM = re.search(r"```python\n(.*?)```", section("## Five calls, followed"), re.DOTALL)


@pytest.fixture(scope="module")
def calls() -> Iterator[dict[str, list[tuple[str, str]]]]:
    """By walk, (file, function) of all that its part of the program calls in softmesh, in order."""
    assert PROGRAM is not None
    for mesh in open_meshes():  # which other tests keep: the program sets a fabric first
        ttnn.close_mesh_device(mesh)
    for op in OPERATIONS.values():
        op.forget_plans()  # as in a new process
    first, *parts = re.split(r"^# walk (\d)\n", PROGRAM[1], flags=re.MULTILINE)
    names: dict[str, Any] = {}
    exec(first, names)
    yield {number: _called(text, names) for number, text in zip(parts[::2], parts[1::2], strict=True)}
    for mesh in open_meshes():
        ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def _called(code: str, names: dict[str, Any]) -> list[tuple[str, str]]:
    called: list[tuple[str, str]] = []
    inside = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(inside):
            called.append((frame.f_code.co_filename.removeprefix(inside), frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        exec(code, names)
    finally:
        sys.setprofile(before)
    return called


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_walk_goes_the_way_of_its_calls(number: int, calls: dict[str, list[tuple[str, str]]]) -> None:
    left = iter(calls[str(number)])
    for file, name in WALKS[number]:
        step = (file, name.rpartition(".")[2])
        assert step in left, f"{step} is not called, or not after what the list has before it"
