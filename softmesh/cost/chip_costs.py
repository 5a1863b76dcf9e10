"""Figures of one chip that planners ask for beside the price of ops: copies, and room for tensors."""

from __future__ import annotations

import math

from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.workloads import Movement, cores_of
from softmesh.systems.chip import Chip

_PAGE = 2048


def copy_seconds(chip: Chip, size: int, *, read: int = 0, in_l1: bool = False) -> float:
    """Seconds in which `size` bytes are written within the chip's memory, and as many or so many more read."""
    read = max(read, size)
    work = Movement("copy", chip, read, size, in_l1, -(-read // _PAGE), cores_of(chip))
    return default_calibration().estimate(work).seconds


def l1_bytes(chip: Chip) -> int:
    """Return the L1 bytes of one chip that tensors may take: half, for running ops need circular buffers."""
    return math.prod(chip.grid()) * (chip.l1_bytes - chip.l1_base) // 2


def memory_bytes(chip: Chip) -> int:
    """What tensors may take of the DRAM of one chip."""
    return chip.dram_banks * (chip.dram_bank_bytes - chip.dram_reserved_bytes)
