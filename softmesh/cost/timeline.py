"""An estimate: every command of a run on one modelled clock, what links carried, and what memory held.

All of it is texts, numbers and other values that never change: no tensor lives on because somebody estimates. Seconds
count from the start of what was estimated; indices are places in the lists of the `Estimate`. Equal descriptions are
one object, for a program repeats itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from softmesh.callsite import CallSite
from softmesh.cost.command_cost import CommandCost
from softmesh.cost.time_shares import TimeShares, time_shares
from softmesh.systems.chip import Chip
from softmesh.systems.machine import Machine, Port

# Hosts differ: published calls that were not traced take from 0.6 to twice the time of the one that is modelled.
_HOST_BELOW, _HOST_ABOVE = 0.4, 1.0


class TensorRecord(NamedTuple):
    """A tensor as a command met it. Shapes are those of one device; `address` is the same in every bank of each.

    `padded_shape` has whole tiles. A tensor on the host has no buffer type, address or bytes; `placement` has a word
    for each mesh axis: `Replicate`, `Shard(dim)`, `Partial(op)` or `Local`.
    """

    tensor_id: int
    shape: tuple[int, ...]
    padded_shape: tuple[int, ...]
    dtype: str  # BFLOAT16
    layout: str  # TILE
    memory_config: str  # as Python prints it
    memory_layout: str  # INTERLEAVED
    buffer_type: str | None  # DRAM
    address: int | None
    bytes_per_bank: int
    page_bytes: int
    banks: int  # over which it is spread
    shard_shape: tuple[int, ...] | None
    placement: tuple[str, ...]

    @property
    def is_on_host(self) -> bool:
        return self.buffer_type is None


class Traffic(NamedTuple):
    """What a command sends: for each directed link, by its index in `Estimate.links`, bytes."""

    bytes_by_link: tuple[tuple[int, int], ...]


class TimedCommand(NamedTuple):
    """One command, from `start` to `end` on the clock of the devices; its host put it into the queue at `issued`.

    `after` is the command whose end it had to wait for, itself or because its host did: following it back from the last
    command to end is the critical path, and what lies between two commands of it is the host's time. `session` counts
    the replays of a trace: the commands of one replay have the trace's number and the same session. `arguments` are as
    given, tensors left out.
    """

    index: int  # type: ignore[assignment]
    name: str
    site: CallSite
    rank: int
    mesh: int  # index in Estimate.meshes; -1: nothing runs on a device
    devices: tuple[int, ...]  # chip ids
    queue: int
    sub_devices: tuple[int, ...]
    issued: float
    start: float
    end: float
    cost: CommandCost
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    arguments: Mapping[str, object]
    within: tuple[str, ...]  # functions of the public API that it is part of, the outermost first
    is_blocking: bool  # the host waited for its end
    trace: int | None
    session: int | None
    step: int | None  # index in Estimate.steps
    after: int | None  # index of a command
    traffic: Traffic | None

    @property
    def seconds(self) -> float:
        return self.end - self.start


class DirectedLink(NamedTuple):
    """One way through a cable: out of a channel of one chip, into a channel of another."""

    source: Port
    target: Port

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


class LinkUse(NamedTuple):
    """What went through one link, one way, and for how long something did."""

    link: DirectedLink
    bytes: int
    busy_seconds: float


class MemoryRegion(NamedTuple):
    """One memory of each chip of a mesh: `size` bytes from `base` on in each of its banks."""

    buffer_type: str
    banks: int
    base: int
    size: int
    page_alignment: int


class MeshRecord(NamedTuple):
    """A mesh that was open: its chips row by row, and what each of them has."""

    index: int  # type: ignore[assignment]
    rank: int
    mesh_id: int
    shape: tuple[int, ...]
    devices: tuple[int, ...]  # chip ids, row-major
    chip: Chip
    grid: tuple[int, int]  # columns, rows of the cores that programs may use
    queues: int
    worker_l1_size: int
    regions: tuple[MemoryRegion, ...]
    parent: int | None  # index, of a submesh
    fabric: str  # FABRIC_1D

    def coordinate(self, device: int) -> tuple[int, ...]:
        """Of a chip of the mesh."""
        place, found = self.devices.index(device), []
        for extent in reversed(self.shape):
            place, at = divmod(place, extent)
            found.append(at)
        return tuple(reversed(found))

    def region(self, buffer_type: str) -> MemoryRegion:
        return next(region for region in self.regions if region.buffer_type == buffer_type)


class MemoryEvent(NamedTuple):
    """Memory that was taken (`bytes_per_bank` > 0) or given back (< 0), in every bank of every chip of a mesh.

    `address` is None where the memory was full: the estimate goes on, and what is missing is told. `number` counts
    allocations: what takes and what gives back have the same.
    """

    time: float
    command: int  # the index of the command that had just run
    mesh: int
    buffer_type: str
    address: int | None
    bytes_per_bank: int
    number: int
    label: str
    tensor_id: int | None
    site: CallSite | None  # the line that allocated it


class StepRecord(NamedTuple):
    """A part of the program that the user marked; `tokens` were made in it, where that was said."""

    index: int  # type: ignore[assignment]
    name: str
    rank: int
    start: float
    end: float
    tokens: float | None


class Mark(NamedTuple):
    """A signpost of the program."""

    time: float
    command: int  # the next one's index
    rank: int
    text: str
    message: str


@dataclass(frozen=True)
class Estimate:
    """What a program would take on a machine. `error` is how it ended, where it did not end by itself."""

    program: str
    system: str
    machine: Machine | None  # None: the elastic one
    fabric: str
    calibration: str
    has_values: bool  # False: only shapes were computed
    ranks: int
    seconds: float
    meshes: tuple[MeshRecord, ...]
    commands: tuple[TimedCommand, ...]
    links: tuple[LinkUse, ...]
    memory: tuple[MemoryEvent, ...]  # in order of time
    steps: tuple[StepRecord, ...]
    marks: tuple[Mark, ...]
    error: str | None = None

    def busiest_link(self) -> LinkUse | None:
        return max(self.links, key=lambda use: use.bytes, default=None)

    @cached_property
    def spent(self) -> TimeShares:
        """Time by what it is spent on, on average over the chips: the parts add up to `seconds`."""
        return time_shares(self.commands, self.meshes, self.seconds)

    def critical_path(self) -> list[TimedCommand]:
        """The commands that the end waited for, the first of them first; time between two of them is the host's."""
        last = max(self.commands, key=lambda command: command.end, default=None)
        path = []
        while last is not None:
            path.append(last)
            last = None if last.after is None else self.commands[last.after]
        return path[::-1]

    def band(self) -> tuple[float, float]:
        """Between which `seconds` are expected to lie: a law errs one way for all its commands, other laws another."""
        path = self.critical_path()
        host = max(self.seconds - sum(command.seconds for command in path), 0.0)
        below, above = {"host": _HOST_BELOW * host}, {"host": _HOST_ABOVE * host}
        for command in path:
            cost, seconds = command.cost, command.seconds
            scale = seconds / cost.seconds if cost.seconds else 0.0
            below[cost.law] = below.get(cost.law, 0.0) + scale * (cost.seconds - cost.low)
            above[cost.law] = above.get(cost.law, 0.0) + scale * (cost.high - cost.seconds)
        return max(self.seconds - math.hypot(*below.values()), 0.0), self.seconds + math.hypot(*above.values())

    def tokens_per_second(self) -> float | None:
        """Over all steps that say how many tokens they made; None without any."""
        counted = [(step.tokens, step.end - step.start) for step in self.steps if step.tokens]
        seconds = sum(time for _, time in counted)
        return sum(tokens for tokens, _ in counted) / seconds if seconds else None
