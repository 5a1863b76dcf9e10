"""Matrix products: tile products of a core by the multiplier's passes, against DRAM, the NoC and single readers.

The split over cores is TT-NN's: the grid takes rows and columns of the result, and where the result is a single block
of sixteen tiles high (or wide) and no program config says otherwise, all cores share the other side and one of them
reads what all need. What does not fit L1 is computed block by block, and its operands are read again for each.

Calls that the host enqueues one by one run beside the host's work for the next one: the slower of both counts. That
work is longer with a program config, and longer again where such a call has operands in a block format.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.law import Coefficients, Law, Numbers, larger, largest
from softmesh.cost.workloads import Product
from softmesh.systems.chip import Chip

_CYCLES_OF_A_PASS = 16  # of one product of two tiles
_BLOCK = 16  # tiles: the side of a block that TT-NN's own choice of a program config starts from
_PARTIAL_TILE = 2048
_PLAIN_TILE = 2048  # bytes: smaller tiles are of a block format
_DEEPEST_BLOCK = 16  # tiles of the inner extent that are fetched at once
_COUNTS = (1, 2, 4, 8, 16, 32)


class Split(NamedTuple):
    """Tiles of the result that one core makes, and whether one core reads an operand for all."""

    rows: int
    columns: int
    shared_tiles: int  # of the inner extent times these are read by a single core; 0 on a grid


def split_of(work: Product) -> Split:
    columns, rows = work.grid
    m = work.m * work.batch
    if work.in1_by_bank:
        return Split(m, -(-work.n // columns), 0)
    cores = columns * rows
    high, wide = -(-m // _BLOCK), -(-work.n // _BLOCK)
    if not work.is_tuned and high == 1 and wide > 1:
        return Split(m, -(-work.n // cores), m)
    if not work.is_tuned and wide == 1 and high > 1:
        return Split(-(-m // cores), work.n, work.n)
    on_grid = Split(-(-m // rows), -(-work.n // columns), 0)
    if not work.is_tuned:
        return on_grid
    by_columns, by_rows = Split(m, -(-work.n // cores), 0), Split(-(-m // cores), work.n, 0)
    return min(on_grid, by_columns, by_rows, key=lambda split: (split.rows * split.columns, split.rows + split.columns))


@lru_cache(maxsize=4096)
def _blocks(split: Split, k: int, tile: int, held: int, space: int) -> tuple[int, int]:
    """Into how many blocks a core cuts each side of its result, and how deep one fetch reaches, so that L1 holds it."""
    depths = [depth for depth in range(min(k, _DEEPEST_BLOCK), 0, -1) if k % depth == 0]
    for count in _COUNTS:
        high, wide = -(-split.rows // count), -(-split.columns // count)
        for depth in depths:
            need = 2 * depth * (high + wide) * tile + high * wide * (tile + _PARTIAL_TILE) + held
            if need <= space and depth >= min(2, k):
                return count, depth
    return _COUNTS[-1], 1


def l1_space(chip: Chip) -> int:
    return chip.l1_bytes - chip.l1_base


def _terms(work: Product) -> tuple[float, ...]:
    split = split_of(work)
    tile = max(work.in0_tile, work.in1_tile)
    held = 0
    if work.in0_in_l1:
        held += split.rows * -(-work.k // work.grid[0]) * work.in0_tile
    if work.out_in_l1:
        held += split.rows * split.columns * work.out_tile - split.rows * split.columns * tile
    space = l1_space(work.chip)
    count, depth = _blocks(split, work.k, tile, min(held, space // 2), space)
    if work.in1_by_bank:
        count = 1  # a core goes through its columns once, whatever it holds of them at a time
    m = work.m * work.batch
    products = split.rows * split.columns * work.k
    in0_bytes = 0 if work.in0_in_l1 else m * work.in0_tile
    in1_bytes = 0 if work.in1_in_l1 else work.n * work.in1_count * work.in1_tile
    out_bytes = 0 if work.out_in_l1 else m * work.n * work.out_tile
    dram = count * work.k * (in0_bytes + in1_bytes) + out_bytes
    # Weights in a core's own bank come in long bursts, which the memory's rate alone bounds.
    fetched = count * work.k * max(split.rows, 0 if work.in1_in_l1 or work.in1_by_bank else split.columns)
    # Beside a bank a core keeps the few tiles of its operand, and unpacks those of the weights one by one.
    mean_tile = work.in1_tile if work.in1_by_bank else (work.in0_tile + work.in1_tile) / 2
    return (
        float(products),
        float(work.phases),
        float(mean_tile),
        products / depth,
        float(dram),
        float(fetched),
        float(split.shared_tiles * work.k * work.in0_tile),
        work.chip.clock_ghz * 1e9,
        work.chip.dram_gb_per_s,
        float(work.is_tuned),
        float(work.is_tuned and mean_tile < _PLAIN_TILE),
    )


def _parts(terms: tuple[Numbers, ...], c: Coefficients) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    products, phases, tile, blocks, dram, fetched, shared, clock, dram_rate, _, _ = terms
    math_cycles = _CYCLES_OF_A_PASS * phases + c["issue_cycles"]
    cycles = ((math_cycles**6) + (c["unpack_cycles_per_kib"] * tile / 1024) ** 6) ** (1 / 6)
    compute = (products * cycles + blocks * c["block_cycles"]) / clock
    memory = dram / (dram_rate * 1e9 * c["dram_share"])
    noc = fetched * (c["fetch_cycles"] + tile / c["noc_bytes_per_cycle"]) / clock
    reader = shared / (c["reader_bytes_per_cycle"] * clock)
    return compute, memory, noc, reader


def _seconds(terms: tuple[Numbers, ...], c: Coefficients) -> Numbers:
    run = c["start_us"] * 1e-6 + larger(*_parts(terms, c))
    if "call_us" not in c:
        return run
    *_, configs, blocks = terms
    return larger(run, (c["call_us"] + configs * c["config_us"] + blocks * c["format_us"]) * 1e-6, sharpness=6.0)


def _is_untraced(key: str) -> bool:
    return " untraced " in key


def _starting(key: str) -> dict[str, float]:
    wormhole = key.startswith("wormhole")
    host = {"call_us": 30.0, "config_us": 40.0, "format_us": 30.0} if _is_untraced(key) else {}
    return host | {
        "start_us": 4.0 if wormhole else 7.0,
        "issue_cycles": 1.5,
        "unpack_cycles_per_kib": 21.0 if wormhole else 10.0,
        "block_cycles": 15.0,
        "dram_share": 0.9,
        "fetch_cycles": 45.0,
        "noc_bytes_per_cycle": 25.0 if wormhole else 60.0,
        "reader_bytes_per_cycle": 12.0,
    }


def _bound(terms: tuple[float, ...], c: Coefficients) -> Bound:
    compute, memory, noc, reader = _parts(terms, c)
    start = c["start_us"] * 1e-6
    return largest(
        {Bound.COMPUTE: compute, Bound.DRAM: memory, Bound.NOC: max(float(noc), float(reader)), Bound.DISPATCH: start}
    )


def _position(work: Product) -> tuple[float, ...]:
    split = split_of(work)
    return (
        math.log2(split.rows),
        math.log2(split.columns),
        math.log2(work.k),
        math.log2((work.in0_tile + work.in1_tile) / 2),
        float(work.phases),
        float(work.in0_in_l1),
        float(work.in1_in_l1),
        float(work.is_tuned),
        float(bool(split.shared_tiles)),
        math.log2(math.prod(work.grid)),
    )


PRODUCT = Law(
    name="product",
    key=lambda work: work.chip.arch_name if work.clock == "device" else f"{work.chip.arch_name} {work.clock} calls",
    starting=_starting,
    terms=_terms,
    seconds=_seconds,
    position=_position,
    reach=(2.0, 2.0, 3.0, 1.5, 2.0, 1.5, 0.3, 1.5, 0.5, 3.0),
    doubt=0.09,
    noise=0.02,
    bound=_bound,
)
# The host's work for a call takes up to twice as long from one repetition to the next.
CALL = replace(PRODUCT, name="call", noise=0.15)
