"""A calibration: coefficients, measured corrections and bands of every law, as one value that estimates workloads.

The default one is shipped with the package: see softmesh.cost.calibration_files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from softmesh.cost.command_cost import Bound
from softmesh.cost.corrections import Correction, Neighbours
from softmesh.cost.laws.dispatches import DISPATCH
from softmesh.cost.laws.elements import ELEMENTS, MEASURED, SORTING
from softmesh.cost.laws.exchanges import EXCHANGE
from softmesh.cost.laws.host_transfers import HOST_TRANSFER
from softmesh.cost.laws.law import Law
from softmesh.cost.laws.movements import MOVEMENT
from softmesh.cost.laws.persistent_exchanges import PERSISTENT_EXCHANGE
from softmesh.cost.laws.products import CALL, PRODUCT
from softmesh.cost.laws.sharded_products import SHARDED_PRODUCT
from softmesh.cost.laws.typical_ops import TYPICAL_OP
from softmesh.cost.workloads import (
    Chain,
    Dispatch,
    Elements,
    Exchange,
    HostTransfer,
    Movement,
    Product,
    TypicalOp,
    Workload,
    dram_bytes,
)

LAWS = {
    law.name: law
    for law in (
        EXCHANGE,
        PERSISTENT_EXCHANGE,
        PRODUCT,
        CALL,
        SHARDED_PRODUCT,
        ELEMENTS,
        MOVEMENT,
        HOST_TRANSFER,
        DISPATCH,
        TYPICAL_OP,
    )
}
_OF_KIND = {
    Exchange: EXCHANGE,
    Product: PRODUCT,
    Elements: ELEMENTS,
    Movement: MOVEMENT,
    HostTransfer: HOST_TRANSFER,
    Dispatch: DISPATCH,
    TypicalOp: TYPICAL_OP,
}
_FUNCTIONS_BAND = 1.6  # other functions than the measured one: its law, with their share of its steps
_COMPOSED_BAND = 2.0  # parts that were measured, in a form that was not
_MOST_OF_DRAM = 0.94  # of the signalled rate: 480 of 512 GB/s were read on Blackhole, 267 of 288 on Wormhole
_MOST_INTERLEAVED = 0.66  # the same by products of few rows with interleaved weights: about 190 of 288 GB/s on Wormhole
UNMEASURED = 2.0  # nothing was measured: at least half to twice what the formula says as it starts


class WorkloadTime(NamedTuple):
    """`seconds`, expected to lie in `low` .. `high`."""

    seconds: float
    low: float
    high: float
    bound: Bound
    law: str
    is_measured: bool


class Point(NamedTuple):
    """A measured position, and the log of measured over predicted there."""

    position: tuple[float, ...]
    residual: float


@dataclass(frozen=True)
class LawFit:
    """One set of coefficients: of which rows it came, what neighbours add, and how wide its band is.

    Bands are logs of factors: `near` where a neighbour was measured, `band` far from all of them.
    """

    coefficients: Mapping[str, float]
    rows: int
    band: float
    points: tuple[Point, ...] = ()
    near: float = 0.0

    def width(self, unknown: float) -> float:
        """Log of the band's factor, where so much of the law's doubt is left."""
        return self.near + (self.band - self.near) * unknown


def law_of(work: Workload) -> Law:
    if isinstance(work, Product) and work.height_cores:
        return SHARDED_PRODUCT
    if isinstance(work, Product) and work.clock == "untraced":
        return CALL
    if isinstance(work, Exchange) and work.in_l1:
        return PERSISTENT_EXCHANGE
    return _OF_KIND[type(work)]


def parts_of(work: Workload) -> tuple[Workload, ...]:
    """The workloads that one consists of, one after the other; itself where it has a law of its own."""
    if isinstance(work, Exchange) and work.op == "all_reduce" and not work.in_l1:
        return work._replace(op="reduce_scatter"), work._replace(op="all_gather")
    return work.parts if isinstance(work, Chain) else (work,)


@dataclass(frozen=True, eq=False)
class Calibration:
    """`fits` by the names of laws and their keys; `sources` say what was measured where."""

    fits: Mapping[str, Mapping[str, LawFit]]
    sources: tuple[str, ...] = ()
    _known: dict[Workload, WorkloadTime] = field(default_factory=dict, compare=False, repr=False)
    _neighbours: dict[tuple[str, str], Neighbours] = field(default_factory=dict, compare=False, repr=False)

    def fit(self, law: Law, key: str) -> LawFit | None:
        return self.fits.get(law.name, {}).get(key)

    def nearest_fit(self, law: Law, key: str) -> LawFit | None:
        """Of the key itself, or of the narrowest group that was measured."""
        fits = (self.fit(law, one) for one in (key, *law.wider(key)))
        return next((fit for fit in fits if fit is not None), None)

    def estimate(self, work: Workload) -> WorkloadTime:
        found = self._known.get(work)
        if found is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            found = self._known[work] = self._estimated(work)
        return found

    def formula(self, work: Workload) -> float:
        """Seconds before measured neighbours of this very workload correct them."""
        parts = parts_of(work)
        if len(parts) > 1:
            return sum(self.estimate(part).seconds for part in parts)
        law = law_of(work)
        key = law.key(work)
        return float(law.seconds(law.terms(work), self._coefficients(law, key)))

    def _coefficients(self, law: Law, key: str) -> Mapping[str, float]:
        fit = self.nearest_fit(law, key)
        return fit.coefficients if fit else law.starting(key)

    def _estimated(self, work: Workload) -> WorkloadTime:
        if isinstance(work, Chain):
            return _composed(work, [self.estimate(part) for part in work.parts])
        law = law_of(work)
        key = law.key(work)
        fit = self.fit(law, key)
        seconds = self.formula(work)
        name = f"{law.name}: {key}"
        first = parts_of(work)[0]
        bound = law.bound(law.terms(first), self._coefficients(law, law.key(first)))
        if fit is None:
            borrowed = self.nearest_fit(law, key)
            width = max(UNMEASURED, math.exp(max(borrowed.band if borrowed else 0.0, law.doubt)))
            return _through_memory(WorkloadTime(seconds, seconds / width, seconds * width, bound, name, False), work)
        correction = self.correction(law, key, fit, work)
        seconds *= math.exp(correction.log_factor)
        width = math.exp(fit.width(correction.unknown))
        made = _through_memory(WorkloadTime(seconds, seconds / width, seconds * width, bound, name, True), work)
        is_another = (isinstance(work, Elements) and work.function not in (MEASURED, SORTING)) or _is_by_bank(work)
        return _widened(made, _FUNCTIONS_BAND) if is_another else made

    def correction(self, law: Law, key: str, fit: LawFit, work: Workload) -> Correction:
        """Return what measured neighbours of `work` add to its law."""
        if not law.keeps_points:
            return Correction(0.0, 1.0)
        if _is_by_bank(work):  # no neighbour was measured in this form
            return Correction(0.0, 1.0)
        known = self._neighbours.get((law.name, key))
        if known is None:
            positions = [point.position for point in fit.points]
            residuals = [point.residual for point in fit.points]
            known = Neighbours(positions, residuals, law.reach, law.doubt, law.noise)
            self._neighbours[law.name, key] = known
        return known.at(law.position(work))


_MOST_KNOWN = 100_000


def _is_by_bank(work: Workload) -> bool:
    return isinstance(work, Product) and work.in1_by_bank


def _composed(work: Chain, parts: list[WorkloadTime]) -> WorkloadTime:
    """Errors of parts by the same laws go the same way, so the bands add up as well.

    Collectives one after the other were measured so; other compositions were not.
    """
    slowest = max(parts, key=lambda part: part.seconds)
    if work.overlaps:
        made = slowest._replace(law=f"{work.name}: the slowest of its parts")
    else:
        made = WorkloadTime(
            sum(part.seconds for part in parts),
            sum(part.low for part in parts),
            sum(part.high for part in parts),
            slowest.bound,
            f"{work.name}: sum of its parts",
            all(part.is_measured for part in parts),
        )
    is_measured = all(isinstance(part, Exchange) for part in work.parts) and not work.overlaps
    factor = max(work.doubt, 1.0 if is_measured else _COMPOSED_BAND)
    return made if factor == 1.0 else _widened(made, factor)


def _through_memory(made: WorkloadTime, work: Workload) -> WorkloadTime:
    """No less than the operands and the result of a product take through DRAM, each once.

    Where no measured product was bound by memory, a fit makes the memory as fast as it likes.
    """
    if not isinstance(work, Product):
        return made
    rate = work.chip.dram_gb_per_s * 1e9
    least = dram_bytes(work) / (_MOST_OF_DRAM * rate)
    if work.in1_interleaved:
        least = max(least, work.in1_count * work.k * work.n * work.in1_tile / (_MOST_INTERLEAVED * rate))
    if least <= made.seconds:
        return made
    return made._replace(seconds=least, high=max(made.high, least * made.high / made.seconds), bound=Bound.DRAM)


def _widened(made: WorkloadTime, factor: float) -> WorkloadTime:
    low, high = min(made.low, made.seconds / factor), max(made.high, made.seconds * factor)
    return made._replace(low=low, high=high, is_measured=False)
