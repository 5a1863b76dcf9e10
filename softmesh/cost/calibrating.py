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
from softmesh.cost.workloads import Chain, Elements, Exchange, Product, TypicalOp, Workload

FOLDS = 5
COVERED = 0.92  # of the rows that were left out, when bands are made
_NARROWEST, _WIDEST = 0.02, 2.0  # logs of factors
_FEW = 10  # rows: fewer do not tell how wide a band must be
_SEED = 23

Rows = Sequence[Measurement]
Work = Any


def calibrated(
    rows: Iterable[Measurement],
    sources: Iterable[str] = (),
    base: Calibration | None = None,
    with_bands: bool = True,
) -> Calibration:
    """From all rows that tell a workload and are no ceilings.

    With a `base`, its coefficients are where fitting starts, and what no row speaks of stays as it is there. Bands
    take five more fits; without them a band is one standard deviation.
    """
    used = usable(rows)
    bands = _bands(used, base) if with_bands else {}
    fits = dict(base.fits) if base is not None else {}
    for law, of in _fits(used, 1.0, base).items():
        made = {key: replace(fit, band=bands.get((law, key), fit.band)) for key, fit in of.items()}
        fits[law] = {**fits.get(law, {}), **made}
    return Calibration(fits, tuple(sources))


def usable(rows: Iterable[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.workload and not row.is_ceiling and not isinstance(row.workload, Chain)]


def _fits(rows: Rows, band: float, base: Calibration | None = None) -> dict[str, dict[str, LawFit]]:
    """Laws of simple workloads first: composed ones are corrected on top of them."""
    found: dict[str, dict[str, LawFit]] = {name: {} for name in LAWS}
    simple = [row for row in rows if _is_simple(row.workload)]
    for (name, key), group in _grouped(simple).items():
        found[name][key] = _fit(LAWS[name], key, group, band, base)
    below = Calibration({name: {**(base.fits.get(name, {}) if base else {}), **of} for name, of in found.items()})
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


def _fit(law: Law, key: str, rows: Rows, band: float, base: Calibration | None) -> LawFit:
    terms = tuple(np.array(column) for column in zip(*(law.terms(row.workload) for row in rows), strict=True))
    measured = np.array([row.seconds for row in rows])
    known = base.fit(law, key) if base is not None else None
    starting = dict(known.coefficients) if known is not None else law.starting(key)

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
    return (row.table, row.line) if isinstance(work, TypicalOp) else work


def series_of(row: Measurement) -> Hashable:
    """Rows that differ by no more than their size."""
    work = row.workload
    if isinstance(work, Exchange):
        return work._replace(size=0)
    if isinstance(work, Product) and not work.height_cores:
        return work._replace(m=0, k=0, n=0)
    if isinstance(work, Elements):
        return work._replace(tiles=0, read=0, written=0)
    if isinstance(work, Product):
        return "height sharded", work.height_cores
    return row.series


def left_out(
    rows: Rows,
    part: Callable[[Measurement], Hashable],
    folds: int | None = FOLDS,
    base: Calibration | None = None,
    with_bands: bool = False,
) -> list[tuple[Measurement, Calibration]]:
    """Every row with a calibration that never saw it, nor any row of its part.

    Parts are dealt to `folds`; with None each part is left out alone. Bands take as many folds more.
    """
    parts = list(dict.fromkeys(part(row) for row in rows))
    order = np.random.default_rng(_SEED).permutation(len(parts))
    count = len(parts) if folds is None else folds
    fold_of = {parts[at]: int(number % count) for number, at in enumerate(order)}
    found = []
    for fold in range(min(count, len(parts))):
        unseen = [row for row in rows if fold_of[part(row)] == fold]
        seen = [row for row in rows if fold_of[part(row)] != fold]
        calibration = calibrated(seen, base=base, with_bands=with_bands)
        found += [(row, calibration) for row in unseen]
    return found


def _bands(rows: Rows, base: Calibration | None) -> dict[tuple[str, str], float]:
    """For each set of coefficients, the band that holds nine in ten of the rows it had not seen."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for row, calibration in left_out(rows, shape_of, base=base):
        law = law_of(_work(row))
        made = calibration.estimate(_work(row))
        off = abs(np.log(row.seconds / made.seconds))
        deviation = np.log(made.high / made.seconds) if made.is_measured else 1.0
        ratios.setdefault((law.name, law.key(row.workload)), []).append(float(off / deviation))
    return {
        at: _band(LAWS[at[0]], of, [x for other, xs in ratios.items() if other[0] == at[0] for x in xs])
        for at, of in ratios.items()
    }


def _band(law: Law, own: Sequence[float], every: Sequence[float]) -> float:
    """Of a set of coefficients; few rows of its own do not make it narrower than those of its law."""
    width = float(np.quantile(own, COVERED))
    if law.keeps_points:
        return round(min(max(width, float(np.quantile(every, COVERED)), 1.0), _WIDEST / law.doubt), 3)
    if len(own) < _FEW:
        width = max(width, law.doubt)
    return round(min(max(width, _NARROWEST), _WIDEST), 3)
