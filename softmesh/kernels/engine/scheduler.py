"""Cooperative scheduler of kernels: each kernel is a greenlet that runs until it must wait, in a deterministic order.

The states of a kernel thread:

    ready      in line; runs when its turn comes
    waiting    in the list of what it waits for; whoever changes that wakes it, which puts it back in line
    polling    asked a question that was not met; back in line behind the others, so that they can answer, unless
               nothing else has happened for ten thousand polls
    dead       its function has returned or raised

When nobody is left in line and some still wait, or all only poll, the program is deadlocked: KernelsStuck reports
every kernel, its call and its line. Knows nothing of memory, cores or chips beyond the names in its errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from greenlet import GreenletExit, getcurrent, greenlet

from softmesh.callsite import CallSite, call_site_of, is_ours, user_call_site
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError, SoftmeshError
from softmesh.kernels.engine.memory_order import Access, Clock, Known, join
from softmesh.kernels.engine.watchdog import TIMEOUT, OutOfTime, Watch, seconds_allowed
from softmesh.kernels.program.kernel import Processor

if TYPE_CHECKING:
    from softmesh.kernels.engine.dst_registers import Registers
    from softmesh.kernels.engine.transfers import Transfers
    from softmesh.kernels.engine.worker_core import Core
    from softmesh.kernels.program.kernel import Kernel


class Blocked(NamedTuple):
    """One kernel that does not go on: on which devices and core, in which call, at which line."""

    device: str
    core: CoreCoord
    thread: str
    call: str
    site: CallSite


class KernelsStuck(MeshError):
    """`blocked` lists every kernel that had not ended."""

    def __init__(self, what: str, threads: Sequence[KernelThread]) -> None:
        self.blocked = [
            Blocked(
                thread.core.chip.name,
                thread.core.place,
                f"{thread.kernel.name} ({thread.kernel.processor.name})",
                thread.doing,
                thread.site,
            )
            for thread in threads
        ]
        super().__init__("\n".join([what, *_lines(self.blocked)]))


def _lines(blocked: Sequence[Blocked]) -> list[str]:
    """One line for all cores that do the same."""
    cores: dict[tuple[str, str, str, CallSite], list[CoreCoord]] = {}
    for one in blocked:
        cores.setdefault((one.device, one.thread, one.call, one.site), []).append(one.core)
    return [
        f"  {device}, {_cores_text(places)}, {thread}: {call} [{site}]"
        for (device, thread, call, site), places in cores.items()
    ]


def _cores_text(places: list[CoreCoord]) -> str:
    if len(places) == 1:
        return f"core {places[0]}"
    singles = CoreRangeSet([CoreRange(place, place) for place in places])
    return f"cores {singles.merge(CoreRangeSet([]))}"


class Carried(NamedTuple):
    """A packet on its way: what its sender does with it, and what the sender had done and knew when it was sent."""

    access: Access
    known: Known


@dataclass(frozen=True)
class Wait:
    """A call that cannot go on yet; `state` tells how things stand when somebody asks."""

    call: str
    state: Callable[[], str]


class KernelThread(greenlet):
    registers: Registers  # of a compute kernel
    transfers: Transfers  # of a data movement kernel

    def __init__(self, scheduler: Scheduler, core: Core, kernel: Kernel, args: Sequence[int]) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.core = core
        self.kernel = kernel
        self.args = args
        self.waiting: Wait | None = None
        self.polling: str | None = None  # the question it repeats, where it does not block
        self.last_load: tuple[int, object] | None = None
        self.read_state: tuple[int, int | None] | None = None  # of transfers that repeat: place and size
        self.write_state: tuple[int, int | None] | None = None
        self.stopped_at: CallSite | None = None
        self.clock = Clock(self, len(scheduler.threads))

    def run(self) -> None:
        try:
            self.kernel.function()
            self._finish()
        except OutOfTime as error:
            self.stopped_at = _site_in(error)
            raise
        except SoftmeshError as error:
            error.args = (f"{error} [{self._where(error)}]",)
            raise
        except Exception as error:
            raise MeshError(f"A kernel raised {type(error).__name__}: {error} [{self._where(error)}]") from error

    def _finish(self) -> None:
        if self.kernel.processor is not Processor.TRISC:
            self.transfers.check_completed()
            return
        for fifo in self.core.fifos.values():
            fifo.check_pushed(self)
        if (held := self.registers.why_held()) is not None:
            message = (
                f"The kernel ends out of turn: of the tile registers {held}. The next one waits for them for ever."
            )
            self.complain("registers", message)

    def complain(self, kind: str, message: str) -> None:
        """What does no harm here, and would on a chip: an error in strict mode."""
        chip = self.core.chip
        if chip.is_strict:
            raise MeshError(message)
        site = user_call_site()
        at = self.kernel.site if is_ours(site.file) else site  # it has ended
        chip.launch_state.findings.add((self.kernel, kind), f"{message} [{self.name}]", is_strict=False, at=at)

    def _where(self, error: BaseException) -> str:
        return f"{self.name}, {_site_in(error) or self.kernel.site}"

    @property
    def name(self) -> str:
        kernel, core = self.kernel, self.core
        return f"kernel {kernel.name} ({kernel.processor.name}) on core {core.place} of {core.chip.name}"

    def wait_for(self, is_met: Callable[[], bool], waiting: list[KernelThread], wait: Wait) -> None:
        """Stop until it is met; whoever changes what it depends on wakes those in `waiting`."""
        self.waiting = wait
        while not is_met():
            waiting.append(self)
            self.pause()
        self.waiting = None

    def poll(self, question: str) -> None:
        """A question that a kernel may repeat in a loop: others get a turn before it is answered."""
        self.polling = question
        self.scheduler.pass_turn(self)
        self.polling = None

    def pause(self) -> None:
        assert self.parent is not None
        self.parent.switch()

    def end(self) -> None:
        """Leave nothing running. What a kernel raises while it is being ended is no news."""
        if not self.dead:
            with suppress(Exception):
                self.throw(GreenletExit)

    def drop_references(self) -> None:
        """It has ended: let go of what it worked with."""
        vars(self).clear()

    @property
    def site(self) -> CallSite:
        """The line of the kernel where it stands."""
        if self.gr_frame is not None:
            return call_site_of(self.gr_frame)
        return self.stopped_at or self.kernel.site

    @property
    def doing(self) -> str:
        """What it waits for, or asks."""
        if self.waiting is not None:
            return f"{self.waiting.call}, {self.waiting.state()}"
        return "runs" if self.polling is None else f"{self.polling}, asked again and again"


class DevicesDiffer(BaseException):
    """A kernel that runs once for many devices met a value that is not the same on all of them."""


def here(call: str) -> KernelThread:
    """The kernel that calls."""
    current = getcurrent()
    if type(current) is not KernelThread:
        raise MeshError(
            f"{call}() is a kernel call: it works inside a function that was given to CreateKernel or to a "
            "KernelDescriptor, while its program runs."
        )
    return current


def running() -> KernelThread | None:
    """The kernel that runs now; None while the scheduler or the fabric acts."""
    current = getcurrent()
    return current if type(current) is KernelThread else None


def data_movement_kernel(call: str) -> KernelThread:
    """The kernel that calls, which must move data."""
    thread = here(call)
    if thread.kernel.processor is Processor.TRISC:
        _misplaced(call, "moves data over the NoC: it belongs into a reader or writer kernel", thread)
    return thread


def compute_kernel(call: str) -> KernelThread:
    """The kernel that calls, which must compute."""
    thread = here(call)
    if thread.kernel.processor is not Processor.TRISC:
        _misplaced(call, "computes on tiles: it belongs into a kernel with a ComputeConfig", thread)
    return thread


def _misplaced(call: str, belongs: str, thread: KernelThread) -> NoReturn:
    raise MeshError(f"{call}() {belongs}; {thread.kernel.name} runs on {thread.kernel.processor.name}.")


def _site_in(error: BaseException) -> CallSite | None:
    """The line of the kernel where the error began, or that made the kernel call it began in."""
    trace = error.__traceback__
    site = None
    while trace is not None and (trace := trace.tb_next) is not None:
        if is_ours(trace.tb_frame.f_code.co_filename):
            break
        site = CallSite(trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_code.co_name)
    return site


_MOST_IDLE_POLLS = 10_000  # in a row, with nothing else happening anywhere


class Scheduler:
    def __init__(self) -> None:
        self.threads: list[KernelThread] = []
        self._ready: deque[KernelThread] = deque()
        self._deferred: deque[Callable[[], None]] = deque()
        self._idle_polls = 0
        self._running: KernelThread | None = None
        self._carried: Carried | None = None  # what the fabric delivers now

    def add(self, thread: KernelThread) -> None:
        self.threads.append(thread)
        self._ready.append(thread)

    def published(self) -> Known:
        """What whoever waits for something done now knows: all of the kernel that does it, or of all of them."""
        thread = running()
        if thread is not None:
            return thread.clock.published()
        if self._carried is not None:
            return self._carried.known.copy()
        known: Known = {}
        for one in self.threads:
            join(known, one.clock.published())
        return known

    def access(self) -> Access | None:
        """What is done now: by the kernel that runs, or the one that sent a packet."""
        thread = running()
        if thread is not None:
            return thread.clock.now()
        return None if self._carried is None else self._carried.access

    @contextmanager
    def delivering(self, carried: Carried) -> Iterator[None]:
        self._carried = carried
        try:
            yield
        finally:
            self._carried = None

    def wake(self, waiting: list[KernelThread]) -> None:
        """Back in line, in the order in which they came to wait."""
        self._ready.extend(waiting)
        waiting.clear()
        self._idle_polls = 0

    def defer(self, action: Callable[[], None]) -> None:
        """Done as soon as the running thread stops: what the fabric carries travels meanwhile."""
        self._deferred.append(action)

    def note_answer(self) -> None:
        """Somebody who asked again and again has found another answer: kernels that only poll get on, too."""
        self._idle_polls = 0

    def pass_turn(self, thread: KernelThread) -> None:
        """Let the others go first: a loop that asks again and again must not keep them from answering."""
        self._idle_polls += 1
        if self._idle_polls <= _MOST_IDLE_POLLS:
            self._ready.append(thread)
        thread.pause()

    def run(self) -> None:
        seconds = seconds_allowed()
        try:
            with Watch(seconds) as watch:
                self._take_turns(watch)
                while self._deliver_late():
                    self._take_turns(watch)
            waiting = [thread for thread in self.threads if not thread.dead]
            if waiting:
                raise KernelsStuck("The program is stuck: no kernel can go on.", waiting)
        except OutOfTime:
            busy = [thread for thread in self.threads if thread is self._running or not thread.dead]
            raise KernelsStuck(
                f"The program has run for {seconds:g} s, which is all that {TIMEOUT} allows.", busy
            ) from None
        finally:
            for thread in self.threads:
                thread.end()

    def _deliver_late(self) -> bool:
        """Nobody can go on: what was written without a barrier arrives now, and those that ask again may find it."""
        left = [thread for thread in self.threads if not thread.dead and thread.kernel.processor is not Processor.TRISC]
        if not any(thread.transfers.arrive() for thread in left):
            return False
        self._idle_polls = 0
        self._ready.extend(thread for thread in self.threads if thread.polling is not None and not thread.dead)
        return True

    def drop_references(self) -> None:
        for thread in self.threads:
            thread.drop_references()
        for held in (self.threads, self._ready, self._deferred):
            held.clear()
        self._running = None

    def _take_turns(self, watch: Watch) -> None:
        line, deferred = self._ready, self._deferred
        while line:
            thread = line.popleft()
            if thread.polling is None:
                self._idle_polls = 0
            watch.check()
            self._running = thread
            thread.switch()
            while deferred:
                deferred.popleft()()
