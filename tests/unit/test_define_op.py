"""An op of a user's own, defined in a module outside of the package, is an op like any other."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import ArgumentError, PartialWarning, SoftmeshWarning
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Shard

MODULE = '''
import torch

import softmesh as ttnn


@ttnn.define_op("*rows _, _ -> *rows _", kind="norm", steps=5)
def row_scaled(x, weight, *, epsilon: float = 1e-6):
    """Divide each row by its length, and multiply it by `weight`."""
    return x / (x.norm(dim=-1, keepdim=True) + epsilon) * weight


@ttnn.define_op("*rows k, k n -> *rows n", kind="matrix product", steps=2, linear_in="x weight")
def project(x, weight):
    """Multiply rows by a matrix."""
    return x @ weight


@ttnn.define_op("*any, *any -> *any", steps=4)
def gated(x, gate=None):
    return x * torch.sigmoid(x if gate is None else gate)
'''
ROWS = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.rand(128, generator=torch.Generator().manual_seed(1))
MATRIX = torch.randn(128, 64, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "ops_of_a_user.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("ops_of_a_user")
    del sys.modules["ops_of_a_user"]


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def put(values: torch.Tensor, mesh: ttnn.MeshDevice, *dims: int | None) -> ttnn.Tensor:
    mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims or (None, None))
    return ttnn.from_torch(values, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def scaled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.norm(dim=-1, keepdim=True) + 1e-6) * weight


def first(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0])


def test_each_device_computes_what_the_function_does(ops: Any, mesh: ttnn.MeshDevice) -> None:
    made = ops.row_scaled(put(ROWS, mesh, 0, None), put(WEIGHT, mesh))
    assert torch.allclose(first(made), scaled(ROWS, WEIGHT)[:32], atol=1e-4)
    assert made.shape == ttnn.Shape([32, 128])
    assert torch.allclose(first(ops.gated(put(ROWS, mesh))), ROWS * ROWS.sigmoid(), atol=1e-4)
    assert first(ops.gated(put(ROWS, mesh), dtype=ttnn.bfloat16)).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("name", "values", "dims", "word"),
    [
        ("row_scaled", (ROWS, WEIGHT), (0, None), Shard(0)),
        ("row_scaled", (ROWS, WEIGHT.unsqueeze(0)), (1, 1), LOCAL),
        ("project", (ROWS, MATRIX), (0, None), Shard(0)),
        ("project", (ROWS, MATRIX), (None, 1), Shard(1)),
        ("project", (ROWS, MATRIX), (1, 0), Partial("sum")),
        ("gated", (ROWS, ROWS), (1, 1), Shard(1)),
        ("gated", (ROWS, ROWS), (None, None), REPLICATE),
        ("gated", (ROWS[:4], ROWS[:1]), (0, None), Shard(0)),
        ("gated", (ROWS[:4], ROWS[:4]), (0, None), LOCAL),  # one row on each device, for four that all have
    ],
)
def test_the_placement_follows_from_the_labels(
    ops: Any, mesh: ttnn.MeshDevice, name: str, values: Any, dims: Any, word: Any
) -> None:
    a, b = (put(one, mesh, None, dim) for one, dim in zip(values, dims, strict=True))
    assert ttnn.placements(getattr(ops, name)(a, b)) == (REPLICATE, word)


def test_a_sum_over_a_split_dim_is_that_of_the_contributions(ops: Any, mesh: ttnn.MeshDevice) -> None:
    parts = ops.project(put(ROWS, mesh, None, 1), put(MATRIX, mesh, None, 0))
    whole = ttnn.all_reduce(parts, cluster_axis=1)
    assert torch.allclose(first(whole), ROWS @ MATRIX, atol=1e-3)
    assert ttnn.placements(ops.project(parts, put(torch.eye(64), mesh))) == (REPLICATE, Partial("sum"))


@pytest.mark.filterwarnings("always")
def test_what_is_wrong_with_its_operands_is_said(
    ops: Any, mesh: ttnn.MeshDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ops.project(put(ROWS, mesh, None, 1), put(MATRIX, mesh, None, 0))
    with pytest.warns(PartialWarning, match="gated"):
        ops.gated(parts, parts)
    unwritten = ttnn.empty((128,), ttnn.float32, ttnn.TILE_LAYOUT, mesh)
    with pytest.warns(SoftmeshWarning, match="nothing was written to since ttnn.empty"):
        first(ops.row_scaled(put(ROWS, mesh), unwritten))
    with pytest.raises(ArgumentError, match="weight"):
        ops.row_scaled(put(ROWS, mesh), "all")
    with pytest.raises(ArgumentError, match="epsilon"):
        ops.row_scaled(put(ROWS, mesh), put(WEIGHT, mesh), epsilon="small")
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.warns(SoftmeshWarning, match="normalises its own part"):
        ops.row_scaled(put(ROWS, mesh, None, 1), put(WEIGHT.unsqueeze(0), mesh, None, 1))


def test_its_unified_form_plans_communication_and_knows_a_price(ops: Any, mesh: ttnn.MeshDevice) -> None:
    x, matrix = put(ROWS, mesh, None, 1), put(MATRIX, mesh)
    made = ttnn.distributed.project(x, matrix, output_topology=[ttnn.Replicate(), ttnn.Replicate()])
    assert torch.allclose(first(made), ROWS @ MATRIX, atol=1e-3)
    said = str(ttnn.distributed.explain(ttnn.distributed.project, x, matrix))
    assert "project of" in said
    assert " us  " in said


def test_more_arithmetic_costs_more(idle_machine: None) -> None:
    def seconds(steps: int) -> float:
        @ttnn.define_op("*any -> *any", steps=steps)
        def worked_on(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        with ttnn.estimate(mesh) as cost:
            worked_on(x)
        return cost.seconds

    ttnn.use_system("N150")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        x = ttnn.zeros((2048, 2048), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
        cheap, dear = seconds(1), seconds(400)
    ttnn.use_system(None)
    assert 0 < cheap < dear


def _model(ops: Any, device: ttnn.MeshDevice) -> ttnn.Tensor:
    def there(*shape: int) -> ttnn.Tensor:
        values = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * shape[-1] ** -0.5
        return ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    h = ops.project(ops.row_scaled(there(1, 1, 32, 4096), there(4096)), there(4096, 8192))
    made: ttnn.Tensor = ops.project(ops.gated(h), there(8192, 4096))
    return made


def test_a_plan_splits_it_and_its_file_imports_its_module(ops: Any, idle_machine: None) -> None:
    found = ttnn.plan(lambda device: _model(ops, device), "T3000")
    source = found.source()
    assert "import ops_of_a_user\n" in source
    assert "ops_of_a_user.row_scaled(" in source
    assert "ttnn.row_scaled" not in source
    assert any(isinstance(word, Shard) for word in found.layout("w3"))
    ttnn.use_system("T3000")
    with aliased():
        space: dict[str, Any] = {"__name__": "planned"}
        exec(compile(source, "planned.py", "exec"), space)
        (planned,) = space["run"](space["random_values"]())
    assert planned.isfinite().all()
    assert planned.abs().max() > 0
    ttnn.use_system(None)


def test_its_gradient_is_that_of_torch(ops: Any, mesh: ttnn.MeshDevice) -> None:
    x, weight = ROWS.clone().requires_grad_(), WEIGHT.clone().requires_grad_()
    given = torch.randn(64, 128, generator=torch.Generator().manual_seed(3))
    scaled(x, weight).backward(given)
    mine, own = put(ROWS, mesh).requires_grad_(), put(WEIGHT, mesh).requires_grad_()
    ops.row_scaled(mine, own).backward(put(given, mesh))
    for made, wanted in ((mine.grad, x.grad), (own.grad, weight.grad)):
        assert torch.allclose(first(made), wanted, atol=1e-3)
    operands = put(given, mesh, None, 0), put(ROWS, mesh, None, 0), put(WEIGHT, mesh)
    part = ops.row_scaled.gradient_of_weight(*operands)
    assert ttnn.placements(part) == (REPLICATE, Partial("sum"))
    assert ttnn.placements(ops.row_scaled.gradient_of_x(*operands)) == (REPLICATE, Shard(0))


def test_a_training_step_with_it_can_be_planned(ops: Any) -> None:
    def step(device: ttnn.MeshDevice) -> ttnn.Tensor:
        x = ttnn.from_torch(torch.randn(1, 1, 64, 256), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        matrix = ttnn.from_torch(torch.randn(256, 512), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        matrix.requires_grad_()
        ttnn.mean(ops.gated(ops.project(x, matrix))).backward()
        return matrix.grad

    source = ttnn.plan(step, "N300", goal="training").source()
    assert "ops_of_a_user.project.gradient_of_weight(" in source
    assert "ops_of_a_user.gated.gradient_of_x(" in source
    ttnn.use_system(None)


def test_help_tells_its_arguments_and_its_placement(ops: Any) -> None:
    said = inspect.getdoc(ops.row_scaled) or ""
    assert said.startswith("Divide each row by its length")
    assert "ops_of_a_user.row_scaled(x, weight, *, epsilon=1e-06" in said
    assert "Placement: Split" in said
    assert "gradient of weight of row_scaled" in (inspect.getdoc(ops.row_scaled.gradient_of_weight) or "")


def test_a_module_that_is_loaded_again_defines_its_ops_again(ops: ModuleType, mesh: ttnn.MeshDevice) -> None:
    before = OPERATIONS["project"]
    again: Any = importlib.reload(ops)
    assert OPERATIONS["project"] is again.project is not before
    assert torch.allclose(first(ttnn.distributed.project(put(ROWS, mesh), put(MATRIX, mesh))), ROWS @ MATRIX, atol=1e-3)


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


@pytest.mark.parametrize(
    ("dims", "options", "said"),
    [
        ("rows columns", {}, "must name the dims of each operand and of the result"),
        ("a, b -> c", {}, "'c' of the result is a dim of no operand"),
        ("a *b, a -> a", {}, r"\*b must come before the other dims"),
        ("a -> a", {"kind": "normalisation"}, "kind='normalisation' is none of 'attention', "),
        ("a -> a", {"kind": "all_gather"}, "kind='all_gather' is none of"),
        ("a -> a", {"steps": 0}, "steps=0 must be an int of 1 or more"),
        ("a, a, a -> a", {}, r"has 3 operands, and add\(a, b\) 2 parameters"),
        ("a, a -> a", {"linear_in": "c"}, "c is none of the operands a, b"),
        ("a, a -> a", {}, "there is an op ttnn.add: give the function add another name"),
    ],
)
def test_what_cannot_be_an_op_is_refused_with_a_reason(dims: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        ttnn.define_op(dims, **options)(add)
    assert OPERATIONS["add"].python_fully_qualified_name == "ttnn.add"
