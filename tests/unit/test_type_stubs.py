"""The stubs are what the definitions give, and a type checker sees programs through them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from warm_python import warm_python

import softmesh as ttnn
from softmesh.dispatch.entry_point import EntryPoint
from softmesh.namespaces import LAZY
from softmesh.type_stubs.__main__ import PACKAGE, main

PROGRAM = """
import torch

import softmesh as ttnn
from softmesh import train
from softmesh.transformer import scaled_dot_product_attention

mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 4))
x = ttnn.from_torch(torch.ones(1, 8, 32, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
product: ttnn.Tensor = ttnn.matmul(x, x, transpose_b=True, memory_config=ttnn.L1_MEMORY_CONFIG)
attention: ttnn.Tensor = ttnn.transformer.scaled_dot_product_attention(x, x, x, is_causal=True)
again: ttnn.Tensor = scaled_dot_product_attention(x, x, x)
gathered: ttnn.Tensor = ttnn.all_gather(x, dim=3, cluster_axis=1, topology=ttnn.Topology.Linear)
ready = ttnn.create_global_semaphore(mesh, ttnn.CoreRangeSet([]), 0)
late: ttnn.Tensor = ttnn.experimental.all_gather_async(x, None, 3, [ready, ready], num_links=1)
values, indices = ttnn.topk(x, k=4)
parts: list[ttnn.Tensor] = ttnn.split(x, 32, dim=3)
unified: ttnn.Tensor = ttnn.distributed.matmul(x, x, output_topology=[ttnn.Replicate(), ttnn.Shard(3)])
cut: ttnn.Tensor = ttnn.slice(ttnn.mul(x, 2.0) + 1, starts=[0, 0, 0, 0], ends=[1, 8, 32, 32])
ttnn.visualize_tensor(cut)
with train.no_grad():
    ttnn.deallocate(x)
"""
MISTAKES = {
    "ttnn.mtamul(x, x)": '"mtamul"',
    "ttnn.matmul(x, x, transposed=True)": '"transposed"',
    "ttnn.transformer.scaled_dot_product(x, x, x)": '"scaled_dot_product"',
    "ttnn.all_gather(x, dim='width')": '"all_gather" has incompatible type "str"',
    "ttnn.relu()": 'Missing positional argument "input_tensor"',
    "ttnn.experimental.all_gather_async(x, num_links=1)": "No overload variant",
    "ttnn.distributed.matmul(x)": 'No overload variant of "matmul"',
}


def outdated(*folders: Path) -> list[list[str]]:
    """Asked of a process of its own: names that other tests brought in would stand in the stubs as well."""
    program = (
        "import sys; from pathlib import Path; from softmesh.type_stubs.__main__ import outdated\n"
        "for folder in sys.argv[1:]: print(*outdated(Path(folder)))"
    )
    command = [*warm_python(), "-c", program, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_the_stubs_are_up_to_date_and_one_that_differs_or_is_left_over_is_told(tmp_path: Path) -> None:
    for stub in PACKAGE.rglob("*.pyi"):
        copy = tmp_path / stub.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(stub.read_bytes())
    (tmp_path / "transformer.pyi").write_text("")
    (tmp_path / "gone.pyi").write_text("")
    assert outdated(PACKAGE, tmp_path) == [[], ["gone.pyi", "transformer.pyi"]]


def test_the_command_takes_check_and_nothing_else(capsys) -> None:
    assert main(["--chekc"]) == 2
    assert "--check" in capsys.readouterr().err


def test_every_op_and_every_late_name_is_in_the_stub() -> None:
    text = (PACKAGE / "__init__.pyi").read_text(encoding="utf-8")
    ops = {name for name, value in vars(ttnn).items() if isinstance(value, EntryPoint)}
    for name in {*ops, *LAZY}:
        told = (f"def {name}(", f"\n{name} = ", f"\n{name}: ", f" as {name}\n", f" as {name},")
        assert any(form in text for form in told), name
    assert "__getattr__" not in text


def test_a_type_checker_passes_right_programs_and_finds_mistakes(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(PROGRAM)
    wrong.write_text(PROGRAM + "\n".join(MISTAKES) + "\n")
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\n[mypy-torch.*,numpy.*,rich.*]\nfollow_imports = skip\n")  # they take long
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--follow-imports", "silent"]
    options = ["--cache-dir", str(tmp_path / "cache"), "--no-error-summary", "--no-color-output"]
    checked = subprocess.run(
        [*command, *options, str(right), str(wrong)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=PACKAGE.parent,
    )
    first = PROGRAM.count("\n") + 1
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert [line.split(": error: ")[0].rpartition("/")[2] for line in errors] == [
        f"wrong.py:{first + at}" for at in range(len(MISTAKES))
    ], checked.stdout + checked.stderr
    for line, part in zip(errors, MISTAKES.values(), strict=True):
        assert part in line
