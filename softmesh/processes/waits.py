"""Every wait for another process, with a name, a call site, a report to the launcher and a timeout.

    with waiting("all_reduce", sequence=17, fingerprint=(shape, dtype)) as wait:
        wait.until(request.Test)

A wait goes through three stages. It spins: a wait that is over soon costs a few polls and nothing else. It polls and
yields the core to others, then sleeps between polls. After half a second the launcher hears of it (where there is
one), and at SOFTMESH_TIMEOUT it becomes a HangError.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple

from softmesh.callsite import RawSite, is_ours, resolved, user_call_site
from softmesh.errors import MeshError
from softmesh.processes import rank_reporter
from softmesh.processes.program_location import main_thread_site
from softmesh.processes.wait_report import LONGEST_TEXT, Site, WaitKind, WaitReport, ranges

TIMEOUT = "SOFTMESH_TIMEOUT"
_DEFAULT_TIMEOUT = 30.0
_REPORTED_AFTER = 0.5
# The launcher knows every rank and so explains better: where it listens, it has the first word.
_LAUNCHER_FIRST = 5.0
_SEEN_BROKEN_FOR = 3.0
# Looks before the core is offered to others at each look, which costs nothing where nobody else wants it. Two ranks
# that a busy machine keeps on one core would wait for each other for as long as they look without offering it.
_SPINS, _SPINS_OVERSUBSCRIBED = 100, 20
_EAGER_SECONDS = 1e-3
# MPI moves a message only while somebody spins; until this rate has had its time, spins are not rationed.
_SLOWEST_RATE = 200e6
_LONGEST_EAGER_SECONDS = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 50e-6, 2e-3
_BURST_SECONDS = 1e-3

_NOWHERE = Site()

_yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


class Group(NamedTuple):
    """The processes that a call concerns: a name that all of them know, and their world ranks."""

    name: str
    ranks: tuple[int, ...]
    about: str = ""  # how they came together, where the name is not for people

    @property
    def label(self) -> str:
        """`world`, or `ranks 0-3 (mesh 0)`."""
        ranks = f"rank{'s' if len(self.ranks) > 1 else ''} {ranges(self.ranks)}"
        return f"{ranks} ({self.about})" if self.about else self.name


class HangError(MeshError):
    """Nothing came from another process before the deadline."""

    def __init__(self, message: str, report: WaitReport) -> None:
        super().__init__(message)
        self.report = report


class _Process:
    """What this process knows of its own waits."""

    rank = 0
    group = Group("world", (0,))
    slow: list[Wait] = []  # reported and not over
    last: Wait | None = None  # the last that ended well; it keeps its fingerprint alive
    serials = itertools.count(1)
    spins = _SPINS
    messages: Callable[[], dict[str, int]] = dict  # by channel, see `count_messages_with`


def waiting(
    op: str,
    *,
    kind: WaitKind | None = None,
    group: Group | None = None,
    peer: int | None = None,
    tag: int = 0,
    sequence: int | None = None,
    fingerprint: object = None,
    nbytes: int = 0,
) -> Wait:
    """`peer` is a world rank. `fingerprint` is what the others must agree on: made text only when needed."""
    if kind is None:
        kind = WaitKind.COLLECTIVE if peer is None else WaitKind.EXCHANGE
    return Wait(op, kind, group or _Process.group, peer, tag, sequence, fingerprint, nbytes)


class Wait:
    __slots__ = (
        "begun",
        "fingerprint",
        "group",
        "kind",
        "look_around",
        "nbytes",
        "op",
        "origin",
        "patience",
        "peer",
        "polls",
        "program",
        "sequence",
        "serial",
        "site",
        "tag",
    )

    def __init__(
        self,
        op: str,
        kind: WaitKind,
        group: Group,
        peer: int | None,
        tag: int,
        sequence: int | None,
        fingerprint: object,
        nbytes: int,
    ) -> None:
        self.op, self.kind, self.group, self.peer, self.tag = op, kind, group, peer, tag
        self.sequence, self.fingerprint, self.nbytes = sequence, fingerprint, nbytes
        self.begun = self.patience = 0.0
        self.serial = self.polls = 0
        self.site = self.program = _NOWHERE
        self.origin: RawSite | None = None  # the line that asked for it, where the program waits at another one
        self.look_around: Callable[[], object] | None = None  # raises where waiting is known to be in vain

    def __enter__(self) -> Wait:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            _Process.last = self
            if self.site is not _NOWHERE and not self.serial:  # its end was told before it was the last
                rank_reporter.send(state_message)
        self._report_end()

    def until(self, done: Callable[[], object]) -> None:
        """Return once `done()` is true. A wait may have several steps; the deadline is that of each."""
        for _ in range(_Process.spins):
            if done():
                return
        self.begun = time.monotonic()
        eager = min(_EAGER_SECONDS + self.nbytes / _SLOWEST_RATE, _LONGEST_EAGER_SECONDS)
        if not _poll_until(done, self.begun + eager):
            self._poll_with_backoff(done)
            self._report_end()

    def _poll_with_backoff(self, done: Callable[[], object]) -> None:
        pause = _FIRST_PAUSE
        burst = _BURST_SECONDS if self.nbytes > _SLOWEST_RATE * _BURST_SECONDS else 0.0
        deadline = math.inf
        while True:
            time.sleep(pause)
            if _poll_until(done, time.monotonic() + burst):
                return
            pause = min(pause * 1.25, _LONGEST_PAUSE)
            self.polls += 1
            if self.look_around is not None:
                self.look_around()
            seconds = time.monotonic() - self.begun
            if not self.serial and seconds > _REPORTED_AFTER:
                deadline = timeout() + (_LAUNCHER_FIRST if rank_reporter.connected() else 0.0)
                self._report_slow()
            if seconds > deadline:
                raise self._hang_error(seconds)

    def linger_for_report(self) -> None:
        """The call failed: let the launcher see who is in which call before this rank takes the job down."""
        if not self.serial:
            self.begun = time.monotonic()
            self._report_slow()
        end = time.monotonic() + _SEEN_BROKEN_FOR
        while rank_reporter.connected() and time.monotonic() < end:
            time.sleep(_LONGEST_PAUSE)
            self.polls += 1

    def _report_slow(self) -> None:
        here = user_call_site()
        self.site = Site(*(here if self.origin is None else resolved(self.origin)))
        if not is_ours(here.file) and Site(*here)[:2] != self.site[:2]:
            self.program = Site(*here)
        self.serial = next(_Process.serials)
        _Process.slow.append(self)
        rank_reporter.send(state_message)

    def _report_end(self) -> None:
        if self.serial:
            _Process.slow.remove(self)
            self.serial = 0
            rank_reporter.send(state_message)

    def report(self) -> WaitReport:
        return WaitReport(
            op=self.op,
            kind=self.kind,
            group=self.group.name,
            label=self.group.label,
            members=self.group.ranks,
            peer=self.peer,
            tag=self.tag,
            sequence=self.sequence,
            fingerprint=_written(self.fingerprint, self.op)[:LONGEST_TEXT],
            site=self.site,
            program=self.program,
            seconds=round(time.monotonic() - self.begun, 3),
            serial=self.serial,
            polls=self.polls,
            patience=self.patience,
        )

    def _hang_error(self, seconds: float) -> HangError:
        report = self.report()
        others = [rank for rank in self.group.ranks if rank != _Process.rank]
        awaited = others if self.peer is None else [self.peer]
        message = (
            f"{self.op} timed out after {seconds:.0f} s: rank {_Process.rank} waits in {report.what}\n"
            f"    at {report.place}\n"
            f"    for {_named(awaited)}\n"
            f"    last completed here: {last_completed() or 'nothing'}\n"
            f"    remedy: start the job with tt-run, which names the rank that is missing and where it is; "
            f"or set {TIMEOUT} to more seconds where a rank is merely slow"
        )
        return HangError(message, report)


class CallMismatch(MeshError):
    """Ranks met, and find that they are in different calls."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(
            f"{wait.op}: the ranks are in different calls: this one is in {wait.fingerprint}. Every rank of a group "
            "makes the same calls in the same order, with tensors of the same shape and dtype."
        )
        self.wait = wait


class blocking_wait:
    """A wait for all ranks inside a library that cannot be looked into: reported before it begins."""

    def __init__(self, op: str, patience: float) -> None:
        self._wait = waiting(op, sequence=0)
        self._wait.patience = patience

    def __enter__(self) -> None:
        self._wait.begun, self._wait.site = time.monotonic(), Site(*user_call_site())
        _Process.slow.append(self._wait)
        rank_reporter.send_last(state_message())

    def __exit__(self, *_: object) -> None:
        _Process.slow.remove(self._wait)
        rank_reporter.send(state_message)


def _poll_until(done: Callable[[], object], end: float) -> bool:
    """Whether it was done before `end`; spins at least once."""
    while True:
        if done():
            return True
        if time.monotonic() >= end:
            return False
        _yield_core()


def _written(fingerprint: object, op: str) -> str:
    """`float32 [1, 32], axis 1` rather than a tuple of such things, without the op, which is told anyway."""
    if not isinstance(fingerprint, tuple):
        return "" if fingerprint is None else str(fingerprint)
    parts = [list(part) if isinstance(part, tuple) else part for part in fingerprint if part != op]
    return ", ".join(str(part).removeprefix("torch.") for part in parts)


def _named(awaited: list[int]) -> str:
    if len(awaited) == 1:
        return f"rank {awaited[0]}, which did not come"
    return f"ranks {ranges(awaited)}, of which at least one did not come"


def timeout(environ: Mapping[str, str] | None = None) -> float:
    """Seconds after which a wait is an error."""
    text = (os.environ if environ is None else environ).get(TIMEOUT, "")
    if not text:
        return _DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise MeshError(f"{TIMEOUT} must be a positive number of seconds, got {text!r}")
    return seconds


def identify(rank: int, size: int) -> None:
    """Who this process is in the world, as its reports say it."""
    neighbours = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", size))
    _Process.spins = _SPINS if neighbours <= (os.cpu_count() or 1) else _SPINS_OVERSUBSCRIBED
    _Process.rank, _Process.group = rank, Group("world", tuple(range(size)))
    rank_reporter.start(rank, size, state_message)


def last_completed() -> str:
    """The last call to another process that this one finished, or nothing."""
    return _Process.last.report().what if _Process.last else ""


def count_messages_with(count: Callable[[], dict[str, int]]) -> None:
    """From now on say with each state how many messages this process sent, or took, on each channel of its sockets."""
    _Process.messages = staticmethod(count)


def state_message() -> dict[str, object]:
    """What this process is doing, as a message to the launcher."""
    slow = tuple(_Process.slow)
    if slow:
        return {"state": "waiting", "wait": slow[-1].report().as_data(), **_done()}
    return {"state": "computing", "site": list(main_thread_site()), **_done()}


def _done() -> dict[str, object]:
    messages = _Process.messages()
    if _Process.last is None:
        return {"last": "", "messages": messages}
    report = _Process.last.report()
    return {"last": report.what, "done": report.as_data(), "messages": messages}
