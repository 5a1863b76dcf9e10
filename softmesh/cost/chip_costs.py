"""Seconds of one op on one chip from plain numbers: what planners ask before there is a command to price."""

from __future__ import annotations

import math
from functools import lru_cache

from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.laws.elements import STEP
from softmesh.cost.workloads import TILE, Elements, Movement, Product, cores_of
from softmesh.systems.chip import Chip

_TILE_ELEMENTS = TILE * TILE
_SIZES = ((576, "bfloat4_b", 1), (1088, "bfloat8_b", 1), (2048, "bfloat16", 2), (4096, "float32", 4))
_PAGE = 2048


@lru_cache(maxsize=64)
def launch_seconds(chip: Chip) -> float:
    """What a host that records no trace takes for an op more than the device: small products tell, timed by both."""
    small = Product(chip, 16, 16, 16, _PAGE, _PAGE, _PAGE, 2, chip.grid())
    calibration = default_calibration()
    by_host, by_device = (calibration.estimate(small._replace(clock=clock)).seconds for clock in ("untraced", "device"))
    return max(by_host - by_device, 0.0)


def matmul_seconds(chip: Chip, batch: int, m: int, k: int, n: int, moved_bytes: int) -> float:
    """`moved_bytes`: operands and result, each once; 0 where all of them are in L1. Extents count in whole tiles."""
    there = moved_bytes == 0
    elements = batch * (m * k + m * n) + k * n
    tile, _, phases = _of_size(_TILE_ELEMENTS * moved_bytes / max(elements, 1)) if moved_bytes else _SIZES[2]
    work = Product(
        chip,
        -(-m // TILE),
        -(-k // TILE),
        -(-n // TILE),
        tile,
        tile,
        tile,
        phases,
        chip.grid(),
        batch,
        in0_in_l1=there,
        in1_in_l1=there,
        out_in_l1=there,
        is_tuned=True,
    )
    return default_calibration().estimate(work).seconds


def _of_size(tile_bytes: float) -> tuple[int, str, int]:
    """The dtype whose tiles come nearest."""
    return min(_SIZES, key=lambda size: abs(size[0] - tile_bytes))


def elementwise_seconds(chip: Chip, steps: int, moved_bytes: int) -> float:
    """`steps` elementary operations in all, over operands and results of `moved_bytes`."""
    tiles = -(-moved_bytes // (2 * _PAGE))
    each = max(steps / max(tiles * _TILE_ELEMENTS, 1), 1.0)
    half = moved_bytes // 2
    work = Elements("elementwise", chip, tiles, "bfloat16", half, half, False, cores_of(chip), each * STEP)
    return default_calibration().estimate(work).seconds


def copy_seconds(chip: Chip, size: int, *, in_l1: bool = False) -> float:
    """A copy of `size` bytes within the chip's memory: read, and written."""
    work = Movement("copy", chip, size, size, in_l1, -(-size // _PAGE), cores_of(chip))
    return default_calibration().estimate(work).seconds


def l1_bytes(chip: Chip) -> int:
    """Return the L1 bytes of one chip that tensors may take: half, for running ops need circular buffers."""
    return math.prod(chip.grid()) * (chip.l1_bytes - chip.l1_base) // 2


def memory_bytes(chip: Chip) -> int:
    """What tensors may take of the DRAM of one chip."""
    return chip.dram_banks * (chip.dram_bank_bytes - chip.dram_reserved_bytes)
