"""The report of a program that cannot go on: who waits where, for what, and how things stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from softmesh.callsite import CallSite
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError

if TYPE_CHECKING:
    from softmesh.kernels.engine.thread import KernelThread


class Blocked(NamedTuple):
    """One kernel that does not go on: on which devices and core, in which call, at which line."""

    device: str
    core: CoreCoord
    thread: str
    call: str
    site: CallSite


class Stuck(MeshError):
    """`blocked` lists every kernel that had not ended."""

    def __init__(self, what: str, threads: Sequence[KernelThread]) -> None:
        self.blocked = [
            Blocked(
                thread.core.chip.name,
                thread.core.place,
                f"{thread.kernel.name} ({thread.kernel.processor.name})",
                thread.doing,
                thread.site,
            )
            for thread in threads
        ]
        super().__init__("\n".join([what, *_lines(self.blocked)]))


def _lines(blocked: Sequence[Blocked]) -> list[str]:
    """One line for all cores that do the same."""
    cores: dict[tuple[str, str, str, CallSite], list[CoreCoord]] = {}
    for one in blocked:
        cores.setdefault((one.device, one.thread, one.call, one.site), []).append(one.core)
    return [
        f"  {device}, {_cores_text(places)}, {thread}: {call} [{site}]"
        for (device, thread, call, site), places in cores.items()
    ]


def _cores_text(places: list[CoreCoord]) -> str:
    if len(places) == 1:
        return f"core {places[0]}"
    singles = CoreRangeSet([CoreRange(place, place) for place in places])
    return f"cores {singles.merge(CoreRangeSet([]))}"
