"""`ttnn.graph`: records of comparisons are kept, written beside a report, and forgotten."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch

import softmesh as ttnn
from softmesh.graph.comparison_records import kept_records, recording_comparisons

RECORD = {"tensor_id": 3, "golden_tensor_id": 4, "matches": True, "desired_pcc": 0.99, "actual_pcc": 1.0}


def test_records_are_written_once_and_then_forgotten(tmp_path: Path):
    ttnn.graph.reset_comparison_records_data()
    ttnn.graph.flush_comparison_records_to_db(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    ttnn.graph.record_tensor_comparison_data(local_tensor_comparison_records=[RECORD])
    assert ttnn.graph.has_comparison_records()
    ttnn.graph.flush_comparison_records_to_db(tmp_path)
    assert not ttnn.graph.has_comparison_records()
    written = json.loads((tmp_path / "comparison_records.json").read_text())
    assert written["local_tensor_comparison_records"] == [RECORD]
    with closing(sqlite3.connect(tmp_path / "db.sqlite")) as database:
        rows = database.execute("SELECT tensor_id, actual_pcc FROM local_tensor_comparison_records").fetchall()
        assert rows == [(3, 1.0)]
        assert database.execute("SELECT * FROM global_tensor_comparison_records").fetchall() == []


def test_records_are_lists():
    with pytest.raises(TypeError, match="must be a list of records as dicts"):
        ttnn.graph.record_tensor_comparison_data(global_tensor_comparison_records=3)
    ttnn.graph.record_tensor_comparison_data(tensors=[{"tensor_id": 3}])
    ttnn.graph.reset_comparison_records_data()
    assert not ttnn.graph.has_comparison_records()


def test_global_records_hold_results_against_goldens_of_goldens(device: ttnn.MeshDevice):
    ttnn.graph.reset_comparison_records_data()
    spread = torch.linspace(0.9, 1.1, 1024).reshape(32, 32)
    with recording_comparisons(), ttnn.manage_config("enable_comparison_mode", True):
        x = ttnn.from_torch(spread, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for _ in range(3):
            x = ttnn.add(ttnn.multiply(x, 0.01), 1.0)
    kept = kept_records()
    ttnn.graph.reset_comparison_records_data()
    local, carried = kept["local_tensor_comparison_records"], kept["global_tensor_comparison_records"]
    assert [record["tensor_id"] for record in local] == [record["tensor_id"] for record in carried]
    assert carried[0]["actual_pcc"] == local[0]["actual_pcc"]
    assert local[2]["actual_pcc"] > 0.999 > carried[2]["actual_pcc"]  # the op is right, what it was given is not
