"""The Llama block of unified ops: written once, it agrees with torch wherever it runs and however it is placed."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.runtime.device_lifecycle import open_meshes

EXAMPLE = Path(__file__).parent.parent / "examples" / "unified_llama_block.py"
LLAMA: dict[str, Any] = runpy.run_path(str(EXAMPLE))


@pytest.fixture(autouse=True)
def _fabric():
    for mesh in open_meshes():  # of tests that ran before in this process
        mesh.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    yield
    for mesh in open_meshes():
        mesh.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 4), (8, 4)])
def test_a_block_written_once_agrees_with_torch_in_every_placement_and_sends_what_that_needs(shape):
    values = LLAMA["random_values"]()
    expected = LLAMA["torch_block"](values["x"], values)
    inserted = {}
    with ttnn.create_mesh_device(ttnn.MeshShape(shape)) as mesh:
        mesh.axis_names = ("dp", "tp")
        for how in sorted(LLAMA["PLACEMENTS"]):
            with ttnn.explain(show=False) as program:
                output = LLAMA["run"](mesh, values, how)
            torch.testing.assert_close(output, expected, atol=1e-4, rtol=1e-4)
            inserted[how] = sum(len(op.plan.inserted) for op in program.ops)
    assert inserted["data parallel"] == 0
    assert (inserted["tensor parallel"] > 0) == (inserted["2-D"] > 0) == (shape != (1, 1))


def test_the_placements_are_what_their_names_say():
    values = LLAMA["random_values"]()
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        mesh.axis_names = ("dp", "tp")
        placed = {how: LLAMA["placed"](values, mesh, placement) for how, placement in LLAMA["PLACEMENTS"].items()}
        replicate, rows, columns = ttnn.Replicate(), ttnn.Shard(0), ttnn.Shard(1)
        assert ttnn.placements(placed["data parallel"]["x"]) == (rows, rows)
        assert ttnn.placements(placed["data parallel"]["q"]) == (replicate, replicate)
        assert ttnn.placements(placed["tensor parallel"]["q"]) == (replicate, columns)
        assert ttnn.placements(placed["tensor parallel"]["down"]) == (replicate, rows)
        assert ttnn.placements(placed["2-D"]["gate"]) == (rows, columns)
