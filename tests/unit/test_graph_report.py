"""`ttnn.graph_report`: reports of captured graphs as a database."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch

import softmesh as ttnn


def test_a_report_becomes_a_database(device: ttnn.MeshDevice, tmp_path: Path):
    x = ttnn.from_torch(torch.rand(32, 32), layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.graph.begin_graph_capture()
    y = ttnn.relu(ttnn.add(x, 1.0))
    ttnn.graph.end_graph_capture_to_file(tmp_path / "report.json")
    record = {"tensor_id": 1, "golden_tensor_id": 2, "matches": True, "desired_pcc": 0.9, "actual_pcc": 1.0}
    sidecar = tmp_path / f"report{ttnn.graph_report.COMPARISON_RECORDS_SIDECAR_SUFFIX}"
    sidecar.write_text(json.dumps({"local_tensor_comparison_records": [record]}))
    path = ttnn.graph_report.import_report(tmp_path / "report.json", tmp_path / "out")
    assert path == tmp_path / "out" / "db.sqlite"
    with closing(sqlite3.connect(path)) as database:

        def rows(what: str) -> list[tuple[object, ...]]:
            return database.execute(what).fetchall()

        assert rows("SELECT operation_id, name FROM operations") == [
            (1, "BinaryNgDeviceOperation"),
            (2, "UnaryDeviceOperation"),
        ]
        assert rows("SELECT tensor_id FROM input_tensors WHERE operation_id = 1") == [(x.tensor_id,)]
        assert rows("SELECT tensor_id FROM output_tensors WHERE operation_id = 2") == [(y.tensor_id,)]
        assert (y.tensor_id, "Shape([32, 32])") in rows("SELECT tensor_id, shape FROM tensors")
        assert ("rank", "0") in rows("SELECT key, value FROM report_metadata")
        assert rows("SELECT tensor_id, matches FROM local_tensor_comparison_records") == [(1, 1)]
    assert ttnn.graph.import_report is ttnn.graph_report.import_report


def test_what_is_no_report_is_refused(tmp_path: Path):
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ttnn.MeshError, match="is no report of a graph capture"):
        ttnn.graph_report.import_report(tmp_path / "report.json", tmp_path)
    (tmp_path / "report.json").write_text('{"graph": [], "version": 99}')
    with pytest.raises(ttnn.MeshError, match="has version 99"):
        ttnn.graph_report.import_report(tmp_path / "report.json", tmp_path)


def test_a_fixture_captures_a_test_where_the_configuration_names_a_report(device: ttnn.MeshDevice, tmp_path: Path):
    for _ in ttnn.graph_report.run_pytest_graph_report_fixture(None):
        assert not ttnn.graph.is_graph_capture_active()
    with ttnn.manage_config("root_report_path", tmp_path), ttnn.manage_config("report_name", "mine"):
        for _ in ttnn.graph_report.run_pytest_graph_report_fixture(None):
            ttnn.ones((32, 32), device=device)
    written = sorted(file.name for file in (tmp_path / "mine").iterdir())
    assert written == [
        "cluster_descriptor.yaml",
        "config.json",
        "db.sqlite",
        "graph_capture.json",
        "graph_capture.python_io.json",
        "physical_chip_mesh_coordinate_mapping.yaml",
    ]
    assert not ttnn.graph.is_graph_capture_active()


def rows_of(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_a_report_of_a_mesh_tells_of_all_its_devices(mesh: ttnn.MeshDevice, tmp_path: Path):
    with ttnn.graph.full_graph_capture(str(tmp_path / "report.json")):
        x = ttnn.ones((32, 32), device=mesh)
        y = ttnn.relu(x)
    path = ttnn.graph_report.import_report(tmp_path / "report.json", tmp_path / "out")
    assert rows_of(path, "SELECT COUNT(*) FROM devices") == [(8,)]
    placed = rows_of(path, f"SELECT device_id, address FROM device_tensors WHERE tensor_id = {y.tensor_id} ORDER BY 1")
    assert placed == [(device, y.buffer_address()) for device in range(8)]
    last = "(SELECT MAX(operation_id) FROM operations)"
    held = rows_of(path, f"SELECT COUNT(*) FROM buffers WHERE operation_id = {last} AND address = {y.buffer_address()}")
    assert held == [(8,)]
    assert rows_of(path, "SELECT COUNT(DISTINCT device_id) FROM buffer_chunks") == [(8,)]
    traces = "SELECT stack_trace, path FROM stack_traces JOIN source_files ON id = source_file_id"
    ((trace, source),) = rows_of(path, f"{traces} WHERE operation_id = {last}")
    assert f'File "{__file__}", line ' in str(trace)
    assert source == str(Path(__file__).resolve())
    assert rows_of(path, "SELECT value FROM report_metadata WHERE key = 'schema_version'") == [("3.3",)]
    assert rows_of(path, "SELECT COUNT(*) FROM operations WHERE duration > 0") != [(0,)]
    assert "  7: [1, 3]\n" in (tmp_path / "out" / "physical_chip_mesh_coordinate_mapping.yaml").read_text()


def report_of(name: str, rank: int = 0, **more: object) -> str:
    graph = [
        {"counter": 0, "node_type": "capture_start", "params": {}, "connections": [1]},
        {"counter": 1, "node_type": "tensor", "params": {"tensor_id": "5", "shape": "[32, 32]"}, "connections": []},
        {
            "counter": 2,
            "node_type": "function_start",
            "params": {"name": name},
            "connections": [],
            "input_tensors": [1],
        },
        {"counter": 3, "node_type": "function_end", "params": {"name": name}, "connections": [], "duration_ns": 500},
        {"counter": 4, "node_type": "capture_end", "params": {}, "connections": []},
    ]
    return json.dumps({"version": 1, "graph": graph, "metadata": {"rank": rank, "world_size": 2}, **more})


def test_reports_of_a_folder_become_one_database(tmp_path: Path):
    (tmp_path / "a.json").write_text(report_of("ttnn.one"))
    (tmp_path / "b.json").write_text(report_of("ttnn.two"))
    (tmp_path / "c.json").write_text(report_of("ttnn.one", rank=1))
    path = ttnn.graph_report.import_report(tmp_path, tmp_path / "out")
    assert rows_of(path, "SELECT operation_id, rank, name FROM operations ORDER BY rank, operation_id") == [
        (1, 0, "ttnn.one"),
        (10001, 0, "ttnn.two"),
        (1, 1, "ttnn.one"),
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ttnn.MeshError, match="no report of a graph capture in"):
        ttnn.graph_report.import_report(tmp_path / "empty", tmp_path / "out")


def test_what_python_knew_of_a_call_goes_with_its_operation(tmp_path: Path):
    source = tmp_path / "model.py"
    source.write_text("y = f(x)\n")
    known = {
        "name": "ttnn.one",
        "arguments": {"flag": "True"},
        "input_tensor_ids": [5],
        "output_tensor_ids": [],
        "python_stack_trace": [f'  File "{source}", line 1, in run\n    y = f(x)\n'],
    }
    failed = {"name": "ttnn.two", "arguments": {}, "error": {"type": "ValueError", "message": "no"}}
    (tmp_path / "r.json").write_text(report_of("ttnn.one", python_io=[known, failed]))
    path = ttnn.graph_report.import_report(tmp_path / "r.json", tmp_path / "out")
    assert rows_of(path, "SELECT name, value FROM operation_arguments") == [("flag", "True")]
    assert rows_of(path, "SELECT path, contents FROM source_files") == [(str(source.resolve()), "y = f(x)\n")]
    assert rows_of(path, "SELECT operation_name, error_type FROM errors") == [("ttnn.two", "ValueError")]
    life = rows_of(path, "SELECT tensor_id, last_use_operation_id, last_use_source_line FROM tensor_lifetime")
    assert life == [(5, 1, 1)]


def test_comparison_mode_leaves_its_records_beside_the_report(device: ttnn.MeshDevice, tmp_path: Path):
    x = ttnn.from_torch(torch.rand(32, 32), layout=ttnn.TILE_LAYOUT, device=device)
    with ttnn.manage_config("enable_comparison_mode", True):
        ttnn.graph.begin_graph_capture()
        y = ttnn.relu(x)
        ttnn.graph.end_graph_capture_to_file(tmp_path / "r.json")
    assert not ttnn.graph.has_comparison_records()
    path = ttnn.graph_report.import_report(tmp_path / "r.json", tmp_path / "out")
    query = "SELECT r.tensor_id, matches, actual_pcc FROM local_tensor_comparison_records r JOIN tensors t "
    ((tensor, matches, pcc),) = rows_of(path, query + "ON r.golden_tensor_id = t.tensor_id")
    assert (tensor, matches) == (y.tensor_id, 1)
    assert isinstance(pcc, float)
    assert pcc > 0.99


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://user:secret@host.org/a.git?x=1#y", "https://host.org/a.git"),
        ("git@host.org:team/a.git", "host.org:team/a.git"),
        ("  https://a@b/c  ", "https://b/c"),
    ],
)
def test_addresses_of_repositories_keep_no_secrets(given: str, kept: str):
    assert ttnn.graph_report.sanitize_git_remote_url(given) == kept


def test_durations_are_told_by_function(device: ttnn.MeshDevice):
    ttnn.graph.begin_graph_capture()
    ttnn.ones((32, 32), device=device)
    graph = ttnn.graph.end_graph_capture()
    each = ttnn.graph_report.extract_operation_durations(graph)
    assert each
    assert all(duration > 0 for duration in each.values())
    assert ttnn.graph_report.extract_total_duration_from_graph(graph) >= max(each.values())
    assert ttnn.graph_report.derive_report_name("tests/test_a.py::test_b[c-1]") == "test_a_test_b_c-1"
