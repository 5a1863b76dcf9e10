"""Python kernels on software cards: the core object they get, its circular buffers and semaphores, and their scheduler.

    def doubled(core: Core) -> None:
        source, target, count = core.args
        values, results = core.pages(source, 4096), core.pages(target, 4096)
        for page in range(core.index, count, core.count):
            results[page] = twice(values[page])

Kernels of one program run in turns on one thread: one runs until it has to wait, then the next that need not. So
a program runs the same way every time, and one in which all wait is an error at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from softmesh.drivers.protocol import CircularBuffer, Handle, MemoryKind, Xy, aligned
from softmesh.errors import MeshError, TensorIndexError
from softmesh.runtime.memory.memory_map import Region

if TYPE_CHECKING:
    from greenlet import greenlet


# Cooperative scheduling on one thread: each function runs until it waits for something that is not there yet.


_MOST_SHOWN = 8


class _Waiting(NamedTuple):
    name: str
    thread: greenlet
    ready: Callable[[], bool]
    reason: str


def wait_until(ready: Callable[[], bool], reason: str) -> None:
    """Let the others run until `ready()`. Only for functions that `run_cooperatively` runs."""
    from greenlet import getcurrent

    if ready():
        return
    hub = getcurrent().parent
    if hub is None:
        raise MeshError(f"a wait {reason} outside a kernel would never end")
    hub.switch((ready, reason))


def run_cooperatively(functions: Mapping[str, Callable[[], None]]) -> None:
    """Run all functions to their end; an error of one of them ends all, and so does a standstill."""
    from greenlet import greenlet

    waiting = [_Waiting(name, greenlet(run), lambda: True, "") for name, run in functions.items()]
    while waiting:
        before, still = waiting, list[_Waiting]()
        moved = False
        for each in before:
            if not each.ready():
                still.append(each)
                continue
            moved = True
            asked = each.thread.switch()
            if not each.thread.dead:
                still.append(_Waiting(each.name, each.thread, *asked))
        waiting = still
        if not moved:
            raise MeshError(_deadlock_text(waiting))


def _deadlock_text(waiting: list[_Waiting]) -> str:
    shown = [f"{each.name} waits {each.reason}" for each in waiting[:_MOST_SHOWN]]
    more = len(waiting) - len(shown)
    return "the program stands still: " + "; ".join(shown) + (f"; and {more} more" if more else "")


class Memory(Protocol):
    """Bytes of a card, under handles."""

    def read(self, handle: Handle, offset: int, size: int) -> bytearray: ...
    def write(self, handle: Handle, offset: int, data: bytes | bytearray | memoryview) -> None: ...


class Pages:
    """Memory from an address on, page by page: `pages[3]` reads one, `pages[3] = data` writes one."""

    def __init__(self, memory: Memory, mem: MemoryKind, region: Region, address: int, page_size: int) -> None:
        pitch = aligned(page_size, region.page_alignment)
        rows = (region.end - address) // pitch if page_size > 0 and address >= region.base else 0
        if rows <= 0 or region.banks < 1:
            raise MeshError(f"no page of {page_size} bytes can lie at {hex(address)} of {region.banks} banks of {mem}")
        self._memory = memory
        self._handle = Handle(address, rows * region.banks * page_size, page_size, mem, region.banks, pitch)

    def __getitem__(self, page: int) -> bytearray:
        return self._memory.read(self._handle, self._start(page), self._handle.page_size)

    def __setitem__(self, page: int, data: bytes | bytearray | memoryview) -> None:
        if len(data) > self._handle.page_size:
            raise MeshError(f"{len(data)} bytes do not fit a page of {self._handle.page_size}")
        self._memory.write(self._handle, self._start(page), data)

    def _start(self, page: int) -> int:
        if not 0 <= page < self._handle.pages:
            raise TensorIndexError(f"page {page} lies outside the memory behind {hex(self._handle.address)}")
        return page * self._handle.page_size


class Fifo:
    """A circular buffer: pages go in at one end and out at the other; a full or an empty one makes a kernel wait."""

    def __init__(self, spec: CircularBuffer) -> None:
        self.spec = spec
        self._pages: deque[bytes] = deque()

    def push(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) > self.spec.page_size:
            raise MeshError(f"{len(data)} bytes do not fit a page of {self.spec.page_size} of {self!r}")
        wait_until(lambda: len(self._pages) < self.spec.pages, f"for room in {self!r}")
        self._pages.append(bytes(data))

    def pop(self) -> bytearray:
        wait_until(lambda: bool(self._pages), f"for a page in {self!r}")
        return bytearray(self._pages.popleft())

    def __repr__(self) -> str:
        return f"circular buffer {self.spec.index}"


class Counter:
    """A semaphore of one core."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.value = 0

    def add(self, count: int = 1) -> None:
        self.value += count

    def wait(self, at_least: int) -> None:
        wait_until(lambda: self.value >= at_least, f"for {self.name} to reach {at_least}, at {self.value}")


class Core:
    """One core of one launch."""

    def __init__(
        self,
        index: int,
        cores: Sequence[Xy],
        args: Sequence[int],
        compile_args: Mapping[str, int],
        pages: Callable[[MemoryKind, int | None, int, int], Pages],
        fifos: Mapping[int, Fifo],
        counters: Mapping[Xy, Sequence[Counter]],
    ) -> None:
        self.index, self.xy, self.count = index, cores[index], len(cores)
        self.args, self.compile_args = list(args), compile_args
        self._pages, self._fifos, self._counters = pages, fifos, counters

    def __repr__(self) -> str:
        return f"Core({self.index} of {self.count}, at {self.xy})"

    def pages(self, address: int, page_size: int, *, mem: MemoryKind = "dram", banks: int | None = None) -> Pages:
        """The card's memory from `address` on; page i lies in bank i % banks, of all of them unless told."""
        return self._pages(mem, banks, address, page_size)

    def cb(self, index: int) -> Fifo:
        if index not in self._fifos:
            raise MeshError(f"the program has no circular buffer {index}; it has {sorted(self._fifos)}")
        return self._fifos[index]

    def semaphore(self, index: int, core: Xy | None = None) -> Counter:
        """This core's, or that of another core of the program."""
        counters = self._counters.get(core or self.xy, ())
        if not 0 <= index < len(counters):
            raise MeshError(f"core {core or self.xy} has no semaphore {index} in this program")
        return counters[index]
