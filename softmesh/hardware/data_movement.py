"""Chips, and who moves data on them: architectures, networks on chip, baby RISC-V processors."""

from __future__ import annotations

from softmesh.native_enum import NativeEnum


class Arch(NativeEnum):
    WORMHOLE_B0 = 2
    BLACKHOLE = 3
    QUASAR = 4


class NOC(NativeEnum):
    """The two networks on chip, by the processor that uses each by default."""

    RISCV_0_default = 0
    RISCV_1_default = 1
    NOC_0 = 0
    NOC_1 = 1


class DataMovementProcessor(NativeEnum):
    """The processors of a core that run reader and writer kernels."""

    RISCV_0 = 0
    RISCV_1 = 1
    RISCV_2 = 2
    RISCV_3 = 3
    RISCV_4 = 4
    RISCV_5 = 5
    RISCV_6 = 6
    RISCV_7 = 7


class TileReshapeMapMode(NativeEnum):
    """Whether a tiled reshape keeps its map of moved elements for the next call."""

    CACHE = 0
    RECREATE = 1


class DumpTensorMode(NativeEnum):
    """Whether a tensor file gathers the shards of every rank, or holds those of this rank only."""

    DISTRIBUTED_GATHER = 0
    LOCAL = 1
