"""One kernel on one core: a greenlet that knows where it runs and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from greenlet import GreenletExit, getcurrent, greenlet

from softmesh.callsite import CallSite, call_site_of, is_ours
from softmesh.errors import MeshError, SoftmeshError
from softmesh.kernels.engine.processor import Processor
from softmesh.kernels.engine.watchdog import OutOfTime

if TYPE_CHECKING:
    from softmesh.kernels.engine.core import Core
    from softmesh.kernels.engine.registers import Registers
    from softmesh.kernels.engine.scheduler import Scheduler
    from softmesh.kernels.engine.transfers import Transfers
    from softmesh.kernels.program.kernel import Kernel


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
        self.asking: str | None = None  # the question it repeats, where it does not block
        self.last_load: tuple[int, object] | None = None
        self.read_state: tuple[int, int | None] | None = None  # of transfers that repeat: place and size
        self.write_state: tuple[int, int | None] | None = None
        self.stopped_at: CallSite | None = None

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
            raise MeshError(
                f"A kernel raised {type(error).__name__}: {error} [{self._where(error)}]"
            ) from error

    def _finish(self) -> None:
        if self.kernel.processor is not Processor.TRISC:
            self.transfers.at_the_end()

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

    def ask(self, question: str) -> None:
        """A question that a kernel may repeat in a loop: others get a turn before it is answered."""
        self.asking = question
        self.scheduler.pass_turn(self)
        self.asking = None

    def pause(self) -> None:
        assert self.parent is not None
        self.parent.switch()

    def end(self) -> None:
        """Leave nothing running. What a kernel raises while it is being ended is no news."""
        if not self.dead:
            with suppress(Exception):
                self.throw(GreenletExit)

    def dismiss(self) -> None:
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
        return "runs" if self.asking is None else f"{self.asking}, asked again and again"


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


def mover(call: str) -> KernelThread:
    """The kernel that calls, which must move data."""
    thread = here(call)
    if thread.kernel.processor is Processor.TRISC:
        _misplaced(call, "moves data over the NoC: it belongs into a reader or writer kernel", thread)
    return thread


def computer(call: str) -> KernelThread:
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
