"""Compares the ratios that a benchmark prints with those of a recorded file: `softmesh bench NAME --against FILE`.

The file is what the benchmark printed once, alone or quoted in a text such as bench/ops.md. Only ratios are compared:
seconds belong to one machine. Tables are matched by their title, rows by their leading columns.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from softmesh.input_files.text_files import FileError, read_text

TOLERANCE = 0.10  # a ratio that is worse by less may be noise
_SHOWN = 5  # rows without a recorded one
_NUMBER = re.compile(r"\d[\d,]*\.?\d*")

Key = tuple[str, ...]
Cells = dict[str, str]  # by column


class RatioTable(Table):
    """A table of measurements. `ratios` names its columns of ratios: True where a higher one is better.

    The first `keys` columns identify a row.
    """

    ratios: Mapping[str, bool]
    keys: int

    def rows_by_key(self) -> dict[Key, Cells]:
        names = [str(column.header) for column in self.columns]
        cells = zip(*([str(cell).strip() for cell in column.cells] for column in self.columns), strict=True)
        return {row[: self.keys]: dict(zip(names, row, strict=True)) for row in cells}


class Fall(NamedTuple):
    """A ratio that is worse than the recorded one, by this share of it."""

    row: str
    column: str
    recorded: str
    today: str
    share: float


@dataclass(frozen=True)
class Recorded:
    """The tables of a recorded file: title, then rows as lists of cells under the names of their columns."""

    path: Path
    tables: Mapping[str, tuple[list[str], list[list[str]]]]

    @classmethod
    def read(cls, path: str) -> Recorded:
        """Read the file, for argparse: before anything is measured."""
        try:
            found = dict(_tables(read_text(path).splitlines()))
        except FileError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if not found:
            raise argparse.ArgumentTypeError(
                f"{path} holds no table of a benchmark. Give a file that `softmesh bench NAME > FILE` wrote, or a page "
                "that quotes such a table together with the title above it."
            )
        return cls(Path(path), found)

    def row(self, title: str, key: Key) -> Cells | None:
        """The recorded row, if there is one. A long title may be wrapped: its last line is what was read."""
        for name, (columns, rows) in self.tables.items():
            if title.endswith(name):
                for row in rows:
                    if tuple(row[: len(key)]) == key:
                        return dict(zip(columns, row, strict=False))
        return None

    def compared_with(self, tables: Sequence[RatioTable]) -> tuple[list[Fall], list[str]]:
        """Return the ratios that fell, worst first, and sentences that sum the comparison up."""
        falls: list[Fall] = []
        missing: list[str] = []
        count = 0
        for table in tables:
            for key, cells in table.rows_by_key().items():
                name = ", ".join(key)
                before = self.row(str(table.title), key)
                if before is None:
                    missing.append(name)
                    continue
                for column, higher_is_better in table.ratios.items():
                    was, now = ratio(before.get(column, "")), ratio(cells[column])
                    if was and now:
                        count += 1
                        worse = was / now - 1 if higher_is_better else now / was - 1
                        if worse > TOLERANCE:
                            falls.append(Fall(name, column, before[column], cells[column], worse))
        falls.sort(key=lambda fall: -fall.share)
        said = [f"{count} ratios compared with {self.path}; {len(falls)} are worse by more than {TOLERANCE:.0%}."]
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            said.append(f"Not in that file: {'; '.join(missing[:_SHOWN])}{more}.")
        return falls, said


def ratio(cell: str) -> float | None:
    """Return the number of a cell: `0.98`, `95 %`, or the quotient of `7.5/2.0 +5.5`.

    >>> ratio("7.5/2.0 +5.5")
    3.75
    """
    numbers = [float(text.replace(",", "")) for text in _NUMBER.findall(cell.split(" ")[0])]
    if len(numbers) == 2 and "/" in cell and numbers[1]:
        return numbers[0] / numbers[1]
    return numbers[0] if len(numbers) == 1 else None


def _tables(lines: Sequence[str]) -> Iterator[tuple[str, tuple[list[str], list[list[str]]]]]:
    for at, line in enumerate(lines):
        if line.startswith("┏") and at:
            middle = _next(lines, at, "┡")
            columns = _rows(lines[at + 1 : middle])
            if columns:
                yield lines[at - 1].strip(), (columns[0], _rows(lines[middle + 1 : _next(lines, middle, "└")]))


def _next(lines: Sequence[str], start: int, mark: str) -> int:
    return next((at for at in range(start, len(lines)) if lines[at].startswith(mark)), len(lines))


def _rows(lines: Sequence[str]) -> list[list[str]]:
    """Join cells that are wrapped over several lines: a continuation leaves its first cell empty."""
    rows: list[list[str]] = []
    for line in lines:
        cells = [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]
        if rows and cells and not cells[0]:
            rows[-1] = [" ".join(filter(None, pair)) for pair in zip(rows[-1], cells, strict=False)]
        elif cells:
            rows.append(cells)
    return rows
