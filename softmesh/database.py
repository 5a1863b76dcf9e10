"""`ttnn.database`: asks the database of a report, as programs do that look at reports of TT-NN.

    for operation in ttnn.database.query_operations(ttnn.CONFIG.report_path):
        print(operation.name, ttnn.database.query_input_tensors(ttnn.CONFIG.report_path, operation.operation_id))

Rows come back as values with the columns of their table. A report is a folder, or the database in it.
"""

from __future__ import annotations

import os
import sqlite3
from collections import namedtuple
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from softmesh.errors import MeshError
from softmesh.graph.report_tables import column_names, create_database_schema
from softmesh.input_files.text_files import checked_path
from softmesh.terminal_text import readable

SQLITE_DB_PATH = "db.sqlite"
CONFIG_PATH = "config.json"
GRAPHS_PATH = "graphs"
TENSORS_PATH = "tensors"

PathLike = str | os.PathLike[str]


def _row_of(name: str, table: str) -> Any:
    """A kind of value with the columns of a table."""
    return namedtuple(name, column_names(table))


Device = _row_of("Device", "devices")
Operation = _row_of("Operation", "operations")
OperationArgument = _row_of("OperationArgument", "operation_arguments")
Tensor = _row_of("Tensor", "tensors")
InputTensor = _row_of("InputTensor", "input_tensors")
OutputTensor = _row_of("OutputTensor", "output_tensors")
Buffer = _row_of("Buffer", "buffers")
BufferChunk = _row_of("BufferChunk", "buffer_chunks")
ErrorRecord = _row_of("ErrorRecord", "errors")
TensorComparisonRecord = _row_of("TensorComparisonRecord", "local_tensor_comparison_records")


def get_or_create_sqlite_db(report_path: PathLike) -> sqlite3.Connection:
    """The open database of a report; a new one with all tables where there is none."""
    folder = Path(report_path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(folder / SQLITE_DB_PATH)
        create_database_schema(connection.cursor())
    except (OSError, sqlite3.Error) as error:
        raise MeshError(f"ttnn.database: cannot open {folder / SQLITE_DB_PATH}: {error}.") from None
    return connection


def query_devices(report_path: PathLike) -> list[Any]:
    return _rows(report_path, "devices", Device, order="rank, device_id")


def query_operations(report_path: PathLike) -> list[Any]:
    """All of them, in the order of calls."""
    return _rows(report_path, "operations", Operation, order="rank, operation_id")


def query_operation_by_id(report_path: PathLike, operation_id: int) -> Any | None:
    return _first(_rows(report_path, "operations", Operation, "operation_id = ?", (operation_id,)))


def query_operation_by_id_together_with_previous_and_next(
    report_path: PathLike, operation_id: int
) -> tuple[Any | None, Any | None, Any | None]:
    """(the operation, the one before, the one after)."""
    found = query_operation_by_id(report_path, operation_id)
    before = _rows(report_path, "operations", Operation, "operation_id < ?", (operation_id,), "operation_id DESC")
    after = _rows(report_path, "operations", Operation, "operation_id > ?", (operation_id,), "operation_id")
    return found, _first(before), _first(after)


def query_operation_arguments(report_path: PathLike, operation_id: int) -> list[Any]:
    return _rows(report_path, "operation_arguments", OperationArgument, "operation_id = ?", (operation_id,))


def query_stack_trace(report_path: PathLike, operation_id: int) -> str | None:
    found = _select(report_path, "SELECT stack_trace FROM stack_traces WHERE operation_id = ?", (operation_id,))
    return str(found[0][0]) if found else None


def query_captured_graph(report_path: PathLike, operation_id: int) -> str | None:
    """As JSON."""
    found = _select(report_path, "SELECT captured_graph FROM captured_graph WHERE operation_id = ?", (operation_id,))
    return str(found[0][0]) if found else None


def query_buffers(report_path: PathLike, operation_id: int) -> list[Any]:
    """What is allocated after the operation."""
    return _rows(report_path, "buffers", Buffer, "operation_id = ?", (operation_id,))


def query_buffer_chunks(report_path: PathLike, operation_id: int) -> list[Any]:
    """Its pages, joined bank by bank."""
    return _rows(report_path, "buffer_chunks", BufferChunk, "operation_id = ?", (operation_id,))


def query_tensors(report_path: PathLike) -> list[Any]:
    return _rows(report_path, "tensors", Tensor, order="rank, tensor_id")


def query_tensor_by_id(report_path: PathLike, tensor_id: int) -> Any | None:
    return _first(_rows(report_path, "tensors", Tensor, "tensor_id = ?", (tensor_id,)))


def query_input_tensors(report_path: PathLike, operation_id: int) -> list[Any]:
    return _rows(report_path, "input_tensors", InputTensor, "operation_id = ?", (operation_id,), "input_index")


def query_output_tensors(report_path: PathLike, operation_id: int) -> list[Any]:
    return _rows(report_path, "output_tensors", OutputTensor, "operation_id = ?", (operation_id,), "output_index")


def query_producer_operation_id(report_path: PathLike, tensor_id: int) -> int | None:
    found = _rows(report_path, "output_tensors", OutputTensor, "tensor_id = ?", (tensor_id,), "operation_id")
    return found[0].operation_id if found else None


def query_consumer_operation_ids(report_path: PathLike, tensor_id: int) -> list[int]:
    found = _rows(report_path, "input_tensors", InputTensor, "tensor_id = ?", (tensor_id,), "operation_id")
    return list(dict.fromkeys(row.operation_id for row in found))


def query_errors(report_path: PathLike) -> list[Any]:
    return _rows(report_path, "errors", ErrorRecord)


def query_tensor_comparison_record(report_path: PathLike, tensor_id: int, is_global: bool = False) -> Any | None:
    table = f"{'global' if is_global else 'local'}_tensor_comparison_records"
    return _first(_rows(report_path, table, TensorComparisonRecord, "tensor_id = ?", (tensor_id,)))


def query_report_metadata(report_path: PathLike) -> dict[str, str]:
    return dict(_select(report_path, "SELECT key, value FROM report_metadata", ()))


def _rows(
    report_path: PathLike, table: str, kind: Any, where: str = "", values: Sequence[object] = (), order: str = ""
) -> list[Any]:
    clauses = (f" WHERE {where}" if where else "") + (f" ORDER BY {order}" if order else "")
    query = f"SELECT {', '.join(column_names(table))} FROM {table}{clauses}"
    return [kind(*row) for row in _select(report_path, query, values)]


def _select(report_path: PathLike, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    path = Path(checked_path("ttnn.database", "report_path", report_path))
    database = path / SQLITE_DB_PATH if os.path.isdir(path) else path
    if not os.path.isfile(database):
        raise MeshError(f"ttnn.database: there is no {readable(str(database))}. Name the folder of a report.")
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(query, tuple(values)).fetchall()
    except sqlite3.Error as error:
        raise MeshError(f"ttnn.database: {database} is no database of a report: {error}.") from None


def _first(rows: list[Any]) -> Any | None:
    return rows[0] if rows else None
