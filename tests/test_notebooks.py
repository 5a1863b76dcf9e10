"""The tutorial notebooks run from top to bottom, and show pictures where they should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import softmesh
from softmesh.runtime.device_lifecycle import open_meshes

interactiveshell = pytest.importorskip("IPython.core.interactiveshell", reason="IPython runs the cells of notebooks")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def shell(idle_machine):
    shell = interactiveshell.InteractiveShell.instance()
    shell.reset()
    yield shell
    shell.run_cell("%unload_ext softmesh")
    interactiveshell.InteractiveShell.clear_instance()
    for mesh in open_meshes():
        softmesh.close_mesh_device(mesh)


def code_cells(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_tutorial_runs(shell, notebook):
    shown = []
    for number, cell in enumerate(code_cells(notebook), 1):
        result = shell.run_cell(cell, store_history=True)
        assert result.success, f"cell {number}: {result.error_before_exec or result.error_in_exec!r}"
        shown.append(result.result)
    assert any(hasattr(value, "_repr_html_") for value in shown), "no picture is shown"


def test_there_are_three():
    assert [notebook.stem for notebook in NOTEBOOKS] == ["collectives_by_hand", "mesh_tensors", "one_chip_to_galaxy"]
