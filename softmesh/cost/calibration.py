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
from softmesh.cost.laws.elements import ELEMENTS
from softmesh.cost.laws.exchanges import EXCHANGE
from softmesh.cost.laws.host_transfers import HOST_TRANSFER
from softmesh.cost.laws.law import Law
from softmesh.cost.laws.movements import MOVEMENT
from softmesh.cost.laws.products import PRODUCT
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
)

LAWS = {
    law.name: law
    for law in (EXCHANGE, PRODUCT, SHARDED_PRODUCT, ELEMENTS, MOVEMENT, HOST_TRANSFER, DISPATCH, TYPICAL_OP)
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

    `band` counts standard deviations of the correction; where no points are kept it is the log of a factor itself.
    """

    coefficients: Mapping[str, float]
    rows: int
    band: float
    points: tuple[Point, ...] = ()


def law_of(work: Workload) -> Law:
    if isinstance(work, Product) and work.height_cores:
        return SHARDED_PRODUCT
    return _OF_KIND[type(work)]


def parts_of(work: Workload) -> tuple[Workload, ...]:
    """The workloads that one consists of, one after the other; itself where it has a law of its own."""
    if isinstance(work, Exchange) and work.op == "all_reduce":
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
        fit = self.fit(law, key)
        return float(law.seconds(law.terms(work), fit.coefficients if fit else law.starting(key)))

    def _estimated(self, work: Workload) -> WorkloadTime:
        if isinstance(work, Chain):
            return _added([self.estimate(part) for part in work.parts], f"{work.name}: sum of its parts")
        law = law_of(work)
        key = law.key(work)
        fit = self.fit(law, key)
        seconds = self.formula(work)
        name = f"{law.name}: {key}"
        first = parts_of(work)[0]
        own = fit if first == work else self.fit(law_of(first), law.key(first))
        coefficients = own.coefficients if own else law.starting(law.key(first))
        bound = law.bound(law.terms(first), coefficients)
        if fit is None:
            width = max(UNMEASURED, math.exp(law.doubt))
            return WorkloadTime(seconds, seconds / width, seconds * width, bound, name, False)
        correction = self._correction(law, key, fit, work)
        seconds *= math.exp(correction.log_factor)
        width = math.exp(fit.band * correction.deviation)
        return WorkloadTime(seconds, seconds / width, seconds * width, bound, name, True)

    def _correction(self, law: Law, key: str, fit: LawFit, work: Workload) -> Correction:
        if not law.keeps_points:
            return Correction(0.0, 1.0)
        known = self._neighbours.get((law.name, key))
        if known is None:
            positions = [point.position for point in fit.points]
            residuals = [point.residual for point in fit.points]
            known = Neighbours(positions, residuals, law.reach, law.doubt, law.noise)
            self._neighbours[law.name, key] = known
        return known.at(law.position(work))


_MOST_KNOWN = 100_000


def _added(parts: list[WorkloadTime], name: str) -> WorkloadTime:
    """One after the other; errors of parts by the same laws go the same way, so the bands add up as well."""
    slowest = max(parts, key=lambda part: part.seconds)
    return WorkloadTime(
        sum(part.seconds for part in parts),
        sum(part.low for part in parts),
        sum(part.high for part in parts),
        slowest.bound,
        name,
        all(part.is_measured for part in parts),
    )
