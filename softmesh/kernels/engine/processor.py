"""The RISC-V processors of a core that run kernels; the three of compute count as one."""

from __future__ import annotations

from enum import Enum


class Processor(Enum):
    BRISC = "RISCV_0"
    NCRISC = "RISCV_1"
    TRISC = "compute"
