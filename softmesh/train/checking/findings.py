"""What a check found, as a value to assert on and as text to read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate

_WIDTH = 120


class CheckFailed(MeshError):
    """The mesh does not compute what one device computes."""


@dataclass(frozen=True)
class Finding:
    """One thing that differs from one device. `phase` is "parameter", "forward", "backward" or "gradient"."""

    phase: str
    what: str  # an op with its number, a place in the model, or a parameter
    message: str  # cause and remedy
    path: str = ""  # of the module
    site: str = ""  # the line of the program
    placement: str = ""
    devices: tuple[MeshCoordinate, ...] = ()
    difference: float | None = None  # relative to the largest value
    axis: str | int | None = None

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.path and f"in {self.path}", self.site) if part)
        return f"{self.phase}: {self.what}{where and f' ({where})'}: {self.message}"


@dataclass(frozen=True)
class Report:
    mesh: str
    findings: tuple[Finding, ...]
    compared: dict[str, int]  # how many of each kind of value
    largest: float  # relative difference of all that agree
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def first(self) -> Finding | None:
        return self.findings[0] if self.findings else None

    def raise_if_wrong(self) -> None:
        if self.findings:
            raise CheckFailed(str(self))

    def __str__(self) -> str:
        lines = [self._headline(), *self.notes]
        if self.findings:
            lines += [_drawn(_table(self.findings)), *_explained(self.findings)]
        return "\n".join(lines)

    def _headline(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in self.compared.items())
        if self.ok:
            return (
                f"check: {self.mesh} computes what one device computes. Compared: {counts}; "
                f"the largest relative difference is {self.largest:.1e}."
            )
        found = "1 difference" if len(self.findings) == 1 else f"{len(self.findings)} differences"
        return f"check: {self.mesh} against one device: {found}. Compared: {counts}."


def _table(findings: Sequence[Finding]) -> Table:
    made = Table()
    for column in ("", "phase", "what", "placement", "devices"):
        made.add_column(column, overflow="fold")
    made.add_column("off by", justify="right")
    for number, finding in enumerate(findings, 1):
        off = "" if finding.difference is None else f"{finding.difference:.1e}"
        made.add_row(
            str(number), finding.phase, finding.what, finding.placement, _devices(finding.devices), off
        )
    return made


def _devices(coordinates: Sequence[MeshCoordinate]) -> str:
    if not coordinates:
        return ""
    first = str(tuple(coordinates[0]))
    return first if len(coordinates) == 1 else f"{first} and {len(coordinates) - 1} more"


def _explained(findings: Sequence[Finding]) -> list[str]:
    """Each cause once, under the numbers of what it explains."""
    numbers: dict[str, list[int]] = {}
    for number, finding in enumerate(findings, 1):
        where = ", ".join(part for part in (finding.path, finding.site) if part)
        is_told = bool(where) and finding.phase in ("forward", "backward")
        text = f"{where}: {finding.message}" if is_told else finding.message
        numbers.setdefault(text, []).append(number)
    return [f"{_ranges(each)}. {text}" for text, each in numbers.items()]


def _ranges(numbers: Sequence[int]) -> str:
    """
    >>> _ranges([1, 3, 4, 5, 8])
    '1, 3-5, 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _drawn(table: Table) -> str:
    console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, markup=False, no_color=True)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip()
