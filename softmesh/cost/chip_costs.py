"""Seconds of one op on one chip: the larger of its arithmetic and its memory traffic, and a launch.

Constants are those of the vendors' own reports: large products reach about 85 % of the matrix engine's
peak, DRAM about 90 % of its data sheet, and a launch costs 2 us where it is traced.
"""

from __future__ import annotations

import math

from softmesh.systems.chip import Chip

LAUNCH = 2e-6
_TILE = 32
_FLOPS_PER_CYCLE_LOFI = 4096  # of one core: an 8x16 by 16x16 product
_PHASES = 2  # HiFi2, which TT-NN recommends for bfloat16 and bfloat8_b
_MATRIX_SHARE = 0.85
_DRAM_SHARE = 0.9
_VECTOR_PER_CYCLE = 128  # element-wise results of one core's matrix engine


def matmul_seconds(chip: Chip, batch: int, m: int, k: int, n: int, moved_bytes: int) -> float:
    """`moved_bytes`: operands and result, each once. Extents count in whole tiles."""
    tiles = math.prod(-(-extent // _TILE) * _TILE for extent in (m, k, n))
    rate = _cores(chip) * chip.clock_ghz * 1e9 * _FLOPS_PER_CYCLE_LOFI / _PHASES * _MATRIX_SHARE
    return max(2 * batch * tiles / rate, memory_seconds(chip, moved_bytes)) + LAUNCH


def elementwise_seconds(chip: Chip, elements: int, moved_bytes: int) -> float:
    rate = _cores(chip) * chip.clock_ghz * 1e9 * _VECTOR_PER_CYCLE
    return max(elements / rate, memory_seconds(chip, moved_bytes)) + LAUNCH


def memory_seconds(chip: Chip, moved_bytes: int) -> float:
    return moved_bytes / (chip.dram_gb_per_s * 1e9 * _DRAM_SHARE)


def copy_seconds(chip: Chip, size: int) -> float:
    """A copy of `size` bytes within the chip's memory: read, and written."""
    return memory_seconds(chip, 2 * size) + LAUNCH


def memory_bytes(chip: Chip) -> int:
    """What tensors may take of the DRAM of one chip."""
    return chip.dram_banks * (chip.dram_bank_bytes - chip.dram_reserved_bytes)


def _cores(chip: Chip) -> int:
    columns, rows = chip.grid()
    return columns * rows
