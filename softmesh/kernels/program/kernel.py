"""A kernel of a program: its function, cores and processor config, and its runtime and compile-time arguments.

Arguments are 32-bit words, checked when they are given.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import CellType
from typing import Any

from softmesh.arguments import checked, checked_int, checked_ints, described, refused
from softmesh.callsite import CallSite
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware import NOC, DataMovementProcessor, MathFidelity
from softmesh.hardware.enums import NativeEnum
from softmesh.runtime.memory.pool import next_number

MOST_WORDS = 341  # what every kernel may have in all, its own and the common ones together


def checked_words(where: str, name: str, values: Iterable[int]) -> list[int]:
    words = checked_ints(where, name, values)
    for i, word in enumerate(words):
        _check(where, f"{name}[{i}]", word)
    return words


def _check(where: str, name: str, word: int) -> int:
    if not 0 <= word < 2**32:
        raise refused(where, f"{name} must fit 32 bits, 0 to {2**32 - 1}, got {word}; value & 0xFFFFFFFF makes it fit")
    return word


class RuntimeArgsData(list[int]):
    """The arguments of a kernel on one core, or those that all share. Words may be set; their number stays.

    What was allocated after they were `set_at` has a higher number.
    """

    def __init__(self, words: Iterable[int] = ()) -> None:
        super().__init__(words)
        self.set_at = next_number()

    def __setitem__(self, index: Any, value: Any) -> None:
        self.set_at = next_number()
        if isinstance(index, slice):
            words = checked_words("RuntimeArgsData", "words", value)
            if len(words) != len(self[index]):
                raise MeshError(_fixed(len(self)))
            super().__setitem__(index, words)
        else:
            word = checked_int("RuntimeArgsData", f"[{index}]", value)
            super().__setitem__(index, _check("RuntimeArgsData", f"[{index}]", word))

    def replace(self, words: Sequence[int]) -> None:
        if len(words) != len(self):
            raise MeshError(_fixed(len(self), len(words)))
        self.set_at = next_number()
        super().__setitem__(slice(None), words)

    def _refuse(self, *_: object, **__: object) -> None:
        raise MeshError(_fixed(len(self)))

    append = extend = insert = pop = remove = clear = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]


def _fixed(have: int, given: int | None = None) -> str:
    got = "" if given is None else f", not {given}"
    return (
        f"Number of runtime args must not change: this kernel was given {have} first{got}. Give as many again, or make "
        "another program."
    )


class Processor(Enum):
    BRISC = "RISCV_0"
    NCRISC = "RISCV_1"
    TRISC = "compute"


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


Cores = CoreCoord | CoreRange | CoreRangeSet
Function = Callable[[], None]


class Kernel:
    def __init__(self, function: Function, cores: CoreRangeSet, config: KernelConfig) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.cores = cores
        self.places = corerange_to_cores(cores)
        self.config = config
        self.args: dict[CoreCoord, RuntimeArgsData] = {}
        self.common_args = RuntimeArgsData()
        self.processor = config.chosen_processor
        self.made_at = next_number()
        self.is_frozen = False  # as a part of a trace, whose memory has rules of its own

    def words(self) -> Iterator[tuple[int, Sequence[object]]]:
        """The numbers that it was given, those in the closure of its function among them, each with when."""
        cells = getattr(self.function, "__closure__", None) or ()
        captured = [cell.cell_contents for cell in cells if type(_contents(cell)) is int]
        yield self.made_at, [*self.config.compile_args, *self.config.named_compile_args.values(), *captured]
        for data in (*self.args.values(), self.common_args):
            yield data.set_at, data

    def copy(self) -> Kernel:
        made = Kernel(self.function, self.cores, self.config)
        made.args = {core: RuntimeArgsData(words) for core, words in self.args.items()}
        made.common_args = RuntimeArgsData(self.common_args)
        made.is_frozen = True
        return made

    @property
    def site(self) -> CallSite:
        """Where the function begins."""
        code = getattr(self.function, "__code__", None)
        if code is None:
            return CallSite("?", 0, self.name)
        return CallSite(code.co_filename, code.co_firstlineno, self.name)

    def set_args(self, cores: Iterable[CoreCoord], words: list[int]) -> None:
        for core in cores:
            if not self.cores.contains(core):
                raise MeshError(
                    f"Cannot set runtime args for kernel {self.name} on core {core}: it is not placed on that core. "
                    f"It runs on {self.cores}."
                )
            self._check_count(len(words) + len(self.common_args), core)
            if core in self.args:
                self.args[core].replace(words)
            else:
                self.args[core] = RuntimeArgsData(words)

    def set_common_args(self, words: list[int]) -> None:
        longest = max(map(len, self.args.values()), default=0)
        self._check_count(len(words) + longest, self.cores)
        if self.common_args:
            self.common_args.replace(words)
        else:
            self.common_args = RuntimeArgsData(words)

    def _check_count(self, count: int, where: object) -> None:
        if count > MOST_WORDS:
            raise MeshError(
                f"{count} unique+common runtime args targeting kernel {self.name} on {where} are too large. Max "
                f"allowable is {MOST_WORDS}: put the rest into a buffer and read it over the NoC."
            )


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return None


def checked_function(where: str, given: object) -> Function:
    """A kernel is a Python function; its C++ source cannot be run here."""
    if isinstance(given, str | os.PathLike):
        shown = str(given) if len(str(given)) <= 60 and "\n" not in str(given) else "C++ source"
        raise NotModelled(
            f"{where}: {shown!r} is a kernel in C++, which softmesh does not compile. Give a Python function of no "
            "arguments that makes the same calls: from softmesh.kernels import * (docs/kernels.md)."
        )
    if not callable(given):
        raise refused(where, f"a kernel is a Python function of no arguments, got {described(given)}")
    try:
        inspect.signature(given).bind()
    except TypeError as error:
        raise refused(
            where, f"a kernel is called without arguments ({error}): it asks for its own with get_arg_val(i)"
        ) from None
    return given


def checked_cores(where: str, cores: object) -> CoreRangeSet:
    """A core, a range, or a set of ranges, as a set."""
    if isinstance(cores, tuple):
        cores = CoreCoord.of(cores)
    if isinstance(cores, CoreCoord):
        cores = CoreRange(cores, cores)
    if isinstance(cores, CoreRange):
        cores = CoreRangeSet([cores])
    if not isinstance(cores, CoreRangeSet):
        raise refused(where, f"cores are a CoreCoord, a CoreRange or a CoreRangeSet, got {described(cores)}")
    return cores
