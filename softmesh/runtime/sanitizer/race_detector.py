"""The race detector: an observer that orders every command by vector clocks and checks what it accesses.

For each command: which agent acts, what is read and written, and who learns of it (events, blocking calls, messages). A
replayed trace is checked against what was allocated where it writes.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from softmesh.agreed_variables import agreed
from softmesh.errors import ArgumentValueError
from softmesh.kinds import Kind
from softmesh.runtime.commands import attach, detach
from softmesh.runtime.memory.allocations import Span
from softmesh.runtime.memory.pool import next_number
from softmesh.runtime.sanitizer.access_history import EVERYWHERE, HostMemory, Touch
from softmesh.runtime.sanitizer.borrowed_memory import LENDERS, Copies
from softmesh.runtime.sanitizer.chip_skew import ChipSkew
from softmesh.runtime.sanitizer.command_effects import (
    WatchedMesh,
    owner_of_stale_view,
    touches_of,
    touches_of_replay,
)
from softmesh.runtime.sanitizer.findings import (
    Finding,
    FindingKind,
    Report,
    kind_of,
    overwritten,
    race,
    stale_view,
    unfinished_read,
)
from softmesh.runtime.sanitizer.overlapping_meshes import OverlappingMeshes
from softmesh.runtime.sanitizer.vector_clocks import Agent, Clock, Messages, Step
from softmesh.runtime.traces.overwritten_memory import tells_of_itself

if TYPE_CHECKING:
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.queues.events import MeshEvent
    from softmesh.runtime.traces.trace import Trace


class Replays:
    """Buffers that lie where a replay writes: tensors tell of it themselves, when they are read.

    Each allocation is looked at once for each trace: neither of them moves.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._looked_at: weakref.WeakKeyDictionary[Trace, int] = weakref.WeakKeyDictionary()

    def check(self, command: Command, device: MeshDevice, trace: Trace) -> None:
        seen = self._looked_at.get(trace, trace.began)
        self._looked_at[trace] = next_number()
        for allocation in trace.written.overwritten_since(seen):
            is_told = tells_of_itself(allocation) or allocation.number in device.captures.corruptible
            if not is_told:
                sites = [trace.site, *([allocation.site] if allocation.site else ()), command.site]
                words = partial(overwritten, allocation, trace.site, command.site)
                self._report.tell(FindingKind.OVERWRITTEN_BY_REPLAY, sites, words)


class Sanitizer:
    """An observer of the command stream. It keeps no tensor alive."""

    def __init__(self) -> None:
        self.report = Report()
        self._host = Agent("the host")
        self._meshes: dict[int, WatchedMesh] = {}
        self._on_host = HostMemory()
        self._copies = Copies(self.report)
        self._replays = Replays(self.report)
        self._events: weakref.WeakKeyDictionary[MeshEvent, Clock] = weakref.WeakKeyDictionary()
        self._messages = Messages()
        self._skew = ChipSkew(self.report)
        self._overlapping = OverlappingMeshes(self.report)

    def on_command(self, command: Command) -> None:
        device = command.device
        if device is None:
            if self._on_host.filling or command.receives:
                self._by_the_host(command)
            return
        if command.queue in device.captures.recordings:
            self._skew.record(command, device)
        else:
            self._skew.note(command, device)
            self._overlapping.note(command, device)
        if command.kind in _ACTS:
            _ACTS[command.kind](self, command, device)
        elif command.queue not in device.captures.recordings:  # what is recorded does not run
            self._run(command, device)

    # -- commands that run -----------------------------------------------------------------------

    def _run(self, command: Command, device: MeshDevice, trace: Trace | None = None) -> None:
        is_alone = len(device.queues) == 1 and device.sub_devices.active is device.sub_devices.default
        if is_alone and not command.blocking and not self._reaches_out(command):
            return  # nothing else works on this mesh: all is in order
        if self._on_host.filling:
            self._look_at(command)
        mesh = self._meshes.get(device.unique_id) or self._mesh(device)
        agent = mesh.agent(command, device, self._host)
        if command.has_extra_fields:
            for channel in command.receives:
                self._messages.receive(channel, agent)
        step = agent.step(command.name, command.raw_site)
        if LENDERS:
            self._copies.note(command, step, device)
        if not is_alone and not mesh.is_remote:
            for touch in (
                touches_of(command, device, step, mesh.memories) if trace is None else touches_of_replay(trace, step)
            ):
                found = mesh.memories[touch.span.pool].add(touch, agent.clock)
                if found:
                    self._tell_races(found, touch)
        if command.outputs and command.outputs[0].storage.device is None:
            self._fill(command, step)
        if command.has_extra_fields:
            self._pass_on(command, device, agent)

    def _pass_on(self, command: Command, device: MeshDevice, agent: Agent) -> None:
        """Who hears of it, when it has run."""
        for channel in command.sends:
            self._messages.send(channel, agent.clock.copy())
        if command.blocking:
            self._host.learn(agent.clock)
            self._copies.settle(self._host.clock)
        if command.reads or command.writes:
            self._check_views(command, device)

    def _reaches_out(self, command: Command) -> bool:
        """Whether it is about anything but tensors of its mesh."""
        if LENDERS and any(tensor.storage in LENDERS for tensor in command.inputs):
            return True
        if self._on_host.filling or command.sends or command.receives or command.reads or command.writes:
            return True
        return bool(command.outputs) and command.outputs[0].storage.device is None

    def _mesh(self, device: MeshDevice) -> WatchedMesh:
        mesh = self._meshes.get(device.id())
        if mesh is None:
            self._meshes = {number: known for number, known in self._meshes.items() if known.is_open()}
            mesh = self._meshes[device.id()] = WatchedMesh(device)
        return mesh

    def _tell_races(self, found: Sequence[Touch], touch: Touch) -> None:
        """Of each agent that may be overtaken, the last touch: an event after it comes after all."""
        last = {old.step.agent: old for old in sorted(found, key=lambda old: old.step.number)}
        for old in last.values():
            sites = (old.step.site, touch.step.site)
            self.report.tell(kind_of(old, touch), sites, partial(race, old, touch))

    def _check_views(self, command: Command, device: MeshDevice) -> None:
        for access in (*command.reads, *command.writes):
            owner = owner_of_stale_view(device, access.memory)
            if owner is not None:
                words = partial(stale_view, access.memory, owner, command.name, command.site)
                sites = (command.raw_site,) if owner.freed is None else (owner.freed, command.raw_site)
                self.report.tell(FindingKind.USE_AFTER_DEALLOCATE, sites, words)

    # -- memory of the host ----------------------------------------------------------------------

    def _by_the_host(self, command: Command) -> None:
        for channel in command.receives:
            self._messages.receive_all(channel, self._host)
        if command.kind is Kind.PIECES:  # the host looks at no value
            for tensor in command.inputs:
                self._on_host.share(tensor.storage, [made.storage for made in command.outputs])
        else:
            self._look_at(command)

    def _look_at(self, command: Command) -> None:
        """The host reads tensors of its own, at once."""
        for tensor in command.inputs:
            storage = tensor.storage
            if storage.device is None:
                for fill in self._on_host.unfinished(storage, self._host.clock):
                    words = partial(unfinished_read, fill, command.name, command.site)
                    sites = (fill.step.site, command.raw_site)
                    self.report.tell(FindingKind.UNFINISHED_READ, sites, words)

    def _fill(self, command: Command, step: Step) -> None:
        """A queue writes to tensors of the host, when it gets there."""
        for tensor in command.outputs:
            storage = tensor.storage
            if storage.device is None and (self._on_host.filling or not command.blocking):
                span = Span(None, 0, 0, 0, tensor.spec, weakref.ref(storage))
                touch = Touch(step, True, EVERYWHERE, span)
                found = self._on_host.fill(storage, touch, step.agent.clock)
                self._tell_races(found, touch)

    # -- what agents hear of each other ----------------------------------------------------------

    def _record(self, command: Command, device: MeshDevice) -> None:
        clock = self._mesh(device).agent(command, device, self._host).clock
        is_everywhere = len(command.coords) == device.get_num_devices()
        assert command.event is not None
        self._events[command.event] = clock.copy() if is_everywhere else clock.only_on(frozenset(command.coords))

    def _wait(self, command: Command, device: MeshDevice) -> None:
        self._hear(self._mesh(device).agent(command, device, self._host), command)

    def _host_waits(self, command: Command, device: MeshDevice) -> None:
        self._hear(self._host, command)
        self._copies.settle(self._host.clock)

    def _hear(self, agent: Agent, command: Command) -> None:
        clock = None if command.event is None else self._events.get(command.event)
        if clock is not None:  # otherwise it was recorded before anybody observed
            agent.learn(clock)

    # -- the rest --------------------------------------------------------------------------------

    def _replay(self, command: Command, device: MeshDevice) -> None:
        trace = None if command.trace is None else device.captures.traces.get(command.trace)
        if trace is not None:
            self._replays.check(command, device, trace)
        self._run(command, device, trace)

    def _capture_ended(self, command: Command, device: MeshDevice) -> None:
        """The queue writes the trace to DRAM and the host waits for it: all that the queue did before is done."""
        self._host.learn(self._mesh(device).agent(command, device, self._host).clock)

    def _nothing(self, command: Command, device: MeshDevice) -> None:
        """It touches no memory, and nobody waits."""


_ACTS: dict[Kind, Callable[[Sanitizer, Command, MeshDevice], None]] = {
    Kind.RECORD_EVENT: Sanitizer._record,
    Kind.WAIT_FOR_EVENT: Sanitizer._wait,
    Kind.SYNCHRONIZE_EVENT: Sanitizer._host_waits,
    Kind.QUERY_EVENT: Sanitizer._host_waits,
    Kind.DEALLOCATION: Sanitizer._nothing,
    Kind.ALLOCATION: Sanitizer._nothing,
    Kind.CAPTURE_BEGIN: Sanitizer._nothing,
    Kind.CAPTURE_END: Sanitizer._capture_ended,
    Kind.RELEASE_TRACE: Sanitizer._nothing,
    Kind.REPLAY: Sanitizer._replay,
}


# Switching it on and off: for a block, for a process, for a run of pytest.


VARIABLE = agreed("SOFTMESH_SANITIZE")


class _Switch:
    """One sanitizer serves everybody who wants it: what it heard outside a block counts inside."""

    def __init__(self) -> None:
        self._running: Sanitizer | None = None
        self._users = 0
        self.is_asked = False  # by the environment

    def on(self) -> Sanitizer:
        if self._running is None:
            self._running = Sanitizer()
            attach(self._running)
        self._users += 1
        return self._running

    def off(self) -> None:
        self._users -= 1
        if not self._users and self._running is not None:
            detach(self._running)
            self._running = None


_SWITCH = _Switch()


def start() -> Sanitizer:
    """On, until as many have called `stop`."""
    return _SWITCH.on()


def stop() -> None:
    _SWITCH.off()


@contextmanager
def sanitize() -> Iterator[list[Finding]]:
    """Watch what a `with` block does; its findings are warnings, and in the list it yields.

    Under SOFTMESH_STRICT=1 the first one is an error.
    """
    findings: list[Finding] = []
    report = start().report
    report.listeners.append(findings)
    try:
        yield findings
    finally:
        report.listeners = [listener for listener in report.listeners if listener is not findings]
        stop()


def start_where_asked() -> None:
    """For the rest of the process, if the environment says so."""
    if is_wanted() and not _SWITCH.is_asked:
        _SWITCH.is_asked = True
        start()


def is_wanted() -> bool:
    asked = os.environ.get(VARIABLE, "").strip()
    if asked not in ("", "0", "1"):
        raise ArgumentValueError(f"{VARIABLE}={asked[:20]!r}: set it to 1 to watch for races, or to 0.")
    return asked == "1"
