"""A comparison in the database that TT-NN Visualizer reads: ops, their results, and how these agree with the reference.

A result of the program and that of the reference are two tensors; a record joins them. Against golden functions they
are local records, against a reference that ran beside it global ones.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from softmesh.diff.result import OpDifference, Verdict
from softmesh.errors import MeshError
from softmesh.graph.comparison_records import GLOBAL, LOCAL, write_records
from softmesh.graph.report_tables import create_database_schema, insert_rows, join_tensors, save_database_schema_version

_FIRST_GOLDEN = 1 << 40  # those of the reference have numbers of their own, above those of any program
_RIGHT = (Verdict.EXACT, Verdict.ROUNDING, Verdict.COARSER, Verdict.REARRANGED)


def write_database(path: Path, ops: Sequence[OpDifference], *, is_golden: bool) -> None:
    """Into a new file; one that is there is written anew."""
    try:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database, database:
            cursor = database.cursor()
            create_database_schema(cursor)
            save_database_schema_version(cursor)
            _write(cursor, ops, LOCAL if is_golden else GLOBAL)
    except (OSError, sqlite3.Error) as error:
        raise MeshError(f"diff: cannot write the database {path}: {error}.") from None


def _write(cursor: sqlite3.Cursor, ops: Sequence[OpDifference], table: str) -> None:
    compared = [one for one in ops if one.figures is not None]
    insert_rows(cursor, "operations", [(one.number, one.op, 0.0, 0) for one in ops])
    insert_rows(cursor, "operation_arguments", [row for one in ops for row in _arguments(one)])
    insert_rows(cursor, "stack_traces", [(one.number, _trace(one), None, 0) for one in ops])
    tensors = [(number, one) for one in compared for number in (one.number, _FIRST_GOLDEN + one.number)]
    insert_rows(cursor, "tensors", [_tensor(number, one) for number, one in tensors])
    join_tensors(cursor, [], [(one.number, 0, one.number) for one in compared], 0)
    write_records(cursor, table, [_record(one) for one in compared])


def _arguments(one: OpDifference) -> list[tuple[Any, ...]]:
    told = {"module": one.module, "verdict": one.verdict.value, "band": f"{one.band:.3e}"}
    if one.figures is not None:
        told |= {"error": f"{one.figures.error:.3e}", "ulp": f"{one.figures.ulp:.1f}"}
    return [(one.number, name, value, 0) for name, value in told.items()]


def _trace(one: OpDifference) -> str:
    return f'File "{one.site.file}", line {one.site.line}, in {one.site.function}'


def _tensor(number: int, one: OpDifference) -> tuple[Any, ...]:
    return (number, f"Shape({list(one.shape)})", one.dtype, "", None, None, None, None, 0)


def _record(one: OpDifference) -> dict[str, Any]:
    assert one.figures is not None
    pcc = one.figures.pcc
    return {
        "tensor_id": one.number,
        "golden_tensor_id": _FIRST_GOLDEN + one.number,
        "matches": one.verdict in _RIGHT,
        "desired_pcc": math.sqrt(max(0.0, 1 - min(1.0, one.band) ** 2)),  # of noise as large as the band
        "actual_pcc": pcc if math.isfinite(pcc) else 0.0,
    }
