"""Collectives within L1, as in decode: persistent buffers on the cores of the operands, and few bytes over many links.

All of them send straight into the buffers of all others and reduce there: an all_reduce is an all_gather of whole
shards, whose sum each device makes for itself. So one set of coefficients serves all.
"""

from __future__ import annotations

import math

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.exchanges import hops_of
from softmesh.cost.laws.law import Coefficients, Law, Numbers
from softmesh.cost.workloads import Exchange

_HOP = {"wormhole_b0": 0.711, "blackhole": 0.515}  # us, in a fabric of one dimension
_2D_HOP = {"wormhole_b0": 0.874, "blackhole": 0.619}


def sent_bytes(work: Exchange) -> float:
    """Through the busiest link, one way."""
    others = work.devices - 1
    whole = work.size if work.op == "all_reduce" else work.size / work.devices
    return others * whole / (2 if work.is_ring else 1) / work.links


def _terms(work: Exchange) -> tuple[float, ...]:
    hop = (_2D_HOP if work.is_2d else _HOP)[work.chip.arch_name]
    return hops_of(work) * hop, sent_bytes(work)


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    latency, through = terms
    return (c["start_us"] + latency) * 1e-6 + through / (c["link_gb_per_s"] * 1e9)


def _starting(key: str) -> dict[str, float]:
    return {"start_us": 4.5, "link_gb_per_s": 9.5 if key.startswith("wormhole") else 19.0}


def _bound(terms: tuple[float, ...], c: Coefficients) -> Bound:
    return Bound.LINK if terms[1] / c["link_gb_per_s"] * 1e-3 > c["start_us"] + terms[0] else Bound.DISPATCH


PERSISTENT_EXCHANGE = Law(
    name="persistent exchange",
    key=lambda work: work.chip.arch_name,
    starting=_starting,
    terms=_terms,
    seconds=_seconds,
    position=lambda work: (math.log2(max(work.size, 1)), math.log2(work.devices)),
    reach=(2.0, 1.0),
    doubt=0.2,
    noise=0.03,
    bound=_bound,
    keeps_points=False,
)
