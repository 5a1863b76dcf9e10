"""A usage file: which names of TT-NN programs use, how often, and what each of them weighs.

A table with commas. Columns `name` and `score` must be there; a pair `x_files`, `x_calls` makes the programs
of group x a group of their own. All other columns are left alone.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from softmesh.bounded_file import FileError, read_text

_NEEDED = ("name", "score")
_FILES = "_files"


@dataclass(frozen=True)
class Used:
    """A name, what it weighs, and in how many files of each group it stands."""

    name: str
    score: float
    files: Mapping[str, float] = field(default_factory=dict)


def read_usage(path: str | Path) -> list[Used]:
    """The names of a usage file; a FileError that says which line is wrong."""
    rows = csv.reader(io.StringIO(read_text(path, kind="usage file")), strict=True)
    try:
        header = next(rows, [])
        _check_header(path, header)
        return list(_names(path, header, rows, lambda: rows.line_num))
    except csv.Error as error:
        raise FileError(path, f"is not a table with commas: {error}", rows.line_num) from None


def _check_header(path: str | Path, header: Sequence[str]) -> None:
    lacking = [column for column in _NEEDED if column not in header]
    if lacking:
        found = ", ".join(header[:8]) or "nothing"
        raise FileError(
            path,
            f"has no column {' and no column '.join(lacking)}: the first line of a usage file names its columns "
            f"(name, score, and a_files, b_files ... for groups of programs); found {found}",
            1,
        )


def _names(
    path: str | Path, header: Sequence[str], rows: Iterator[list[str]], line: Callable[[], int]
) -> Iterator[Used]:
    groups = [column for column in header if column.endswith(_FILES) and column != _FILES]
    seen: dict[str, int] = {}
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise FileError(path, f"{len(row)} values under {len(header)} columns", line())
        cells = dict(zip(header, row, strict=True))
        name = cells["name"]
        if not name.startswith("ttnn."):
            raise FileError(path, f"{name!r} is not a name of TT-NN: they begin with 'ttnn.'", line())
        if name in seen:
            raise FileError(path, f"{name} stands in line {seen[name]} already", line())
        seen[name] = line()
        numbers = {column: _number(path, line(), column, cells[column]) for column in ("score", *groups)}
        yield Used(
            name, numbers["score"], {column.removesuffix(_FILES): numbers[column] for column in groups}
        )
    if not seen:
        raise FileError(path, "names nothing: there is no line below the columns")


def _number(path: str | Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise FileError(path, f"{column} must be a number that is not negative, got {text!r}", line)
    return value
