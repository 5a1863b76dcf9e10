"""Products whose rows are sharded over cores in L1: each core holds its rows and fetches all of the other operand.

A core makes as many of its rows at once as its L1 holds beside the shards, and fetches the other operand anew for each
such block; only divisors of its rows are taken, so that a prime number of rows is made one by one.
"""

from __future__ import annotations

import math
from functools import lru_cache

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers
from softmesh.cost.laws.products import l1_space
from softmesh.cost.workloads import Product

_PARTIAL_TILE = 4096
_DESTINATIONS = 8  # tiles that the matrix engine accumulates at once
_BUFFERS = 2
_LOWER_BASE = 3264  # bytes of L1 that the runtime of the published table left free below today's base of buffers


@lru_cache(maxsize=8192)
def row_blocks(rows: int, k: int, n: int, tile: int, space: int) -> int:
    """In how many turns a core makes its rows.

    >>> [row_blocks(rows, 18, 3, 2048, 1393472) for rows in (9, 10, 11, 12, 20)]
    [1, 2, 11, 2, 10]
    """
    shards = rows * (k + n) * tile
    fetched = _BUFFERS * k * n * tile
    for high in range(rows, 0, -1):
        if rows % high == 0 and shards + fetched + high * (_BUFFERS * k * tile + n * _PARTIAL_TILE) <= space:
            return rows // high
    return rows


def _terms(work: Product) -> tuple[float, ...]:
    rows = -(-work.m * work.batch // work.height_cores)
    turns = row_blocks(rows, work.k, work.n, work.in0_tile, l1_space(work.chip) + _LOWER_BASE)
    width = work.n if work.n <= _DESTINATIONS else 1
    return (
        float(rows * work.n),
        float(work.k),
        float(width),
        float(turns * work.k * work.n * work.in1_tile),
        float(work.height_cores),
        work.phases * 16.0,
        work.chip.clock_ghz,
    )


def _parts(terms: tuple[Numbers, ...], c: Coefficients) -> tuple[Numbers, Numbers, Numbers]:
    tiles, k, width, fetched, cores, _, clock = terms
    multiply = k * (c["product_cycles"] + c["row_cycles"] / width)
    pack = c["pack_cycles"] + c["subblock_cycles"] / width
    compute = tiles * (multiply**6 + pack**6) ** (1 / 6) / clock * 1e-9
    noc = fetched / (c["fetch_bytes_per_cycle"] * clock * 1e9)
    start = (c["start_us"] + cores * c["core_ns"] * 1e-3) * 1e-6
    return compute, noc, start


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    return sum(_parts(terms, c))


def _starting(_: str) -> dict[str, float]:
    return {
        "start_us": 1.4,
        "core_ns": 7.0,
        "fetch_bytes_per_cycle": 14.0,
        "product_cycles": 37.0,
        "row_cycles": 30.0,
        "pack_cycles": 40.0,
        "subblock_cycles": 60.0,
    }


def _bound(terms: tuple[float, ...], c: Coefficients) -> Bound:
    compute, noc, start = _parts(terms, c)
    return max((compute, Bound.COMPUTE), (noc, Bound.NOC), (start, Bound.DISPATCH), key=lambda part: float(part[0]))[1]


def _position(work: Product) -> tuple[float, ...]:
    rows = -(-work.m * work.batch // work.height_cores)
    return math.log2(rows), math.log2(work.k), math.log2(work.n)


SHARDED_PRODUCT = Law(
    name="sharded product",
    key=lambda work: work.chip.arch_name,
    starting=_starting,
    terms=_terms,
    seconds=_seconds,
    position=_position,
    reach=(1.0, 1.0, 1.0),
    doubt=0.03,
    noise=0.01,
    bound=_bound,
    keeps_points=False,
)
