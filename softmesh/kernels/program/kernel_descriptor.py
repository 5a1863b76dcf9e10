"""KernelDescriptor, as TT-NN has it: a kernel's function, cores, runtime arguments by core, and config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from softmesh.arguments import ShowsFields, checked_list, described, refused
from softmesh.cores import CoreCoord, CoreRangeSet, corerange_to_cores
from softmesh.hardware import NOC, DataMovementProcessor, MathFidelity
from softmesh.hardware.enums import NativeEnum
from softmesh.kernels.program.kernel import NOC_MODE, KernelBuildOptLevel, checked_words


class ReaderConfigDescriptor(ShowsFields):
    """A data movement kernel on NCRISC, which reads."""


class WriterConfigDescriptor(ShowsFields):
    """A data movement kernel on BRISC, which writes."""


@dataclass
class DataMovementConfigDescriptor:
    processor: DataMovementProcessor = DataMovementProcessor.RISCV_0
    noc: NOC = NOC.RISCV_0_default
    noc_mode: NOC_MODE = NOC_MODE.DM_DEDICATED_NOC


@dataclass
class ComputeConfigDescriptor:
    math_fidelity: MathFidelity = MathFidelity.HiFi4
    math_approx_mode: bool = False
    fp32_dest_acc_en: bool = False
    dst_full_sync_en: bool = False
    bfp8_pack_precise: bool = False
    unpack_to_dest_mode: Sequence[object] = ()
    enable_trisc2_rvv: bool = False


ConfigDescriptor = (
    ReaderConfigDescriptor | WriterConfigDescriptor | DataMovementConfigDescriptor | ComputeConfigDescriptor
)


class RuntimeArgsColProxy:
    """One column of cores: `args[x][y] = [...]`."""

    def __init__(self, args: RuntimeArgs, x: int) -> None:
        self._args = args
        self._x = x

    def __repr__(self) -> str:
        return f"RuntimeArgsColProxy(x={self._x})"

    def __getitem__(self, y: int) -> list[int]:
        return self._args.words.setdefault(CoreCoord(self._x, y), [])

    def __setitem__(self, y: int, values: Iterable[int]) -> None:
        self._args.words[CoreCoord(self._x, y)] = checked_words("RuntimeArgs", "values", values)

    def append(self, y: int, value: int) -> None:
        self[y].extend(checked_words("RuntimeArgs", "value", [value]))

    def extend(self, y: int, values: Iterable[int]) -> None:
        self[y].extend(checked_words("RuntimeArgs", "values", values))


class RuntimeArgs(ShowsFields):
    """The runtime arguments of a kernel, by core: `args[x][y] = [words]`."""

    def __init__(self) -> None:
        self.words: dict[CoreCoord, list[int]] = {}

    def __getitem__(self, x: int) -> RuntimeArgsColProxy:
        return RuntimeArgsColProxy(self, x)

    def __iter__(self) -> Iterator[tuple[CoreCoord, list[int]]]:
        return iter(self.words.items())

    def __len__(self) -> int:
        return len(self.words)

    def append(self, coord: CoreCoord, values: Iterable[int]) -> None:
        self.words[CoreCoord.of(coord)] = checked_words("RuntimeArgs", "values", values)

    def get(self, idx: int) -> tuple[CoreCoord, list[int]]:
        return self.to_list()[idx]

    def to_list(self) -> list[tuple[CoreCoord, list[int]]]:
        return list(self.words.items())

    def clear(self) -> None:
        self.words.clear()

    @classmethod
    def of(cls, given: object) -> RuntimeArgs:
        """Itself, a list of (core, words), or words nested by x and y."""
        if isinstance(given, RuntimeArgs):
            return given
        made = cls()
        if not isinstance(given, Sequence):
            raise refused("KernelDescriptor", f"runtime_args must be a ttnn.RuntimeArgs, got {described(given)}")
        for x, item in enumerate(given):
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], CoreCoord):
                made.append(*item)
            else:
                for y, words in enumerate(checked_list("KernelDescriptor", f"runtime_args[{x}]", item, "lists")):
                    made[x][y] = words
        return made


class KernelSourceType(NativeEnum):
    """Where C++ source comes from; a Python function needs none."""

    FILE_PATH = 0
    SOURCE_CODE = 1


class KernelDescriptor(ShowsFields):
    """`kernel_source` is a Python function of no arguments; see docs/kernels.md for what it may call."""

    SourceType = KernelSourceType

    def __init__(
        self,
        kernel_source: Any = None,
        source_type: KernelSourceType = KernelSourceType.FILE_PATH,
        core_ranges: CoreRangeSet | None = None,
        compile_time_args: Iterable[int] = (),
        named_compile_time_args: Iterable[tuple[str, int]] = (),
        defines: Iterable[tuple[str, str]] = (),
        runtime_args: object = (),
        common_runtime_args: Iterable[int] = (),
        opt_level: KernelBuildOptLevel | None = None,
        config: ConfigDescriptor | None = None,
        compiler_include_paths: Sequence[object] = (),
        *,
        blaze_named_compile_time_args: Iterable[tuple[str, int]] = (),
    ) -> None:
        self.kernel_source = kernel_source
        self.source_type = source_type
        self.core_ranges = CoreRangeSet([]) if core_ranges is None else core_ranges
        where = "KernelDescriptor"
        named = checked_list(where, "named_compile_time_args", named_compile_time_args, "(name, number)")
        more = checked_list(where, "blaze_named_compile_time_args", blaze_named_compile_time_args, "(name, number)")
        self.compile_time_args: list[int] = checked_list(where, "compile_time_args", compile_time_args, "ints")
        self.named_compile_time_args: list[tuple[str, int]] = [*named, *more]
        self.defines: list[tuple[str, str]] = checked_list(where, "defines", defines, "(name, text)")
        self.runtime_args = runtime_args
        self.common_runtime_args: list[int] = checked_list(where, "common_runtime_args", common_runtime_args, "ints")
        self.opt_level = opt_level
        self.config = config
        self.compiler_include_paths = checked_list(where, "compiler_include_paths", compiler_include_paths, "paths")

    @property
    def runtime_args(self) -> RuntimeArgs:
        return self._runtime_args

    @runtime_args.setter
    def runtime_args(self, given: object) -> None:
        self._runtime_args = RuntimeArgs.of(given)

    def append_runtime_args_from(self, other: KernelDescriptor) -> None:
        for core, words in other.runtime_args:
            self.runtime_args[core.x].extend(core.y, words)

    def append_common_runtime_args_from(self, other: KernelDescriptor) -> None:
        self.common_runtime_args += other.common_runtime_args

    def extend_runtime_args_uniform(self, values: Iterable[int]) -> None:
        """The same words behind those of every core."""
        words = list(values)
        for core in corerange_to_cores(self.core_ranges):
            self.runtime_args[core.x].extend(core.y, words)

    def clear_runtime_args(self) -> None:
        self.runtime_args.clear()
