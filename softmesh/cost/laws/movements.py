"""Data movement on a chip: bytes over DRAM or the NoC, and pages that each cost a core some cycles to address."""

from __future__ import annotations

import math

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers, larger, largest
from softmesh.cost.workloads import Movement

GATHERED_ROWS = "gathered rows"  # of a tensor in DRAM, each found by an index


def _terms(work: Movement) -> tuple[float, ...]:
    moved = work.read + work.written
    return (
        float(0 if work.in_l1 else moved),
        float(moved if work.in_l1 else 0) / work.cores,
        -(-work.pages // work.cores),
        work.chip.clock_ghz * 1e9,
        work.chip.dram_gb_per_s * 1e9,
    )


def _parts(terms: tuple[Numbers, ...], c: Coefficients) -> tuple[Numbers, Numbers, Numbers]:
    dram, core_bytes, pages, clock, dram_rate = terms
    memory = dram / (dram_rate * c["dram_share"])
    noc = core_bytes / (c["core_bytes_per_cycle"] * clock)
    return memory, noc, pages * c["page_cycles"] / clock


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    return c["start_us"] * 1e-6 + larger(*_parts(terms, c))


def _starting(_: str) -> dict[str, float]:
    return {"start_us": 1.0, "dram_share": 0.6, "core_bytes_per_cycle": 10.0, "page_cycles": 100.0}


def _bound(terms: tuple[float, ...], c: Coefficients) -> Bound:
    memory, noc, pages = _parts(terms, c)
    start = c["start_us"] * 1e-6
    return largest({Bound.DRAM: memory, Bound.NOC: max(float(noc), float(pages)), Bound.DISPATCH: start})


MOVEMENT = Law(
    name="movement",
    key=lambda work: f"{work.chip.arch_name} rows" if work.kind == GATHERED_ROWS else work.chip.arch_name,
    starting=_starting,
    terms=_terms,
    seconds=_seconds,
    position=lambda work: (math.log2(max(work.read + work.written, 1)), float(work.in_l1)),
    reach=(3.0, 1.0),
    doubt=0.5,
    noise=0.1,
    bound=_bound,
    keeps_points=False,
)
