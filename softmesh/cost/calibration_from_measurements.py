"""Makes a calibration from measurements: coefficients of every law, points that correct it, and bands.

Bands come from rows that were left out: a law is fitted without a fifth of its shapes, five times over, and the band
is as wide as it must be for nine in ten of what it then predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

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
Fits = dict[str, dict[str, LawFit]]


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
    fits = _assembled(_fits(used, base), base)
    return Calibration(_banded(fits, bands), tuple(sources))


def _banded(fits: Fits, bands: Mapping[tuple[str, str], float]) -> Fits:
    return {
        law: {key: replace(fit, band=bands.get((law, key), fit.band)) for key, fit in of.items()}
        for law, of in fits.items()
    }


def usable(rows: Iterable[Measurement]) -> list[Measurement]:
    return [row for row in rows if row.workload and not row.is_ceiling and not isinstance(row.workload, Chain)]


Fitted = dict[tuple[Hashable, ...], LawFit]  # by law, key, the rows that were fitted, and what was borrowed
Groups = dict[tuple[str, str], list[Measurement]]


def _fits(rows: Rows, base: Calibration | None = None, known: Fitted | None = None) -> Fits:
    """Laws of simple workloads first: composed ones are corrected on top of them."""
    known = {} if known is None else known
    found: Fits = {}
    groups = _grouped([row for row in rows if _is_simple(row.workload)])
    wide = _widest_first(groups) if base is None else []
    for (name, key), group in (*wide, *groups.items()):
        law = LAWS[name]
        borrowed = next((found[name][wider] for wider in law.wider(key) if wider in found.get(name, {})), None)
        at = name, key, tuple((row.table, row.line) for row in group), borrowed and tuple(borrowed.coefficients.items())
        if at not in known:
            keeps_points = law.keeps_points and (name, key) in groups
            known[at] = _fit(law, key, group, (base and base.nearest_fit(law, key)) or borrowed, keeps_points)
        found.setdefault(name, {})[key] = known[at]
    below = Calibration(_assembled(found, base))
    for (name, key), group in _grouped([row for row in rows if not _is_simple(row.workload)]).items():
        formula = np.array([below.formula(_work(row)) for row in group])
        residuals = np.log([row.seconds for row in group]) - np.log(formula)
        found.setdefault(name, {})[key] = LawFit({}, len(group), 1.0, _points(LAWS[name], group, residuals))
    return found


def _widest_first(groups: Groups) -> list[tuple[tuple[str, str], list[Measurement]]]:
    """The rows of all groups that keys belong to; narrow ones borrow from wide ones."""
    wide: dict[tuple[str, str], list[Measurement]] = {}
    depth: dict[tuple[str, str], int] = {}
    for (name, key), group in groups.items():
        for at, wider in enumerate(LAWS[name].wider(key)):
            wide.setdefault((name, wider), []).extend(group)
            depth[name, wider] = at
    return sorted(wide.items(), key=lambda item: -depth[item[0]])


def _assembled(found: Fits, base: Calibration | None) -> Fits:
    """On top of a base, if there is one."""
    fits = {name: dict(of) for name, of in base.fits.items()} if base is not None else {}
    for name, of in found.items():
        fits.setdefault(name, {}).update(of)
    return fits


def _is_simple(work: Workload | None) -> bool:
    return work is not None and parts_of(work) == (work,)


def _work(row: Measurement) -> Workload:
    assert row.workload is not None
    return row.workload


def _grouped(rows: Iterable[Measurement]) -> Groups:
    groups: Groups = {}
    for row in rows:
        law = law_of(_work(row))
        groups.setdefault((law.name, law.key(row.workload)), []).append(row)
    return groups


def _fit(law: Law, key: str, rows: Rows, near: LawFit | None, keeps_points: bool) -> LawFit:
    terms = tuple(np.array(column) for column in zip(*(law.terms(row.workload) for row in rows), strict=True))
    measured = np.array([row.seconds for row in rows])
    starting = dict(near.coefficients) if near is not None else law.starting(key)

    def formula(values: NDArray[np.float64]) -> NDArray[np.float64]:
        made: NDArray[np.float64] = law.seconds(terms, dict(zip(starting, values, strict=True)))
        return made

    values = fitted(formula, np.array(list(starting.values())), measured)
    residuals = np.log(measured) - np.log(formula(values))
    coefficients = {name: float(f"{value:.5g}") for name, value in zip(starting, values, strict=True)}
    band = 1.0 if law.keeps_points else law.doubt
    return LawFit(coefficients, len(rows), band, _points(law, rows, residuals) if keeps_points else ())


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
    with_bands: bool | Calibration = False,
) -> list[tuple[Measurement, Calibration]]:
    """Every row with a calibration that never saw it, nor any row of its part.

    Parts are dealt to `folds`; with None each part is left out alone. Bands take as many folds more, or are those of
    another calibration.
    """
    lent = _bands_of(with_bands) if isinstance(with_bands, Calibration) else {}
    parts = list(dict.fromkeys(part(row) for row in rows))
    order = np.random.default_rng(_SEED).permutation(len(parts))
    count = len(parts) if folds is None else folds
    fold_of = {parts[at]: int(number % count) for number, at in enumerate(order)}
    found = []
    known: Fitted = {}
    for fold in range(min(count, len(parts))):
        unseen = [row for row in rows if fold_of[part(row)] == fold]
        seen = [row for row in rows if fold_of[part(row)] != fold]
        if with_bands is True:
            calibration = calibrated(seen, base=base)
        else:
            calibration = Calibration(_banded(_fits(seen, base, known), lent))
        found += [(row, calibration) for row in unseen]
    return found


def _bands_of(calibration: Calibration) -> dict[tuple[str, str], float]:
    return {(law, key): fit.band for law, of in calibration.fits.items() for key, fit in of.items()}


def _bands(rows: Rows, base: Calibration | None) -> dict[tuple[str, str], float]:
    """For each set of coefficients, the band that holds nine in ten of rows whose shape, or series, it had not seen.

    What has no coefficients of its own then is told by a wider group, which so gets its band.
    """
    bands: dict[tuple[str, str], float] = {}
    for part in (shape_of, series_of):
        ratios: dict[tuple[str, str], list[float]] = {}
        for row, calibration in left_out(rows, part, base=base):
            law = law_of(_work(row))
            made = calibration.estimate(_work(row))
            off = abs(np.log(row.seconds / made.seconds))
            deviation = np.log(made.high / made.seconds) if made.is_measured and law.keeps_points else 1.0
            keys = (law.key(row.workload), *law.wider(law.key(row.workload)))
            key = next((key for key in keys if calibration.fit(law, key)), keys[0])
            ratios.setdefault((law.name, key), []).append(float(off / deviation))
        for at, of in ratios.items():
            every = [x for other, xs in ratios.items() if other[0] == at[0] for x in xs]
            bands[at] = max(bands.get(at, 0.0), _band(LAWS[at[0]], of, every))
    return bands


def _band(law: Law, own: Sequence[float], every: Sequence[float]) -> float:
    """Of a set of coefficients; few rows of its own do not make it narrower than those of its law."""
    width = float(np.quantile(own, COVERED))
    if law.keeps_points:
        return round(min(max(width, float(np.quantile(every, COVERED)), 1.0), _WIDEST / law.doubt), 3)
    if len(own) < _FEW:
        width = max(width, law.doubt)
    return round(min(max(width, _NARROWEST), _WIDEST), 3)
