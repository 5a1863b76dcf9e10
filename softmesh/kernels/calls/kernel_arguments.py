"""Kernel arguments: runtime and compile-time values, the kernel's core coordinates, and C++ template parameters.

A call that C++ writes with `<...>` takes what stands there in brackets, `reduce_tile[SUM, REDUCE_ROW](...)`, or as
keyword arguments; where the parameter has a default, neither is needed.
"""

from __future__ import annotations

import functools
import inspect
import struct
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from softmesh.errors import ArgumentError, MeshError, did_you_mean
from softmesh.kernels.engine.scheduler import KernelThread, here

P = ParamSpec("P")
R = TypeVar("R")


class Templated(Generic[P, R]):
    """A function whose keyword-only arguments may be given in brackets, in their order."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        self._names = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<{self._function.__name__}[{', '.join(self._names)}], a call of kernels>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __getitem__(self, given: Any) -> Callable[..., R]:
        values = given if isinstance(given, tuple) else (given,)
        if len(values) > len(self._names):
            raise ArgumentError(
                f"{self._function.__name__}[...]: it has the template parameters {', '.join(self._names)}, got "
                f"{len(values)}."
            )
        return functools.partial(self._function, **dict(zip(self._names, values, strict=False)))


def templated(function: Callable[P, R]) -> Templated[P, R]:
    return Templated(function)


class uint32_t(int):
    """A 32-bit word as it is; also `uint32_t(-1)`, which wraps."""

    def __new__(cls, value: int) -> uint32_t:
        return super().__new__(cls, value & 0xFFFFFFFF)


class int32_t(int):
    """A 32-bit word read as a signed number."""

    def __new__(cls, value: int) -> int32_t:
        return super().__new__(cls, (value + 2**31) % 2**32 - 2**31)


class float32(float):
    """A 32-bit word read as the bits of a float, as C++'s `get_arg_val<float>` does."""

    def __new__(cls, word: int) -> float32:
        return super().__new__(cls, struct.unpack("<f", struct.pack("<I", word & 0xFFFFFFFF))[0])


def float_bits(value: float) -> int:
    """The 32-bit word that holds a float: how a scalar travels in an argument."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


@templated
def get_arg_val(arg_idx: int, *, type: type = int) -> Any:
    """A runtime argument of this core."""
    thread = here("get_arg_val")
    return type(_word("get_arg_val", thread, thread.args, arg_idx, "runtime arguments on this core"))


@templated
def get_common_arg_val(arg_idx: int, *, type: type = int) -> Any:
    """A runtime argument that all cores share."""
    thread = here("get_common_arg_val")
    words = thread.kernel.common_args
    return type(_word("get_common_arg_val", thread, words, arg_idx, "common runtime arguments"))


@templated
def get_compile_time_arg_val(arg_idx: int, *, type: type = int) -> Any:
    thread = here("get_compile_time_arg_val")
    words = thread.kernel.config.compile_args
    return type(_word("get_compile_time_arg_val", thread, words, arg_idx, "compile-time arguments"))


def get_named_compile_time_arg_val(name: str) -> int:
    kernel = here("get_named_compile_time_arg_val").kernel
    known = kernel.config.named_compile_args
    if name not in known:
        raise MeshError(
            f"get_named_compile_time_arg_val({name!r}): {kernel.name} has no compile-time argument of that name."
            + did_you_mean(name, known)
        )
    return known[name]


def get_define(name: str, default: str | None = None) -> str | None:
    """A macro from the kernel's `defines`; the default where there is none, as `#ifdef` asks."""
    return here("get_define").kernel.config.defines.get(name, default)


def get_absolute_logical_x() -> int:
    return here("get_absolute_logical_x").core.place.x


def get_absolute_logical_y() -> int:
    return here("get_absolute_logical_y").core.place.y


def get_relative_logical_x() -> int:
    """Counted from the first core of the kernel's core ranges."""
    thread = here("get_relative_logical_x")
    return thread.core.place.x - thread.kernel.cores.bounding_box().start.x


def get_relative_logical_y() -> int:
    thread = here("get_relative_logical_y")
    return thread.core.place.y - thread.kernel.cores.bounding_box().start.y


class _OwnPlace:
    """`my_x[noc]`, `my_y[noc]`: where this core is on the NoC, the same on both."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, noc: int) -> int:
        core = here(self._name).core
        place = core.chip.mesh.worker_core_from_logical_core(core.place)
        return place.x if self._name == "my_x" else place.y


my_x = _OwnPlace("my_x")
my_y = _OwnPlace("my_y")


def _word(call: str, thread: KernelThread, words: Sequence[int], index: int, what: str) -> int:
    if not 0 <= index < len(words):
        raise MeshError(f"{call}({index}): {thread.kernel.name} has {len(words)} {what}.")
    return words[index]
