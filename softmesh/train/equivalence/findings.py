"""Findings of an equivalence check: collected while values are compared, then reported as a value and as text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from softmesh.errors import MeshError, ranges_text
from softmesh.mesh import MeshCoordinate
from softmesh.placement.placements import LOCAL, Partial
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType
from softmesh.train.axes import Axis, axis_label
from softmesh.train.equivalence.diagnosis import axes_of_ratio
from softmesh.train.equivalence.values import Difference, Value, axes_text, difference, placement_text
from softmesh.train.module import Module

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
        made.add_row(str(number), finding.phase, finding.what, finding.placement, _devices(finding.devices), off)
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
    return [f"{ranges_text(each)}. {text}" for text, each in numbers.items()]


def _drawn(table: Table) -> str:
    console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, markup=False, no_color=True)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip()


_TOLERANCES = {DataType.FLOAT32: 1e-4}
_COARSE = 5e-2  # bfloat16 and below


class Comparison:
    """Collects findings about a model on a mesh."""

    def __init__(self, mesh: MeshDevice, model: Module, tolerance: float | None) -> None:
        self.mesh, self.model = mesh, model
        dtypes = [tensor.dtype for tensor in model.parameters()]
        by_dtype = max(_TOLERANCES.get(dtype, _COARSE) for dtype in dtypes)
        self.tolerance = by_dtype if tolerance is None else tolerance
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.compared = {"values": 0, "gradients of values": 0, "gradients of parameters": 0}
        self.largest = 0.0
        self.losses = 1  # of how many losses the average is taken: gradients on the mesh are of each of them

    def report(self) -> Report:
        shape = "x".join(str(n) for n in self.mesh.shape)
        names = ", ".join(str(axis_label(self.mesh, axis)) for axis in range(self.mesh.shape.dims()))
        return Report(f"{shape} ({names})", tuple(self.findings), self.compared, self.largest, tuple(self.notes))

    def measured(
        self, kind: str | None, value: Value, expected: torch.Tensor, floor: float = 1e-6
    ) -> Difference | None:
        """The difference, if there is one; a value of a `kind` is counted as compared."""
        off = difference(value, expected, self.tolerance, floor)
        if kind is not None:
            self.compared[kind] += 1
            self.largest = max(self.largest, 0.0 if off.devices else off.relative)
        return off if off.devices else None

    def find(
        self, phase: str, what: str, value: Value, message: str, off: Difference | None = None, **more: Any
    ) -> None:
        """`more`: path, site and axis of the finding."""
        words = placement_text(self.mesh, value.words)
        devices, relative = ((), None) if off is None else (off.devices, off.relative)
        self.findings.append(
            Finding(phase, what, message, placement=words, devices=devices, difference=relative, **more)
        )

    def find_diverged_parameters(self) -> None:
        """Parameters that devices should share and do not."""
        for name, tensor in self.model.named_parameters():
            value = Value.of(tensor)
            for axis, word in enumerate(value.words):
                if word is LOCAL or isinstance(word, Partial):
                    label = axis_label(self.mesh, axis)
                    message = (
                        f"the devices along mesh axis {label!r} hold values of their own: the parameter has come "
                        "apart, in a step whose gradients were not combined. Call "
                        f"sync_gradients(model, axes=[{label!r}]) before each step, and load the parameters again."
                    )
                    self.find("parameter", name, value, message, axis=label)

    def multiple(self, off: Difference) -> tuple[str, Axis | None]:
        """What a value gives away that is a multiple of the right one."""
        candidates = axes_of_ratio(self.mesh, off.ratio)
        if not candidates or off.ratio is None:
            return "", None
        along = " or ".join(axes_text(axes) for axes in candidates)
        if off.ratio < 1:
            times = f"1/{1 / off.ratio:.4g} of"
            why = f"contributions of the devices along {along} were averaged instead of added up"
        else:
            times = f"{off.ratio:.4g} times"
            why = f"along {along} equal values were added up, or contributions added up instead of averaged"
        return f"it is {times} what it should be: {why}.", candidates[0][0]
