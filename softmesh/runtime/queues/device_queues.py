"""The part of MeshDevice that is about command queues and sub-devices: a mixin class."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from softmesh.errors import MeshError
from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.runtime.queues import queue_id
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.queues.cuda_streams import open_streams, wait_for_all_queues
from softmesh.runtime.queues.operation_ids import LAUNCHED
from softmesh.runtime.queues.queue_base import Ownership
from softmesh.runtime.queues.queue_id import QueueId, chosen_queue, current_queue
from softmesh.runtime.queues.sub_devices import SubDevice, SubDeviceManagerId, SubDevices
from softmesh.runtime.traces.trace import READS, WRITES, refuse_while_recording

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class DeviceQueues:
    """The part of a MeshDevice that is about queues and sub-devices."""

    queues: list[MeshCommandQueue]
    sub_devices: SubDevices

    def _make_queues(self, grid: tuple[int, int]) -> None:
        mesh, count = cast("MeshDevice", self), self._queue_count()
        lock = threading.RLock()
        self._workers = Ownership()
        self.queues = [MeshCommandQueue(mesh, number, self._workers, lock) for number in range(count)]
        self.only_queue = self.queues[0] if count == 1 else None
        if count > 1 and mesh.torch_device.type == "cuda":
            open_streams(mesh.torch_device)
        self.sub_devices = SubDevices(grid, mesh.memory)

    def _queue_count(self) -> int:
        return cast(int, cast("MeshDevice", self).options.get("num_command_queues", 1))

    def num_hw_cqs(self) -> int:
        return len(self.queues)

    def mesh_command_queue(self, cq_id: int | QueueId | None = None) -> MeshCommandQueue:
        """The queue of this number; without one, the thread's current queue (see `ttnn.command_queue`)."""
        number = chosen_queue("mesh_command_queue", cq_id)
        if not 0 <= number < len(self.queues):
            raise MeshError(
                f"cq_id {number} is out of range: this mesh was opened with {len(self.queues)} command "
                f"queue{'s' * (len(self.queues) > 1)}. Open it with num_command_queues=2 for two."
            )
        return self.queues[number]

    def note_launch(self, cq_id: int | QueueId | None) -> None:
        """An op launches its program: on this queue, or on the thread's current one.

        Whose cores it takes is only known while there is one sub-device.
        """
        LAUNCHED.total += 1
        only = self.only_queue
        if only is not None and cq_id is None and not queue_id.is_pushed:
            only.in_use = True
            return
        number = current_queue() if cq_id is None else cq_id
        is_known = type(number) is int and 0 <= number < len(self.queues)
        queue = self.queues[int(number)] if is_known else self.mesh_command_queue(number)
        queue.in_use = True
        if self.only_queue is None and self.sub_devices.active.is_default:
            self._workers.launch(0, queue.id())

    def note_write(self, doing: str, cq_id: int | QueueId | None) -> int:
        """A tensor is written on this queue, or on the thread's current one: its number."""
        return self._note_transfer(doing, cq_id, WRITES)

    def note_read(self, doing: str, cq_id: int | QueueId | None, blocking: bool) -> int:
        """A tensor is read; a blocking read waits for everything before it."""
        number = self._note_transfer(doing, cq_id, READS)
        if len(self.queues) > 1:
            wait_for_all_queues(len(self.queues))
        if blocking and len(self.queues) > 1:
            self._workers.finished(number, self.sub_devices.waited_for(doing))
        return number

    def _note_transfer(self, doing: str, cq_id: int | QueueId | None, said: str) -> int:
        queue = self.mesh_command_queue(cq_id)
        queue.in_use = True
        refuse_while_recording(cast("MeshDevice", self), queue.id(), said, doing)
        return queue.id()

    def quiesce_devices(self) -> None:
        """Let this mesh and all its submeshes come to rest, before others that overlap them are used.

        Numbers of events begin again. Processes that hold a mesh together wait for each other.
        """
        mesh = cast("MeshDevice", self)
        mesh.check_open("quiesce_devices")
        family = [mesh, *_descendants(mesh)]
        for one in family:
            if not one.sub_devices.active.is_default:
                raise MeshError(
                    "Cannot quiesce when non-default sub-device manager is active: call "
                    f"clear_loaded_sub_device_manager() of {one!r} first."
                )
        for one in family:
            for queue in one.queues:
                queue.finish(doing="quiesce_devices")
                queue.quiesced()
            one._workers.reset()

    def _check_queues_apart(self) -> None:
        """Before closing: parent and child must not both have used a queue since they were quiesced."""
        mesh = cast("MeshDevice", self)
        parent = mesh.get_parent_mesh()
        others = [("parent", parent)] if parent is not None else []
        others += [("child", one) for one in _descendants(mesh)]
        for kind, other in others:
            for mine, theirs in zip(self.queues, other.queues, strict=True):
                if mine.in_use and theirs.in_use:
                    raise MeshError(
                        f"MeshDevice cq ID {mine.id()} is in use by {kind} mesh ID {other.id()} during close of mesh "
                        f"ID {mesh.id()}: both have run commands on it. Call quiesce_devices() of the parent when you "
                        "change from one to the other, and before closing."
                    )

    # -- sub-devices -----------------------------------------------------------------------------

    def create_sub_device_manager(self, sub_devices: Sequence[SubDevice], local_l1_size: int) -> SubDeviceManagerId:
        """Define sub-devices, each with `local_l1_size` bytes of L1 of its own; `load_sub_device_manager` uses them."""
        made = self._managing("create_sub_device_manager").create(sub_devices, local_l1_size)
        self._tell_ranks("create_sub_device_manager", list(sub_devices), local_l1_size)
        return made

    def load_sub_device_manager(self, sub_device_manager_id: SubDeviceManagerId) -> None:
        self._managing("load_sub_device_manager").load(sub_device_manager_id)
        self._tell_ranks("load_sub_device_manager", list(self.sub_devices.active.cores))

    def clear_loaded_sub_device_manager(self) -> None:
        """Back to one sub-device with all worker cores."""
        self._managing("clear_loaded_sub_device_manager").clear()
        self._tell_ranks("clear_loaded_sub_device_manager")

    def remove_sub_device_manager(self, sub_device_manager_id: SubDeviceManagerId) -> None:
        self._managing("remove_sub_device_manager").remove(sub_device_manager_id)
        self._tell_ranks("remove_sub_device_manager")

    def get_sub_device_ids(self) -> list[SubDeviceId]:
        return self._managing("get_sub_device_ids").ids()

    def num_sub_devices(self) -> int:
        return len(self._managing("num_sub_devices").ids())

    def get_active_sub_device_manager_id(self) -> SubDeviceManagerId:
        return self._managing("get_active_sub_device_manager_id").active.id

    def get_default_sub_device_manager_id(self) -> SubDeviceManagerId:
        return self._managing("get_default_sub_device_manager_id").default.id

    def set_sub_device_stall_group(self, sub_device_ids: Sequence[SubDeviceId]) -> None:
        """Let reads, writes and events wait for these sub-devices only."""
        self._managing("set_sub_device_stall_group").set_stall_group(sub_device_ids)
        self._tell_ranks("set_sub_device_stall_group", list(sub_device_ids))

    def reset_sub_device_stall_group(self) -> None:
        self._managing("reset_sub_device_stall_group").reset_stall_group()
        self._tell_ranks("reset_sub_device_stall_group")

    def get_sub_device_stall_group(self) -> list[SubDeviceId]:
        return list(self._managing("get_sub_device_stall_group").stall_group())

    def _tell_ranks(self, name: str, *arguments: object) -> None:
        cast("MeshDevice", self).tell_ranks(f"{name}({', '.join(map(str, arguments))})")

    def _managing(self, doing: str) -> SubDevices:
        mesh = cast("MeshDevice", self)
        mesh.check_open(doing)
        mesh.check_local(doing)
        return self.sub_devices


def _descendants(mesh: MeshDevice) -> list[MeshDevice]:
    children = mesh.get_submeshes()
    return [*children, *(one for child in children for one in _descendants(child))]
