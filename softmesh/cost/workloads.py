"""Workloads: what a command asks of a chip, as plain values that the laws read.

A workload is made from a call of an op or from a row of a measurement table, so that the law that is held
against measurements is the one that prices programs. Extents of products count tiles; sizes are bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from softmesh.systems.chip import Chip

TILE = 32
TILE_BYTES = {
    "float32": 4096,
    "uint32": 4096,
    "int32": 4096,
    "bfloat16": 2048,
    "uint16": 2048,
    "float16": 2048,
    "bfloat8_b": 1088,
    "fp8_e4m3": 1024,
    "uint8": 1024,
    "bfloat4_b": 576,
}


class Exchange(NamedTuple):
    """A collective over `devices` chips in a row, or in a ring.

    `size` is the whole tensor: what all_gather returns, what each device holds before any of the others.
    """

    op: str
    chip: Chip
    devices: int
    links: int
    is_ring: bool
    size: int
    packet: int = 0  # payload of a fabric packet; 0: the one that the chip's tables were measured with
    is_2d: bool = False  # routed by a two-dimensional fabric
    in_l1: bool = False  # its operands are sharded over L1 and its buffers persistent, as in decode


class Product(NamedTuple):
    """A matrix product of `batch` x (m x k by k x n) tiles on a grid of cores."""

    chip: Chip
    m: int
    k: int
    n: int
    in0_tile: int  # bytes of one tile of each operand and of the result
    in1_tile: int
    out_tile: int
    phases: int  # passes of the multiplier: 1 for LoFi .. 4 for HiFi4
    grid: tuple[int, int]  # columns, rows
    batch: int = 1
    in1_count: int = 1  # of the batch's right-hand operands that differ
    in0_in_l1: bool = False
    in1_in_l1: bool = False
    out_in_l1: bool = False
    is_tuned: bool = False  # a program config was given
    clock: str = "device"  # what the time is of: the device, or the host's calls, "traced" or "untraced"
    height_cores: int = 0  # over so many cores the rows are sharded, each with all of in1; 0: not so
    in1_interleaved: bool = False  # read tile by tile from all DRAM banks, for a single row of tiles
    in1_by_bank: bool = False  # its columns are sharded over the DRAM banks, and the core beside each bank makes them


def dram_bytes(work: Product) -> int:
    """Bytes of operands and result outside of L1, each once."""
    in0 = 0 if work.in0_in_l1 else work.batch * work.m * work.k * work.in0_tile
    in1 = 0 if work.in1_in_l1 else work.in1_count * work.k * work.n * work.in1_tile
    return in0 + in1 + (0 if work.out_in_l1 else work.batch * work.m * work.n * work.out_tile)


class Elements(NamedTuple):
    """A function of the vector or matrix unit over tiles: element-wise, reductions, norms, softmax."""

    function: str
    chip: Chip
    tiles: int
    dtype: str
    read: int
    written: int
    in_l1: bool
    cores: int
    steps: float = 1.0  # elementary functions in a row
    moves: float = 0.0  # share of the runs whose result lies in the other memory than the operands


class Movement(NamedTuple):
    """Bytes that are read, put in another order and written, on one chip."""

    kind: str
    chip: Chip
    read: int
    written: int
    in_l1: bool
    pages: int
    cores: int


class HostTransfer(NamedTuple):
    """Bytes between the host and one chip, page by page."""

    is_write: bool
    chip: Chip
    size: int
    page: int
    in_l1: bool = False
    is_sharded: bool = False
    is_pinned: bool = False
    is_remote: bool = False  # the chip hangs behind another one
    has_iommu: bool = False


class Dispatch(NamedTuple):
    """A program that is launched: what of it the dispatcher must write to the cores."""

    chip: Chip
    processors: int = 5
    all_cores: bool = True
    runtime_args: int = 0
    common_args: int = 0
    buffers: int = 0
    semaphores: int = 0
    groups: int = 1
    kernel_bytes: int = 0
    run_us: float = 0.0  # what the kernels themselves take


class TypicalOp(NamedTuple):
    """An op of which no more than its kind is known, or the gap before the next op."""

    kind: str
    chip: Chip
    phase: str = "decode"


class Chain(NamedTuple):
    """Workloads that run as one op: one after the other, or (`overlaps`) at the same time in one kernel."""

    name: str
    parts: tuple[Exchange | Product | Elements | Movement | HostTransfer | Dispatch | TypicalOp, ...]
    overlaps: bool = False
    doubt: float = 1.0  # the factor by which what nobody tells of it may change its time


Workload = Exchange | Product | Elements | Movement | HostTransfer | Dispatch | TypicalOp | Chain


def convolution(product: Product) -> Chain:
    """The product that a convolution is computed as, and beside it the windows, gathered row by row within L1."""
    size = product.batch * product.m * product.k * product.in0_tile
    pages = product.batch * product.m * TILE // 3  # neighbouring pixels of a window's row lie together
    windows = Movement("windows", product.chip, size, size, True, pages, math.prod(product.grid))
    return Chain("convolution", (windows, product), overlaps=True)


def attention(
    chip: Chip, heads: int, rows: int, dim: int, length: int, tile: int, kv_tile: int, is_causal: bool
) -> Chain:
    """Scores, their softmax and the weighted sum of values, held in L1; keys and values come from DRAM.

    `heads` of all users, `rows` of tiles of each, `dim` and `length` in elements; half of it where it is causal.
    """
    deep, columns = -(-dim // TILE), -(-length // TILE)
    if is_causal:
        columns = -(-columns // 2)
    first = Product(
        chip,
        rows,
        deep,
        columns,
        tile,
        kv_tile,
        tile,
        2,
        chip.grid(),
        heads,
        heads,
        in0_in_l1=True,
        out_in_l1=True,
        is_tuned=True,
    )
    softmax = Elements("softmax", chip, heads * rows * columns, "bfloat16", 0, 0, True, cores_of(chip), 0.25)
    return Chain("attention", (first, softmax, first._replace(k=columns, n=deep)))


def tiles_of(rows: int, columns: int) -> int:
    """Whole tiles that a matrix takes.

    >>> tiles_of(33, 64)
    4
    """
    return -(-rows // TILE) * -(-columns // TILE)


def cores_of(chip: Chip) -> int:
    return math.prod(chip.grid())
