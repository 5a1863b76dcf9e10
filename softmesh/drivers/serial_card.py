"""Base class of drivers: a card that runs its work in order on a worker thread of its own.

A driver's own part is a handful of verbs that run to their end (`_store`, `_load`, `_run`, ...). This class
gives them the protocol: checks at the edge, submission that returns at once, waits with a deadline, the mark
of failure after a timeout, and traces by submitting again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softmesh.drivers.heap import Heap
from softmesh.drivers.launches import Launch, Recording, Trace, chosen_cores, core_args, with_params
from softmesh.drivers.protocol import (
    Args,
    Cores,
    DriverInfo,
    Event,
    Handle,
    Image,
    MemoryKind,
    ProgramSpec,
    Xy,
)
from softmesh.drivers.worker_thread import Deadline, Task, Worker
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError

TRANSFER_SECONDS = 10.0
RUN_SECONDS = 30.0
_CLOSING_SECONDS = 0.5


class SerialCard:
    """Subclasses fill in the verbs with an underscore; they run on the card's thread, one at a time."""

    def __init__(self, info: DriverInfo, cores: Sequence[Xy]) -> None:
        self.info = info
        self.cores = list(cores)
        self.failed: str | None = None
        self.closed = False
        self._worker = Worker(f"card {info.serial}")
        self._unfinished: list[Task] = []
        self._heap = Heap(info)
        self._recording = Recording()

    def _place(self, handle: Handle) -> None:
        """Get ready for a buffer whose place has been checked; MemoryError where the card cannot."""

    def _release(self, handle: Handle) -> None:
        """The buffer is no longer used."""

    def _store(self, handle: Handle, offset: int, data: bytes) -> None:
        raise NotImplementedError

    def _load(self, handle: Handle, offset: int, size: int) -> Any:
        raise NotImplementedError

    def _compile(self, spec: ProgramSpec) -> Image:
        raise NotImplementedError

    def _run(self, launch: Launch) -> None:
        raise NotImplementedError

    def _reset(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def alloc(
        self,
        size: int,
        *,
        mem: MemoryKind = "dram",
        page_size: int | None = None,
        banks: int | None = None,
        address: int | None = None,
    ) -> Handle:
        self._check_usable()
        handle = self._heap.place(size, mem, page_size, banks, address)
        try:
            self._place(handle)
        except BaseException:
            self._heap.release(handle)
            raise
        return handle

    def free(self, handle: Handle) -> None:
        if self._heap.release(handle):
            self._release(handle)

    def write(self, handle: Handle, data: Any, *, offset: int = 0) -> Event | None:
        view = memoryview(data)
        payload = bytes(view if view.format == "B" else view.cast("B"))
        self._check_access(handle, offset, len(payload))
        what = f"a write of {len(payload)} bytes at {hex(handle.address)}"
        return self._post(what, lambda: self._store_pieces(handle, offset, payload))

    def read(self, handle: Handle, out: Any = None, *, offset: int = 0, size: int | None = None) -> memoryview:
        count = handle.size - offset if size is None else size
        self._check_access(handle, offset, count)
        what = f"a read of {count} bytes at {hex(handle.address)}"
        task = self._post(what, lambda: self._load_pieces(handle, offset, count))
        found = memoryview(self._finish(task, TRANSFER_SECONDS))
        self._raise_unreported()
        if out is None:
            return found
        target = memoryview(out).cast("B")
        target[: len(found)] = found
        return target[: len(found)]

    def compile(self, program_spec: ProgramSpec) -> Image:
        self._check_usable()
        if not program_spec.kernels:
            raise ArgumentValueError(f"program {program_spec.name!r} has no kernels: nothing would run")
        chosen_cores(program_spec.cores, self.cores)
        return self._compile(program_spec)

    def submit(self, image: Image, args: Args = (), *, cores: Cores | None = None) -> Event:
        where = chosen_cores(self._cores_of(image) if cores is None else cores, self.cores)
        launch = Launch(image, where, core_args(args, where))
        if not self._recording.is_on:
            return self._launch(launch)
        self._recording.keep(launch)
        recorded = Task(f"{self._name_of(image)}, recorded")
        recorded.finish()
        return recorded

    def query(self, event: Event) -> bool:
        return _task(event).done()

    def wait(self, event: Event, timeout: float | None = None) -> None:
        self._finish(_task(event), RUN_SECONDS if timeout is None else timeout)

    def sync(self, timeout: float | None = None) -> None:
        deadline = Deadline(RUN_SECONDS if timeout is None else timeout)
        waiting = list(self._unfinished)
        errors = [error for task in waiting if (error := self._outcome(task, deadline.left())) is not None]
        self._unfinished = [task for task in self._unfinished if task not in waiting or not task.done()]
        if errors:
            raise errors[0]

    def begin_trace(self) -> None:
        self._check_usable()
        self._recording.begin()

    def end_trace(self) -> Trace:
        return self._recording.end()

    def replay(self, trace: Trace, params: Mapping[str, int] | None = None) -> Event:
        """The event of the last launch; those before it have run when it has."""
        return [self._launch(launch) for launch in with_params(trace, params)][-1]

    def reset(self) -> None:
        """Nothing that was placed or submitted before is left."""
        self._check_open()
        self._abandon()
        self._reset()
        self._worker, self.failed = Worker(f"card {self.info.serial}"), None
        self._heap, self._unfinished, self._recording = Heap(self.info), [], Recording()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._abandon()
            self._close()

    def _abandon(self) -> None:
        """Let what was submitted come to its end, unless it hangs."""
        self._worker.close(0.0 if self.failed else _CLOSING_SECONDS)
        for task in self._unfinished:
            task.finish(error=MeshError(f"{task.what} was cut off: card {self.info.serial} was reset or closed"))

    def _launch(self, launch: Launch) -> Task:
        return self._post(self._name_of(launch.image), lambda: self._run(launch))

    def _cores_of(self, image: Image) -> Cores:
        cores: Cores = image.cores
        return cores

    def _name_of(self, image: Image) -> str:
        return f"program {image.name!r}"

    def _store_pieces(self, handle: Handle, offset: int, data: bytes) -> None:
        """In steps that the card can take."""
        step = self.info.max_transfer
        for at in range(0, len(data), step):
            self._store(handle, offset + at, data[at : at + step])

    def _load_pieces(self, handle: Handle, offset: int, size: int) -> Any:
        step = self.info.max_transfer
        if 0 < size <= step:
            return self._load(handle, offset, size)
        return b"".join(self._load(handle, offset + at, min(step, size - at)) for at in range(0, size, step))

    def _post(self, what: str, work: Callable[[], Any]) -> Task:
        self._check_usable()
        task = self._worker.post(what, work)
        self._unfinished = [each for each in self._unfinished if not each.done() or each.error]
        self._unfinished.append(task)
        return task

    def _finish(self, task: Task, timeout: float) -> Any:
        error = self._outcome(task, timeout)
        if task.done() and task in self._unfinished:
            self._unfinished.remove(task)
        if error is not None:
            raise error
        return task.result

    def _raise_unreported(self) -> None:
        """What failed while nobody waited for it: values read after it would not be what they seem."""
        failed = next((task for task in self._unfinished if task.error is not None), None)
        if failed is not None:
            self._finish(failed, 0.0)

    def _outcome(self, task: Task, timeout: float) -> BaseException | None:
        """What went wrong, if anything did; a timeout marks the card."""
        try:
            task.wait(timeout)
        except TimeoutError as error:
            self.failed = self.failed or str(error)
            return error
        except BaseException as error:
            return error
        return None

    def _check_open(self) -> None:
        if self.closed:
            raise MeshError(f"card {self.info.serial} is closed; open it again")

    def _check_usable(self) -> None:
        self._check_open()
        if self.failed:
            raise MeshError(f"card {self.info.serial} is unusable since {self.failed}; reset() it first")

    def _check_access(self, handle: Handle, offset: int, size: int) -> None:
        self._check_usable()
        if offset < 0 or size < 0 or offset + size > handle.size:
            raise ArgumentValueError(f"bytes {offset} to {offset + size} do not lie in a buffer of {handle.size} bytes")
        if not self._heap.holds(handle):
            raise MeshError(f"there is no buffer at {hex(handle.address)} on card {self.info.serial}: it was freed")


def _task(event: Event) -> Task:
    if not isinstance(event, Task):
        raise ArgumentError(f"{event!r} is no event of this driver")
    return event
