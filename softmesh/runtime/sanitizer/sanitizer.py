"""What each command means: who acts, what is touched, who hears of it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from softmesh.runtime.sanitizer.clock import Agent, Clock, Step
from softmesh.runtime.sanitizer.findings import FindingKind, Report, race, unfinished_read
from softmesh.runtime.sanitizer.history import EVERYWHERE, Touch, Where
from softmesh.runtime.sanitizer.host_memory import HostMemory
from softmesh.runtime.sanitizer.mesh import WatchedMesh
from softmesh.runtime.sanitizer.replays import Replays
from softmesh.runtime.sanitizer.spans import Span, span_of_memory

if TYPE_CHECKING:
    from softmesh.callsite import RawSite
    from softmesh.runtime.commands import Access, Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.queues.event import MeshEvent
    from softmesh.tensor.tensor import Tensor


class Sanitizer:
    """An observer of the command stream. It keeps no tensor alive."""

    def __init__(self) -> None:
        self.report = Report()
        self._host = Agent("the host")
        self._meshes: dict[int, WatchedMesh] = {}
        self._on_host = HostMemory()
        self._replays = Replays(self.report)
        self._events: weakref.WeakKeyDictionary[MeshEvent, Clock] = weakref.WeakKeyDictionary()
        self._messages: weakref.WeakKeyDictionary[object, deque[Clock]] = weakref.WeakKeyDictionary()
        self._freed: dict[int, RawSite] = {}  # by the number of the allocation

    def on_command(self, command: Command) -> None:
        device = command.device
        act = _ACTS.get(command.name)
        if device is None:
            if self._on_host:
                self._by_the_host(command)
        elif act is not None:
            act(self, command, device)
        elif command.queue not in device.captures.recordings:  # what is recorded does not run
            self._run(command, device)

    # -- commands that run -----------------------------------------------------------------------

    def _run(self, command: Command, device: MeshDevice) -> None:
        is_alone = len(device.queues) == 1 and device.sub_devices.active.is_default
        if is_alone and not command.blocking and not self._reaches_host(command):
            return  # nothing else works on this mesh: all is in order
        if self._on_host:
            self._look_at(command)
        mesh = self._mesh(device)
        agent = mesh.agent(command, device, self._host)
        for channel in command.receives:
            self._receive(agent, channel)
        step = agent.step(command.name, command.raw_site)
        if not is_alone and not device.is_remote_only():
            self._touch(command, device, mesh, step)
        self._fill(command, step)
        for channel in command.sends:
            self._messages.setdefault(channel, deque()).append(agent.clock.copy())
        if command.blocking:
            self._host.learn(agent.clock)

    def _reaches_host(self, command: Command) -> bool:
        """Whether it concerns anything outside the memory of its mesh."""
        if self._on_host or command.sends or command.receives:
            return True
        return any(tensor._storage.device is None for tensor in command.outputs)

    def _mesh(self, device: MeshDevice) -> WatchedMesh:
        mesh = self._meshes.get(device.id())
        if mesh is None:
            self._meshes = {number: known for number, known in self._meshes.items() if known.is_open()}
            mesh = self._meshes[device.id()] = WatchedMesh(device)
        return mesh

    # -- memory of devices -----------------------------------------------------------------------

    def _touch(self, command: Command, device: MeshDevice, mesh: WatchedMesh, step: Step) -> None:
        if command.inputs or command.outputs:
            if _is_view(command):
                return
            for tensor in command.inputs:
                self._touch_tensor(mesh, step, tensor, command, is_write=False)
            for tensor in command.outputs:
                self._touch_tensor(mesh, step, tensor, command, is_write=True)
        for accesses, is_write in ((command.reads, False), (command.writes, True)):
            for access in accesses:
                self._touch_memory(mesh, step, access, command, device, is_write=is_write)

    def _touch_tensor(
        self, mesh: WatchedMesh, step: Step, tensor: Tensor, command: Command, *, is_write: bool
    ) -> None:
        storage = tensor._storage
        span = storage.span() if storage.device is not None else None
        if span is None:
            return
        where = EVERYWHERE
        if command.receives:  # what is on its way must not be asked for
            where = Where(frozenset(command.coords))
        elif tensor._where is not None or storage.dist.coords is not None:
            where = Where(frozenset(tensor.view_distribution().coordinates()))
        self._touch_span(mesh, span, Touch(step, is_write, where, tensor._spec, span[3]))

    def _touch_memory(
        self,
        mesh: WatchedMesh,
        step: Step,
        access: Access,
        command: Command,
        device: MeshDevice,
        *,
        is_write: bool,
    ) -> None:
        span, paged = span_of_memory(device, access.memory)
        if span is None:
            return
        pages = None if access.pages is None else range(access.pages.start, access.pages.stop)
        is_everywhere = len(command.coords) == device.get_num_devices()
        places = None if is_everywhere else frozenset(command.coords)
        is_all = pages is None or len(pages) == access.memory.num_pages
        where = Where(places, None if is_all else pages, paged)
        whole = EVERYWHERE if places is None and is_all else where
        self._touch_span(mesh, span, Touch(step, is_write, whole, paged, span[3]))

    def _touch_span(self, mesh: WatchedMesh, span: Span, touch: Touch) -> None:
        pool, start, end, _ = span
        found = mesh.memory(pool).add(start, end, touch, touch.step.agent.clock)
        if found:
            self._tell_races(found, touch, f"at {start} in {pool.region.buffer_type.name}")

    def _tell_races(self, found: list[Touch], touch: Touch, place: str) -> None:
        """Of each agent that may be overtaken, the last touch: an event after it comes after all."""
        last = {old.step.agent: old for old in sorted(found, key=lambda old: old.step.count)}
        for old in last.values():
            freed = self._freed.get(old.allocation)
            kind, words = race(old, touch, place, freed)
            self.report.tell(kind, (old.step.site, touch.step.site), words)

    # -- memory of the host ----------------------------------------------------------------------

    def _by_the_host(self, command: Command) -> None:
        if command.name == "get_device_tensors":
            self._on_host.share(command.inputs[0]._storage, [t._storage for t in command.outputs])
        else:
            self._look_at(command)

    def _look_at(self, command: Command) -> None:
        """The host reads tensors of its own, at once."""
        for tensor in command.inputs:
            storage = tensor._storage
            if storage.device is None:
                for fill in self._on_host.unfinished(storage, self._host.clock):
                    sites = (fill.step.site, command.raw_site)
                    words = unfinished_read(fill, command.name, command.raw_site)
                    self.report.tell(FindingKind.UNFINISHED_READ, sites, words)

    def _fill(self, command: Command, step: Step) -> None:
        """A queue writes to tensors of the host, when it gets there."""
        for tensor in command.outputs:
            storage = tensor._storage
            if storage.device is None and not (command.blocking and not self._on_host):
                touch = Touch(step, True, EVERYWHERE, tensor._spec, 0)
                found = self._on_host.fill(storage, touch, step.agent.clock)
                self._tell_races(found, touch, "on the host")

    # -- what agents hear of each other ----------------------------------------------------------

    def _record(self, command: Command, device: MeshDevice) -> None:
        agent = self._mesh(device).agent(command, device, self._host)
        assert command.event is not None
        if len(command.coords) == device.get_num_devices():
            self._events[command.event] = agent.clock.copy()
        else:
            self._events[command.event] = agent.clock.only_on(frozenset(command.coords))

    def _wait(self, command: Command, device: MeshDevice) -> None:
        self._hear(self._mesh(device).agent(command, device, self._host), command)

    def _host_waits(self, command: Command, device: MeshDevice) -> None:
        self._hear(self._host, command)

    def _hear(self, agent: Agent, command: Command) -> None:
        clock = None if command.event is None else self._events.get(command.event)
        if clock is not None:  # otherwise it was recorded before anybody looked
            agent.learn(clock)

    def _receive(self, agent: Agent, channel: object) -> None:
        messages = self._messages.get(channel)
        if messages:
            agent.learn(messages.popleft())

    # -- the rest --------------------------------------------------------------------------------

    def _free(self, command: Command, device: MeshDevice) -> None:
        span = command.inputs[0]._storage.span()
        if span is not None:
            self._freed[span[3]] = command.raw_site

    def _replay(self, command: Command, device: MeshDevice) -> None:
        self._replays.check(command, device)
        self._run(command, device)

    def _nothing(self, command: Command, device: MeshDevice) -> None:
        """It touches no memory, and nobody waits."""


_ACTS: dict[str, Callable[[Sanitizer, Command, MeshDevice], None]] = {
    "enqueue_record_event": Sanitizer._record,
    "enqueue_record_event_to_host": Sanitizer._record,
    "enqueue_wait_for_event": Sanitizer._wait,
    "event_synchronize": Sanitizer._host_waits,
    "event_query": Sanitizer._host_waits,
    "deallocate": Sanitizer._free,
    "allocate_tensor_on_device": Sanitizer._nothing,
    "begin_trace_capture": Sanitizer._nothing,
    "end_trace_capture": Sanitizer._nothing,
    "release_trace": Sanitizer._nothing,
    "execute_trace": Sanitizer._replay,
}


def _is_view(command: Command) -> bool:
    """A reshape that moves nothing: its result lies where its operand does."""
    if not command.outputs or not command.outputs[0]._storage.is_shared():
        return False
    made = command.outputs[0]
    return any(
        tensor is not made and tensor._storage.address == made._storage.address for tensor in command.inputs
    ) and all(tensor is not made for tensor in command.inputs)
