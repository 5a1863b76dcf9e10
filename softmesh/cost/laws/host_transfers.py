"""Host transfers: a time for each page, and the bytes over what the bus carries; whichever is the slower."""

from __future__ import annotations

import math

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers, larger
from softmesh.cost.workloads import HostTransfer

_START = 10e-6  # of a transfer by a host; the published ones are of 64 MiB, and tell nothing of it


def _terms(work: HostTransfer) -> tuple[float, ...]:
    pages = -(-work.size // max(work.page, 1))
    return float(work.size), pages, 0 if work.in_l1 else pages, float(work.is_remote)


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    size, pages, dram_pages, remote = terms
    bus = size / (c["bus_gb_per_s"] * 1e9)
    through = remote * size / (c["remote_gb_per_s"] * 1e9)
    addressed = (pages * c["page_ns"] + dram_pages * c["dram_page_ns"]) * 1e-9
    return _START + larger(addressed, bus, through)


def _starting(key: str) -> dict[str, float]:
    wormhole = key.startswith("wormhole")
    # The pages of a sharded transfer are elements that lie together: the host writes many at once, fewer into DRAM.
    is_sharded = "sharded" in key
    page = (50.0 if wormhole else 25.0) * (0.003 if is_sharded else 1.0)
    return {
        "page_ns": page,
        "dram_page_ns": page * (0.1 if is_sharded else 0.001),
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
