"""Element-wise functions, reductions, norms and softmax: tiles of a core by the vector unit, against memory.

The cores share whole tiles, so that the slowest has its share rounded up. What was measured is `exp`; other functions
take a share of its cycles, by the arithmetic for one element that their definitions state.
"""

from __future__ import annotations

import math

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers, larger, largest
from softmesh.cost.workloads import TILE_BYTES, Elements

MEASURED = "exp"
SORTING = "sorting"  # the largest thousands of long rows, in order
STEP = 0.05  # of exp: what one elementary operation of the vector or matrix unit takes (see cost rules of ops)


def _terms(work: Elements) -> tuple[float, ...]:
    each = -(-work.tiles // work.cores)
    moved = work.read + work.written
    return (
        float(each),
        work.steps,
        each * moved / max(work.tiles, 1),
        float(0 if work.in_l1 else work.read),
        float(work.read if work.in_l1 else 0),
        float(work.written),
        1.0 - work.moves if work.in_l1 else work.moves,
        work.chip.clock_ghz * 1e9,
        work.chip.dram_gb_per_s * 1e9,
        float(work.cores),
        float(min(work.tiles, work.cores)),
    )


def _parts(terms: tuple[Numbers, ...], c: Coefficients, into_l1: bool) -> tuple[Numbers, Numbers, Numbers]:
    """With the result in L1, or in DRAM, which is slower to write than to read."""
    tiles, steps, core_bytes, from_dram, from_l1, written, _, clock, dram_rate, cores, _ = terms
    vector = tiles * (c["exp_cycles"] * steps + c["tile_cycles"]) / clock
    to_dram, to_l1 = (0.0, written) if into_l1 else (written, 0.0)
    memory = larger(from_dram / (dram_rate * c["dram_share"]), to_dram / (dram_rate * c["dram_write_share"]))
    core = core_bytes / (c["core_bytes_per_cycle"] * clock)
    noc = (from_l1 + to_l1) / (c["l1_bytes_per_cycle"] * cores * clock)
    return vector, memory, larger(core, noc)


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    into_l1 = terms[6]
    to_dram, to_l1 = (larger(*_parts(terms, c, there), sharpness=6.0) for there in (False, True))
    return _start(terms, c) + (1 - into_l1) * to_dram + into_l1 * to_l1


def _start(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    return (c["start_us"] + terms[-1] * c["core_ns"] * 1e-3) * 1e-6


def _starting(_: str) -> dict[str, float]:
    return {
        "start_us": 1.0,
        "core_ns": 25.0,
        "exp_cycles": 2000.0,
        "tile_cycles": 60.0,
        "dram_share": 0.6,
        "dram_write_share": 0.3,
        "core_bytes_per_cycle": 8.0,
        "l1_bytes_per_cycle": 6.0,
    }


def _bound(terms: tuple[float, ...], c: Coefficients) -> Bound:
    vector, memory, noc = _parts(terms, c, terms[6] >= 0.5)
    start = _start(terms, c)
    return largest({Bound.COMPUTE: vector, Bound.DRAM: memory, Bound.NOC: noc, Bound.DISPATCH: start})


def _position(work: Elements) -> tuple[float, ...]:
    each = -(-work.tiles // work.cores)
    return math.log2(max(each, 1)), math.log2(TILE_BYTES[work.dtype]), float(work.in_l1), math.log2(work.steps)


ELEMENTS = Law(
    name="elements",
    key=lambda work: f"{work.chip.arch_name} sorting" if work.function == SORTING else work.chip.arch_name,
    starting=_starting,
    terms=_terms,
    seconds=_seconds,
    position=_position,
    reach=(3.0, 1.0, 1.0, 1.0),
    doubt=0.05,
    noise=0.02,
    bound=_bound,
    keeps_points=False,
    wider=lambda key: () if key.endswith(SORTING) else ("any chip",),
)
