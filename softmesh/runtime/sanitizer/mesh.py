"""Who works on a mesh: its queues, and the sub-devices they launch on; and the memories they share."""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import TYPE_CHECKING

from softmesh.placement.distribution import mesh_coordinates
from softmesh.runtime.sanitizer.address_space import AddressSpace
from softmesh.runtime.sanitizer.clock import Agent

if TYPE_CHECKING:
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.pool import Pool

LAUNCH = "enqueue_mesh_workload"
_TRANSFERS = frozenset(
    {
        "from_torch",
        "full",
        "zeros",
        "ones",
        "empty",
        "arange",
        "rand",
        "to_torch",
        "to_device",
        "from_device",
        "copy_host_to_device_tensor",
        "copy_device_to_host_tensor",
    }
)


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
        if queue.heard != host.news:
            queue.follow(host)
        managers = device.sub_devices
        if managers.active is self._manager is managers.default:
            return queue
        if managers.active is not self._manager:
            self._manager = managers.active
            self._come_together()
        return self._among_sub_devices(command, device, queue)

    def _add_queue(self, number: int) -> Agent:
        self._queues[number] = Agent(f"queue {number}", number, self._places)
        return self._queues[number]

    def _come_together(self) -> None:
        """Another division of the cores waits for all that runs under the last one."""
        for (number, _), worker in self._workers.items():
            self._queues[number].learn(worker.clock)
        self._workers.clear()

    def _among_sub_devices(self, command: Command, device: MeshDevice, queue: Agent) -> Agent:
        """Launches on different sub-devices run side by side; other commands wait for those they name."""
        if command.name == LAUNCH:
            (sub_device,) = command.sub_devices
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
    if command.sub_devices:
        return command.sub_devices
    if command.name in _TRANSFERS or command.reads or command.writes:
        return tuple(device.sub_devices.waited_for())
    return tuple(one.id for one in device.sub_devices.ids())  # an op: nobody says which cores it runs on
