"""`softmesh plan`: what it prints, what it writes, and what it says of mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softmesh.cli import commands

PROGRAM = """
import torch
import ttnn

def mlp(device, width=1024, rows=32):
    def weight(*shape):
        return ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    x, up, down = weight(1, 1, rows, width), weight(width, 4 * width), weight(4 * width, width)
    return ttnn.matmul(ttnn.gelu(ttnn.matmul(x, up)), down)
"""


LONG_CONTEXT = """
import torch
import ttnn

def attention(device, length=32768):
    q, k, v = (
        ttnn.from_torch(torch.zeros(1, 1, length, 128), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for _ in range(3)
    )
    return ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
T3000 = ("--system", "T3000")


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(PROGRAM)
    return str(path)


def run(*args: str) -> Result:
    # ttnn may have been given softmesh's place by another test of this process
    return CliRunner().invoke(commands, ["plan", *args], env={"SOFTMESH_ALIAS": "force"})


def document(*args: str) -> dict[str, object]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output, parse_constant=pytest.fail)
    return found


def test_it_tells_what_to_open_what_it_takes_and_how_good_that_is(program: str) -> None:
    result = run(program, "--system", "T3000", "width=2048")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.output.splitlines() if line}
    assert "of T3000, FABRIC_1D" in lines["open"]
    assert "tensor" in lines["parallel"]
    assert lines["decode"].endswith(", the optimum of the 2 meshes compared")
    assert lines["memory"].endswith("of 12.0 GiB on each device")
    assert "bound" not in lines  # there is no gap of which it would tell


def test_constraints_are_said_by_options(program: str) -> None:
    found = document(
        f"{program}:mlp", "--system", "T3000", "--mesh", "2x4", "--pin", "up=R,S0", "--dtype", "down=bfloat8_b"
    )
    tensors = found["tensors"]
    assert isinstance(tensors, dict)
    assert found["mesh"] == [2, 4]
    assert tensors["up"] == {"placements": ["Replicate", "Shard(0)"], "dtype": "BFLOAT16"}
    assert tensors["down"]["dtype"] == "BFLOAT8_B"


def test_an_axis_is_kept_for_users(program: str) -> None:
    found = document(program, "--system", "T3000", "--users-axis", "0", "--mesh", "2x4", "rows=512")
    tensors = found["tensors"]
    assert isinstance(tensors, dict)
    assert tensors["up"]["placements"][0] == "Replicate"


@pytest.mark.parametrize("shape", ["1x4", "4x2", "2x3", "1x1"])
def test_any_mesh_that_can_be_opened_may_be_asked_for(program: str, shape: str) -> None:
    assert document(program, "--system", "T3000", "--mesh", shape)["mesh"] == [int(n) for n in shape.split("x")]


def test_what_is_not_looked_at_is_told(program: str, tmp_path: Path) -> None:
    told = run(program, "--system", "T3000", "--goal", "training").output
    assert "in several stages: a step of training is not cut" in told
    assert "own ops" not in told
    long = tmp_path / "long.py"
    long.write_text(LONG_CONTEXT)
    assert re.search(r"own ops +a ring of keys .*--own-ops\) could save up to 8\d%", run(str(long), *T3000).output)
    assert "own ops" not in run(str(long), *T3000, "--own-ops").output


def test_a_conflict_is_an_answer_with_a_code_of_its_own(program: str) -> None:
    result = run(program, "--system", "N300", "--pin", "up=R,R", "--split", "up", "--tile-aligned")
    assert result.exit_code == 1
    assert "cannot be kept together: up lies as Replicate, Replicate; up is not replicated." in result.output


def test_the_plan_is_written_as_a_file(program: str, tmp_path: Path) -> None:
    to = tmp_path / "planned.py"
    result = run(program, "--system", "N300", "-o", str(to))
    assert result.exit_code == 0, result.output
    assert "ttnn.matmul(" in to.read_text()
    compile(to.read_text(), str(to), "exec")


def test_arguments_that_a_function_hands_on_are_taken(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(PROGRAM + "\n\ndef handing(device, **sizes):\n    return mlp(device, **sizes)\n")
    result = CliRunner().invoke(commands, ["plan", f"{other}:handing", "--system", "N300", "width=128"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--system", "T3000", "width"], "mlp takes width=..., rows=...; got 'width'"),
        (["--system", "T3000", "widht=4"], "Did you mean 'width'?"),
        (["--system", "T3000", "--pin", "up=R,X"], "a placement is R, or S and a dim"),
        (["--system", "T3000", "--pin", "up"], "--pin is written as"),
        (["--system", "T3000", "--pieces", "up=1"], "--pieces is written as"),
        (["--system", "T3000", "--mesh", "2by4"], "--mesh is a shape such as 2x4"),
        (["--system", "T3000", "--dtype", "up=bfloat8"], "there is no dtype 'bfloat8'"),
        (["--system", "T3000", "--fabric", "1D"], "There is no fabric config '1D'"),
        (["--system", "T3000", "--split", "wq"], "no weight, input or cache is called 'wq'"),
        (["--system", "T3000", "--memory-share", "2"], "between 0 and 1"),
        (["--system", "T3000", "--pin", "up=S1"], "up lies as Shard(1) cannot be: it has 1 placement, and a mesh here"),
        (["--system", "T3000", "--pin", "up=R,S4"], "up [1024, 4096] has no dim 4"),
        (["--system", "T3000", "--pieces", "up=2:32"], "up [1024, 4096] has no dim 2"),
        (["--system", "T3000", "--users-axis", "2"], "a mesh here has axes 0 to 1"),
        (["--system", "T3000", "--users-axis", "-1"], "a mesh here has axes 0 to 1"),
        (["--system", "T3000", "--mesh", "8"], "a mesh here has 2 axes"),
        (["--system", "T3000", "--stages", "3"], "cut into equal stages, 1, 2, 4, 8, and not into 3"),
        (["--system", "T3000", "--stages", "2"], "2 stages need as many layers, and 1 can be told apart"),
        (["--system", "T3000", "--taken", "2x2@5,5"], "The submesh 2x2@5,5 that is said to be taken is not there: "),
        (["--system", "T3000", "--why", "-1"], "-1 is not in the range"),
        (["--system", "T3000", "--gap", "-1"], "gap is a part of the plan's time"),
        (["--system", "T3001"], "No system is called 'T3001'"),
        (["--system", "T3000", "--down", "link:0-9"], "9"),
        ([], "Missing option '--system'"),
    ],
)
def test_mistakes_are_told(program: str, args: list[str], told: str) -> None:
    result = run(program, *args)
    assert result.exit_code in (1, 2)
    assert told in result.output
    assert "Traceback" not in result.output


def test_helpers_are_not_planned_and_what_a_function_needs_is_told(tmp_path: Path) -> None:
    model = tmp_path / "helped.py"
    model.write_text(
        "import torch, ttnn\n"
        "def put(device, *shape):\n"
        "    return ttnn.from_torch(torch.zeros(shape), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)\n"
        "def model(device, rows):\n"
        "    return ttnn.matmul(put(device, rows, 64), put(device, 32, 64))\n"
    )
    assert "model needs rows=...: give it, or the function a default." in run(str(model), "--system", "N300").output
    refused = run(str(model), "--system", "N300", "rows=32")
    assert refused.exit_code == 1
    assert refused.output.rstrip().endswith("(helped.py:5)")


def test_a_function_that_is_not_there_is_told(program: str, tmp_path: Path) -> None:
    told = run(f"{program}:mpl", "--system", "N300").output
    assert "has no function or torch module 'mpl'. Did you mean 'mlp'?" in told
    assert "There is no file nothing.py" in run("nothing.py", "--system", "N300").output
    (tmp_path / "several.py").write_text("def one(device): ...\ndef other(mesh): ...\n")
    assert "Of a device it has: one, other." in run(str(tmp_path / "several.py"), "--system", "N300").output
    (tmp_path / "broken.py").write_text("def (\n")
    assert "broken.py:1" in run(str(tmp_path / "broken.py"), "--system", "N300").output


WHOLE_PROGRAM = """
import sys
import torch
import ttnn

def block(device, up, down, x):
    return ttnn.all_reduce(ttnn.matmul(ttnn.gelu(ttnn.matmul(x, up)), down))

def main():
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        halves = ttnn.ShardTensor2dMesh(mesh, dims=(None, 0), mesh_shape=(2, 4))
        width = int(sys.argv[1])

        def put(*shape, mapper=None):
            values = torch.randn(shape)
            return ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)

        x, up, down = put(1, 1, 32, width), put(width, 4 * width), put(4 * width, width, mapper=halves)
        result = ttnn.to_torch(block(mesh, up, down, x), mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
    print("a result")
    assert result.abs().sum() > 0, "all zeros"
    assert len(sys.argv) == 2, "it is told to fail"

if __name__ == "__main__":
    main()
"""


def test_a_program_that_opens_its_own_mesh_is_planned_as_on_one_device(program: str, tmp_path: Path) -> None:
    whole, planned = tmp_path / "whole.py", tmp_path / "planned.py"
    whole.write_text(WHOLE_PROGRAM)
    result = run(str(whole), *T3000, "--json", "-o", str(planned), "1024")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["seconds"] == document(program, *T3000)["seconds"]
    assert result.stderr == f"written: {planned}\n"  # a check of values holds, and what it prints is not shown
    tables = planned.read_text()
    assert all(f'"{name}": ((1024, 4096)' in tables for name in ["up"])
    assert "run_globals" not in tables


def test_a_program_that_ends_too_early_is_planned_so_far_with_a_warning(tmp_path: Path) -> None:
    whole = tmp_path / "whole.py"
    whole.write_text(WHOLE_PROGRAM)
    result = run(str(whole), "--system", "N300", "64", "more")
    assert result.exit_code == 0, result.output
    assert "Warning: " in result.stderr
    assert "ended with AssertionError: it is told to fail. What it did before is planned" in result.stderr
    assert "It was run on one device.\n" in result.stderr


def test_a_program_without_ops_or_without_an_end_is_told(tmp_path: Path) -> None:
    none, endless = tmp_path / "none.py", tmp_path / "endless.py"
    none.write_text("raise SystemExit('no model here\\nsee the manual')\n")
    told = run(str(none), *T3000).output
    assert "called no op on a device: there is nothing to plan. It ended with exit code no model here." in told
    assert f"planned as {none}:NAME" in told
    endless.write_text(
        "import torch, ttnn\n"
        "device = ttnn.open_device(device_id=0)\n"
        "x = ttnn.from_torch(torch.zeros(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)\n"
        "while True:\n"
        "    x = ttnn.relu(x)\n"
    )
    assert "ops were called by endless.py:5: plan one step of the program" in run(str(endless), *T3000).output


TORCH = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=64, words=10):
        super().__init__()
        self.words, self.out = torch.nn.Embedding(words, width), torch.nn.Linear(width, width)

    def forward(self, tokens, x):
        return self.out(self.words(tokens) + x)

net = Net(32)
"""


def test_a_torch_module_is_planned_for_shapes_of_its_inputs(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(TORCH)
    made = run(f"{file}:net", "--system", "N300", "tokens=1x8:int64", "x=1x8x32", "--json")
    assert made.exit_code == 0, made.output
    assert "out.weight" in made.stdout
    by_class = run(f"{file}:Net", "--system", "N300", "width=32", "tokens=1x8:int64", "x=1x8x32", "--json")
    assert json.loads(by_class.stdout)["seconds"] == json.loads(made.stdout)["seconds"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["net", "x=1x8x32"], "net needs tokens=1x32:int64: shapes of its inputs."),
        (
            ["net", "x=1x8x33", "tokens=1x8:int64"],
            "torch.export has no graph of Net for x [1, 8, 33] torch.float32, tokens",
        ),
        (["net", "x=1x8x32", "tokens=1x8:int63"], "torch has no dtype 'int63'"),
        (["net", "x=rows", "tokens=1x8:int64"], "an input of torch is written as x=1x32x512"),
        (["Net", "width=[]", "x=1x8x32"], "TypeError"),
    ],
)
def test_mistakes_about_torch_modules_are_told(tmp_path: Path, args: list[str], told: str) -> None:
    file = tmp_path / "net.py"
    file.write_text(TORCH)
    result = run(f"{file}:{args[0]}", "--system", "N300", *args[1:])
    assert result.exit_code != 0
    assert told in " ".join(result.output.split())


def test_a_program_that_sends_by_itself_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    program, planned = tmp_path / "sends.py", tmp_path / "planned.py"
    program.write_text(
        "import torch, ttnn\n"
        "mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))\n"
        "x = ttnn.from_torch(torch.zeros(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)\n"
        "y = ttnn.matmul(x, x)\n"
        "y = ttnn.point_to_point(y, ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1))\n"
    )
    result = run(str(program), "--system", "N300", "-o", str(planned))
    assert (result.exit_code, planned.exists()) == (1, False)
    assert "point_to_point at sends.py:5 moves data between devices" in result.output
