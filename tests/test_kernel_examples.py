"""The examples with kernels run to their end, on any machine and on a T3000, and agree with the collectives."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.runtime.device_lifecycle import open_meshes

EXAMPLES = Path(__file__).parent.parent / "examples"
RINGS = ["ring_all_gather_kernel.py", "ring_reduce_scatter_kernel.py"]


@pytest.fixture(autouse=True)
def idle():
    _close_all()
    yield
    left = open_meshes()
    _close_all()
    ttnn.use_system(None)
    assert left == []


def _close_all() -> None:
    for mesh in open_meshes():
        mesh.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def run_example(name: str) -> dict[str, Any]:
    with aliased():
        return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.parametrize("system", [None, "T3000"])
@pytest.mark.parametrize("name", RINGS)
def test_a_collective_written_as_kernels_agrees_with_the_collective(name, system, capsys):
    ttnn.use_system(system)
    assert run_example(name)["agree"]
    assert "agree" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*not contributions to a sum")  # they are: stacked, and split over the devices
@pytest.mark.parametrize("name", [*RINGS, "kernel_matmul.py"])
def test_the_kernels_of_the_examples_make_no_mistake_that_strict_mode_knows(name, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    run_example(name)


def test_the_product_over_cores_agrees_with_torch(capsys):
    assert run_example("kernel_matmul.py")["pcc"] > 0.9999
    assert "4 products of [256, 128] and [128, 256], each on 16 cores" in capsys.readouterr().out
