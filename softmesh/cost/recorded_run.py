"""A run as it was seen: commands with their costs, before a clock has given them times.

Ranks of a job record their own runs; the clock reads all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from softmesh.callsite import CallSite, RawSite
from softmesh.cost.command_cost import CommandCost
from softmesh.cost.memory_journal import Entry
from softmesh.cost.timeline import DirectedLink, MeshRecord, TensorRecord, Traffic
from softmesh.kinds import Kind


class Form(NamedTuple):
    """What equal commands have in common."""

    name: str
    kind: Kind
    mesh: int
    devices: tuple[int, ...]
    places: tuple[int, ...]  # of the devices, in the clock's numbering of chips
    cost: CommandCost
    traffic: Traffic | None
    arguments: Mapping[str, object]
    sub_devices: tuple[int, ...]  # whose cores it takes; for other kinds whose work it waits for
    wait: tuple[int, ...]  # sub-devices that are there: a transfer waits for the stall group
    writers: int  # devices that share one way to the host


class Recorded(NamedTuple):
    form: Form
    queue: int
    raw_site: RawSite | CallSite
    inputs: tuple[int, ...]  # numbers of tensors
    outputs: tuple[int, ...]
    within: tuple[str, ...]
    is_blocking: bool
    trace: int | None
    event: int | None
    sends: tuple[Any, ...]
    receives: tuple[Any, ...]
    is_captured: bool  # recorded into a trace, and not run
    mark: Any = None  # of a step: its name and tokens; of a signpost: its text and message


class Tensors(Protocol):
    def record(self, number: int) -> TensorRecord:
        """The tensor of this number, as reports show it."""
        ...


@dataclass
class RecordedRun:
    """Of one rank."""

    rank: int = 0
    commands: list[Recorded] = field(default_factory=list)
    meshes: list[MeshRecord] = field(default_factory=list)
    links: list[DirectedLink] = field(default_factory=list)
    chips: list[int] = field(default_factory=list)  # by place
    memory: list[Entry] = field(default_factory=list)
    tensors: Tensors | None = None
    system: str = ""
    machine: Any = None
    fabric: str = ""
    error: str | None = None
