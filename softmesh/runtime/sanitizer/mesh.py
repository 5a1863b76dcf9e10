"""Who works on a mesh: its queues, and the sub-devices they launch on; and the memories they share."""

from __future__ import annotations

import weakref
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
        self._queues = [Agent(f"queue {queue.id()}", queue.id(), self._places) for queue in device.queues]
        self._workers: dict[tuple[int, int], Agent] = {}  # by queue and sub-device
        self._manager = device.sub_devices.active.id
        self._memories: dict[Pool, AddressSpace] = {}

    def is_open(self) -> bool:
        device = self._device()
        return device is not None and device.is_open

    def memory(self, pool: Pool) -> AddressSpace:
        found = self._memories.get(pool)
        if found is None:
            found = self._memories[pool] = AddressSpace()
        return found

    def agent(self, command: Command, device: MeshDevice, host: Agent) -> Agent:
        """Whoever runs this command, told of everything that it waits for."""
        queue = self._queues[command.queue]
        queue.follow(host)
        active = device.sub_devices.active
        if active.is_default and active.id == self._manager:
            return queue
        if active.id != self._manager:
            self._manager = active.id
            self._come_together()
        return self._among_sub_devices(command, device, queue)

    def _come_together(self) -> None:
        """Another division of the cores waits for all that runs under the last one."""
        for (number, _), worker in self._workers.items():
            self._queues[number].learn(worker.clock)
        self._workers.clear()

    def _among_sub_devices(self, command: Command, device: MeshDevice, queue: Agent) -> Agent:
        """Launches on different sub-devices run side by side; other commands wait for those they name."""
        if command.name == LAUNCH:
            (sub_device,) = command.sub_devices
            worker = self._worker(queue, sub_device)
            worker.learn(queue.clock)
            return worker
        for sub_device in _waited_for(command, device):
            worker = self._workers.get((command.queue, sub_device))
            if worker is not None:
                queue.learn(worker.clock)
        return queue

    def _worker(self, queue: Agent, sub_device: int) -> Agent:
        assert queue.queue is not None
        worker = self._workers.get((queue.queue, sub_device))
        if worker is None:
            name = f"sub-device {sub_device} of {queue.name}"
            worker = self._workers[queue.queue, sub_device] = Agent(name, queue.queue, self._places)
        return worker


def _waited_for(command: Command, device: MeshDevice) -> tuple[int, ...]:
    if command.sub_devices:
        return command.sub_devices
    if command.name in _TRANSFERS or command.reads or command.writes:
        return tuple(device.sub_devices.waited_for())
    return tuple(one.id for one in device.sub_devices.ids())  # an op: nobody says which cores it runs on
