"""A kernel of a program: a plain function, the cores it runs on, how, and with which arguments."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable

from softmesh.arguments import described, refused
from softmesh.callsite import CallSite
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError, NotModelled
from softmesh.kernels.program.configs import KernelConfig
from softmesh.kernels.program.words import MOST_WORDS, RuntimeArgsData

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

    def copy(self) -> Kernel:
        made = Kernel(self.function, self.cores, self.config)
        made.args = {core: RuntimeArgsData(words) for core, words in self.args.items()}
        made.common_args = RuntimeArgsData(self.common_args)
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
