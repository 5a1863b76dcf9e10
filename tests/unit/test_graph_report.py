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
    assert written == ["config.json", "db.sqlite", "graph_capture.json"]
    assert not ttnn.graph.is_graph_capture_active()
