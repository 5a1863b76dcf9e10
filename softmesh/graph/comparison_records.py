"""Records of comparison mode about tensors, until they are written beside a report.

A record is a dict with the fields of TT-NN's tables: `tensor_id`, `golden_tensor_id`, `matches`, `desired_pcc`,
`actual_pcc`. Local records hold an op's result against its golden function on the same inputs, global ones against its
golden function on the golden values of the inputs. Comparison mode makes both while somebody records.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from softmesh.arguments import checked_all
from softmesh.config import CONFIG
from softmesh.dispatch import comparison_mode
from softmesh.errors import MeshError
from softmesh.graph.report_tables import column_names, create_database_schema, insert_rows
from softmesh.tensor.tensor import Tensor

COMPARISON_RECORDS_SIDECAR_SUFFIX = ".comparison_records.json"
COMPARISON_RECORDS_FILE = "comparison_records.json"
LOCAL, GLOBAL, TENSORS = "local_tensor_comparison_records", "global_tensor_comparison_records", "tensors"
_COLUMNS = ("tensor_id", "golden_tensor_id", "matches", "desired_pcc", "actual_pcc")

Record = Mapping[str, Any]

_RECORDS: dict[str, list[Record]] = {LOCAL: [], GLOBAL: [], TENSORS: []}
_FIRST_GOLDEN = 1 << 40  # golden tensors have numbers of their own, above those of any program


@contextmanager
def recording_comparisons() -> Iterator[None]:
    """What comparison mode finds within the block is kept; once, however many ask for it."""
    is_first = _compared not in comparison_mode.LISTENERS
    if is_first:
        comparison_mode.LISTENERS.append(_compared)
    try:
        yield
    finally:
        if is_first:
            comparison_mode.LISTENERS.remove(_compared)


def _compared(tensor: Tensor, golden: torch.Tensor, pcc: float, is_carried: bool) -> None:
    golden_id = _FIRST_GOLDEN + len(_RECORDS[TENSORS])
    desired = CONFIG.comparison_mode_pcc
    record = {"tensor_id": tensor.tensor_id, "golden_tensor_id": golden_id, "matches": pcc >= desired}
    _RECORDS[GLOBAL if is_carried else LOCAL].append({**record, "desired_pcc": desired, "actual_pcc": float(pcc)})
    what = {"shape": str(golden.shape), "dtype": str(golden.dtype), "layout": str(golden.layout)}
    nowhere = dict.fromkeys(("memory_config", "device_id", "address", "buffer_type"))
    _RECORDS[TENSORS].append({"tensor_id": golden_id, **what, **nowhere})


def reset_comparison_records_data() -> None:
    """Forget all records."""
    for records in _RECORDS.values():
        records.clear()


def has_comparison_records() -> bool:
    return any(_RECORDS.values())


def record_tensor_comparison_data(
    *,
    local_tensor_comparison_records: Sequence[Record] | None = None,
    global_tensor_comparison_records: Sequence[Record] | None = None,
    tensors: Sequence[Record] | None = None,
) -> None:
    """Keep these records until they are flushed or forgotten."""
    given = {
        LOCAL: local_tensor_comparison_records,
        GLOBAL: global_tensor_comparison_records,
        TENSORS: tensors,
    }
    for name, records in given.items():
        if records is not None:
            _RECORDS[name] += checked_all("record_tensor_comparison_data", name, records, (dict,), "records as dicts")


def flush_comparison_records_to_db(report_dir: str | os.PathLike[str]) -> None:
    """Write what there is to comparison_records.json and db.sqlite in the folder, and forget it."""
    if not has_comparison_records():
        return
    folder = Path(report_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / COMPARISON_RECORDS_FILE).write_text(json.dumps(_RECORDS, indent=4) + "\n", encoding="utf-8")
        with closing(sqlite3.connect(folder / "db.sqlite")) as database, database:
            for table in (LOCAL, GLOBAL):
                write_records(database.cursor(), table, _RECORDS[table])
    except (OSError, TypeError, ValueError, sqlite3.Error) as error:
        raise MeshError(f"flush_comparison_records_to_db: cannot write to {folder}: {error}.") from None
    reset_comparison_records_data()


def kept_records() -> dict[str, list[Record]]:
    """By table: what there is, and stays until it is flushed or forgotten."""
    return {table: list(records) for table, records in _RECORDS.items()}


def import_tensor_comparison_records(cursor: sqlite3.Cursor, comparison_data: Mapping[str, Any], rank: int = 0) -> None:
    """Records of comparison mode, and the golden tensors that they speak of."""
    for table in (LOCAL, GLOBAL):
        write_records(cursor, table, comparison_data.get(table, []), rank)
    golden = [
        (*(tensor.get(column) for column in column_names(TENSORS)[:-1]), rank)
        for tensor in comparison_data.get(TENSORS, [])
    ]
    insert_rows(cursor, "tensors", golden)


def write_records(cursor: sqlite3.Cursor, table: str, records: Sequence[Record], rank: int = 0) -> None:
    """Into the table of their kind, which is made where there is none."""
    create_database_schema(cursor)
    insert_rows(cursor, table, [(*(record.get(column) for column in _COLUMNS), rank) for record in records])
