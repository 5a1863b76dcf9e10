"""Makes a calibration from measurements: coefficients of every law, points that correct it, and bands.

Bands come from rows that were left out: a law is fitted without a fifth of its shapes, five times over, and the band
is as wide as it must be for nine in ten of what it then predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softmesh.cost.calibration import LAWS, Calibration, LawFit, Point, law_of, parts_of
from softmesh.cost.fitting import fitted
from softmesh.cost.laws.law import Law
from softmesh.cost.measurements import Measurement
from softmesh.cost.workloads import Chain, Product, Workload

FOLDS = 5
COVERED = 0.92  # of the rows that were left out, when bands are made
_NARROWEST = {True: 1.0, False: 0.02}  # band: in deviations where points are kept, else the log of a factor
_WIDEST = 2.0
_SEED = 23

Rows = Sequence[Measurement]
Work = Any


def calibrated(rows: Iterable[Measurement], sources: Iterable[str] = ()) -> Calibration:
    """From all rows that tell a workload and are no ceilings."""
    used = usable(rows)
    plain = _fits(used, band=1.0)
    bands = _bands(used)
    fits = {
        law: {key: replace(fit, band=bands.get((law, key), fit.band)) for key, fit in of.items()}
        for law, of in plain.items()
    }
    return Calibration(fits, tuple(sources))


def usable(rows: Iterable[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.workload and not row.is_ceiling and not isinstance(row.workload, Chain)]


def _fits(rows: Rows, band: float) -> dict[str, dict[str, LawFit]]:
    """Laws of simple workloads first: composed ones are corrected on top of them."""
    found: dict[str, dict[str, LawFit]] = {name: {} for name in LAWS}
    simple = [row for row in rows if _is_simple(row.workload)]
    for (name, key), group in _grouped(simple).items():
        found[name][key] = _fit(LAWS[name], key, group, band)
    below = Calibration(found)
    for (name, key), group in _grouped([row for row in rows if not _is_simple(row.workload)]).items():
        formula = np.array([below.formula(_work(row)) for row in group])
        residuals = np.log([row.seconds for row in group]) - np.log(formula)
        found[name][key] = LawFit({}, len(group), band, _points(LAWS[name], group, residuals))
    return {name: of for name, of in found.items() if of}


def _is_simple(work: Workload | None) -> bool:
    return work is not None and parts_of(work) == (work,)


def _work(row: Measurement) -> Workload:
    assert row.workload is not None
    return row.workload


def _grouped(rows: Iterable[Measurement]) -> dict[tuple[str, str], list[Measurement]]:
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        law = law_of(_work(row))
        groups.setdefault((law.name, law.key(row.workload)), []).append(row)
    return groups


def _fit(law: Law, key: str, rows: Rows, band: float) -> LawFit:
    terms = tuple(np.array(column) for column in zip(*(law.terms(row.workload) for row in rows), strict=True))
    measured = np.array([row.seconds for row in rows])
    starting = law.starting(key)

    def formula(values: NDArray[np.float64]) -> NDArray[np.float64]:
        made: NDArray[np.float64] = law.seconds(terms, dict(zip(starting, values, strict=True)))
        return made

    values = fitted(formula, np.array(list(starting.values())), measured)
    residuals = np.log(measured) - np.log(formula(values))
    coefficients = {name: float(f"{value:.5g}") for name, value in zip(starting, values, strict=True)}
    return LawFit(coefficients, len(rows), band, _points(law, rows, residuals) if law.keeps_points else ())


def _points(law: Law, rows: Rows, residuals: NDArray[np.float64]) -> tuple[Point, ...]:
    """One for each position: the median of what was measured there."""
    there: dict[tuple[float, ...], list[float]] = {}
    for row, residual in zip(rows, residuals, strict=True):
        there.setdefault(tuple(round(x, 3) for x in law.position(row.workload)), []).append(float(residual))
    return tuple(Point(at, round(float(np.median(values)), 4)) for at, values in there.items())


# What was left out.


def shape_of(row: Measurement) -> Hashable:
    """What rows must share to be left out together: a product's extents, whatever its dtype and config."""
    work = row.workload
    if isinstance(work, Product):
        return work.m, work.k, work.n
    return work


def left_out(
    rows: Rows, part: Callable[[Measurement], Hashable], folds: int | None = FOLDS
) -> list[tuple[Measurement, Calibration]]:
    """Every row with a calibration that never saw it, nor any row of its part.

    Parts are dealt to `folds`; with None each part is left out alone.
    """
    parts = list(dict.fromkeys(part(row) for row in rows))
    order = np.random.default_rng(_SEED).permutation(len(parts))
    count = len(parts) if folds is None else folds
    fold_of = {parts[at]: int(number % count) for number, at in enumerate(order)}
    found = []
    for fold in range(min(count, len(parts))):
        unseen = [row for row in rows if fold_of[part(row)] == fold]
        seen = [row for row in rows if fold_of[part(row)] != fold]
        calibration = Calibration(_fits(seen, band=1.0))
        found += [(row, calibration) for row in unseen]
    return found


def _bands(rows: Rows) -> dict[tuple[str, str], float]:
    """For each set of coefficients, the band that holds nine in ten of the rows it had not seen."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for row, calibration in left_out(rows, shape_of):
        law = law_of(_work(row))
        made = calibration.estimate(_work(row))
        off = abs(np.log(row.seconds / made.seconds))
        deviation = np.log(made.high / made.seconds) if made.is_measured else 1.0
        ratios.setdefault((law.name, law.key(row.workload)), []).append(float(off / deviation))
    return {
        at: round(float(np.clip(np.quantile(of, COVERED), _NARROWEST[LAWS[at[0]].keeps_points], _widest(at[0]))), 3)
        for at, of in ratios.items()
    }


def _widest(law: str) -> float:
    return _WIDEST if not LAWS[law].keeps_points else _WIDEST / LAWS[law].doubt
