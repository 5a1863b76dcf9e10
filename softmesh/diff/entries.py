"""The record of a run that is compared: its ops in order, with the values that each read and wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from softmesh.callsite import CallSite
from softmesh.diff.value_store import Stored, ValueStore
from softmesh.kinds import Kind
from softmesh.placement.distribution import Distribution


class Operand(NamedTuple):
    """What an op read: a value of the run, as the op saw it (a view of it may have another shape)."""

    value: int
    shape: tuple[int, ...]  # with the dims of the distribution
    dist: Distribution


class Given(NamedTuple):
    """In the arguments of a call, the n-th tensor that the op read."""

    at: int


@dataclass
class Entry:
    """One op of a run."""

    number: int
    name: str
    site: CallSite
    inputs: tuple[Operand, ...]
    outputs: tuple[Stored, ...]
    arguments: dict[str, object]
    sends: bool  # whether devices read of each other: a collective
    within: tuple[str, ...]
    module: str = ""
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # as called, `Given` in place of tensors
    gradient_of: int | None = None  # the value that it is the gradient of
    callers: tuple[CallSite, ...] = ()  # of the program's function that the site stands in, the innermost first
    is_captured: bool = False  # recorded into a trace: what its replays leave is what counts
    scale: float = 1.0  # a gradient is so many times that of one device: each device has a loss of its own
    kind: Kind | None = None  # of the command; None where no command made it


@dataclass
class Recording:
    """All ops of one run, and how it ended."""

    store: ValueStore
    entries: list[Entry] = field(default_factory=list)
    mesh: tuple[int, ...] = ()
    error: BaseException | None = None
    result: object = None
    origins: dict[int, int] = field(default_factory=dict)  # of a value that is a part of another: that one
    is_by_op: bool = False  # each op was computed by itself, from what the program's op read
    replayed: set[int] = field(default_factory=set)  # values that the replay of a trace left behind
