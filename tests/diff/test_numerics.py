"""`softmesh numerics`: what roundings cost, what changes of precision buy, and what the phases of products lose."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import softmesh as ttnn
from softmesh.cli import commands
from softmesh.diff.fidelity_loss import fidelity_losses
from softmesh.diff.hop_rounding import hop_rounding
from softmesh.diff.recording import recorded
from softmesh.hardware import MathFidelity

pytestmark = pytest.mark.usefixtures("idle_machine")

MODEL = """
import torch
import ttnn

torch.manual_seed(0)
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
    def put(values, dtype, dim):
        mapper = ttnn.ShardTensorToMesh(mesh, dim=dim) if dim is not None else ttnn.ReplicateTensorToMesh(mesh)
        return ttnn.from_torch(values, dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)

    x = put(torch.randn(1, 1, 32, 64), ttnn.bfloat16, None)
    up = put(torch.randn(64, 128) / 8, ttnn.bfloat4_b, 1)
    down = put(torch.randn(128, 64) / 11, ttnn.bfloat16, 0)
    y = ttnn.all_reduce(ttnn.linear(ttnn.gelu(ttnn.linear(x, up)), down))
    ttnn.to_torch(ttnn.get_device_tensors(ttnn.add(x, y))[0])
    print("done")
"""


def numerics(file: Path, *args: str) -> Result:
    return CliRunner().invoke(commands, ["numerics", str(file), *args])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def test_the_weight_in_bfp4_costs_most_and_another_dtype_buys_most(model: Path) -> None:
    result = numerics(model, "--try", "2")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    losses = lines[lines.index("What ops lose by their own rounding:") + 1 :]
    assert re.match(r"  \S+  bfloat4_b  from_torch \(model.py:10, from model.py:13\)", losses[0])
    bought = lines[lines.index("What a change would buy, each tried alone:") + 2]
    assert "from_torch at model.py:13 in bfloat8_b, not bfloat4_b" in bought
    gain = re.search(r"\((-\d+)%\)", bought)
    assert gain is not None
    assert int(gain[1]) < -30
    assert re.search(r"time [+-]\d.*\+.* kB", bought)
    assert re.search(r"linear \(model.py:15\): LoFi \S+ in .*HiFi4 0.0e\+00 in ", result.stdout)
    assert re.search(r"all_reduce \(model.py:15\), 4 devices along mesh axis 1: (\S+, ){2}\S+; float32 ", result.stdout)
    assert "done" not in result.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no file"),
        ("print(1)", "ran an op on a mesh"),
        (MODEL + "raise ValueError('late')", "raised ValueError: late"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "program.py"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    result = numerics(file)
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_phases_and_hops_lose_what_the_arithmetic_says() -> None:
    values = torch.randn(1, 1, 32, 256, generator=torch.Generator().manual_seed(0))

    def program() -> None:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
            x, w = (
                ttnn.from_torch(
                    one,
                    ttnn.bfloat16,
                    layout=ttnn.TILE_LAYOUT,
                    device=mesh,
                    mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=dim),
                )
                for one, dim in ((values, 3), (values[0, 0].T.contiguous(), 0))
            )
            ttnn.all_reduce(ttnn.matmul(x, w))
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)

    run = recorded(program)
    product, summed = (next(one for one in run.entries if one.name == name) for name in ("matmul", "all_reduce"))
    losses = list(fidelity_losses(run, product).items())
    assert [name for name, _ in losses] == list(_PHASES)
    assert all(more > less for (_, more), (_, less) in itertools.pairwise(losses))
    assert losses[-1][1] == 0.0
    assert 2**-8 < losses[0][1] < 2**-4  # five bits of one operand, the last cut off
    hops = hop_rounding(run, summed)
    assert hops is not None
    assert len(hops.hops) == hops.devices - 1 == 7
    assert 0 < hops.once < 2**-8
    assert hops.once < hops.hops[-1]


_PHASES = (MathFidelity.LoFi, MathFidelity.HiFi2, MathFidelity.HiFi3, MathFidelity.HiFi4)
