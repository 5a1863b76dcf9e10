"""Collectives: a start, a latency for each hop to the farthest chip, and the bytes of the busiest link over its rate.

Regimes, as measured: between two chips alone a link carries less than in a longer line; a ring sends half each way;
reduce_scatter on a ring sends pieces straight to their owners up to 512 KiB a device; an exchange of all with all
crowds the middle of a long line; all_reduce is a reduce_scatter and an all_gather.
"""

from __future__ import annotations

import math

import numpy as np

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers, larger
from softmesh.cost.workloads import Exchange

_KIB = 1024
DIRECT_LIMIT = 512 * _KIB  # of reduce_scatter on a ring
_PACKET = {"wormhole_b0": 6144, "blackhole": 8192}  # of the measured tables
_SMALL_PACKET = {"wormhole_b0": 4100, "blackhole": 3400}  # bytes: below, the number of packets binds, not the link
_FILLED = 256 * _KIB  # through a link, until its buffers are full and packets follow each other without a gap
_HOP = {"wormhole_b0": 0.711, "blackhole": 0.515}  # us, as published, in a fabric of one dimension
_2D_HOP = 1.21  # a hop of a two-dimensional fabric: 874 of 711 ns on Wormhole, 619 of 515 on Blackhole
_PAIR, _LINE, _RING, _DIRECT = range(4)  # regimes, each with a start and a rate of its own


def hops_of(work: Exchange) -> int:
    """To the farthest device."""
    return work.devices // 2 if work.is_ring else work.devices - 1


def is_direct(work: Exchange) -> bool:
    return work.op == "reduce_scatter" and work.is_ring and work.size <= DIRECT_LIMIT


def link_bytes(work: Exchange) -> float:
    """Through the busiest link, one way, as the timing of the measured algorithms has it."""
    n, half = work.devices, work.devices // 2
    share = work.size / n
    if work.op == "all_to_all" or is_direct(work):
        pieces = half * (n - half) / (2 if work.is_ring else 1)
    else:
        pieces = half if work.is_ring else n - 1
    return pieces * share * _packet_share(work) / work.links


def _packet_share(work: Exchange) -> float:
    """How much longer the bytes take than with the packets of the tables: a router forwards so many a second."""
    arch = work.chip.arch_name
    given, usual = (
        float(larger(1.0, _SMALL_PACKET[arch] / size, sharpness=6.0))
        for size in (work.packet or _PACKET[arch], _PACKET[arch])
    )
    return given / usual


def _terms(work: Exchange) -> tuple[float, ...]:
    hops = hops_of(work) * (_2D_HOP if work.is_2d else 1.0)
    crowd = max(work.devices / 4, 1.0) if work.op == "all_to_all" else 1.0
    regime = _DIRECT if is_direct(work) else _RING if work.is_ring else _PAIR if work.devices == 2 else _LINE
    return hops, link_bytes(work), float(regime), crowd


def _latency(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    hops, _, regime, _ = terms
    starts = np.array([c["pair_us"], c["line_us"], c["ring_us"], c["direct_us"]])
    far = np.where(np.asarray(regime) == _PAIR, 0.0, hops)  # the one hop of a pair is in its start
    return (starts[np.asarray(regime, dtype=int)] + far * c["hop_us"]) * 1e-6


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    _, through, regime, crowd = terms
    rates = np.array([c["pair_gb_per_s"], c["line_gb_per_s"], c["ring_gb_per_s"], c["direct_gb_per_s"]])
    rate = rates[np.asarray(regime, dtype=int)] * 1e9
    latency, carried = _latency(terms, c), through * crowd ** c["crowding"] / rate
    filling = c["fill_us"] * 1e-6 * through / (through + _FILLED)
    # Pieces that go straight to their owners all start at once: the latency hides behind the bytes.
    return np.where(np.asarray(regime) == _DIRECT, larger(latency, carried), latency + filling + carried)


def _starting(key: str) -> dict[str, float]:
    wormhole = key.startswith("wormhole")
    rate = 11.0 if wormhole else 22.0
    straight = key.endswith("all_to_all")  # pieces pass through routers, and no chip stores them on the way
    return {
        "pair_us": (6.0 if wormhole else 4.5) * (0.7 if straight else 1.0),
        "line_us": 8.0 if straight and wormhole else 4.0,
        "ring_us": 8.0 if wormhole else 6.0,
        "direct_us": 8.0,
        "hop_us": _HOP["wormhole_b0" if wormhole else "blackhole"] if straight else 2.5 if wormhole else 1.5,
        "fill_us": 2.0,
        "pair_gb_per_s": 6.4 if wormhole else 0.8 * rate,
        "line_gb_per_s": rate,
        "ring_gb_per_s": rate if wormhole else 25.0,
        "direct_gb_per_s": 0.5 * rate,
        "crowding": 0.5,
    }


def _bound(terms: tuple[float, ...], c: Coefficients) -> Bound:
    is_long = float(_seconds(terms, c)) > 2 * float(_latency(terms, c))
    return Bound.LINK if is_long else Bound.DISPATCH


def position(work: Exchange) -> tuple[float, ...]:
    return (
        math.log2(max(work.size, 1)),
        math.log2(work.devices),
        float(work.is_ring),
        float(is_direct(work)),
    )


EXCHANGE = Law(
    name="exchange",
    key=lambda work: f"{work.chip.arch_name} {work.op}",
    starting=_starting,
    terms=_terms,
    seconds=_seconds,
    position=position,
    reach=(4.0, 1.0, 1.5, 0.5),
    doubt=0.20,
    noise=0.01,
    bound=_bound,
)
