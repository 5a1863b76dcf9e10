"""Figures of one chip that planners ask for beside the price of ops: copies, launches, and room for tensors."""

from __future__ import annotations

import math
from functools import lru_cache

from softmesh.cost.calibration_files import default_calibration
from softmesh.cost.workloads import Movement, Product, cores_of
from softmesh.systems.chip import Chip

_PAGE = 2048


@lru_cache(maxsize=64)
def launch_seconds(chip: Chip) -> float:
    """What a host that records no trace takes for an op more than the device: small products tell, timed by both."""
    small = Product(chip, 16, 16, 16, _PAGE, _PAGE, _PAGE, 2, chip.grid())
    calibration = default_calibration()
    by_host, by_device = (calibration.estimate(small._replace(clock=clock)).seconds for clock in ("untraced", "device"))
    return max(by_host - by_device, 0.0)


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
