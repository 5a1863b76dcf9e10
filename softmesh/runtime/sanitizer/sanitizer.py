"""What each command means: who acts, what is touched, who hears of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from softmesh.runtime.memory.span import Span
from softmesh.runtime.sanitizer.clock import Agent, Clock, Step
from softmesh.runtime.sanitizer.findings import (
    FindingKind,
    Report,
    kind_of,
    race,
    stale_view,
    unfinished_read,
)
from softmesh.runtime.sanitizer.history import EVERYWHERE, Touch
from softmesh.runtime.sanitizer.host_memory import HostMemory
from softmesh.runtime.sanitizer.mesh import WatchedMesh
from softmesh.runtime.sanitizer.messages import Messages
from softmesh.runtime.sanitizer.replays import Replays
from softmesh.runtime.sanitizer.spans import owner_of_stale_view
from softmesh.runtime.sanitizer.touches import touches_of, touches_of_replay

if TYPE_CHECKING:
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.queues.event import MeshEvent
    from softmesh.runtime.traces.trace import Trace


class Sanitizer:
    """An observer of the command stream. It keeps no tensor alive."""

    def __init__(self) -> None:
        self.report = Report()
        self._host = Agent("the host")
        self._meshes: dict[int, WatchedMesh] = {}
        self._on_host = HostMemory()
        self._replays = Replays(self.report)
        self._events: weakref.WeakKeyDictionary[MeshEvent, Clock] = weakref.WeakKeyDictionary()
        self._messages = Messages()

    def on_command(self, command: Command) -> None:
        device = command.device
        if device is None:
            if self._on_host.filling or command.receives:
                self._by_the_host(command)
        elif command.name in _ACTS:
            _ACTS[command.name](self, command, device)
        elif command.queue not in device.captures.recordings:  # what is recorded does not run
            if device.captures.traces:
                self._replays.remember(command)
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
        if command.says_more:
            for channel in command.receives:
                self._messages.receive(channel, agent)
        step = agent.step(command.name, command.raw_site)
        if not is_alone and not mesh.is_remote:
            for touch in (
                touches_of(command, device, step, mesh.memories)
                if trace is None
                else touches_of_replay(trace, step)
            ):
                found = mesh.memories[touch.span.pool].add(touch, agent.clock)
                if found:
                    self._tell_races(found, touch)
        if command.outputs and command.outputs[0].storage.device is None:
            self._fill(command, step)
        if command.says_more:
            self._pass_on(command, device, agent)

    def _pass_on(self, command: Command, device: MeshDevice, agent: Agent) -> None:
        """Who hears of it, when it has run."""
        for channel in command.sends:
            self._messages.send(channel, agent.clock.copy())
        if command.blocking:
            self._host.learn(agent.clock)
        if command.reads or command.writes:
            self._check_views(command, device)

    def _reaches_out(self, command: Command) -> bool:
        """Whether it is about anything but tensors of its mesh."""
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
        if command.name == "get_device_tensors":
            self._on_host.share(command.inputs[0].storage, [t.storage for t in command.outputs])
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
        self._events[command.event] = (
            clock.copy() if is_everywhere else clock.only_on(frozenset(command.coords))
        )

    def _wait(self, command: Command, device: MeshDevice) -> None:
        self._hear(self._mesh(device).agent(command, device, self._host), command)

    def _host_waits(self, command: Command, device: MeshDevice) -> None:
        self._hear(self._host, command)

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

    def _nothing(self, command: Command, device: MeshDevice) -> None:
        """It touches no memory, and nobody waits."""


_ACTS: dict[str, Callable[[Sanitizer, Command, MeshDevice], None]] = {
    "enqueue_record_event": Sanitizer._record,
    "enqueue_record_event_to_host": Sanitizer._record,
    "enqueue_wait_for_event": Sanitizer._wait,
    "event_synchronize": Sanitizer._host_waits,
    "event_query": Sanitizer._host_waits,
    "deallocate": Sanitizer._nothing,
    "allocate_tensor_on_device": Sanitizer._nothing,
    "begin_trace_capture": Sanitizer._nothing,
    "end_trace_capture": Sanitizer._nothing,
    "release_trace": Sanitizer._nothing,
    "execute_trace": Sanitizer._replay,
}
