"""The tutorial notebooks run from top to bottom, and show pictures where they should."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import softmesh
from softmesh.runtime.device_lifecycle import open_meshes

interactiveshell = pytest.importorskip("IPython.core.interactiveshell", reason="IPython runs the cells of notebooks")

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import notebook_outputs  # noqa: E402


@pytest.fixture
def shell(idle_machine):
    shell = interactiveshell.InteractiveShell.instance()
    shell.reset()
    yield shell
    shell.run_cell("%unload_ext softmesh")
    interactiveshell.InteractiveShell.clear_instance()
    for mesh in open_meshes():
        softmesh.close_mesh_device(mesh)


@pytest.mark.parametrize("notebook", notebook_outputs.NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_tutorial_runs_and_shows_what_the_notebook_keeps(shell, notebook):
    cells = notebook_outputs.code_cells(json.loads(notebook.read_text(encoding="utf-8")))
    for number, cell in enumerate(cells, 1):
        shown = notebook_outputs.outputs_of(shell, "".join(cell["source"]), number)
        assert without_numbers(shown) == without_numbers(cell["outputs"]), f"cell {number}: {_AGAIN}"
    kinds = {kind for cell in cells for output in cell["outputs"] for kind in output.get("data", {})}
    assert "text/html" in kinds, "no picture is shown"


def without_numbers(outputs: list[Any]) -> str:
    """Times differ from run to run, and with them the widths of what tells them; ids from test to test."""
    return re.sub(r"\d+(\.\d+)?", "0", json.dumps(outputs))


_AGAIN = "python docs/notebook_outputs.py keeps what it shows today"


def test_there_are_three():
    named = [notebook.stem for notebook in notebook_outputs.NOTEBOOKS]
    assert named == ["collectives_by_hand", "mesh_tensors", "one_chip_to_galaxy"]


def test_a_notebook_runs_in_the_kernel_that_an_editor_would_start():
    """The environment that `make` sets up has that kernel, by the name that the notebooks ask for."""
    manager = pytest.importorskip("jupyter_client.manager", reason="ipykernel brings it")
    notebook = json.loads(notebook_outputs.NOTEBOOKS[1].read_text(encoding="utf-8"))
    kernel, client = manager.start_new_kernel(kernel_name=notebook["metadata"]["kernelspec"]["name"])
    try:
        for cell in notebook_outputs.code_cells(notebook):
            reply = client.execute_interactive("".join(cell["source"]), timeout=60, output_hook=lambda _: None)
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
