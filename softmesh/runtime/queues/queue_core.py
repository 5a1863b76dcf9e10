"""What all commands of a queue have in common: whose it is, when it is refused, how the host waits for it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinateRange, MeshShape
from softmesh.placement.distribution import mesh_coordinates
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.pending import finish_pending
from softmesh.runtime.queues.event_log import EventLog
from softmesh.runtime.queues.ownership import Ownership
from softmesh.runtime.traces.captures import recording_on, refuse_while_recording
from softmesh.runtime.traces.recording import Recording

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

_A_RANGE = "a ttnn.MeshCoordinateRange"


@lru_cache(maxsize=256)
def _range_of(shape: tuple[int, ...]) -> MeshCoordinateRange:
    return MeshCoordinateRange(MeshShape(shape))


def whole_range(mesh: MeshDevice) -> MeshCoordinateRange:
    return _range_of(tuple(mesh.shape))


class QueueCore:
    def __init__(self, mesh: MeshDevice, number: int, ownership: Ownership, lock: threading.RLock) -> None:
        self._mesh = weakref.ref(mesh)
        self._number = number
        self._ownership = ownership
        self._lock = lock  # one for all queues of a mesh
        self.events = EventLog(number)
        self.in_use = False  # since the mesh was last quiesced
        self._is_on_gpu = mesh.torch_device.type == "cuda"

    def __repr__(self) -> str:
        return f"MeshCommandQueue({self._number} of {self.device()!r})"

    def id(self) -> int:
        return self._number

    def device(self) -> MeshDevice:
        mesh = self._mesh()
        if mesh is None:
            raise MeshError(
                "MeshCommandQueue: its mesh is gone. Keep the mesh for as long as its queues are used."
            )
        return mesh

    @property
    def capturing(self) -> Recording | None:
        """What records the launches of this queue at present."""
        return recording_on(self._mesh(), self._number)

    def quiesced(self) -> None:
        """Everything is done, and numbers begin again."""
        self.events.start_again()
        self.in_use = False

    def _open(self, where: str) -> MeshDevice:
        mesh = self.device()
        mesh.check_open(where)
        self.in_use = True
        return mesh

    def _refuse(self, said: str, doing: str) -> None:
        """Where this queue is being recorded; `said` is the chip's own sentence."""
        refuse_while_recording(self._mesh(), self._number, said, doing)

    def _check_range(self, where: str, box: MeshCoordinateRange) -> MeshCoordinateRange:
        mesh = self.device()
        inside = (
            checked(where, "device_range", box, MeshCoordinateRange, _A_RANGE).dims() == mesh.shape.dims()
        )
        if not inside or not whole_range(mesh).contains(box):
            raise MeshError(f"{where}: {box} lies outside the mesh, which is {mesh.shape}.")
        return box

    def _done(self, name: str, blocking: bool, **more: Any) -> None:
        """The end of a command: told to observers, and waited for."""
        if blocking:
            self.wait(name)
        if observed():
            self._tell(name, blocking=blocking, **more)

    def wait(self, why: str, sub_devices: Sequence[int] = ()) -> None:
        """Until everything on this queue has run; on these sub-devices, or on the stall group."""
        mesh = self.device()
        finish_pending(mesh)
        if self._is_on_gpu:
            torch.cuda.synchronize(mesh.torch_device)
        self.events.record_finish()
        if self._ownership.is_in_use():
            self._ownership.finished(self._number, sub_devices or mesh.sub_devices.waited_for())
        if mesh.ranks is not None:
            mesh.ranks.barrier(why)

    def _tell(self, name: str, **more: Any) -> None:
        mesh = self.device()
        more.setdefault("coords", mesh_coordinates(tuple(mesh.shape)))
        more.setdefault("device", mesh)
        emit(name, (), (), queue=self._number, **more)
