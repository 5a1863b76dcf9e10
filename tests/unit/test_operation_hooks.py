"""Hooks around ops, golden functions by name, lists of ops, and how wrong arguments are told."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.dispatch.entry_point import INTERCEPTORS
from softmesh.hardware import UnaryOpType, UnaryWithParam


@pytest.fixture
def x(device: ttnn.MeshDevice) -> Iterator[Any]:
    before = list(INTERCEPTORS)
    yield ttnn.from_torch(torch.rand(4, 64) - 0.5, layout=ttnn.TILE_LAYOUT, device=device)
    assert before == INTERCEPTORS, "a test left somebody between the callers and the ops"


def test_hooks_see_every_op_with_its_arguments_and_its_output(x: Any):
    seen: list[Any] = []

    def before(operation: Any, args: Any, kwargs: Any) -> None:
        seen.append(("before", operation.__name__, args, kwargs))

    def after(operation: Any, args: Any, kwargs: Any, output: Any) -> None:
        seen.append(("after", operation.__name__, output))

    with ttnn.register_pre_operation_hook(before), ttnn.register_post_operation_hook(after):
        y = ttnn.add(x, 1.0, dtype=ttnn.float32)
    ttnn.relu(x)
    assert seen == [("before", "ttnn.add", (x, 1.0), {"dtype": ttnn.float32}), ("after", "ttnn.add", y)]


def test_hooks_are_asked_in_the_order_they_came_in_and_go_with_their_block(x: Any):
    asked: list[str] = []
    with ttnn.register_pre_operation_hook(lambda *_: asked.append("first")):
        with ttnn.register_pre_operation_hook(lambda *_: asked.append("second")):
            ttnn.relu(x)
        ttnn.relu(x)
    assert asked == ["first", "second", "first"]


def test_a_hook_may_not_answer(x: Any):
    told = r"Pre-operation hook must return None: <lambda> returned 3 for ttnn.relu"
    with ttnn.register_pre_operation_hook(lambda *_: 3), pytest.raises(RuntimeError, match=told):
        ttnn.relu(x)
    told = "Post-operation hook must return None"
    with ttnn.register_post_operation_hook(lambda *_: "x"), pytest.raises(RuntimeError, match=told):
        ttnn.relu(x)
    with pytest.raises(TypeError, match="hook must be a function, got 'relu'"):
        ttnn.register_pre_operation_hook("relu").__enter__()


def test_collectives_pass_through_hooks_too(idle_machine: None):
    names: list[str] = []
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    x = ttnn.from_torch(torch.rand(2, 64), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 1))
    with ttnn.register_pre_operation_hook(lambda operation, *_: names.append(operation.__name__)):
        ttnn.all_gather(x, 1, cluster_axis=1)
    assert "ttnn.all_gather" in names


def test_an_op_knows_its_qualified_name():
    assert ttnn.add.__name__ == ttnn.add.python_fully_qualified_name == "ttnn.add"
    assert ttnn.transformer.scaled_dot_product_attention.__name__ == "ttnn.transformer.scaled_dot_product_attention"


# -- golden functions --------------------------------------------------------------------------------


def test_golden_functions_take_the_arguments_of_their_op():
    a, b = torch.rand(2, 3), torch.rand(2, 3)
    golden = ttnn.get_golden_function(ttnn.add)
    expected = torch.relu(a + b)
    found = golden(a, b, activations=["relu"], memory_config=ttnn.L1_MEMORY_CONFIG, device=object())
    assert torch.equal(found, expected)
    assert torch.equal(ttnn.get_golden_function(ttnn.sum)(a, dim=-1, keepdim=True), a.sum(-1, keepdim=True))
    assert torch.equal(ttnn.sub.golden_function(a, input_tensor_b=2), a - 2)


def test_an_op_without_a_golden_function_says_so_until_it_is_given_one():
    op = ttnn.all_gather
    with pytest.raises(RuntimeError, match="does not have a golden function"):
        ttnn.get_golden_function(op)
    try:
        ttnn.attach_golden_function(op, golden_function=torch.clone)
        assert ttnn.get_golden_function(op) is torch.clone
    finally:
        op.golden_function = None


def test_a_fallback_computes_on_the_host_and_comes_back_as_a_tensor(x: Any):
    found = ttnn.get_fallback_function(ttnn.exp)(x)
    assert found.device() is x.device()
    assert (found.dtype, found.layout) == (x.dtype, x.layout)
    assert torch.equal(ttnn.to_torch(found), ttnn.to_torch(x).exp())
    with pytest.raises(ttnn.MeshError, match=r"needs a ttnn.Tensor"):
        ttnn.get_fallback_function(ttnn.exp)(3)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (None, lambda x: x),
        ("relu", torch.relu),
        (UnaryOpType.SILU, torch.nn.functional.silu),
        (UnaryWithParam(UnaryOpType.LEAKY_RELU, 0.25), lambda x: torch.nn.functional.leaky_relu(x, 0.25)),
    ],
)
def test_activations_have_golden_functions_by_any_of_their_names(activation: Any, expected: Any):
    values = torch.linspace(-2, 2, 9)
    found = ttnn.operations.activations.get_golden_function_for_activation(activation)
    torch.testing.assert_close(found(values), expected(values))


def test_an_unknown_activation_has_no_golden_function():
    with pytest.raises(ttnn.MeshError, match="no activation 'wobble'"):
        ttnn.operations.activations.get_golden_function_for_activation("wobble")


# -- lists -------------------------------------------------------------------------------------------


def test_all_ops_can_be_listed_and_written_down(tmp_path: Path):
    plain, everything = (
        ttnn.query_registered_operations(),
        ttnn.query_registered_operations(include_experimental=True),
    )
    assert ttnn.add in plain
    assert ttnn.experimental.minimal_matmul not in plain
    assert ttnn.experimental.minimal_matmul in everything
    assert len(set(everything)) == len(everything)
    ttnn.dump_operations(tmp_path / "ops.csv", include_experimental=True)
    with open(tmp_path / "ops.csv", newline="") as file:
        rows = {row["python_fully_qualified_name"]: row for row in csv.DictReader(file)}
    assert rows["ttnn.add"]["has_golden_function"] == "True"
    assert rows["ttnn.experimental.minimal_matmul"]["is_experimental"] == "True"
    with pytest.raises(ttnn.MeshError, match="cannot write"):
        ttnn.dump_operations(tmp_path / "none" / "ops.csv")


# -- wrong arguments -----------------------------------------------------------------------------------


def test_wrong_arguments_are_told_with_the_call_and_the_signature(x: Any):
    with pytest.raises(TypeError) as caught:
        ttnn.add(x, 1.0, memory_confg=None)
    text = str(caught.value)
    assert text.startswith("\nttnn.add(): incompatible function arguments. it has no argument 'memory_confg'.")
    assert "Did you mean 'memory_config'?" in text
    assert "\nCalled with: (ttnn.Tensor([4, 64], FLOAT32, TILE), 1.0, memory_confg=None)\n" in text
    assert "\nAvailable signatures:\n    ttnn.add(input_tensor_a, input_tensor_b, *, " in text


def test_a_wrong_kind_inside_an_op_is_told_the_same_way(x: Any):
    with pytest.raises(TypeError) as caught:
        ttnn.softmax(x, 1.5)
    assert str(caught.value).startswith("\nttnn.softmax(): incompatible function arguments. ")
    assert str(caught.value).count("Available signatures:") == 1


def test_clearing_the_kernel_cache_changes_no_result(x: Any):
    before = ttnn.to_torch(ttnn.exp(x))
    ttnn.device.ClearKernelCache()
    assert torch.equal(ttnn.to_torch(ttnn.exp(x)), before)
