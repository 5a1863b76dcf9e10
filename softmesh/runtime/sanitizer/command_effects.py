"""The effects of a command: the agent (queue or sub-device) that runs it, and the memory it reads and writes."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from softmesh.cores import CoreRangeSet
from softmesh.hardware import SubDeviceId
from softmesh.hardware.enums import BufferType
from softmesh.kinds import Kind
from softmesh.placement.distribution import mesh_coordinates
from softmesh.runtime.buffers.global_buffers import GlobalSemaphore
from softmesh.runtime.buffers.mesh_memory import MeshMemory, Window
from softmesh.runtime.buffers.paged_memory import PageLayout
from softmesh.runtime.memory.allocations import Span
from softmesh.runtime.sanitizer.access_history import EVERYWHERE, AddressSpace, Touch, Where
from softmesh.runtime.sanitizer.vector_clocks import Agent, Step

if TYPE_CHECKING:
    from softmesh.runtime.buffers.paged_memory import PagedMemory
    from softmesh.runtime.command_tensor import CommandTensor
    from softmesh.runtime.commands import Access, Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.pool import Pool
    from softmesh.runtime.traces.trace import Trace


class WatchedMesh:
    def __init__(self, device: MeshDevice) -> None:
        self._device = weakref.ref(device)
        self._places = frozenset(mesh_coordinates(tuple(device.shape)))
        self._queues: dict[int, Agent] = {}
        self._workers: dict[tuple[int, int], Agent] = {}  # by queue and sub-device
        self._manager = device.sub_devices.active
        self.memories: defaultdict[Pool | None, AddressSpace] = defaultdict(AddressSpace)
        self.is_remote = device.is_remote_only()

    def is_open(self) -> bool:
        device = self._device()
        return device is not None and device.is_open

    def agent(self, command: Command, device: MeshDevice, host: Agent) -> Agent:
        """Whoever runs this command, told of everything that it waits for."""
        queue = self._queues.get(command.queue) or self._add_queue(command.queue)
        if queue.host_updates_seen != host.news_count:
            queue.follow(host)
        managers = device.sub_devices
        if managers.active is self._manager is managers.default:
            return queue
        if managers.active is not self._manager:
            self._manager = managers.active
            self._join_sub_devices()
        return self._among_sub_devices(command, device, queue)

    def _add_queue(self, number: int) -> Agent:
        self._queues[number] = Agent(f"queue {number}", number, self._places)
        return self._queues[number]

    def _join_sub_devices(self) -> None:
        """Another division of the cores waits for all that runs under the last one."""
        for (number, _), worker in self._workers.items():
            self._queues[number].learn(worker.clock)
        self._workers.clear()

    def _among_sub_devices(self, command: Command, device: MeshDevice, queue: Agent) -> Agent:
        """Launches on different sub-devices run side by side; other commands wait for those they name."""
        sub_device = (
            command.sub_devices[0]
            if command.kind is Kind.PROGRAM and command.sub_devices
            else _sub_device_of_op(command, device)
        )
        if sub_device is not None:
            launched = self._worker(queue, sub_device)
            launched.learn(queue.clock)
            return launched
        for sub_device in _waited_for(command, device):
            worker = self._workers.get((command.queue, sub_device))
            if worker is not None:
                queue.learn(worker.clock)
        return queue

    def _worker(self, queue: Agent, sub_device: int) -> Agent:
        assert queue.queue is not None
        key = (queue.queue, sub_device)
        if key not in self._workers:
            name = f"sub-device {sub_device} of {queue.name}"
            self._workers[key] = Agent(name, queue.queue, self._places)
        return self._workers[key]


def _waited_for(command: Command, device: MeshDevice) -> tuple[int, ...]:
    if command.kind is Kind.WAIT_FOR_EVENT:
        return ()  # it waits for what the event stands for
    if command.sub_devices:
        return command.sub_devices
    if command.kind.is_host_transfer or command.reads or command.writes:
        return tuple(device.sub_devices.waited_for(command.name))
    return tuple(one.id for one in device.sub_devices.ids())


_CORES, _SUB_DEVICES = ("sub_core_grids", "sub_core_grid"), ("subdevice_id", "sub_device_id", "ag_sub_device_id")


def _sub_device_of_op(command: Command, device: MeshDevice) -> int | None:
    """Where an op runs: as it was told, on the cores that hold its shards, or on the first; None for what is no op."""
    if command.has_extra_fields or command.kind.is_host_transfer or not (command.inputs and command.outputs):
        return None
    given = command.arguments
    named = next((given[name] for name in _SUB_DEVICES if given.get(name) is not None), None)
    if isinstance(named, SubDeviceId):
        return named.id
    cores = next((given[name] for name in _CORES if given.get(name) is not None), None)
    grids = [cores] if isinstance(cores, CoreRangeSet) else _grids(command)
    found = [at for grid in grids for at, own in enumerate(device.sub_devices.active.cores) if _is_within(grid, own)]
    return min(found, default=0)


def _grids(command: Command) -> Iterator[CoreRangeSet]:
    """Of operands and results in shards."""
    for tensor in (*command.inputs, *command.outputs):
        config = tensor.memory_config() if tensor.storage.device is not None else None
        if config is not None and config.shard_spec is not None and config.buffer_type is BufferType.L1:
            yield config.shard_spec.grid


def _is_within(grid: CoreRangeSet, cores: CoreRangeSet) -> bool:
    return not grid.subtract(cores).num_cores()


def span_of_memory(mesh: MeshDevice, memory: PagedMemory) -> Span | None:
    """Of a buffer, of a tensor's bytes, or of the part of either that a view looks at."""
    base: Any = memory.base if isinstance(memory, Window) else memory
    layout: PageLayout = memory.layout  # type: ignore[attr-defined]
    if not layout.bytes_per_bank:
        return None
    pool = _pool(mesh, memory.buffer_type, memory.address)
    end, number = pool.extent(base.address)
    if base is not memory or not number:
        end = memory.address + layout.bytes_per_bank
    return Span(pool, memory.address, end, number, layout, weakref.ref(memory))


def _pool(mesh: MeshDevice, kind: BufferType, address: int) -> Pool:
    """Sub-devices have the lowest addresses of L1 to themselves, each on cores of its own."""
    pool = mesh.memory.pools[kind]
    if kind is BufferType.L1 and address < pool.region.base:
        local = (mesh.memory.local(one).pools[kind] for one in mesh.sub_devices.ids())
        return next((own for own in local if own.at(address) is not None), pool)
    return pool


def owner_of_stale_view(mesh: MeshDevice, memory: PagedMemory) -> MeshMemory | None:
    """Where `memory` is a view of a buffer that was freed: that buffer's memory."""
    base = memory.base if isinstance(memory, Window) else None
    if not isinstance(base, MeshMemory) or not base.was_allocated:
        return None
    allocation = _pool(mesh, base.buffer_type, base.address).at(base.address)
    return None if allocation is not None and allocation.owner is base else base


Memories = Mapping["Pool | None", AddressSpace]


def touches_of(command: Command, device: MeshDevice, step: Step, memories: Memories) -> list[Touch]:
    """Those that may meet others; where nobody else is about, the memory itself notes the touch."""
    inputs, outputs = command.inputs, command.outputs
    touches: list[Touch] = []
    if inputs and outputs and outputs[0].storage.is_shared() and _moves_nothing(inputs, outputs[0]):
        return touches
    # To ask for what is on its way is to wait for it.
    arriving = Where(frozenset(command.coords)) if command.kind is Kind.RECEIVE else None
    is_write = False
    for tensors in (inputs, outputs):
        for tensor in tensors:
            storage = tensor.storage
            span = storage.span()
            if span is None:  # on the host, or without a byte
                continue
            where = arriving
            if where is None and (tensor.shard_positions is not None or storage.dist.coords is not None):
                where = Where(frozenset(tensor.view_distribution().coordinates()))
            if where is not None or not memories[span.pool].note(step, is_write, span):
                touches.append(Touch(step, is_write, where or EVERYWHERE, span))
        is_write = True
    if command.kind.is_exchange:
        touches += _counters(command, step)
    if command.has_extra_fields:
        touches += _memories(command.reads, command, device, step, is_write=False)
        touches += _memories(command.writes, command, device, step, is_write=True)
    return touches


def _counters(command: Command, step: Step) -> Iterator[Touch]:
    """Semaphores that it is given: it counts there, and leaves them at 0."""
    for value in command.arguments.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, GlobalSemaphore):
                span = span_of_memory(item.device(), item.buffer.memory)
                if span is not None:
                    yield Touch(step, True, EVERYWHERE, span)


def touches_of_replay(trace: Trace, step: Step) -> list[Touch]:
    """Results that were freed in the capture are not among them: nobody else may look at those anyway."""
    reads = [(memory.span(), False) for memory in trace.inputs()]
    writes: list[tuple[Span | None, bool]] = [(memory.span(), True) for memory in (*trace.changed(), *trace.outputs())]
    writes += [(span, True) for span in trace.written.counters]
    return [Touch(step, is_write, EVERYWHERE, span) for span, is_write in reads + writes if span is not None]


def _moves_nothing(inputs: Sequence[CommandTensor], made: CommandTensor) -> bool:
    """A reshape in place: its result is another tensor that lies where its operand does."""
    address = made.storage.address
    return all(t is not made for t in inputs) and any(t.storage.address == address for t in inputs)


def _memories(
    accesses: Iterable[Access], command: Command, device: MeshDevice, step: Step, *, is_write: bool
) -> Iterator[Touch]:
    is_everywhere = len(command.coords) == device.get_num_devices()
    places = None if is_everywhere else frozenset(command.coords)
    for memory, pages in accesses:
        span = span_of_memory(device, memory)
        if span is None:
            continue
        is_whole = pages is None or pages.stop - pages.start == memory.num_pages
        where = EVERYWHERE
        if pages is not None and not is_whole:
            where = Where(places, range(pages.start, pages.stop), (memory.address, span.what))
        elif places is not None:
            where = Where(places)
        yield Touch(step, is_write, where, span)
