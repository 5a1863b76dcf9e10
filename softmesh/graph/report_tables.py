"""The tables of a report's database, schema 3.3 of TT-NN: what TT-NN Visualizer reads.

Every row but those of source files and metadata says of which rank it is, so the ranks of a job share one database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DATABASE_SCHEMA_VERSION = "3.3"

CREATE_SOURCE_FILES_TABLE_SQL = (
    "CREATE TABLE IF NOT EXISTS source_files (id INTEGER PRIMARY KEY, path text UNIQUE NOT NULL, contents text)"
)
CREATE_STACK_TRACES_TABLE_WITH_SOURCE_SQL = (
    "CREATE TABLE IF NOT EXISTS stack_traces (operation_id int, stack_trace text, "
    "source_file_id int REFERENCES source_files(id), rank int NOT NULL DEFAULT 0)"
)
CREATE_INDEX_STACK_TRACES_SOURCE_FILE_SQL = (
    "CREATE INDEX IF NOT EXISTS idx_stack_traces_source_file_id ON stack_traces (source_file_id)"
)

DEVICE_COLUMNS = (
    "device_id",
    "num_y_cores",
    "num_x_cores",
    "num_y_compute_cores",
    "num_x_compute_cores",
    "worker_l1_size",
    "l1_num_banks",
    "l1_bank_size",
    "address_at_first_l1_bank",
    "address_at_first_l1_cb_buffer",
    "num_banks_per_storage_core",
    "num_compute_cores",
    "num_storage_cores",
    "total_l1_memory",
    "total_l1_for_tensors",
    "total_l1_for_interleaved_buffers",
    "total_l1_for_sharded_buffers",
    "cb_limit",
)
_COMPARISON = "tensor_id int, golden_tensor_id int, matches int, desired_pcc float, actual_pcc float"
# Their columns; each has `rank` as well.
_TABLES = {
    "devices": ", ".join(f"{column} int" for column in DEVICE_COLUMNS),
    "operations": "operation_id int, name text, duration float",
    "operation_arguments": "operation_id int, name text, value text",
    "tensors": "tensor_id int, shape text, dtype text, layout text, memory_config text, device_id int, address int, "
    "buffer_type int",
    "device_tensors": "tensor_id int, device_id int, address int",
    "buffers": "operation_id int, device_id int, address int, max_size_per_bank int, buffer_type int, "
    "buffer_layout int",
    "buffer_chunks": "operation_id int, device_id int, address int, bank_id int, core_x int, core_y int, "
    "chunk_address int, chunk_size int, page_size int, num_pages int, buffer_type int",
    "captured_graph": "operation_id int, captured_graph text",
    "nodes": "operation_id int, unique_id int, node_operation_id int, name text",
    "edges": "operation_id int, source_unique_id int, sink_unique_id int, source_output_index int, "
    "sink_input_index int, key int",
    "errors": "operation_id int, operation_name text, error_type text, error_message text, stack_trace text, "
    "timestamp text",
    "input_tensors": "operation_id int, input_index int, tensor_id int",
    "output_tensors": "operation_id int, output_index int, tensor_id int",
    "tensor_lifetime": "tensor_id int, producer_operation_id int, last_use_operation_id int, "
    "deallocate_operation_id int, producer_source_file text, producer_source_line int, last_use_source_file text, "
    "last_use_source_line int",
    "tensor_consumers": "tensor_id int, operation_id int, input_index int",
    "tensor_producers": "tensor_id int, operation_id int, output_index int",
    "local_tensor_comparison_records": _COMPARISON,
    "global_tensor_comparison_records": _COMPARISON,
}
_UNIQUE = {"operations": "operation_id", "tensors": "tensor_id"}
_INDEXED = (("buffers", "operation_id"), ("buffer_chunks", "operation_id"), ("tensors", "tensor_id"))


def create_database_schema(cursor: sqlite3.Cursor) -> None:
    """Make all tables that are not there yet."""
    for name, columns in _TABLES.items():
        unique = f", UNIQUE({_UNIQUE[name]}, rank)" if name in _UNIQUE else ""
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns}, rank int NOT NULL DEFAULT 0{unique})")
    cursor.execute("CREATE TABLE IF NOT EXISTS report_metadata (key text UNIQUE, value text)")
    cursor.execute(CREATE_SOURCE_FILES_TABLE_SQL)
    cursor.execute(CREATE_STACK_TRACES_TABLE_WITH_SOURCE_SQL)
    cursor.execute(CREATE_INDEX_STACK_TRACES_SOURCE_FILE_SQL)
    for table, column in _INDEXED:
        cursor.execute(f"CREATE INDEX IF NOT EXISTS idx_{table}_{column} ON {table} ({column})")


def insert_rows(cursor: sqlite3.Cursor, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Whole rows in the order of the columns, rank last; an operation or tensor that is there already is replaced."""
    marks = ", ".join("?" for _ in column_names(table))
    cursor.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)


def column_names(table: str) -> list[str]:
    if table == "stack_traces":
        return ["operation_id", "stack_trace", "source_file_id", "rank"]
    return [*(column.split()[0] for column in _TABLES[table].split(", ")), "rank"]


def save_database_schema_version(cursor: sqlite3.Cursor) -> None:
    import_metadata(cursor, {"schema_version": DATABASE_SCHEMA_VERSION})


def import_metadata(cursor: sqlite3.Cursor, metadata: Mapping[str, object]) -> None:
    rows = [(str(key), value if value is None else str(value)) for key, value in metadata.items()]
    cursor.executemany("INSERT OR REPLACE INTO report_metadata VALUES (?, ?)", rows)


def join_tensors(
    cursor: sqlite3.Cursor, inputs: Sequence[tuple[int, int, int]], outputs: Sequence[tuple[int, int, int]], rank: int
) -> None:
    """Which operation read and made which tensors: (operation, index, tensor), written both ways."""
    insert_rows(cursor, "input_tensors", [(*row, rank) for row in inputs])
    insert_rows(cursor, "output_tensors", [(*row, rank) for row in outputs])
    insert_rows(cursor, "tensor_consumers", [(tensor, operation, at, rank) for operation, at, tensor in inputs])
    insert_rows(cursor, "tensor_producers", [(tensor, operation, at, rank) for operation, at, tensor in outputs])
