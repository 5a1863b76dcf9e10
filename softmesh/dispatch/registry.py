"""The registry as users ask for it: all ops as a list or a file, and the plans that they keep, dropped on request."""

from __future__ import annotations

import csv
import os

from softmesh.dispatch.operation import OPERATIONS, Operation
from softmesh.errors import MeshError
from softmesh.input_files.text_files import checked_path
from softmesh.terminal_text import readable

_EXPERIMENTAL = "experimental."


def query_registered_operations(include_experimental: bool = False) -> list[Operation]:
    """Every op once, by name; those below `ttnn.experimental` on request."""
    ops = {op.name: op for op in OPERATIONS.values()}
    return [ops[name] for name in sorted(ops) if include_experimental or not name.startswith(_EXPERIMENTAL)]


def dump_operations(csv_file: str | os.PathLike[str], include_experimental: bool = False) -> None:
    """A line for each op: its name, whether it is experimental, whether it has a golden function."""
    path = checked_path("dump_operations", "csv_file", csv_file)
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(
                ["python_fully_qualified_name", "is_experimental", "has_golden_function", "is_cpp_operation"]
            )
            for op in query_registered_operations(include_experimental):
                is_experimental = op.name.startswith(_EXPERIMENTAL)
                has_golden = op.golden_function is not None
                table.writerow([op.python_fully_qualified_name, is_experimental, has_golden, False])
    except OSError as error:
        raise MeshError(f"dump_operations: cannot write {readable(path)}: {error.strerror}.") from None


def ClearKernelCache() -> None:
    """What ops learnt from their first calls is gone; results stay the same. Program caches of meshes are others'."""
    for op in set(OPERATIONS.values()):
        op.forget_plans()
