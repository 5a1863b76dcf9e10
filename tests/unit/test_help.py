"""`help(ttnn.x)` tells arguments, placement and an example, and the examples do what they say."""

from __future__ import annotations

import doctest
import pydoc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import distributed
from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.dispatch.entry_point import FUNCTIONS, EntryPoint
from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.hardware.memory_config import MemoryConfig, ShardStrategy
from softmesh.hardware.sharded_configs import create_sharded_memory_config
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.mappers import ReplicateTensorToMesh, ShardTensorToMesh
from softmesh.tensor.tensor import Tensor

EXAMPLES = {op.name: op for op in (*FUNCTIONS.values(), *OPERATIONS.values()) if op.example()}


def surroundings(mesh: ttnn.MeshDevice) -> dict[str, Any]:
    """The names that examples use beside their own."""

    def split(*shape: int, dim: int) -> Tensor:
        return from_torch(torch.zeros(shape), mesh_mapper=ShardTensorToMesh(mesh, dim=dim), **options)

    def whole(*shape: int) -> Tensor:
        return from_torch(torch.zeros(shape), mesh_mapper=ReplicateTensorToMesh(mesh), **options)

    options: dict[str, Any] = {"dtype": DataType.BFLOAT16, "layout": Layout.TILE, "device": mesh}
    return {
        "torch": torch,
        "mesh": mesh,
        "split": split,
        "whole": whole,
        "cores": CoreRangeSet({CoreRange(CoreCoord(0, 0), CoreCoord(7, 7))}),
        "one_core": _by_height(64, CoreGrid(x=1, y=1)),
        "two_cores": _by_height(32, CoreGrid(x=2, y=1)),
    }


def _by_height(rows: int, grid: CoreGrid) -> MemoryConfig:
    return create_sharded_memory_config(
        (rows, 32), grid, ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )


@pytest.fixture(scope="module")
def row() -> Iterator[ttnn.MeshDevice]:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        yield mesh
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def found(name: str) -> EntryPoint:
    value: object = ttnn
    for part in name.split("."):
        value = getattr(value, part)
    assert isinstance(value, EntryPoint)
    return value


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_in_a_help_text_does_what_it_says(name: str, row: ttnn.MeshDevice) -> None:
    example = doctest.DocTestParser().get_doctest(
        EXAMPLES[name].example(), surroundings(row) | {"ttnn": ttnn}, name, None, 0
    )
    failures = doctest.DocTestRunner(verbose=False).run(example)
    assert failures.attempted > 0
    assert failures.failed == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_ops_with_an_example_tell_arguments_placement_and_an_example(name: str) -> None:
    text = pydoc.render_doc(found(name), renderer=pydoc.plaintext)
    assert "Arguments:" in text
    assert "Placement: " in text or name == "deallocate"
    assert "Example, on 1 x 4 devices" in text


def test_help_shows_what_an_op_is_and_takes() -> None:
    assert (ttnn.relu.__doc__ or "").startswith("relu, element by element.\n\n    ttnn.relu(input_tensor, *, ")
    text = pydoc.render_doc(ttnn.softmax, renderer=pydoc.plaintext)
    assert "dim                    an int; default -1\n" in text
    assert "compute_kernel_config  steers hardware only; no effect on values\n" in text
    assert "Returns Tensor.\n    Placement: Split as the operand is. Split along the dim it works on" in text


def test_every_op_has_a_help_text() -> None:
    for name, op in OPERATIONS.items():
        assert op.python_fully_qualified_name in (op.__doc__ or ""), name
        assert "Placement: " in (op.__doc__ or ""), name


@pytest.mark.parametrize("module", ["", "experimental", "transformer"])
def test_every_function_behind_the_door_tells_its_arguments(module: str) -> None:
    for name, value in vars(getattr(ttnn, module, ttnn)).items():
        if isinstance(value, EntryPoint):
            assert f"{value.python_fully_qualified_name}(" in (value.__doc__ or ""), name


def test_a_unified_op_tells_who_places_its_result() -> None:
    assert "As `output_topology` asks" in (distributed.matmul.__doc__ or "")


def test_the_classes_of_ops_keep_docstrings_of_their_own() -> None:
    assert (Operation.__doc__ or "").startswith("An op that is planned")
    assert (EntryPoint.__doc__ or "").startswith("A callable of the public API")
