"""Makes a calibration from measurements: coefficients of every law, points that correct it, and bands.

Bands come from rows that were left out: a law is fitted without a fifth of its shapes, five times over, and the band
is as wide as it must be for nine in ten of what it then predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softmesh.cost.calibration import LAWS, Calibration, LawFit, Point, law_of, parts_of
from softmesh.cost.fitting import fitted
from softmesh.cost.laws.law import Law
from softmesh.cost.measurements import Measurement
from softmesh.cost.repeats import contradicted
from softmesh.cost.workloads import Chain, Dispatch, Elements, Exchange, Product, TypicalOp, Workload
from softmesh.progress import tracked

FOLDS = 5
COVERED = 0.91  # of the rows that were left out, at least, when bands are made
_NARROWEST, _WIDEST = 0.02, 3.5  # logs of factors
_FEW = 8  # rows: fewer do not tell how wide a band must be
_BYTES_COUNT = 32 << 20  # bytes of a collective, beyond which no start is seen
_TURNS = 3  # in which the two widths of a band settle
_LEAST = 0.1  # share of a width that a row must tell of to be asked for it
_ROUNDED = 2e-4  # what a written band has in hand: rows lie on its very edge
_SEED = 23

Rows = Sequence[Measurement]
Fits = dict[str, dict[str, LawFit]]
Bands = Mapping[tuple[str, str], tuple[float, float]]  # by law and key: far from measured points, and near


def calibrated(
    rows: Iterable[Measurement],
    sources: Iterable[str] = (),
    base: Calibration | None = None,
    with_bands: bool = True,
) -> Calibration:
    """From all rows that tell a workload and are no ceilings.

    With a `base`, its coefficients are where fitting starts, and what no row speaks of stays as it is there. Bands
    take ten more fits; without them a band is the law's own doubt.
    """
    used = usable(rows)
    bands: Bands = _bands(used, base) if with_bands else {}
    fits = _assembled(_fits(used, base), base)
    return Calibration(_banded(fits, bands), tuple(sources))


def _banded(fits: Fits, bands: Bands) -> Fits:
    def banded(law: str, key: str, fit: LawFit) -> LawFit:
        band, near = bands.get((law, key), (fit.band, fit.near))
        return replace(fit, band=band, near=near)

    return {law: {key: banded(law, key, fit) for key, fit in of.items()} for law, of in fits.items()}


def usable(rows: Iterable[Measurement]) -> list[Measurement]:
    """Rows that are fitted: no ceilings, no chains, and nothing that its own source contradicts."""
    rows = list(rows)
    aside = contradicted(rows)
    return [
        row
        for row in rows
        if row.workload and not row.is_ceiling and not isinstance(row.workload, Chain) and row not in aside
    ]


Fitted = dict[tuple[Hashable, ...], LawFit]  # by law, key, the rows that were fitted, and what was borrowed
Groups = dict[tuple[str, str], list[Measurement]]


def _fits(rows: Rows, base: Calibration | None = None, known: Fitted | None = None) -> Fits:
    """Laws of simple workloads first: composed ones are corrected on top of them."""
    known = {} if known is None else known
    found: Fits = {}
    groups = _grouped([row for row in rows if _is_simple(row.workload)])
    wide = _widest_first(groups) if base is None else []

    def fit(name: str, key: str, group: Rows, implied: Rows = ()) -> None:
        law = LAWS[name]
        borrowed = next((found[name][wider] for wider in law.wider(key) if wider in found.get(name, {})), None)
        parts = tuple((row.table, row.line, row.seconds) for row in (*group, *implied))
        at = name, key, parts, borrowed and tuple(borrowed.coefficients.items())
        if at not in known:
            keeps_points = law.keeps_points and (name, key) in groups
            near = (base and base.nearest_fit(law, key)) or borrowed
            known[at] = _fit(law, key, group, near, keeps_points, implied)
        found.setdefault(name, {})[key] = known[at]

    for (name, key), group in (*wide, *groups.items()):
        fit(name, key, group)
    below = Calibration(_assembled(found, base))
    for (name, key), implied in _grouped(_implied(rows, below) if base is None else ()).items():
        fit(name, key, groups.setdefault((name, key), []), implied)
    below = Calibration(_assembled(found, base))
    for (name, key), group in _grouped([row for row in rows if not _is_simple(row.workload)]).items():
        formula = np.array([below.formula(_work(row)) for row in group])
        residuals = np.log([row.seconds for row in group]) - np.log(formula)
        found.setdefault(name, {})[key] = LawFit(
            {}, len(group), LAWS[name].doubt, _points(LAWS[name], group, residuals), LAWS[name].noise
        )
    return found


def _implied(rows: Rows, below: Calibration) -> Iterator[Measurement]:
    """Times of parts whose series nobody measured alone: what an all_reduce took, without its other part.

    On a ring only where bytes are all that counts: both parts in one call save a start, and nobody knows whose.
    """
    measured = {series_of(row) for row in rows if _is_simple(row.workload)}
    for row in rows:
        work = _work(row)
        parts = parts_of(work)
        unseen = [part for part in parts if series_of(row._replace(workload=part)) not in measured]
        if not isinstance(work, Exchange) or len(unseen) != 1 or (work.is_ring and work.size < _BYTES_COUNT):
            continue
        other = next(part for part in parts if part != unseen[0])
        seconds = row.seconds - below.estimate(other).seconds
        if seconds > 0:
            yield row._replace(workload=unseen[0], seconds=seconds)


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


def _fit(law: Law, key: str, rows: Rows, near: LawFit | None, keeps_points: bool, implied: Rows = ()) -> LawFit:
    """Coefficients from all rows; points, which correct them, from those that were measured themselves."""
    every = (*rows, *implied)
    terms = tuple(np.array(column) for column in zip(*(law.terms(row.workload) for row in every), strict=True))
    measured = np.array([row.seconds for row in every])
    starting = dict(near.coefficients) if near is not None else law.starting(key)

    def formula(values: NDArray[np.float64]) -> NDArray[np.float64]:
        made: NDArray[np.float64] = law.seconds(terms, dict(zip(starting, values, strict=True)))
        return made

    values = fitted(formula, np.array(list(starting.values())), measured)
    residuals = (np.log(measured) - np.log(formula(values)))[: len(rows)]
    coefficients = {name: float(f"{value:.5g}") for name, value in zip(starting, values, strict=True)}
    points = _points(law, rows, residuals) if keeps_points else ()
    return LawFit(coefficients, len(rows), law.doubt, points, law.noise)


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
    if isinstance(work, Dispatch):
        return work._replace(kernel_bytes=0, run_us=0)
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
    lent: Bands = _bands_of(with_bands) if isinstance(with_bands, Calibration) else {}
    parts = list(dict.fromkeys(part(row) for row in rows))
    order = np.random.default_rng(_SEED).permutation(len(parts))
    count = len(parts) if folds is None else folds
    fold_of = {parts[at]: int(number % count) for number, at in enumerate(order)}
    found = []
    known: Fitted = {}
    for fold in tracked(range(min(count, len(parts))), "fitting the laws, each time without some rows"):
        unseen = [row for row in rows if fold_of[part(row)] == fold]
        seen = [row for row in rows if fold_of[part(row)] != fold]
        if with_bands is True:
            calibration = calibrated(seen, base=base)
        else:
            calibration = Calibration(_banded(_fits(seen, base, known), lent))
        found += [(row, calibration) for row in unseen]
    return found


def _bands_of(calibration: Calibration) -> Bands:
    return {(law, key): (fit.band, fit.near) for law, of in calibration.fits.items() for key, fit in of.items()}


class _Miss(NamedTuple):
    """By how much a row that was left out is off, in logs, and how much doubt its neighbours left."""

    off: float
    unknown: float

    def if_near(self, far: float) -> float:
        """How wide the band must be at a measured point to hold the row, where far from all it is `far`."""
        return (self.off - far * self.unknown) / max(1 - self.unknown, _LEAST)

    def if_far(self, near: float) -> float:
        """The same the other way round."""
        return (self.off - near * (1 - self.unknown)) / max(self.unknown, _LEAST)


def _bands(rows: Rows, base: Calibration | None) -> Bands:
    """For each set of coefficients, the band that holds nine in ten of rows whose shape, or series, it had not seen.

    What has no coefficients of its own then is told by a wider group, which so gets its band.
    """
    of_shapes = _misses(left_out(rows, shape_of, base=base))
    of_series = _misses(left_out(rows, series_of, None, base=base))
    bands = {}
    for at in {**of_shapes, **of_series}:
        shapes, series = of_shapes.get(at, []), of_series.get(at, [])
        law = LAWS[at[0]]
        if law.keeps_points:
            far = near = _width(law, [miss.off for miss in series or shapes])
            for _ in range(_TURNS):
                near = min(far, _width(law, [miss.if_near(far) for miss in shapes]))
                far = max(near, _width(law, [miss.if_far(near) for miss in series or shapes]))
        else:
            near = far = max(_width(law, [miss.off for miss in part]) for part in (shapes, series) if part)
        bands[at] = round(far + _ROUNDED, 4), round(near + _ROUNDED, 4)
    return bands


def _misses(judged: Iterable[tuple[Measurement, Calibration]]) -> dict[tuple[str, str], list[_Miss]]:
    found: dict[tuple[str, str], list[_Miss]] = {}
    for row, calibration in judged:
        work = _work(row)
        law = law_of(work)
        own = law.key(work)
        key = next((key for key in (own, *law.wider(own)) if calibration.fit(law, key)), own)
        fit = calibration.fit(law, own)
        unknown = calibration.correction(law, own, fit, work).unknown if fit else 1.0
        off = float(abs(np.log(row.seconds / calibration.estimate(work).seconds)))
        found.setdefault((law.name, key), []).append(_Miss(off, unknown))
    return found


def _width(law: Law, offs: Sequence[float]) -> float:
    """That covers nine in ten; few rows do not make a band narrower than the law's own doubt."""
    width = float(np.quantile(offs, COVERED, method="higher")) if offs else law.doubt
    if len(offs) < _FEW:
        width = max(width, law.doubt)
    return min(max(width, _NARROWEST), _WIDEST)
