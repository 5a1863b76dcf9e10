"""`softmesh diff`, `compare` with torch modules and saved tensors, and what they say to bad input."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

import softmesh as ttnn
from softmesh.cli import commands
from softmesh.diff import Cause

pytestmark = pytest.mark.usefixtures("idle_machine")

MODEL = """
import sys
import torch
import ttnn

mistake = sys.argv[1] if len(sys.argv) > 1 else ""
torch.manual_seed(0)
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
    def put(values, *dims):
        mapper = ttnn.ShardTensor2dMesh(mesh, mesh_shape=(2, 4), dims=dims)
        return ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)

    x = put(torch.randn(2, 1, 32, 64), 0, None)
    up, down = put(torch.randn(64, 128) / 8, None, 1), put(torch.randn(128, 64) / 11, None, 0)
    h = ttnn.gelu(ttnn.linear(x, up))
    if mistake == "gathers":
        h = ttnn.all_gather(h, dim=2, cluster_axis=1)
    y = ttnn.linear(h, down)
    if mistake == "raises":
        raise ValueError("out of ideas")
    if mistake != "forgets":
        y = ttnn.all_reduce(y, cluster_axis=1)
    y = ttnn.add(x, y)
    composer = ttnn.ConcatMesh2dToTensor(mesh, mesh_shape=(2, 4), dims=(0, 1))
    print(ttnn.to_torch(y, mesh_composer=composer).shape)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def diff(*args: object) -> Result:
    return CliRunner().invoke(commands, ["diff", "--system", "T3000", *map(str, args)])


@pytest.fixture(autouse=True)
def _on_a_t3000(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTMESH_SYSTEM", "T3000")


@pytest.mark.parametrize("against", ["one-device", "float32", "golden"])
def test_a_right_program_is_its_reference(model: Path, against: str) -> None:
    result = diff(model, "--against", against)
    assert result.exit_code == 0, result.output
    assert f"compared with {against}" in result.stdout
    assert "within rounding" in result.stdout


@pytest.mark.filterwarnings("ignore::softmesh.PartialWarning")
def test_a_forgotten_reduction_is_named(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = diff(model, "forgets", "--against", "one-device", "-o", page)
    assert result.exit_code == 1, result.output
    assert "First divergence: add at model.py:24" in result.stdout
    assert Cause.PARTIAL_SUM.value in result.stdout
    text = page.read_text(encoding="utf-8")
    assert 'class="first"' in text
    assert "http" not in text
    values = json.loads(text.partition('class="sm-values">')[2].partition("</script>")[0])
    first = values["ops"][str(values["first"])]
    assert first["name"] == "add at model.py:24"
    assert set(first["chips"]) == {str((row, column)) for row in range(2) for column in range(4)}
    assert sum(first["whole"]["ours"]) == sum(first["whole"]["theirs"]) == 8 * 32 * 64
    where, ours, theirs = first["whole"]["furthest"][0]
    assert where.startswith("chip (")
    assert abs(ours - theirs) > 1


@pytest.mark.filterwarnings("ignore::softmesh.PartialWarning")
def test_a_comparison_goes_into_the_visualizers_database(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "records.sqlite"
    assert diff(model, "forgets", "-o", file).exit_code == 1
    with closing(sqlite3.connect(file)) as database:
        records = database.execute(
            "SELECT name, matches, desired_pcc, actual_pcc FROM global_tensor_comparison_records "
            "JOIN output_tensors USING (tensor_id) JOIN operations USING (operation_id) ORDER BY operation_id"
        ).fetchall()
        trace = database.execute("SELECT stack_trace FROM stack_traces").fetchall()
    by_name = {name: (matches, desired, actual) for name, matches, desired, actual in records}
    assert by_name["gelu"][0] == 1
    matches, desired, actual = by_name["add"]
    assert (matches, actual < desired) == (0, True)
    assert any("line 24" in text for (text,) in trace)


def test_another_commit_is_a_reference(model: Path) -> None:
    def git(*command: str) -> None:
        own = ("-c", "user.name=n", "-c", "user.email=n@e.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(model.parent), *own, *command], check=True, capture_output=True)

    git("init", "-q")
    git("add", model.name)
    git("commit", "-qm", "as it was")
    assert diff(model, "--against", "HEAD").exit_code == 0
    model.write_text(MODEL.replace("torch.randn(64, 128) / 8", "torch.randn(64, 128) / 9"), encoding="utf-8")
    result = diff(model, "--against", "HEAD")
    assert result.exit_code == 1, result.output
    assert "from_torch at model.py:12" in result.stdout
    assert "called   from model.py:15" in result.stdout
    other = model.with_name("new.py")
    other.write_text(MODEL, encoding="utf-8")
    assert "has no file new.py" in diff(other, "--against", "HEAD").output


@pytest.mark.filterwarnings("ignore::softmesh.SoftmeshWarning")
def test_a_program_that_raises_after_a_wrong_gather_is_told_of_the_gather(model: Path) -> None:
    result = diff(model, "gathers")
    assert result.exit_code == 1, result.output
    assert "all_gather at model.py:18" in result.stdout
    assert "went on to raise" in result.stdout


@pytest.mark.filterwarnings("ignore::softmesh.PartialWarning")
def test_another_file_is_a_reference(model: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.py"
    old.write_text(MODEL.replace('mistake != "forgets"', "True"), encoding="utf-8")
    assert diff(model, "--against", old).exit_code == 0
    result = diff(model, "forgets", "--against", old)
    assert result.exit_code == 1, result.output
    assert "add at model.py:24" in result.stdout


def saved(model: Path, values: dict[str, torch.Tensor]) -> Path:
    path = model.parent / "saved.safetensors"
    save_file(values, path)
    return path


def outputs(model: Path) -> list[torch.Tensor]:
    """What the four ops of the model make, in plain torch."""
    torch.manual_seed(0)
    x, up, down = torch.randn(2, 1, 32, 64), torch.randn(64, 128) / 8, torch.randn(128, 64) / 11
    x, up, down = (one.bfloat16().float() for one in (x, up, down))
    first = x @ up
    gelu = torch.nn.functional.gelu(first)
    return [first, gelu, gelu @ down, gelu @ down, x + gelu @ down]


def test_saved_tensors_are_matched_by_order_or_by_name(model: Path) -> None:
    made = outputs(model)
    by_order = saved(model, {f"t{at}": value.clone() for at, value in enumerate(made)})
    assert diff(model, "--against", by_order).exit_code == 0
    by_name = saved(model, {"1_gelu": made[1], "4_add": made[4] + torch.randn(made[4].shape)})
    result = diff(model, "--against", by_name)
    assert result.exit_code == 1, result.output
    assert "First divergence: add" in result.stdout


def test_dumped_tensors_are_a_reference(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dumped"
    folder.mkdir()
    for at, values in enumerate(outputs(model)):
        ttnn.dump_tensor(folder / f"{at}.tensorbin", ttnn.from_torch(values, dtype=ttnn.float32))
    result = diff(model, "--against", folder)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere.py"], "There is no file nowhere.py"),
        (["MODEL", "--against", "nothing"], "there is no nothing"),
        (["MODEL", "raises"], "raised ValueError: out of ideas"),
        (["MODEL", "--against", "EMPTY"], "holds no dumped tensors"),
        (["MODEL", "--against", "BROKEN"], "no safetensors file"),
        (["MODEL", "--against", "FEW"], "1 saved tensors cannot be matched with the 5 ops"),
        (["MODEL", "--against", "OTHER"], "has shape (3, 3)"),
        (["MODEL", "-o", "no/such/folder/page.html"], "there is no folder"),
        (["MODEL", "-o", "page.txt"], "ends in none of .html"),
    ],
)
def test_bad_input_is_one_sentence(model: Path, tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.safetensors").write_bytes(b"no tensors")
    save_file({"t": torch.zeros(3, 3)}, tmp_path / "few.safetensors")
    save_file({"1_gelu": torch.zeros(3, 3)}, tmp_path / "other.safetensors")
    named = {
        "MODEL": model,
        "EMPTY": tmp_path / "empty",
        "BROKEN": tmp_path / "broken.safetensors",
        "FEW": tmp_path / "few.safetensors",
        "OTHER": tmp_path / "other.safetensors",
    }
    result = diff(*(named.get(word, word) for word in args))
    assert result.exit_code == 2, result.output
    assert said in result.output.replace("\n", " ")


class Torch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 128, bias=False), torch.nn.Linear(128, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(x)))
        return found


class Linear:
    def __init__(self, mesh: ttnn.MeshDevice, weight: torch.Tensor, dim: int) -> None:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=dim)
        self.weight = ttnn.from_torch(
            weight.T.contiguous(), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper
        )

    def __call__(self, x: ttnn.Tensor, activation: str | None = None) -> ttnn.Tensor:
        return ttnn.linear(x, self.weight, activation=activation)


class Meshed:
    def __init__(self, mesh: ttnn.MeshDevice, of: Torch, factor: float = 1.0) -> None:
        self.mesh = mesh
        self.up, self.down = Linear(mesh, of.up.weight.detach(), 1), Linear(mesh, of.down.weight.detach() * factor, 0)

    def __call__(self, x: torch.Tensor) -> ttnn.Tensor:
        mapper = ttnn.ReplicateTensorToMesh(self.mesh)
        own = ttnn.from_torch(x, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=self.mesh, mesh_mapper=mapper)
        return ttnn.add(own, ttnn.all_reduce(self.down(ttnn.gelu(self.up(own)))))


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_modules_are_matched_by_name(factor: float) -> None:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 8)) as mesh, torch.no_grad():
        torch.manual_seed(0)
        module = Torch()
        found = ttnn.compare(Meshed(mesh, module, factor), module, torch.randn(1, 1, 32, 64))
    assert found.agrees == (factor == 1.0), str(found)
    if found.first is not None:
        assert (found.first.op, found.first.module, found.first.cause) == ("linear", "down", Cause.WRONG_SCALE)


def test_modules_without_a_common_name_are_refused() -> None:
    with pytest.raises(ttnn.MeshError, match="no module of the program has the name"):
        ttnn.compare(lambda x: None, torch.nn.Linear(4, 4), torch.randn(1, 4))


def test_a_reference_that_raises_is_said_to() -> None:
    def broken() -> None:
        raise ValueError("no reference today")

    with pytest.raises(ttnn.MeshError, match="the reference raised ValueError: no reference today"):
        ttnn.compare(lambda: None, broken)


def test_programs_without_an_op_in_common_are_refused() -> None:
    with pytest.raises(ttnn.MeshError, match="neither the program nor the reference ran an op on a mesh"):
        ttnn.compare(lambda: None, lambda: None)
    with pytest.raises(ttnn.MeshError, match="the reference ran no op on a mesh"):
        ttnn.compare(gelus(1), lambda: None)


@pytest.mark.parametrize("given", [{"program": 3}, {"reference": "x"}, {"tolerance": -1.0}, {"names": []}])
def test_arguments_are_checked(given: dict[str, object]) -> None:
    arguments: dict[str, object] = {"program": lambda: None, "reference": lambda: None, **given}
    with pytest.raises(ttnn.ArgumentError, match=next(iter(given))):
        ttnn.compare(**arguments)  # type: ignore[arg-type]


def gelus(count: int, width: int = 64, *, raises: bool = False) -> Callable[[], torch.Tensor]:
    def run() -> torch.Tensor:
        draw = torch.Generator().manual_seed(0)
        with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
            x = ttnn.from_torch(torch.randn(32, width, generator=draw), layout=ttnn.TILE_LAYOUT, device=mesh)
            for _ in range(count):
                x = ttnn.gelu(x)
            if raises:
                raise ValueError("late")
            return ttnn.to_torch(ttnn.get_device_tensors(x)[0])

    return run


def test_programs_of_other_lengths_are_compared_as_far_as_they_go() -> None:
    longer = ttnn.compare(gelus(5), gelus(3))
    assert longer.first is not None
    assert (longer.first.op, longer.first.cause) == ("gelu", Cause.OTHER_PROGRAM)
    assert any("only the program has gelu" in note for note in longer.notes)
    shorter = ttnn.compare(gelus(2), gelus(5))
    assert shorter.first is not None
    assert (shorter.first.op, shorter.first.cause) == ("to_torch", Cause.OTHER_INPUT)
    assert any("only the reference has gelu" in note for note in shorter.notes)


def test_shapes_that_cannot_be_matched_are_told() -> None:
    found = ttnn.compare(gelus(2, 128), gelus(2, 64)).first
    assert found is not None
    assert (found.op, found.cause) == ("from_torch", Cause.OTHER_VALUES)
    assert "(32, 128)" in found.explanation
    assert "(32, 64)" in found.explanation


def a_row_for_each(devices: int) -> Callable[[], torch.Tensor]:
    def run() -> torch.Tensor:
        with ttnn.create_mesh_device(ttnn.MeshShape(1, devices)) as mesh:
            rows = torch.rand(mesh.get_num_devices(), 32)
            return ttnn.to_torch(
                ttnn.from_torch(rows, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)),
                mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0),
            )

    return run


def test_a_batch_that_grows_with_the_devices_is_told() -> None:
    found = ttnn.compare(a_row_for_each(2), a_row_for_each(1)).first
    assert found is not None
    assert (found.op, found.cause) == ("from_torch", Cause.OTHER_VALUES)
    assert "a tensor of shape (2, 32), 2 times the reference's (1, 32)" in found.explanation


def test_what_a_program_raises_is_told_with_its_line() -> None:
    with pytest.raises(
        ttnn.MeshError, match=r"late \(at test_compare_command.py:\d+\); all it had computed until then"
    ):
        ttnn.compare(gelus(1, raises=True), gelus(1))


def test_another_math_fidelity_is_a_note() -> None:
    def product(fidelity: ttnn.MathFidelity) -> Callable[[], None]:
        def run() -> None:
            with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
                x = ttnn.from_torch(torch.ones(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
                ttnn.matmul(x, x, compute_kernel_config=ttnn.WormholeComputeKernelConfig(math_fidelity=fidelity))

        return run

    found = ttnn.compare(product(ttnn.MathFidelity.LoFi), product(ttnn.MathFidelity.HiFi4))
    assert found.agrees
    assert any("runs at LoFi, the reference at HiFi4" in note for note in found.notes)
