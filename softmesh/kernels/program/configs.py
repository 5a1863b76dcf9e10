"""How a kernel runs: on which processor of its cores, and with which compile-time arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from softmesh.arguments import checked, refused
from softmesh.hardware import NOC, DataMovementProcessor, MathFidelity
from softmesh.kernels.engine.processor import Processor
from softmesh.kernels.program.words import checked_words
from softmesh.native_enum import NativeEnum


class NOC_MODE(NativeEnum):
    """Whether each data movement processor keeps to its own NoC."""

    DM_DEDICATED_NOC = 0
    DM_DYNAMIC_NOC = 1


class KernelBuildOptLevel(NativeEnum):
    """How hard a compiler should try. Nothing is compiled here."""

    O1 = 0
    O2 = 1
    O3 = 2
    O0 = 3
    Os = 4
    Ofast = 5
    Oz = 6


@dataclass
class _KernelConfig:
    compile_args: Sequence[int] = ()
    named_compile_args: Mapping[str, int] = field(default_factory=dict)
    defines: Mapping[str, str] = field(default_factory=dict)
    opt_level: KernelBuildOptLevel = KernelBuildOptLevel.O2

    def __post_init__(self) -> None:
        where = type(self).__name__
        self.compile_args = tuple(checked_words(where, "compile_args", self.compile_args))
        self.named_compile_args = dict(self.named_compile_args)
        checked_words(where, "named_compile_args", self.named_compile_args.values())
        self.defines = dict(self.defines)

    @property
    def chosen_processor(self) -> Processor:
        raise NotImplementedError


@dataclass
class DataMovementConfig(_KernelConfig):
    """A kernel that moves data: on BRISC (RISCV_0) or NCRISC (RISCV_1)."""

    processor: DataMovementProcessor = DataMovementProcessor.RISCV_0
    noc: NOC = NOC.RISCV_0_default
    noc_mode: NOC_MODE = NOC_MODE.DM_DEDICATED_NOC

    def __post_init__(self) -> None:
        super().__post_init__()
        where = type(self).__name__
        checked(where, "processor", self.processor, DataMovementProcessor, "a ttnn.DataMovementProcessor")
        checked(where, "noc", self.noc, NOC, "a ttnn.NOC")
        checked(where, "noc_mode", self.noc_mode, NOC_MODE, "a NOC_MODE")
        if self.processor not in _PROCESSORS:
            raise refused(where, f"a core has RISCV_0 and RISCV_1 to move data with, not {self.processor}")

    @property
    def chosen_processor(self) -> Processor:
        return _PROCESSORS[self.processor]


_PROCESSORS = {
    DataMovementProcessor.RISCV_0: Processor.BRISC,
    DataMovementProcessor.RISCV_1: Processor.NCRISC,
}


@dataclass
class ReaderDataMovementConfig(DataMovementConfig):
    """NCRISC, on the NoC that DRAM is read over."""

    processor: DataMovementProcessor = DataMovementProcessor.RISCV_1
    noc: NOC = NOC.RISCV_0_default


@dataclass
class WriterDataMovementConfig(DataMovementConfig):
    """BRISC, on the NoC that DRAM is written over."""

    processor: DataMovementProcessor = DataMovementProcessor.RISCV_0
    noc: NOC = NOC.RISCV_1_default


@dataclass
class ComputeConfig(_KernelConfig):
    """A kernel that computes. The fidelity and the modes of rounding are taken and change no value.

    `fp32_dest_acc_en` and `dst_full_sync_en` decide how many tiles fit the registers.
    """

    math_fidelity: MathFidelity = MathFidelity.HiFi4
    fp32_dest_acc_en: bool = False
    dst_full_sync_en: bool = False
    unpack_to_dest_mode: Sequence[object] = ()
    bfp8_pack_precise: bool = False
    math_approx_mode: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checked("ComputeConfig", "math_fidelity", self.math_fidelity, MathFidelity, "a ttnn.MathFidelity")

    @property
    def chosen_processor(self) -> Processor:
        return Processor.TRISC


KernelConfig = DataMovementConfig | ComputeConfig
