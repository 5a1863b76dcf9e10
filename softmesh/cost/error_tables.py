"""Error tables of predictions against measurements: points, median, 90th percentile and worst error, bias, band share.

Ceilings are no means: of them the share that the prediction stays below is told. Rows that tell no workload are
counted with the reason. Blocks of models are added up, op by op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from softmesh.cost.calibration import Calibration, WorkloadTime
from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.calibration_from_measurements import left_out, series_of, shape_of, usable
from softmesh.cost.measurements import Measurement
from softmesh.cost.repeats import contradicted
from softmesh.cost.workloads import Chain, TypicalOp

_WIDE = 0.5  # of the estimate: half the width of a band that needs a reason


class Judged(NamedTuple):
    """A measurement with what was predicted for it."""

    row: Measurement
    made: WorkloadTime

    @property
    def log_error(self) -> float:
        return float(np.log(self.made.seconds / self.row.seconds))

    @property
    def is_inside(self) -> bool:
        return self.made.low <= self.row.seconds <= self.made.high

    @property
    def half_band(self) -> float:
        return (self.made.high - self.made.low) / (2 * self.made.seconds)


class ErrorLine(NamedTuple):
    """Errors of one op of one table, as shares: 0.04 is 4 %."""

    table: str
    op: str
    points: int
    median: float
    p90: float
    worst: float
    bias: float
    inside: float
    half_band: float  # mean of the bands' half-widths, as a share of the estimate
    why_wide: str = ""  # what is not published, where the band is wider than half of the estimate


class CeilingLine(NamedTuple):
    table: str
    op: str
    points: int
    below: float


class BlockLine(NamedTuple):
    """A layer or a block of a model: the sum over its ops."""

    name: str
    ops: int
    measured: float
    predicted: float
    unexpressed: int

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


class UnexpressedLine(NamedTuple):
    table: str
    op: str
    why: str
    rows: int


class ContradictedLine(NamedTuple):
    """Rows of an op that its source contradicts; p90 and the worst error of the op as they would be with them."""

    table: str
    op: str
    why: str
    rows: int
    p90: float
    worst: float


class ErrorTables(NamedTuple):
    errors: list[ErrorLine]
    ceilings: list[CeilingLine]
    blocks: list[BlockLine]
    unexpressed: list[UnexpressedLine]
    contradicted: list[ContradictedLine]


def judged(rows: Iterable[Measurement], calibration: Calibration) -> list[Judged]:
    return [Judged(row, calibration.estimate(row.workload)) for row in rows if row.workload is not None]


def cross_judged(rows: Sequence[Measurement], by_series: bool = False) -> list[Judged]:
    """Each row by a calibration without its shape; `by_series`, without any row of its series, in the shipped bands.

    Chains are judged by laws that never saw them; of ceilings there is nothing to leave out.
    """
    used = usable(rows)
    pairs = (
        left_out(used, series_of, None, with_bands=default_calibration())
        if by_series
        else left_out(used, shape_of, with_bands=True)
    )
    return [Judged(row, calibration.estimate(row.workload)) for row, calibration in pairs if row.workload is not None]


def unfitted(rows: Sequence[Measurement]) -> list[Measurement]:
    """Rows that no calibration is made from: chains of workloads, ceilings, and what its own source contradicts."""
    used = set(usable(rows))
    return [row for row in rows if row.workload is not None and row not in used]


def consistent(found: Sequence[Judged]) -> list[Judged]:
    """Without rows that their own source contradicts."""
    aside = contradicted(one.row for one in found)
    return [one for one in found if one.row not in aside]


def error_tables(rows: Iterable[Measurement], found: Sequence[Judged]) -> ErrorTables:
    kept = consistent(found)
    means = [one for one in kept if not one.row.is_ceiling]
    ceilings = [one for one in kept if one.row.is_ceiling]
    missing = [row for row in rows if row.workload is None]
    return ErrorTables(
        [error_line(table, op, of) for (table, op), of in sorted(_by_op(means).items())],
        [
            CeilingLine(table, op, len(of), float(np.mean([one.made.seconds <= one.row.seconds for one in of])))
            for (table, op), of in _by_op(ceilings).items()
        ],
        _blocks(means, missing),
        [
            UnexpressedLine(table, op, why, count)
            for (table, op, why), count in Counter((row.table, row.op, row.why) for row in missing).items()
        ],
        _contradictions(found),
    )


def _contradictions(found: Sequence[Judged]) -> list[ContradictedLine]:
    whys = contradicted(one.row for one in found)
    every = _by_op(one for one in found if not one.row.is_ceiling)
    lines = []
    for (table, op), of in sorted(every.items()):
        with_them = error_line(table, op, of)
        counts = Counter(whys[one.row] for one in of if one.row in whys)
        lines += [
            ContradictedLine(table, op, why, count, with_them.p90, with_them.worst)
            for why, count in counts.most_common()
        ]
    return lines


def _by_op(found: Iterable[Judged]) -> dict[tuple[str, str], list[Judged]]:
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in found:
        groups.setdefault((one.row.table, one.row.op + _clock(one.row)), []).append(one)
    return groups


def _clock(row: Measurement) -> str:
    """Times of the same op by different clocks are told apart."""
    clock = getattr(row.workload, "clock", "device")
    return "" if clock == "device" else f", {clock} calls by the host's clock"


def error_line(table: str, op: str, found: Sequence[Judged]) -> ErrorLine:
    logs = np.array([one.log_error for one in found])
    half_band = float(np.mean([one.half_band for one in found]))
    errors = np.abs(np.exp(logs) - 1)
    return ErrorLine(
        table,
        op,
        len(found),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        float(errors.max()),
        float(np.exp(np.median(logs)) - 1),
        float(np.mean([one.is_inside for one in found])),
        half_band,
        _why_wide(found) if half_band > _WIDE else "",
    )


def _why_wide(found: Sequence[Judged]) -> str:
    works = [one.row.workload for one in found]
    if any(isinstance(work, TypicalOp) for work in works):
        return "only names are published of these ops, no shapes"
    if any(isinstance(work, Chain) for work in works):
        return "made of parts that were measured, each in another form"
    return "too few rows"


def _blocks(found: Iterable[Judged], missing: Iterable[Measurement]) -> list[BlockLine]:
    groups: dict[str, list[Judged]] = {}
    for one in found:
        if one.row.group:
            groups.setdefault(one.row.group, []).append(one)
    lost = Counter(row.group for row in missing)
    return [
        BlockLine(
            name,
            len(of),
            sum(one.row.seconds for one in of),
            sum(one.made.seconds for one in of),
            lost.get(name, 0),
        )
        for name, of in groups.items()
        if len(of) > 1
    ]
