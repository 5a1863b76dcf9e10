"""`ttnn.graph`: captures, what can be asked of them, dry runs and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh.dispatch.entry_point import INTERCEPTORS
from softmesh.errors import SoftmeshError

BINARY, UNARY = "BinaryNgDeviceOperation", "UnaryDeviceOperation"

L1 = ttnn.L1_MEMORY_CONFIG
TILE_BYTES = 2048  # of bfloat16


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = list(INTERCEPTORS)
    yield
    assert not ttnn.graph.is_graph_capture_active()
    assert before == INTERCEPTORS


@pytest.fixture
def x(pair: ttnn.MeshDevice) -> Any:
    return ttnn.from_torch(
        torch.ones(32, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=pair, memory_config=L1
    )


def captured(x: Any, mode: Any = None) -> tuple[list[dict[str, Any]], Any]:
    ttnn.graph.begin_graph_capture(mode)
    y = ttnn.relu(ttnn.add(x, 1.0))
    return ttnn.graph.end_graph_capture(), y


def test_a_capture_begins_and_ends_with_its_own_nodes_numbered_in_order(x: Any):
    graph, _ = captured(x)
    assert [node["counter"] for node in graph] == list(range(len(graph)))
    assert (graph[0]["node_type"], graph[-1]["node_type"]) == ("capture_start", "capture_end")
    assert all(0 <= sink < len(graph) for node in graph for sink in node["connections"])
    assert json.loads(json.dumps(graph)) == graph, "a graph is plain JSON"


def test_ops_are_functions_that_take_and_leave_tensors(x: Any):
    graph, y = captured(x)
    starts = [node for node in graph if node["node_type"] == "function_start" and node["stacking_level"] == 0]
    assert [node["params"]["name"] for node in starts] == [BINARY, UNARY]
    (taken,) = starts[0]["input_tensors"]
    assert graph[taken]["params"]["tensor_id"] == str(x.tensor_id)
    assert graph[taken]["params"]["shape"] == "Shape([32, 64])"
    assert starts[0]["counter"] in graph[taken]["connections"]
    attributes, tensors = starts[0]["arguments"]
    assert "binary_op_type=ADD" in attributes
    assert "input_tensor_b=1.0" in attributes
    assert tensors.startswith("{Tensor(shape=Shape([32, 64])")
    assert ttnn.graph.extract_output_tensors(graph) == {y.tensor_id}


def test_the_calltrace_names_functions_in_order(x: Any):
    created = "tt::tt_metal::create_device_tensor"
    graph, _ = captured(x)
    assert ttnn.graph.extract_calltrace(graph) == [BINARY, created, UNARY, created]


def test_outputs_and_intermediates_are_told_apart(x: Any):
    graph, _ = captured(x)
    assert ttnn.graph.count_intermediate_and_output_tensors(graph) == (1, 1)
    (info,) = ttnn.graph.extract_output_info(graph)
    assert (list(info.shape), info.size, info.type) == ([32, 64], 2 * TILE_BYTES, ttnn.BufferType.L1)


def test_memory_that_goes_is_noted_when_a_tensor_dies_and_when_it_is_deallocated(x: Any):
    ttnn.graph.begin_graph_capture()
    y = ttnn.add(x, 1.0)
    del y
    z = ttnn.add(x, 2.0)
    ttnn.deallocate(z)
    graph = ttnn.graph.end_graph_capture()
    gone = [node["params"]["address"] for node in graph if node["node_type"] == "buffer_deallocate"]
    made = [node["params"]["address"] for node in graph if node["node_type"] == "buffer_allocate"]
    assert gone == made


def test_the_peak_of_l1_counts_what_lives_at_the_same_time(x: Any):
    graph, _ = captured(x)  # x, its sum with 1, and the relu of that; programs stream tensors by two tiles
    assert ttnn.graph.extract_peak_L1_memory_usage(graph) == (3 * 2 + 4) * TILE_BYTES
    per_core = ttnn.graph.extract_resource_usage_per_core(graph)
    assert (per_core.peak_cb, per_core.peak_l1) == (5 * TILE_BYTES, 3 * TILE_BYTES)
    assert per_core.peak_total == 7 * TILE_BYTES  # of the sum: two tensors and five tiles, of relu three and four


def test_a_program_on_shards_borrows_them_and_one_on_rows_of_the_host_has_nothing(x: Any):
    config = ttnn.create_sharded_memory_config((32, 64), ttnn.CoreGrid(x=2, y=1), ttnn.ShardStrategy.WIDTH)
    sharded = ttnn.to_memory_config(x, config)
    ttnn.graph.begin_graph_capture()
    ttnn.multiply(sharded, sharded)
    graph = ttnn.graph.end_graph_capture()
    streams = [node["params"] for node in graph if node["node_type"] == "circular_buffer_allocate"]
    assert streams == [{"size": str(TILE_BYTES), "globally_allocated": "1"}] * len(streams)
    assert ttnn.graph.extract_resource_usage_per_core(graph).peak_cb == 0
    ttnn.graph.begin_graph_capture()
    ttnn.from_torch(torch.ones(4), dtype=ttnn.bfloat16)
    assert ttnn.graph.extract_resource_usage_per_core(ttnn.graph.end_graph_capture()).peak_total == 0


def test_rows_are_repeated_through_two_dataflow_buffers_of_a_page(pair: ttnn.MeshDevice):
    rows = ttnn.from_torch(torch.ones(4, 128), dtype=ttnn.bfloat16, device=pair)
    ttnn.graph.begin_graph_capture()
    ttnn.repeat(rows, [2, 1], implementation="native")
    usage = ttnn.graph.extract_resource_usage_per_core(ttnn.graph.end_graph_capture())
    assert (usage.peak_cb, usage.peak_dataflow_buffer) == (0, 2 * (2 * 64 + 256))


def test_levels_join_functions_by_the_tensors_between_them(x: Any):
    graph, _ = captured(x)
    source, add, relu = ttnn.graph.extract_levelized_graph(graph)
    assert source["name"].startswith("tensor[")
    assert (add["name"], add["in_edges"], add["out_edges"]) == (
        BINARY,
        [source["counter"]],
        [relu["counter"]],
    )
    assert relu["output_shape"] == ["Shape([32, 64])"]
    deeper = ttnn.graph.extract_levelized_graph(graph, max_level=2)
    assert len(deeper) == 5
    assert next(one for one in deeper if one["name"] == BINARY)["internals"]


def test_captures_nest_and_each_sees_what_runs_inside_it(x: Any):
    ttnn.graph.begin_graph_capture()
    ttnn.exp(x)
    inner, _ = captured(x)
    outer = ttnn.graph.end_graph_capture()
    assert [name for name in ttnn.graph.extract_calltrace(outer) if not name.startswith("tt")] == [UNARY, BINARY, UNARY]
    assert ttnn.graph.extract_calltrace(inner)[0] == BINARY


def test_functions_of_the_users_own_stand_around_ops(x: Any):
    ttnn.graph.begin_graph_capture()
    ttnn.graph.track_function_start("block")
    ttnn.exp(x)
    ttnn.graph.track_function_end()
    with pytest.raises(ttnn.MeshError, match="no function has begun"):
        ttnn.graph.track_function_end()
    graph = ttnn.graph.end_graph_capture()
    assert ttnn.graph.extract_calltrace(graph)[:2] == ["ttnn::block", UNARY]
    exp = next(node for node in graph if node["params"].get("name") == UNARY)
    assert exp["stacking_level"] == 1


# -- dry runs ----------------------------------------------------------------------------------------


def test_without_dispatch_results_have_specs_and_no_values(x: Any):
    graph, y = captured(x, ttnn.graph.RunMode.NO_DISPATCH)
    assert (list(y.shape), y.dtype) == ([32, 64], ttnn.bfloat16)
    assert UNARY in ttnn.graph.extract_calltrace(graph)
    with pytest.warns(ttnn.SoftmeshWarning, match=r"never written there by relu under RunMode.NO_DISPATCH"):
        values = ttnn.to_torch(ttnn.get_device_tensors(y)[0])
    assert values.isnan().all()


def test_without_dispatch_nothing_is_written_in_place(x: Any, pair: ttnn.MeshDevice):
    before = ttnn.to_torch(ttnn.get_device_tensors(x)[0])
    ttnn.graph.begin_graph_capture(ttnn.graph.RunMode.NO_DISPATCH)
    ttnn.add(x, 1.0, output_tensor=x)
    ttnn.graph.end_graph_capture()
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(x)[0]), before)
    ttnn.add(x, 1.0, output_tensor=x)
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(x)[0]), before + 1)


# -- reports -----------------------------------------------------------------------------------------


def test_a_report_holds_the_graph_the_devices_and_their_buffers(x: Any, tmp_path: Path):
    report = tmp_path / "below" / "report.json"
    ttnn.graph.begin_graph_capture()
    ttnn.exp(x)
    graph = ttnn.graph.end_graph_capture_to_file(report)
    found = json.loads(report.read_text())
    assert found["version"] == ttnn.graph.REPORT_VERSION
    assert found["graph"] == graph
    assert [(each["device_id"], each["arch"], each["l1_num_banks"]) for each in found["devices"]] == [
        (0, "wormhole_b0", 64),
        (1, "wormhole_b0", 64),
    ]
    assert found["mesh_coordinate_mapping"] == "chips:\n  0: [0, 0]\n  1: [0, 1]\n"
    assert "chip_unique_ids:" in found["cluster_descriptor"]
    assert {"address": x.buffer_address(), "buffer_type": "L1"}.items() <= found["buffers"][0].items()
    assert "buffer_pages" not in found


def test_a_full_capture_tells_pages_lines_and_arguments_too(x: Any, tmp_path: Path):
    report = tmp_path / "report.json"
    with ttnn.graph.full_graph_capture(str(report)):
        ttnn.exp(x)
    found = json.loads(report.read_text())
    (call,) = found["python_io"]
    assert call["name"] == "ttnn.exp"
    assert f"tensor_id={x.tensor_id}" in call["arguments"]["0"]
    assert call["input_tensor_ids"] == [x.tensor_id]
    assert len(call["output_tensor_ids"]) == 1
    assert 'test_graph_capture.py", line ' in call["python_stack_trace"][0]
    assert json.loads(report.with_suffix(".python_io.json").read_text()) == found["python_io"]
    assert len(found["buffer_pages"]) == 2 * len(found["buffers"])
    exp = next(node for node in found["graph"] if node["params"].get("name") == UNARY)
    assert 'test_graph_capture.py", line ' in exp["stack_trace"][0]
    assert "ttnn.exp(x)" in exp["stack_trace"][0]
    assert not ttnn.graph.is_python_stack_trace_enabled()
    assert not ttnn.graph.is_python_io_recording_enabled()


def test_recorded_calls_keep_the_error_they_ended_in(x: Any):
    ttnn.graph.begin_graph_capture()
    ttnn.graph.enable_python_io_recording()
    try:
        with pytest.raises(TypeError):
            ttnn.add(x, x, colour="red")
    finally:
        ttnn.graph.disable_python_io_recording()
        ttnn.graph.end_graph_capture()
    (record,) = ttnn.graph._python_io_data
    assert record["error"]["type"] == "ArgumentError"
    mine = ttnn.graph.record_python_operation("mine", [x], {"flag": True})
    assert mine["arguments"]["flag"] == "True"


def test_a_captured_graph_is_kept_with_the_call_that_was_recorded_last(x: Any):
    graph, _ = captured(x)
    before = len(ttnn.graph._python_io_data)
    ttnn.graph.store_captured_graph(graph)
    assert ttnn.graph._python_io_data[-1]["captured_graph"] == graph
    assert len(ttnn.graph._python_io_data) == before


@pytest.mark.parametrize("option", ["enable_graph_python_stack_traces", "enable_detailed_tensor_report"])
def test_the_configuration_asks_for_stack_traces_of_a_capture(x: Any, option: str):
    with ttnn.manage_config(option, True):
        ttnn.graph.begin_graph_capture()
        ttnn.exp(x)
        graph = ttnn.graph.end_graph_capture()
    assert any("stack_trace" in node for node in graph)
    assert not ttnn.graph.is_python_stack_trace_enabled(), "for that one only"


def test_graphs_are_printed_and_drawn(x: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    graph, _ = captured(x)
    ttnn.graph.pretty_print(graph)
    shown = capsys.readouterr().out
    assert shown.startswith(f"begin: {BINARY}(")
    assert "        allocate   4096 B of L1 at" in shown
    drawing = ttnn.graph.visualize(graph, file_name=tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text() == drawing.source
    assert '"0" -> ' in drawing.source


def test_calls_of_a_graph_become_a_document_of_plain_text(x: Any):
    from softmesh.graph_tracer_utils import GraphTracerUtils

    graph, _ = captured(x)
    content = GraphTracerUtils.serialize_graph(graph)["content"]
    assert content[0]["operation"] == BINARY
    assert content[0]["arguments"][1]["arg1"].startswith("{Tensor(shape=Shape([32, 64]), dtype=DataType::BFLOAT16")
    assert GraphTracerUtils.replace_control_chars({"a": ["x\ny", 3]}) == {"a": ["x y", 3]}


# -- bad input ---------------------------------------------------------------------------------------


def test_ending_what_has_not_begun_is_refused():
    with pytest.raises(ttnn.MeshError, match="no graph capture is active"):
        ttnn.graph.end_graph_capture()


@pytest.mark.parametrize("trace", [None, "graph", [], [1, 2], [{"counter": 0}]])
def test_questions_take_only_a_graph(trace: Any):
    with pytest.raises(TypeError, match=r"end_graph_capture\(\) returned"):
        ttnn.graph.extract_calltrace(trace)


def test_a_mode_is_a_run_mode_and_a_report_has_a_path(x: Any, tmp_path: Path):
    with pytest.raises(TypeError, match="run_mode must be"):
        ttnn.graph.begin_graph_capture("NORMAL")
    ttnn.graph.begin_graph_capture()
    with pytest.raises(TypeError, match="report_path must be a path"):
        ttnn.graph.end_graph_capture_to_file(3)
    (tmp_path / "file").write_text("")
    ttnn.graph.begin_graph_capture()
    with pytest.raises(ttnn.MeshError, match="cannot write"):
        ttnn.graph.end_graph_capture_to_file(tmp_path / "file" / "report.json")


# -- memory of programs, and who wrote a report --------------------------------------------------------------


def _on_cores(kind: str, size: int, **params: int) -> dict[str, object]:
    shown = {"size": str(size), **{name: str(value) for name, value in params.items()}}
    return {"counter": 0, "node_type": kind, "params": shown, "connections": []}


def test_each_kind_of_memory_on_cores_has_its_peak():
    program = [
        _on_cores("circular_buffer_allocate", 1024, globally_allocated=0),
        _on_cores("circular_buffer_allocate", 999, globally_allocated=1),
        _on_cores("dataflow_buffer_allocate", 2048, borrows_memory=0),
        _on_cores("dataflow_buffer_allocate", 4096, borrows_memory=1),
        _on_cores("scratchpad_allocate", 512),
    ]
    end = {"counter": 0, "node_type": "circular_buffer_deallocate_all", "params": {}, "connections": []}
    usage = ttnn.graph.extract_resource_usage_per_core([*program, end, *program])
    assert (usage.peak_cb, usage.peak_dataflow_buffer, usage.peak_scratchpad) == (1024, 2048, 512)
    assert (usage.peak_l1, usage.peak_total) == (0, 3584)
    assert ttnn.graph.extract_peak_L1_memory_usage(program) == 3584
    with pytest.warns(DeprecationWarning, match="interleaved_storage_cores"):
        assert ttnn.graph.extract_resource_usage_per_core(program, interleaved_storage_cores=64) == usage


def test_functions_of_python_and_addresses_are_told(device: ttnn.MeshDevice, tmp_path: Path):
    ttnn.graph.begin_graph_capture()
    x = ttnn.from_torch(torch.rand(32, 32), layout=ttnn.TILE_LAYOUT, device=device)
    graph = ttnn.graph.end_graph_capture_to_file(tmp_path / "report.json")
    assert "ttnn.from_torch" in ttnn.graph.extract_calltrace(graph)
    tensors = [node["params"] for node in graph if node["node_type"] == "tensor"]
    assert str(x.buffer_address()) in [params.get("address") for params in tensors]
    assert json.loads((tmp_path / "report.json").read_text())["metadata"] == {"rank": 0, "world_size": 1}


def test_functions_and_captures_tell_how_long_they_took(x: Any):
    graph, _ = captured(x)
    ends = [node for node in graph if node["node_type"] in ("function_end", "capture_end")]
    assert len(ends) == 5
    assert all(isinstance(node["duration_ns"], int) and node["duration_ns"] > 0 for node in ends)
    whole, calls = ends[-1]["duration_ns"], [node for node in ends[:-1] if node["stacking_level"] == 0]
    assert sum(node["duration_ns"] for node in calls) <= whole


def test_what_creates_a_tensor_tells_its_form(x: Any):
    graph, _ = captured(x)
    content = ttnn.graph_tracer_utils.GraphTracerUtils.serialize_graph(graph)["content"]
    made = next(one for one in content if one["operation"] == "tt::tt_metal::create_device_tensor")
    shape, dtype, layout, _, config = (value for argument in made["arguments"] for value in argument.values())
    assert (shape, dtype, layout) == ({"Shape": [32, 64]}, x.dtype.cpp_name, x.layout.cpp_name)
    assert config["MemoryConfig"]["memory_layout"] == "TensorMemoryLayout::INTERLEAVED"
    assert config["MemoryConfig"]["shard_spec"] == "std::nullopt"


def test_peaks_of_a_core_are_told_in_lines(x: Any):
    usage = ttnn.graph.extract_resource_usage_per_core(captured(x)[0])
    assert str(usage).splitlines()[0] == "Peak Memory Usage Per Core:"
    assert f"  Total: {usage.peak_total} bytes" in str(usage).splitlines()


def test_ops_are_named_as_the_programs_they_launch(x: Any):
    ttnn.graph.begin_graph_capture()
    ttnn.transpose(x, 0, 1)
    ttnn.moreh_full_like(x, 3)
    ttnn.typecast(x, ttnn.float32)
    ttnn.moreh_sum(x)
    ttnn.experimental.dropout(x, 0.5, 2.0, 1)
    graph = ttnn.graph.end_graph_capture()
    calls = [node for node in graph if node["node_type"] == "function_start" and "Operation" in node["params"]["name"]]
    assert [node["params"]["name"] for node in calls] == [
        "PermuteDeviceOperation",
        "FullDeviceOperation",
        "TypecastDeviceOperation",
        "MorehSumOperation",
        "DropoutDeviceOperation",
    ]
    assert "SmallVector([1, 0])" in calls[0]["arguments"][0]
    assert "BufferType::L1" in calls[0]["arguments"][0]
    assert calls[1]["arguments"][1] == "{}"
    assert "DataType::FLOAT32" in calls[2]["arguments"][0]
    assert "HiFi4" in calls[3]["arguments"][0]


def test_records_can_be_put_in_their_place_as_a_list():
    ttnn.graph._python_io_data = [{"name": "stale"}]
    ttnn.graph.record_python_operation("ttnn.relu", (1,), {"memory_config": "DRAM"})
    assert [record["name"] for record in ttnn.graph._python_io_data] == ["stale", "ttnn.relu"]
    assert ttnn.graph._python_io_data[1]["arguments"] == {"0": "1", "memory_config": "DRAM"}
    ttnn.graph.begin_graph_capture()
    ttnn.graph.end_graph_capture()
    assert ttnn.graph._python_io_data == [], "a capture begins with none"


EXTRACTIONS = (
    *("extract_calltrace", "extract_output_tensors", "extract_output_info", "count_intermediate_and_output_tensors"),
    *("extract_peak_L1_memory_usage", "extract_resource_usage_per_core", "extract_levelized_graph"),
    *("extract_total_duration_from_graph", "extract_operation_durations"),
)


@pytest.mark.parametrize("key", ["params", "connections", "counter", "node_type", "input_tensors", "duration_ns"])
def test_a_graph_of_an_edited_file_is_refused_in_words(x: Any, key: str):
    nodes, _ = captured(x)
    refused = 0
    for value in (None, True, 2**70, "x", [], [2**40], {}, [[]]):
        for at, node in enumerate(nodes):
            edited = [*nodes[:at], {**node, key: value}, *nodes[at + 1 :]]
            for name in EXTRACTIONS:
                try:
                    getattr(ttnn.graph, name)(edited)
                except SoftmeshError as error:
                    refused += "it takes what ttnn.graph.end_graph_capture() returned" in str(error)
    assert refused
