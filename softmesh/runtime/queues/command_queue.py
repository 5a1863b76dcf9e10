"""MeshCommandQueue: commands of one queue, in order.

Each command has run to its end when the call returns: one of the orders that a device may choose. What a device
might do in another order is for observers to find: every command says what it read and wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.commands import Access, observed
from softmesh.runtime.queues.buffer_commands import BufferCommands
from softmesh.runtime.queues.cuda_streams import stream_of
from softmesh.runtime.queues.events import MeshEvent
from softmesh.runtime.queues.queue_base import whole_range
from softmesh.runtime.queues.workload import MeshWorkload, Touched
from softmesh.runtime.traces.trace import BLOCKING, EVENT_SYNCHRONIZATION, WRITES

if TYPE_CHECKING:
    from softmesh.runtime.command_tensor import CommandTensor
    from softmesh.runtime.traces.recording import MeshTraceId


class MeshCommandQueue(BufferCommands):
    """`mesh.mesh_command_queue(id)`."""

    if TYPE_CHECKING:
        # bound in ops.tensor_methods
        def enqueue_write_tensor(
            self, host_tensor: CommandTensor, device_tensor: CommandTensor, blocking: bool = False
        ) -> None: ...
        def enqueue_read_tensor(
            self, device_tensor: CommandTensor, host_tensor: CommandTensor, blocking: bool = True
        ) -> None: ...

        # bound in runtime.traces.trace_api
        def record_begin(self, trace_id: MeshTraceId | None = None) -> MeshTraceId: ...
        def record_end(self) -> MeshTraceId: ...
        def enqueue_trace(self, trace_id: MeshTraceId, blocking: bool) -> None: ...

    # -- workloads -------------------------------------------------------------------------------

    def enqueue_mesh_workload(self, workload: MeshWorkload, blocking: bool) -> None:
        where = "enqueue_mesh_workload"
        checked(where, "workload", workload, MeshWorkload, "a MeshWorkload")
        with self._lock:
            mesh = self._open(where)
            if blocking:
                self._refuse(BLOCKING, where)
            if not workload.is_finalised:
                self._refuse(WRITES, f"{where} of a workload that never ran, and whose kernels must be sent,")
            sub_device = workload.prepare(mesh)
            if self.capturing is not None:
                launched = workload.frozen()
                self.capturing.act(lambda: self._launch(launched, sub_device), (), (), name="a workload of kernels")
                return
            self._launch(workload, sub_device, blocking)

    def _launch(self, workload: MeshWorkload, sub_device: int, blocking: bool = False) -> None:
        mesh = self.device()
        self._ownership.launch(sub_device, self._number)
        touched = Touched() if mesh.is_remote_only() else workload.run(mesh, self)
        if blocking:
            self.wait("enqueue_mesh_workload", [sub_device])
        if observed():
            self._tell(
                "enqueue_mesh_workload",
                Kind.PROGRAM,
                blocking=blocking,
                coords=workload.coordinates(),
                reads=tuple(map(Access, touched.reads)),
                writes=tuple(map(Access, touched.writes)),
                sub_devices=(sub_device,),
            )

    # -- events ----------------------------------------------------------------------------------

    def enqueue_record_event(
        self, sub_device_ids: Sequence[SubDeviceId] = (), device_range: MeshCoordinateRange | None = None
    ) -> MeshEvent:
        """A mark that other queues can wait for; the host cannot."""
        return self._record("enqueue_record_event", sub_device_ids, device_range, to_host=False)

    def enqueue_record_event_to_host(
        self, sub_device_ids: Sequence[SubDeviceId] = (), device_range: MeshCoordinateRange | None = None
    ) -> MeshEvent:
        return self._record("enqueue_record_event_to_host", sub_device_ids, device_range, to_host=True)

    def _record(
        self, where: str, ids: Sequence[SubDeviceId], box: MeshCoordinateRange | None, *, to_host: bool
    ) -> MeshEvent:
        with self._lock:
            mesh = self._open(where)
            self._refuse(EVENT_SYNCHRONIZATION, where)
            waited = mesh.sub_devices.waited_for(where, ids)
            chosen = whole_range(mesh) if box is None else self._check_range(where, box)
            event = self.events.record(mesh, chosen, to_host=to_host)
            if self._is_on_gpu:
                event.passed = torch.cuda.Event()
                event.passed.record(stream_of(mesh.torch_device, self._number))
            self._ownership.recorded(self._number, event.id, waited)
            if observed():
                self._tell(where, Kind.RECORD_EVENT, coords=list(chosen), event=event, sub_devices=tuple(waited))
            return event

    def enqueue_wait_for_event(self, event: MeshEvent) -> None:
        """What comes after it on this queue waits for the event; the host does not."""
        where = "enqueue_wait_for_event"
        checked(where, "event", event, MeshEvent, "a ttnn.MeshEvent of ttnn.record_event(...)")
        with self._lock:
            mesh = self._open(where)
            self._refuse(EVENT_SYNCHRONIZATION, where)
            if event.device() is not mesh:
                raise MeshError(f"{where}: {event} was recorded on {event.device()!r}, and this queue is of {mesh!r}.")
            mesh.mesh_command_queue(event.mesh_cq_id).check_fresh(event, where)
            self._ownership.waited_for(event.mesh_cq_id, event.id)
            if event.passed is not None:
                stream_of(mesh.torch_device, self._number).wait_event(event.passed)
            if observed():
                self._tell(where, Kind.WAIT_FOR_EVENT, coords=list(event.device_range), event=event)

    def check_fresh(self, event: MeshEvent, doing: str) -> None:
        if self.events.is_stale(event):
            raise MeshError(
                f"{doing}: {event} was recorded before mesh.quiesce_devices(), which lets the numbers of events begin "
                "again: a device would wait for another event, or for ever. Record a new one."
            )

    # -- waiting ---------------------------------------------------------------------------------

    def finish(self, sub_device_ids: Sequence[SubDeviceId] = (), *, doing: str = "finish") -> None:
        """Let the host wait until everything enqueued so far has run. `doing` is whose wait it is."""
        with self._lock:
            mesh = self._open(doing)
            self._refuse(EVENT_SYNCHRONIZATION, doing)
            waited = mesh.sub_devices.waited_for(doing, sub_device_ids)
            self.wait(doing, waited)
            if observed():
                self._tell("finish", Kind.FINISH, blocking=True, sub_devices=tuple(waited))
