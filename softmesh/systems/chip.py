"""What one chip is, as far as programs can ask: architecture, core grids, SFPU constants."""

from __future__ import annotations

from typing import NamedTuple

from softmesh.hardware import Arch


class Chip(NamedTuple):
    arch: Arch
    arch_name: str
    worker_grid: tuple[int, int]  # columns, rows that programs may use
    dram_grid: tuple[int, int]
    first_worker: tuple[int, int]  # virtual coordinate of logical worker core 0-0
    sfpu_eps: float
    sfpu_nan: float
    sfpu_inf: float


WORMHOLE = Chip(Arch.WORMHOLE_B0, "wormhole_b0", (8, 8), (12, 1), (18, 18), 1.19209e-07, 7.004e19, 1.7014e38)
