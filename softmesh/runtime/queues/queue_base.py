"""The base class of a command queue: its mesh, its lock, what a trace capture refuses, and how the host waits for it.

Also here: which queue owns the worker cores of a sub-device (two queues may not launch on the same cores unordered),
and the synchronize hooks that every wait runs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinateRange, MeshShape
from softmesh.placement.distribution import mesh_coordinates
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.machine_errors import raise_machine_error
from softmesh.runtime.queues.cuda_streams import stream_of
from softmesh.runtime.queues.events import EventLog
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.trace import recording_on, refuse_while_recording

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


# Synchronize hooks: work that goes on after a call has returned (socket transfers) registers a function here, and
# every wait of the host drains it.


SynchronizeHook = Callable[["MeshDevice"], None]
_SYNCHRONIZE_HOOKS: list[SynchronizeHook] = []


def on_synchronize(finish: SynchronizeHook) -> SynchronizeHook:
    """Call `finish(mesh)` whenever a mesh must come to rest."""
    _SYNCHRONIZE_HOOKS.append(finish)
    return finish


def run_synchronize_hooks(mesh: MeshDevice) -> None:
    for finish in _SYNCHRONIZE_HOOKS:
        finish(mesh)


class _Workers:
    """`owner` launched last; `released_at` is its first event recorded since, by which another may take over."""

    __slots__ = ("owner", "released_at")

    def __init__(self) -> None:
        self.owner: int | None = None
        self.released_at: int | None = None


class Ownership:
    """Of all sub-devices of one mesh, by their numbers."""

    def __init__(self) -> None:
        self._workers: dict[int, _Workers] = {}

    def is_in_use(self) -> bool:
        return bool(self._workers)

    def launch(self, sub_device: int, queue: int) -> None:
        workers = self._workers.get(sub_device)
        if workers is None:
            workers = self._workers[sub_device] = _Workers()
        if workers.owner is not None and workers.owner != queue:
            raise MeshError(
                f"Sub device id {sub_device} currently in use by cq {workers.owner}: cq {queue} may use its cores "
                f"after cq {workers.owner} has finished, or once cq {queue} waits for an event that "
                f"cq {workers.owner} records after its work (ttnn.record_event, ttnn.wait_for_event)."
            )
        workers.owner, workers.released_at = queue, None

    def recorded(self, queue: int, event: int, sub_devices: Iterable[int]) -> None:
        for workers in self._owned_by(queue, sub_devices):
            if workers.released_at is None:
                workers.released_at = event

    def waited_for(self, queue: int, event: int) -> None:
        """Some queue waits for this event of `queue`: what it follows is over by then."""
        for workers in self._owned_by(queue, self._workers):
            if workers.released_at is not None and workers.released_at <= event:
                workers.owner = None

    def finished(self, queue: int, sub_devices: Iterable[int]) -> None:
        for workers in self._owned_by(queue, sub_devices):
            workers.owner = None

    def reset(self) -> None:
        self._workers.clear()

    def _owned_by(self, queue: int, sub_devices: Iterable[int]) -> list[_Workers]:
        found = (self._workers.get(number) for number in sub_devices)
        return [workers for workers in found if workers is not None and workers.owner == queue]


_A_RANGE = "a ttnn.MeshCoordinateRange"


@lru_cache(maxsize=256)
def _range_of(shape: tuple[int, ...]) -> MeshCoordinateRange:
    return MeshCoordinateRange(MeshShape(shape))


def whole_range(mesh: MeshDevice) -> MeshCoordinateRange:
    return _range_of(tuple(mesh.shape))


class QueueBase:
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
            raise MeshError("MeshCommandQueue: its mesh is gone. Keep the mesh for as long as its queues are used.")
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
        inside = checked(where, "device_range", box, MeshCoordinateRange, _A_RANGE).dims() == mesh.shape.dims()
        if not inside or not whole_range(mesh).contains(box):
            raise MeshError(f"{where}: {box} lies outside the mesh, which is {mesh.shape}.")
        return box

    def _done(self, name: str, kind: Kind, blocking: bool, **more: Any) -> None:
        """The end of a command: told to observers, and waited for."""
        if blocking:
            self.wait(name)
        if observed():
            self._tell(name, kind, blocking=blocking, **more)

    def wait(self, why: str, sub_devices: Sequence[int] = ()) -> None:
        """Until everything on this queue has run; on these sub-devices, or on the stall group."""
        mesh = self.device()
        run_synchronize_hooks(mesh)
        if self._is_on_gpu:
            self._await_stream(mesh, why)
        self.events.record_finish()
        if self._ownership.is_in_use():
            self._ownership.finished(self._number, sub_devices or mesh.sub_devices.waited_for(why))
        if mesh.ranks is not None:
            mesh.ranks.barrier(why)

    def _await_stream(self, mesh: MeshDevice, why: str) -> None:
        try:
            stream_of(mesh.torch_device, self._number).synchronize()
        except RuntimeError as error:
            raise_machine_error(why, error, mesh)
            raise

    def _tell(self, name: str, kind: Kind, **more: Any) -> None:
        mesh = self.device()
        more.setdefault("coords", mesh_coordinates(tuple(mesh.shape)))
        more.setdefault("device", mesh)
        emit(name, kind, (), (), queue=self._number, **more)
