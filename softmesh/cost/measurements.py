"""Measurement tables: thirteen columns, one measured time or rate in each row, and the workload that the row describes.

    source path,arch,system,op,shapes,dtypes,memory/layout,config,devices,links,topology,measured value,unit

A table that cannot be used (a column is missing, a value is no time) is refused with its line. A row that tells no
workload of ours is kept with the reason, so that it can be counted.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from softmesh.cost.row_texts import RowTexts, Unexpressed
from softmesh.cost.row_workloads import workload_of_row
from softmesh.cost.workloads import TILE, Chain, Elements, HostTransfer, Movement, Product, Workload
from softmesh.input_files.text_files import FileError, read_text

COLUMNS = (
    "source path",
    "arch",
    "system",
    "op",
    "shapes",
    "dtypes",
    "memory/layout",
    "config",
    "devices",
    "links",
    "topology",
    "measured value",
    "unit",
)
_SECONDS = {
    word: scale
    for scale, words in (
        (1.0, ("s", "sec", "second")),
        (1e-3, ("ms", "msec", "millisecond")),
        (1e-6, ("us", "\u00b5s", "\u03bcs", "usec", "microsecond")),
        (1e-9, ("ns", "nsec", "nanosecond")),
    )
    for word in words
}
_SHORTEST, _LONGEST = 1e-9, 1e5  # seconds that anything measured here takes
_MOST_BYTES = 64 << 20
_CEILINGS = ("ceiling", "upper gate", "upper bound")


class Measurement(NamedTuple):
    """A row of a table: what ran, for how long; or why that cannot be told."""

    table: str
    line: int
    op: str
    series: str  # rows that differ by no more than their size
    group: str  # the model or block that it is a part of, if any
    workload: Workload | None
    seconds: float
    is_ceiling: bool  # measured was less than this
    why: str = ""  # it has no workload
    shapes: str = ""
    runs: tuple[float, ...] = ()  # what each of its runs took, where the row lists them


def shipped_tables() -> list[Path]:
    """The published measurements that the shipped calibration was fitted on."""
    return sorted((Path(__file__).parent / "data" / "measured").glob("*.csv.gz"))


def read_measurements(path: str | Path) -> list[Measurement]:
    """Of a CSV file, or of one that is packed with gzip."""
    return list(_measured(Path(path).name.removesuffix(".gz").removesuffix(".csv"), path, _text(path)))


def _text(path: str | Path) -> str:
    if Path(path).suffix != ".gz":
        return read_text(path, _MOST_BYTES, "measurement table")
    try:
        with gzip.open(path) as file:
            data = file.read(_MOST_BYTES + 1)
            text = data.decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise FileError(path, f"cannot be unpacked ({error})", rule="unreadable") from None
    if len(data) > _MOST_BYTES:
        raise FileError(path, "larger than any measurement table is", rule="too-large")
    return text


def _measured(table: str, path: str | Path, text: str) -> Iterator[Measurement]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise FileError(
                path,
                f"the column{'s' if len(missing) > 1 else ''} {', '.join(missing)} "
                f"{'are' if len(missing) > 1 else 'is'} missing; a measurement table has {', '.join(COLUMNS)}",
                1,
            )
        at = [names.index(name) for name in COLUMNS]
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if len(fields) < len(names):
                raise FileError(path, f"{len(fields)} fields instead of {len(names)}", reader.line_num)
            row = RowTexts(*(fields[index].strip() for index in at))
            yield _measurement(table, path, reader.line_num, row)
    except csv.Error as error:
        raise FileError(path, f"not a CSV file ({error})", reader.line_num) from None


def _measurement(table: str, path: str | Path, line: int, row: RowTexts) -> Measurement:
    value = _value(path, line, row.value)
    ceiling = any(word in f"{row.unit} {row.config}".lower() for word in _CEILINGS)
    unread = Measurement(table, line, row.op, row.series(), row.group(), None, value, ceiling, shapes=row.shapes)
    try:
        workload = workload_of_row(row)
        seconds = _seconds(row, value, workload)
    except Unexpressed as reason:
        return unread._replace(why=str(reason))
    except (ArithmeticError, ValueError) as error:  # int() refuses thousands of digits
        raise FileError(path, f"its sizes are those of no op ({error})", line) from None
    if not _SHORTEST <= seconds <= _LONGEST:
        raise FileError(path, f"{value:g} {row.unit} is {seconds:g} s, which no op takes", line)
    runs = tuple(run * seconds / value for run in row.run_values())
    return unread._replace(workload=workload, seconds=seconds, runs=runs)


def _value(path: str | Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise FileError(path, f"the measured value {text!r} is no number", line) from None
    if not math.isfinite(value) or value <= 0:
        raise FileError(path, f"the measured value {text} is no time or rate: it must be above zero", line)
    return value


def _seconds(row: RowTexts, value: float, work: Workload) -> float:
    """The measured value as a time."""
    unit = row.unit.lower()
    if unit.startswith(("gb/s", "gbps", "gigabytes")):
        return _moved_bytes(work) / (value * 1e9)
    if ("flop" in unit and "/s" in unit) or unit.startswith(("tflops", "gflops")):
        return _operations(work) / (value * (1e12 if unit.startswith("t") else 1e9))
    if "share of ideal" in unit or "utilisation" in unit.split("(")[0] or "utilization" in unit.split("(")[0]:
        if isinstance(work, Chain) and len(work.parts) == 1:
            (work,) = work.parts
        if isinstance(work, Product):
            share = value / 100 if value > 2 or "%" in unit else value
            return ideal_seconds(work) / share
        raise Unexpressed("a share of an ideal that is not known")
    for word in re.findall(r"^[a-z\u00b5\u03bc]+|(?<![a-z/])[a-z\u00b5\u03bc]+(?![a-z/])", unit):
        scale = _SECONDS.get(word.removesuffix("s") if word.endswith("seconds") else word)
        if scale is not None:
            return value * scale
    raise Unexpressed(f"the unit {row.unit!r} is no time of one op")


def _moved_bytes(work: Workload) -> int:
    if isinstance(work, HostTransfer):
        return work.size
    if isinstance(work, Elements | Movement):
        return work.read + work.written
    raise Unexpressed("a rate without the bytes that were moved")


def _operations(work: Workload) -> int:
    if isinstance(work, Product):
        return 2 * TILE**3 * work.batch * work.m * work.k * work.n
    raise Unexpressed("a rate of arithmetic that is not known")


def ideal_seconds(work: Product) -> float:
    """At the multiplier's peak, on all cores of the grid."""
    cores = work.grid[0] * work.grid[1]
    return work.batch * work.m * work.k * work.n * 16 * work.phases / cores / (work.chip.clock_ghz * 1e9)
