"""The profiler API of TT-NN (device profiler, Tracy zones): arguments are checked, nothing is recorded.

There is no chip to measure. `softmesh.log_commands()` shows what ran, and observers of the command stream get the cost
of each command.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from softmesh.arguments import checked, checked_int, described, refused
from softmesh.runtime.device import MeshDevice, checked_open

_HANDLES = itertools.count(1)
_CALLBACKS: dict[int, Callable[..., Any]] = {}


def ReadDeviceProfiler(device: MeshDevice) -> None:
    """Collect what the device profiler measured: nothing, here."""
    checked_open("ReadDeviceProfiler", "device", device)


def get_latest_programs_perf_data() -> dict[int, set[Any]]:
    """The analyses of programs by device, since the profiler was read last; none, as without the profiler."""
    return {}


def start_tracy_zone(source: str, functName: str, lineNum: int, color: int = 0) -> None:
    checked("start_tracy_zone", "source", source, str, "a text")
    checked("start_tracy_zone", "functName", functName, str, "a text")
    checked_int("start_tracy_zone", "lineNum", lineNum)


def stop_tracy_zone(name: str = "", color: int = 0) -> None:
    checked("stop_tracy_zone", "name", name, str, "a text")


def tracy_message(source: str, color: int = 0xF0F8FF) -> None:
    checked("tracy_message", "source", source, str, "a text")


def tracy_frame() -> None:
    """A frame ends."""


@dataclass(frozen=True)
class ProgramRealtimeRecord:
    """One program as a profiler in real time would tell it."""

    runtime_id: int
    chip_id: int
    start_timestamp: int
    end_timestamp: int
    frequency: float
    kernel_sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProgramRealtimeRecordBatch:
    records: list[ProgramRealtimeRecord]
    dropped: int


def IsProgramRealtimeProfilerActive() -> bool:
    return False


def RegisterProgramRealtimeProfilerCallback(callback: Callable[..., Any]) -> int:
    """A handle. The callback is never called: the profiler is not active."""
    if not callable(callback):
        raise refused(
            "RegisterProgramRealtimeProfilerCallback",
            f"callback must be a function, got {described(callback)}",
        )
    handle = next(_HANDLES)
    _CALLBACKS[handle] = callback
    return handle


def UnregisterProgramRealtimeProfilerCallback(handle: int) -> None:
    _CALLBACKS.pop(checked_int("UnregisterProgramRealtimeProfilerCallback", "handle", handle), None)
