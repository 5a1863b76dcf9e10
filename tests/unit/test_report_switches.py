"""`ttnn.CONFIG` asks for reports: the folder of TT-NN Visualizer, and `ttnn.database` that reads it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from warm_python import warm_python

import softmesh as ttnn

FILES = ["cluster_descriptor.yaml", "config.json", "db.sqlite", "physical_chip_mesh_coordinate_mapping.yaml"]


def written(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize("switch", ["enable_logging", "enable_graph_report"])
def test_a_named_report_is_written_when_its_switch_is_set_back(mesh: ttnn.MeshDevice, tmp_path: Path, switch: str):
    name = "my run"
    with ttnn.manage_config("root_report_path", tmp_path), ttnn.manage_config("report_name", name):
        with ttnn.manage_config(switch, True):
            x = ttnn.from_torch(torch.rand(32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
            y = ttnn.relu(x)
            assert written(tmp_path / name) == []
        assert written(tmp_path / name) == FILES
        ttnn.relu(y)
    operations = ttnn.database.query_operations(tmp_path / name)
    assert [operation.name for operation in operations] == ["ttnn.from_torch", "ttnn.relu"]
    assert operations[1].duration > 0
    assert len(ttnn.database.query_devices(tmp_path / name)) == 8


def test_a_switch_without_a_name_writes_nothing(device: ttnn.MeshDevice, tmp_path: Path):
    with ttnn.manage_config("root_report_path", tmp_path), ttnn.manage_config("enable_logging", True):
        ttnn.ones((32, 32), device=device)
    assert written(tmp_path) == []


def test_what_comparison_mode_finds_is_in_the_report(device: ttnn.MeshDevice, tmp_path: Path):
    with (
        ttnn.manage_config("root_report_path", tmp_path),
        ttnn.manage_config("enable_comparison_mode", True),
        ttnn.manage_config("report_name", "compared"),
        ttnn.manage_config("enable_graph_report", True),
    ):
        x = ttnn.from_torch(torch.rand(32, 32), layout=ttnn.TILE_LAYOUT, device=device)
        y = ttnn.relu(x)
    record = ttnn.database.query_tensor_comparison_record(tmp_path / "compared", y.tensor_id)
    assert record.matches == 1
    assert record.actual_pcc > record.desired_pcc
    assert not ttnn.graph.has_comparison_records()


def test_the_environment_asks_and_the_end_of_the_process_writes(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        "import ttnn\n"
        "device = ttnn.open_device(device_id=0)\n"
        "ttnn.ones((32, 32), device=device)\n"
        "raise ValueError('half-way')\n"
    )
    overrides = '{"enable_logging": true, "report_name": "from <env>", "root_report_path": "' + str(tmp_path) + '"}'
    env = {**os.environ, "TTNN_CONFIG_OVERRIDES": overrides}
    command = [*warm_python(), "-m", "softmesh", str(program)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "half-way" in ended.stderr
    folder = tmp_path / "from <env>"
    assert written(folder) == FILES
    (operation,) = ttnn.database.query_operations(folder)
    trace = ttnn.database.query_stack_trace(folder, operation.operation_id)
    assert trace is not None
    assert f'File "{program}", line 3' in trace
    assert "ttnn.ones((32, 32), device=device)" in trace


def test_a_folder_that_cannot_be_made_is_refused_when_it_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("kept")
    with (
        ttnn.manage_config("root_report_path", tmp_path / "file"),
        ttnn.manage_config("enable_logging", True),
        pytest.raises(ttnn.MeshError, match="report_name: "),
    ):
        ttnn.CONFIG.report_name = Path("below")
    ttnn.CONFIG.report_name = None
    assert (tmp_path / "file").read_text() == "kept"


def test_the_database_is_asked_by_operation_and_tensor(device: ttnn.MeshDevice, tmp_path: Path):
    with ttnn.graph.full_graph_capture(str(tmp_path / "r.json")):
        x = ttnn.ones((32, 32), layout=ttnn.TILE_LAYOUT, device=device)
        y = ttnn.exp(ttnn.relu(x))
    folder = ttnn.graph_report.import_report(tmp_path / "r.json", tmp_path / "out").parent
    database = ttnn.database
    first, *_, last = database.query_operations(folder)
    found, before, after = database.query_operation_by_id_together_with_previous_and_next(folder, last.operation_id)
    assert found == last
    assert before.operation_id == last.operation_id - 1
    assert after is None
    assert database.query_operation_by_id(folder, first.operation_id) == first
    assert [each.tensor_id for each in database.query_output_tensors(folder, last.operation_id)] == [y.tensor_id]
    assert database.query_producer_operation_id(folder, y.tensor_id) == last.operation_id
    assert database.query_consumer_operation_ids(folder, y.tensor_id) == []
    (read,) = database.query_input_tensors(folder, last.operation_id)
    assert database.query_consumer_operation_ids(folder, read.tensor_id) == [last.operation_id]
    assert database.query_tensor_by_id(folder, y.tensor_id).address == y.buffer_address()
    assert y.buffer_address() in [each.address for each in database.query_buffers(folder, last.operation_id)]
    assert database.query_buffer_chunks(folder, last.operation_id)
    assert database.query_operation_arguments(folder, last.operation_id)
    assert "capture_start" in str(database.query_captured_graph(folder, last.operation_id))
    assert (
        database.query_report_metadata(folder)["schema_version"]
        == database.query_report_metadata(folder / database.SQLITE_DB_PATH)["schema_version"]
    )
    assert database.query_errors(folder) == []


def test_what_is_no_report_has_no_database(tmp_path: Path):
    with pytest.raises(ttnn.MeshError, match="there is no"):
        ttnn.database.query_operations(tmp_path)
    (tmp_path / "db.sqlite").write_text("not a database, but long enough to be read as one" * 40)
    with pytest.raises(ttnn.MeshError, match="is no database of a report"):
        ttnn.database.query_operations(tmp_path)
    with ttnn.database.get_or_create_sqlite_db(tmp_path / "new") as connection:
        assert connection.execute("SELECT COUNT(*) FROM operations").fetchone() == (0,)
    connection.close()
    assert ttnn.database.query_tensors(tmp_path / "new") == []


def test_a_notebook_shows_what_a_block_costs(device: ttnn.MeshDevice):
    with ttnn.estimate(device) as cost:
        assert cost._repr_html_() is None, "there is nothing to show yet"
        ttnn.ones((32, 32), device=device)
    assert "<iframe" in cost._repr_html_()
    assert cost.estimate._repr_html_() == cost._repr_html_()
