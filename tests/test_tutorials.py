"""The tutorials TT-NN's users have in hand, as the scripts in examples/, each run and held to its claims."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from warm_python import warm_python

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.runtime.device_lifecycle import open_meshes

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name: str) -> dict[str, Any]:
    """The script's own names after it ran to its end."""
    with aliased():
        return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def in_a_process(*command: str) -> str:
    result = subprocess.run([*warm_python(), "-m", *command], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def shard_text(value: str) -> str:
    row = f"[ {value},  {value},  ...,  {value},  {value}]"
    below = "\n" + " " * 15
    rows = f",{below}".join([row, row, "...", row, row])
    return f"ttnn.Tensor([[[{rows}]]], shape=Shape([1, 1, 32, 32]), dtype=DataType::FLOAT32, layout=Layout::TILE)\n"


@pytest.fixture(autouse=True)
def nothing_stays_open():
    yield
    left = open_meshes()
    for mesh in left:
        mesh.close()
    assert left == []


def test_the_mesh_tutorial_prints_what_it_says():
    text = in_a_process("softmesh", "run", str(EXAMPLES / "tutorial_mesh.py"))
    assert text.startswith("MeshDevice(1x2 grid, 2 devices)\n")
    assert "MeshDevice(rows=1, cols=2)" in text
    assert "Dev. ID: 0" in text
    ones, twos = shard_text("1.0000"), shard_text("2.0000")
    assert f"Two shards in host memory:\n{ones}{twos}" in text
    on_devices = f"device_id: 0, MeshCoordinate([0, 0])\n{ones}device_id: 1, MeshCoordinate([0, 1])\n{twos}"
    assert f"each on its device:\n{on_devices}" in text
    assert "sharded: Shape([1, 1, 32, 32]) on each device, (1, 1, 32, 128) in all" in text


def test_the_mesh_tutorial_computes_gelu_on_one_device_and_on_four():
    names = run_example("tutorial_mesh.py")
    expected = names["expected"]
    assert list(names["output_tensor"].shape) == [1, 1, 32, 32]
    assert ttnn.placements(names["output_tensor"]) == (ttnn.Replicate(), ttnn.Shard(3))
    assert names["difference"].abs().max() <= 2**-7
    torch.testing.assert_close(names["composed"], expected, rtol=2**-7, atol=2**-7)
    assert len(names["replicas"]) == 4
    assert all(torch.equal(replica, names["composed"]) for replica in names["replicas"])


def test_the_falcon_mlp_agrees_with_torch_on_one_device_and_data_parallel():
    names = run_example("falcon_mlp.py")
    assert names["single_pcc"] >= 0.98
    assert names["parallel_pcc"] >= 0.98
    assert list(names["ttnn_output"].shape) == [1, 1, 128, 64]
    torch.testing.assert_close(names["float32_output"], names["torch_output"], rtol=1e-4, atol=1e-5)


def test_the_falcon_mlp_stores_replicated_weights_once():
    names = run_example("falcon_mlp.py")
    weight = names["parameters"].dense_h_to_4h.weight
    assert ttnn.placements(weight) == (ttnn.Replicate(), ttnn.Replicate())
    assert weight.view_data().numel() == 64 * 256
    assert ttnn.placements(names["ttnn_output"]) == (ttnn.Replicate(), ttnn.Shard(0))


def test_assert_with_pcc_of_the_tutorial_can_fail():
    assert_with_pcc = run_example("falcon_mlp.py")["assert_with_pcc"]
    with pytest.raises(AssertionError, match="below"):
        assert_with_pcc(torch.arange(8.0), torch.arange(8.0).flip(0), 0.98)


def test_the_falcon_mlp_runs_in_a_process_of_its_own():
    text = in_a_process("softmesh", str(EXAMPLES / "falcon_mlp.py"))
    assert "dense_h_to_4h.weight: ttnn.Tensor Shape([64, 256]) DataType.BFLOAT16 Layout.TILE" in text
    assert "four devices: pcc 0.99" in text


def test_replicated_tensors_multiply_alike_on_every_device():
    names = run_example("replicated_matmul.py")
    expected = names["a"].float() @ names["b"].float()
    assert list(names["output"].shape) == [4, 1, 64, 128]
    assert len(names["replicas"]) == 8
    for replica in names["replicas"]:
        torch.testing.assert_close(replica.float(), expected, rtol=2**-7, atol=2**-7)
