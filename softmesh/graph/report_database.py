"""`ttnn.graph_report`: a captured graph as the database that TT-NN's visualizer opens.

Tables hold what a capture here knows: operations with their arguments and tensors, tensors, devices' buffers, the graph
itself, comparisons. Durations are not measured.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from softmesh.config import CONFIG
from softmesh.errors import MeshError
from softmesh.graph.capture import FUNCTION_END, FUNCTION_START, TENSOR, Node
from softmesh.graph.comparison_records import (
    COMPARISON_RECORDS_FILE,
    COMPARISON_RECORDS_SIDECAR_SUFFIX,
    GLOBAL,
    LOCAL,
    write_records,
)
from softmesh.graph.session import (
    REPORT_VERSION,
    begin_graph_capture,
    end_graph_capture_to_file,
    is_graph_capture_active,
)

COMPARISON_RECORDS_FALLBACK_NAME = COMPARISON_RECORDS_FILE
SUPPORTED_REPORT_VERSION = REPORT_VERSION
_TABLES = (
    "operations (operation_id int, name text, duration float, rank int)",
    "operation_arguments (operation_id int, name text, value text, rank int)",
    "tensors (tensor_id int, shape text, dtype text, layout text, memory_config text, device_id int, address int, "
    "buffer_type text, rank int)",
    "input_tensors (operation_id int, input_index int, tensor_id int, rank int)",
    "output_tensors (operation_id int, output_index int, tensor_id int, rank int)",
    "captured_graph (operation_id int, captured_graph text, rank int)",
    "report_metadata (key text, value text)",
)


def import_report(
    report_path: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    db_name: str = "db.sqlite",
    generate_svgs: bool = False,
) -> Path:
    """Write a report of `ttnn.graph.end_graph_capture_to_file` into a database, and say where that is."""
    path, folder = Path(report_path), Path(output_dir)
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        graph, version = report["graph"], report["version"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise MeshError(f"import_report: {path} is no report of a graph capture: {error!r}.") from None
    if version != SUPPORTED_REPORT_VERSION:
        raise MeshError(f"import_report: {path} has version {version}, known is {SUPPORTED_REPORT_VERSION}.")
    metadata = report.get("metadata", {})
    database = folder / db_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(database)) as connection, connection:
            cursor = connection.cursor()
            for table in _TABLES:
                cursor.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            _import_graph(cursor, graph, int(metadata.get("rank", 0)))
            cursor.executemany(
                "INSERT INTO report_metadata VALUES (?, ?)",
                [(key, str(value)) for key, value in metadata.items()],
            )
            _import_comparisons(cursor, path)
    except (OSError, sqlite3.Error) as error:
        raise MeshError(f"import_report: cannot write {database}: {error}.") from None
    return database


def _import_graph(cursor: sqlite3.Cursor, graph: Sequence[Node], rank: int) -> None:
    """Outermost functions are the operations, numbered from 1."""
    tensors = {node["counter"]: node["params"] for node in graph if node["node_type"] == TENSOR}
    for params in tensors.values():
        values = [params.get(name) for name in ("shape", "dtype", "layout", "memory_config", "device_id", "address")]
        row = (int(params["tensor_id"]), *values, params.get("buffer_type"), rank)
        cursor.execute("INSERT INTO tensors VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    number = 0
    for node in graph:
        if node.get("stacking_level", 0) or node["node_type"] not in (FUNCTION_START, FUNCTION_END):
            continue
        if node["node_type"] == FUNCTION_START:
            number += 1
            cursor.execute("INSERT INTO operations VALUES (?, ?, ?, ?)", (number, node["params"]["name"], None, rank))
            for at, argument in enumerate(node.get("arguments", ())):
                row = (number, f"arg{at}", str(argument), rank)
                cursor.execute("INSERT INTO operation_arguments VALUES (?, ?, ?, ?)", row)
            _join(cursor, "input_tensors", number, [tensors[at] for at in node["input_tensors"]], rank)
        else:
            made = [tensors[at] for at in node["connections"] if at in tensors]
            _join(cursor, "output_tensors", number, made, rank)
    cursor.execute("INSERT INTO captured_graph VALUES (?, ?, ?)", (0, json.dumps(graph), rank))


def _join(cursor: sqlite3.Cursor, table: str, operation: int, tensors: Sequence[dict[str, Any]], rank: int) -> None:
    rows = [(operation, at, int(params["tensor_id"]), rank) for at, params in enumerate(tensors)]
    cursor.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", rows)


def _import_comparisons(cursor: sqlite3.Cursor, report: Path) -> None:
    """From beside the report: of its own name, or of the folder."""
    beside = (
        report.with_suffix(COMPARISON_RECORDS_SIDECAR_SUFFIX),
        report.parent / COMPARISON_RECORDS_FALLBACK_NAME,
    )
    found = next((path for path in beside if path.exists()), None)
    records = json.loads(found.read_text(encoding="utf-8")) if found is not None else {}
    for table in (LOCAL, GLOBAL):
        write_records(cursor, table, records.get(table, []))


def run_pytest_graph_report_fixture(request: Any) -> Iterator[None]:
    """What a fixture yields from: the test is captured, and its report written where `ttnn.CONFIG` says."""
    folder = CONFIG.report_path
    if folder is None or not str(CONFIG.report_name) or is_graph_capture_active():
        yield
        return
    begin_graph_capture()
    try:
        yield
    finally:
        if is_graph_capture_active():
            folder.mkdir(parents=True, exist_ok=True)
            end_graph_capture_to_file(folder / "graph_capture.json")
            import_report(folder / "graph_capture.json", folder)
            CONFIG.save_to_file(folder / "config.json")
