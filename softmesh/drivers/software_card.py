"""Base class of software cards: kernels are Python functions, memory is any byte store, cables are objects.

The kinds differ in their memory: see `virtual_card` (torch) and `byte_card` (bytearrays, with faults).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from softmesh.drivers.heap import region_of
from softmesh.drivers.launches import Launch
from softmesh.drivers.protocol import Cores, DriverInfo, Event, Handle, MemoryKind, ProgramSpec
from softmesh.drivers.python_kernels import Core, Counter, Fifo, Memory, Pages, run_cooperatively
from softmesh.drivers.serial_card import SerialCard
from softmesh.drivers.worker_thread import Task
from softmesh.errors import ArgumentError, MeshError

# Cables: bytes cross when one end has posted a send and the other a receive.


class End(NamedTuple):
    """One end of a cable: a port of the card with this serial."""

    serial: str
    port: int


class _Send(NamedTuple):
    data: bytes
    done: Task


class _Receive(NamedTuple):
    size: int
    store: Callable[[bytes], None]
    done: Task


class Lane:
    """One direction of a cable. A posted receive is the credit that a send needs."""

    def __init__(self) -> None:
        self._sends: deque[_Send] = deque()
        self._receives: deque[_Receive] = deque()
        self._lock = threading.Lock()

    def post_send(self, data: bytes, done: Task) -> None:
        self._sends.append(_Send(data, done))
        self._match()

    def post_receive(self, size: int, store: Callable[[bytes], None], done: Task) -> None:
        self._receives.append(_Receive(size, store, done))
        self._match()

    def clear(self) -> None:
        """Forget what was posted and has found no partner."""
        with self._lock:
            self._sends.clear()
            self._receives.clear()

    def _match(self) -> None:
        with self._lock:
            while self._sends and self._receives:
                _transfer(self._sends.popleft(), self._receives.popleft())


def _transfer(send: _Send, receive: _Receive) -> None:
    error = None
    if len(send.data) != receive.size:
        error = MeshError(f"{send.done.what} met {receive.done.what}: both ends must post the same size")
    else:
        receive.store(send.data)
    send.done.finish(error=error)
    receive.done.finish(error=error)


class Cables:
    """All cables of a rack, by their ends."""

    def __init__(self, pairs: list[tuple[End, End]]) -> None:
        ends = [end for pair in pairs for end in pair]
        twice = next((end for end in ends if ends.count(end) > 1), None)
        if twice:
            raise MeshError(f"port {twice.port} of {twice.serial} cannot have two cables")
        self._far = {near: far for a, b in pairs for near, far in ((a, b), (b, a))}
        self._lanes = {near: Lane() for near in self._far}  # by the end that sends

    def peers(self, serial: str) -> dict[int, tuple[str, int]]:
        return {near.port: (far.serial, far.port) for near, far in self._far.items() if near.serial == serial}

    def outgoing(self, end: End) -> Lane:
        return self._lanes[self._known(end)]

    def incoming(self, end: End) -> Lane:
        return self._lanes[self._far[self._known(end)]]

    def clear(self, serial: str) -> None:
        for near, far in self._far.items():
            if serial in (near.serial, far.serial):
                self._lanes[near].clear()

    def _known(self, end: End) -> End:
        if end not in self._far:
            ports = sorted(self.peers(end.serial))
            raise MeshError(f"no cable is plugged into port {end.port} of {end.serial}; there is one in {ports}")
        return end


class PythonImage(NamedTuple):
    """A program whose kernels are Python functions: nothing is left to compile."""

    name: str
    cores: Cores
    spec: ProgramSpec


class SoftwareCard(SerialCard):
    def __init__(self, info: DriverInfo, cables: Cables, new_memory: Callable[[int], Memory]) -> None:
        columns, rows = info.core_grid
        super().__init__(info, [(x, y) for y in range(rows) for x in range(columns)])
        self._cables = cables
        self._new_memory = new_memory
        self._memories = self._empty_memories()

    def __repr__(self) -> str:
        info, state = self.info, "closed" if self.closed else "open"
        return f"{type(self).__name__}({info.index}, {info.serial!r}: {info.board}, {info.num_cores} cores, {state})"

    def _empty_memories(self) -> Mapping[MemoryKind, Memory]:
        return {
            "dram": self._new_memory(self.info.dram_banks),
            "l1": self._new_memory(self.info.num_cores),
        }

    def _store(self, handle: Handle, offset: int, data: bytes) -> None:
        self._memories[handle.mem].write(handle, offset, data)

    def _load(self, handle: Handle, offset: int, size: int) -> Any:
        return self._memories[handle.mem].read(handle, offset, size)

    def _compile(self, spec: ProgramSpec) -> PythonImage:
        for role, kernel in spec.kernels.items():
            if not callable(kernel):
                raise ArgumentError(
                    f"the {role} of program {spec.name!r} must be a function of a Core on a {self.info.kind} card, "
                    f"got a {type(kernel).__name__}"
                )
        needed = sum(cb.page_size * cb.pages for cb in spec.cbs)
        room = self.info.l1_bytes - self.info.l1_base
        if needed > room:
            raise MeshError(
                f"Statically allocated circular buffers of program {spec.name!r} grow to {needed} B which is beyond "
                f"max L1 size of {room} B; use fewer or smaller pages"
            )
        return PythonImage(spec.name, spec.cores, spec)

    def _run(self, launch: Launch) -> None:
        spec = launch.image.spec
        counters = {xy: [Counter(f"semaphore {i} of core {xy}") for i in range(spec.semaphores)] for xy in launch.cores}
        kernels: dict[str, Callable[[], None]] = {}
        for index, xy in enumerate(launch.cores):
            fifos = {cb.index: Fifo(cb) for cb in spec.cbs}
            core = Core(index, launch.cores, launch.args[index], spec.compile_args, self._pages, fifos, counters)
            for role, kernel in spec.kernels.items():
                kernels[f"{role} on core {xy}"] = partial(_on_core, kernel, core, role, spec.name)
        run_cooperatively(kernels)

    def _pages(self, mem: MemoryKind, banks: int | None, address: int, page_size: int) -> Pages:
        region = region_of(self.info, mem)
        chosen = region if banks is None else replace(region, banks=min(banks, region.banks))
        return Pages(self._memories[mem], mem, chosen, address, page_size)

    def peers(self) -> dict[int, tuple[str, int]]:
        return self._cables.peers(self.info.serial)

    def send(self, port: int, handle: Handle, offset: int, size: int) -> Event:
        self._check_access(handle, offset, size)
        lane = self._cables.outgoing(End(self.info.serial, port))
        done = Task(f"a send of {size} bytes from port {port} of {self.info.serial}")
        self._transfer(done, lambda: lane.post_send(bytes(self._load(handle, offset, size)), done))
        return done

    def recv(self, port: int, handle: Handle, offset: int, size: int) -> Event:
        self._check_access(handle, offset, size)
        lane = self._cables.incoming(End(self.info.serial, port))
        done = Task(f"a receive of {size} bytes at port {port} of {self.info.serial}")
        memory = self._memories[handle.mem]
        store = partial(memory.write, handle, offset)
        self._transfer(done, lambda: lane.post_receive(size, store, done))
        return done

    def _transfer(self, done: Task, post: Callable[[], None]) -> None:
        """Posted when its turn comes; over when the other end has posted too, or when posting failed."""

        def post_or_tell() -> None:
            try:
                post()
            except BaseException as error:
                done.finish(error=error)

        self._post(f"posting {done.what}", post_or_tell)
        self._unfinished.append(done)

    def _reset(self) -> None:
        self._cables.clear(self.info.serial)
        self._memories = self._empty_memories()

    def _close(self) -> None:
        self._cables.clear(self.info.serial)


def _on_core(kernel: Callable[[Core], None], core: Core, role: str, program: str) -> None:
    try:
        kernel(core)
    except Exception as error:
        raise MeshError(
            f"{role} of program {program!r} on core {core.xy} raised {type(error).__name__}: {error}"
        ) from error
