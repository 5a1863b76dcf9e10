"""The examples that communicate: each runs to its end, prints how it agrees with torch, and places as it says."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from warm_python import warm_python

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.fabric import settings
from softmesh.runtime.device_lifecycle import open_meshes

EXAMPLES = Path(__file__).parent.parent / "examples"
WITH_COLLECTIVES = [
    "falcon_mlp_all_gather.py",
    "falcon_mlp_all_reduce.py",
    "hybrid_parallel.py",
    "ring_attention.py",
]


def run_example(name: str) -> dict[str, Any]:
    """The script's own names after it ran to its end."""
    with aliased():
        return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def correlations(printed: str) -> list[float]:
    return [float(found) for found in re.findall(r"pcc (\d\.\d+)", printed)]


@pytest.fixture(autouse=True)
def nothing_stays_behind():
    for mesh in open_meshes():  # of tests that ran before in this process
        mesh.close()
    yield
    left, fabric = open_meshes(), settings.active()
    for mesh in left:
        mesh.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    assert left == []
    assert not fabric.is_on


@pytest.mark.parametrize("name", WITH_COLLECTIVES)
def test_an_example_with_collectives_runs_on_a_t3000_and_agrees_with_torch(name):
    command = [*warm_python(), "-m", "softmesh", "run", "--system", "T3000", str(EXAMPLES / name)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    found = correlations(result.stdout)
    assert found
    assert min(found) >= 0.999


@pytest.mark.parametrize("name", WITH_COLLECTIVES)
def test_an_example_with_collectives_runs_on_a_mesh_of_any_machine(name, capsys):
    run_example(name)
    assert min(correlations(capsys.readouterr().out)) >= 0.999


def test_the_gathering_mlp_splits_both_weights_by_columns_and_gathers_the_result_alike():
    names = run_example("falcon_mlp_all_gather.py")
    by_columns = (ttnn.Replicate(), ttnn.Shard(1))
    assert ttnn.placements(names["parameters"].dense_h_to_4h.weight) == by_columns
    assert ttnn.placements(names["parameters"].dense_4h_to_h.weight) == by_columns
    assert ttnn.placements(names["ttnn_output"]) == (ttnn.Replicate(), ttnn.Shard(3))
    assert ttnn.placements(names["whole"]) == (ttnn.Replicate(), ttnn.Replicate())
    assert names["agree"]


def test_the_reducing_mlp_shows_the_partial_sum_and_ends_with_one_value(capsys):
    names = run_example("falcon_mlp_all_reduce.py")
    printed = capsys.readouterr().out
    assert "ff2_partial  Shape([1, 1, 128, 256]) on each device, (Replicate, Partial(sum))" in printed
    assert ttnn.placements(names["ttnn_output"]) == (ttnn.Replicate(), ttnn.Replicate())
    assert names["agree"]


def test_the_hybrid_keeps_the_batch_split_down_the_columns_and_adds_up_along_the_rows(capsys):
    names = run_example("hybrid_parallel.py")
    printed = capsys.readouterr().out
    assert "partial  Shape([2, 1, 64, 256]) on each device, (Shard(0), Partial(sum))" in printed
    assert ttnn.placements(names["output"]) == (ttnn.Shard(0), ttnn.Replicate())
    assert names["agree"]


def test_ring_attention_is_exact_to_float32_and_holds_one_block_on_each_device(capsys):
    names = run_example("ring_attention.py")
    printed = capsys.readouterr().out
    float32_error = float(re.search(r"FLOAT32.*off by at most (\S+)", printed)[1])
    assert float32_error <= 1e-5
    assert list(names["k"].shape) == [1, 4, 512 // 8, 64]


def test_a_block_passed_on_around_the_whole_ring_comes_home():
    names = run_example("ring_attention.py")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=2)
        block = ttnn.from_torch(names["torch_k"], layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
        travelled = [block]
        for _ in range(8):
            travelled.append(names["passed_on"](travelled[-1]))
        composer = ttnn.ConcatMeshToTensor(mesh, dim=2)
        found = [ttnn.to_torch(each, mesh_composer=composer) for each in travelled]
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    for step, blocks in enumerate(found):
        assert blocks.equal(names["torch_k"].roll(64 * step, dims=2))


BROKEN = [  # an example, a line of it, what stands there instead, and what it then says
    (
        "falcon_mlp_all_gather.py",
        "gathered = ttnn.all_gather(gelu, dim=3, num_links=1)",
        "gathered = ttnn.concat([gelu] * DEVICES, dim=3)",
        "the result is not torch's",
    ),
    (
        "falcon_mlp_all_gather.py",
        "whole = ttnn.all_gather(ttnn_output, dim=3, num_links=1)",
        "whole = ttnn_output",
        "not every device has the whole result",
    ),
    (
        "falcon_mlp_all_reduce.py",
        "ff2_linear = ttnn.all_reduce(ff2_partial)",
        "ff2_linear = ff2_partial",
        "the result is not torch's",
    ),
    (
        "falcon_mlp_all_reduce.py",
        "ff2_linear = ttnn.all_reduce(ff2_partial)",
        "ff2_linear = ttnn.all_reduce(ff2_partial) * 1.1",
        "the result is not torch's: off by",
    ),
    (
        "hybrid_parallel.py",
        "output = ttnn.all_reduce(partial, cluster_axis=ALONG_THE_ROW)",
        "output = partial",
        "the result is not torch's",
    ),
    ("ring_attention.py", "k, v = passed_on(k), passed_on(v)", "pass", "not torch's attention: off by"),
    (
        "replicated_matmul.py",
        "output = ttnn.matmul(tt_a, tt_b)",
        "output = ttnn.matmul(tt_a, tt_b) * 1.1",
        "the product is not torch's",
    ),
    (
        "tutorial_mesh.py",
        "output_tensor = ttnn.gelu(ttnn_tensor)",
        "output_tensor = ttnn.relu(ttnn_tensor)",
        "gelu on one device is not torch's",
    ),
    ("unified_llama_block.py", 'activation="silu"', 'activation="gelu"', "is not torch's block: off by"),
    (
        "metal_dispatch.py",
        "EnqueueMeshWorkload(queue, workload, blocking=False)",
        "pass",
        "did not run on all four cores",
    ),
    (
        "train_mlp.py",
        'train.sync_gradients(model, axes=["dp"], mode=mode)',
        "pass",
        "one device trains differ",
    ),
    (
        "train_pipeline.py",
        'train.sync_gradients(model, axes=["dp"])',
        'train.sync_gradients(model, axes=["dp"]) if len(losses) < STEPS else None',
        "the parameters are not those of one device",
    ),
]


@pytest.mark.filterwarnings("ignore::softmesh.SoftmeshWarning")
@pytest.mark.parametrize(("name", "line", "instead", "told"), BROKEN)
def test_an_example_that_computes_something_else_says_so_and_fails(name, line, instead, told, tmp_path, monkeypatch):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert line in text
    broken = tmp_path / name
    broken.write_text(text.replace(line, instead), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises((AssertionError, SystemExit), match=told), aliased():
        runpy.run_path(str(broken), run_name="__main__")
    for mesh in open_meshes():
        mesh.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
