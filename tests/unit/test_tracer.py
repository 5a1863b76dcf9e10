"""`ttnn.tracer` and `ttnn.operation_tracer`: computations as graphs, as source, and call by call in files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.alias import aliased
from softmesh.dispatch.entry_point import INTERCEPTORS
from softmesh.tracer import (
    InputTensorIndex,
    PositionalArgumentName,
    TorchFunction,
    TorchModule,
    TorchParameter,
    TorchTensor,
    TTNNOperation,
    TTNNTensor,
)

tracer = ttnn.tracer


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before, call = list(INTERCEPTORS), torch.nn.Module.__call__
    with ttnn.manage_config("enable_fast_runtime_mode", False):
        yield
    assert not tracer.is_tracing_enabled()
    assert before == INTERCEPTORS
    assert torch.nn.Module.__call__ is call


def operations(graph: Any) -> list[Any]:
    return [data["operation"] for _, data in graph.nodes(data=True)]


def test_fast_runtime_mode_has_no_tracing():
    with ttnn.manage_config("enable_fast_runtime_mode", True):
        with pytest.raises(
            ValueError, match=r"Tracing is not supported in fast runtime mode\..*enable_fast_runtime_mode"
        ):
            tracer.enable_tracing()
        tracer.disable_tracing()  # harmless


def test_torch_functions_are_nodes_joined_by_their_tensors():
    with tracer.trace():
        x = torch.rand(1, 64)
        y = torch.exp(x) + 1
    graph = tracer.get_graph(y)
    assert [operation.to_string() for operation in operations(graph)] == [
        "torch.rand",
        "torch.exp",
        "torch.Tensor.add",
    ]
    rand, exp, add = graph
    assert graph.edges[rand, exp, 0] == {"source_output_index": 0, "sink_input_index": 0}
    assert graph.nodes[add]["operation"].arg_name_value_pairs == (
        (PositionalArgumentName(0), InputTensorIndex(0)),
        (PositionalArgumentName(1), 1),
    )
    assert graph.nodes[exp]["shapes"] == ((1, 64),)


def test_only_what_led_to_a_tensor_is_in_its_graph():
    with tracer.trace():
        x = torch.rand(4)
        y, unrelated = torch.exp(x), torch.sin(x)
    assert len(tracer.get_graph(y)) == 2
    assert len(tracer.get_graph((y, unrelated))) == 3


def test_tensors_from_before_are_nodes_of_their_own():
    weight, bias = torch.nn.Parameter(torch.rand(4)), torch.rand(4)
    with tracer.trace():
        y = weight * bias
    kinds = [type(operation) for operation in operations(tracer.get_graph(y))]
    assert kinds == [TorchParameter, TorchTensor, TorchFunction]


def test_functions_of_several_results_number_their_outputs():
    with tracer.trace():
        a, b = torch.rand(4, 2).chunk(2)
        total = b + a
    graph = tracer.get_graph(total)
    _, _, add = graph
    edges = sorted(graph.in_edges(add, data=True), key=lambda edge: edge[2]["sink_input_index"])
    assert [edge[2]["source_output_index"] for edge in edges] == [1, 0]


def test_modules_are_one_node_or_taken_apart():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    with tracer.trace():
        y = model(torch.rand(2, 8))
    whole, flat = tracer.get_graph(y), tracer.get_graph(y, flatten=True)
    assert [type(operation) for operation in operations(whole)] == [TorchFunction, TorchModule]
    assert [operation.to_string() for operation in operations(flat)] == [
        "torch.rand",
        "torch.nn.Parameter",
        "torch.nn.Parameter",
        "torch.nn.functional.linear",
        "torch.nn.functional.relu",
    ]


def test_ttnn_ops_and_transfers_are_nodes_and_their_inner_torch_calls_are_not(device: ttnn.MeshDevice):
    there = ttnn.from_torch(torch.rand(32, 64), layout=ttnn.TILE_LAYOUT, device=device)
    with tracer.trace():
        x = ttnn.from_torch(torch.rand(32, 64), layout=ttnn.TILE_LAYOUT, device=device)
        y = ttnn.to_torch(ttnn.add(x, there) * 2.0)
    graph = tracer.get_graph(y)
    assert {operation.to_string() for operation in operations(graph)} == {
        "torch.rand",
        "ttnn.from_torch",
        "ttnn.Tensor",
        "ttnn.add",
        "ttnn.multiply",
        "ttnn.to_torch",
    }
    assert [type(operation) for operation in operations(graph)].count(TTNNTensor) == 1
    multiply = next(o for o in operations(graph) if o.to_string() == "ttnn.multiply")
    assert isinstance(multiply, TTNNOperation)
    assert multiply.to_string(verbose=True) == "ttnn.multiply(0=input_0, 1=2.0)"
    ttnn.from_torch(torch.rand(2))
    assert ttnn.from_torch.__name__ == "from_torch"


def test_generated_source_computes_the_same_again(device: ttnn.MeshDevice):
    model = torch.nn.Linear(64, 32)
    with torch.no_grad(), tracer.trace():
        x = torch.arange(128.0).reshape(2, 64)
        first, _ = torch.split(model(x), 16, dim=-1)
        moved = ttnn.from_torch(first, layout=ttnn.TILE_LAYOUT, device=device)
        y = ttnn.to_torch(ttnn.exp(moved, memory_config=ttnn.L1_MEMORY_CONFIG))
    source = tracer.codegen(y)
    assert source.startswith("import torch\nimport ttnn\n")
    with aliased():
        namespace: dict[str, Any] = {}
        exec(source, namespace)
        parameters = {"device": device, "memory_config": ttnn.L1_MEMORY_CONFIG}
        forward = namespace["forward"]
        names = forward.__code__.co_varnames[: forward.__code__.co_argcount]
        given = iter([model.weight, model.bias])
        with torch.no_grad():
            again = forward(**{name: parameters[name] if name in parameters else next(given) for name in names})
    assert torch.equal(again, y)
    assert "ttnn" not in sys.modules


def test_traces_are_drawn(tmp_path: Path):
    with tracer.trace():
        y = torch.exp(torch.rand(3))
    drawing = tracer.visualize(y, file_name=tmp_path / "trace.dot")
    assert 'label="torch.exp\\n[3]"' in drawing.source
    assert (tmp_path / "trace.dot").read_text() == drawing.source


def test_tracing_ends_with_its_block_and_does_not_nest():
    with tracer.trace(), pytest.raises(ValueError, match=r"Tracing is already enabled\..*do not nest"):
        tracer.enable_tracing()
    with pytest.raises(ZeroDivisionError), tracer.trace():
        1 / 0
    tracer.disable_tracing()  # harmless where none is on
    with pytest.raises(ttnn.MeshError, match="the tensor was not traced"):
        tracer.get_graph(torch.rand(3))


# -- call by call --------------------------------------------------------------------------------------


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[Path]:
    with ttnn.manage_config("root_report_path", tmp_path):
        yield tmp_path / "operation_parameters"
    ttnn.operation_tracer.enable_tracing(False)
    ttnn.operation_tracer.enable_tensor_value_serialization(False)
    ttnn.operation_tracer._OPERATION_COUNTER = 0


def test_every_op_leaves_a_file_with_its_parameters(device: ttnn.MeshDevice, reports: Path):
    x = ttnn.from_torch(torch.ones(1, 2), layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.operation_tracer.enable_tracing()
    assert ttnn.operation_tracer.is_tracing_enabled()
    ttnn.add(x, 2.0, memory_config=ttnn.L1_MEMORY_CONFIG)
    ttnn.operation_tracer.enable_tensor_value_serialization(True)
    ttnn.relu(x)
    ttnn.operation_tracer.enable_tracing(False)
    ttnn.relu(x)
    first, second = sorted(reports.iterdir())
    assert first.name == "000001_ttnn_add.json"
    written = json.loads(first.read_text())
    assert written["operation_name"] == "ttnn.add"
    assert written["args"][0]["value"]["shape"] == [1, 2]
    assert "values" not in written["args"][0]["value"]
    assert written["args"][1] == {"position": 1, "value": 2.0}
    assert written["kwargs"]["memory_config"]["buffer_type"] == "L1"
    assert json.loads(second.read_text())["return_value"]["values"] == [[[1.0, 1.0]]]


def test_the_inner_switches_do_what_the_functions_do(device: ttnn.MeshDevice, reports: Path):
    x = ttnn.from_torch(torch.ones(1, 2), layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.operation_tracer._OPERATION_COUNTER = 41
    ttnn.operation_tracer._ENABLE_TRACE = True
    ttnn.relu(x)
    ttnn.operation_tracer._ENABLE_TRACE = False
    ttnn.relu(x)
    assert [file.name for file in reports.iterdir()] == ["000042_ttnn_relu.json"]
    assert ttnn.operation_tracer._OPERATION_COUNTER == 42


def test_functions_of_the_users_own_can_be_traced_too(reports: Path):
    double = ttnn.operation_tracer.wrap_function_for_tracing(lambda x, *, by: x * by, "mine.double")
    assert double(3, by=2) == 6
    ttnn.operation_tracer.set_sweep_source_hash("abc")
    ttnn.operation_tracer.enable_tracing()
    assert double(torch.ones(1), by=2) == 2
    ttnn.operation_tracer.set_sweep_source_hash(None)
    (file,) = reports.iterdir()
    written = json.loads(file.read_text())
    assert written["sweep_source_hash"] == "abc"
    assert written["args"][0]["value"]["type"] == "torch.Tensor"
    assert written["kwargs"] == {"by": 2}
