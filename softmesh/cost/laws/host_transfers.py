"""Host transfers: a time for each page, and the bytes over what the bus carries; whichever is the slower."""

from __future__ import annotations

import math

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers, larger
from softmesh.cost.workloads import HostTransfer

_START = 10e-6  # of a transfer by a host; the published ones are of 64 MiB, and tell nothing of it


def _terms(work: HostTransfer) -> tuple[float, ...]:
    return float(work.size), -(-work.size // max(work.page, 1)), float(work.is_remote)


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    size, pages, remote = terms
    bus = size / (c["bus_gb_per_s"] * 1e9)
    through = remote * size / (c["remote_gb_per_s"] * 1e9)
    return _START + larger(pages * c["page_ns"] * 1e-9, bus, through)


def _starting(key: str) -> dict[str, float]:
    wormhole = key.startswith("wormhole")
    return {
        "page_ns": 50.0 if wormhole else 25.0,
        "bus_gb_per_s": 12.0 if wormhole else 20.0,
        "remote_gb_per_s": 8.0,
    }


def _key(work: HostTransfer) -> str:
    kind = ("pinned " if work.is_pinned else "") + ("sharded " if work.is_sharded else "")
    return f"{work.chip.arch_name} {kind}{'write' if work.is_write else 'read'}"


def _position(work: HostTransfer) -> tuple[float, ...]:
    return math.log2(max(work.page, 1)), float(work.is_remote), float(work.in_l1), float(work.has_iommu)


HOST_TRANSFER = Law(
    name="host transfer",
    key=_key,
    starting=_starting,
    terms=_terms,
    seconds=_seconds,
    position=_position,
    reach=(2.0, 0.5, 3.0, 1.0),
    doubt=0.25,
    noise=0.05,
    bound=lambda terms, c: Bound.HOST,
)
