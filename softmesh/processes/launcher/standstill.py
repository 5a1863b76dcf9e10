"""Standstills: what keeps a job from its end although no rank computes or waits, as the system's process table tells.

Either mpirun or the warm process is stopped, or all ranks have ended and mpirun has not: it waits until nobody holds
their output, and for ranks of which it does not know that they have ended.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from softmesh.processes.explainer import Explainer
from softmesh.processes.hang_verdict import Doing
from softmesh.processes.launcher.job_sweeper import kill, members_of
from softmesh.processes.program_location import is_stopped
from softmesh.terminal_text import printable

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_AWAY = 5.0  # the launcher was stopped itself: nothing is known of that time
_PATIENCE_WITH_WORK = 10  # times as long as for a process that does nothing
_LONGEST_COMMAND = 120
_MOST_NAMED = 10
_RANK = "OMPI_COMM_WORLD_RANK="
_WARM = "the warm process, of which ranks are copies,"


class _Process(NamedTuple):
    state: str
    parent: int
    group: int
    ticks: int


class Standstill:
    """Asked again and again for a report; `sessions` are those of the job, the last of them that of mpirun.

    With `is_local` all ranks are certain to run on this host, as processes below mpirun.
    """

    def __init__(self, explainer: Explainer, sessions: Sequence[int], seconds: float, is_local: bool) -> None:
        self._explainer, self._sessions = explainer, sessions
        self._seconds, self._is_local = seconds, is_local
        self._since: dict[object, float] = {}
        self._looked = 0.0
        self._ticks: dict[int, int] = {}  # of the clock that processes have used, once all ranks have ended
        self._has_begun = False  # mpirun has started something

    def report(self) -> str | None:
        """What to tell when a standstill has lasted as long as a wait may take."""
        now = time.monotonic()
        if not self._sessions or now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return None
        if now - self._looked > _SECONDS_AWAY:
            self._since.clear()
        self._looked = now
        *warm, mpirun = self._sessions
        for process, name in ((mpirun, "mpirun"), *((one, _WARM) for one in warm)):
            if self._lasts(process, is_stopped(process), now):
                return (
                    f"softmesh: {name} is stopped since {self._seconds:.0f} s (process {process}): the job can neither "
                    "go on nor end\n"
                    "  remedy: look for what stopped it, a SIGSTOP or a debugger, and let it go on: "
                    f"kill -CONT {process}"
                )
        have_ended = self._have_ranks_ended(mpirun)
        if self._lasts("idle", have_ended and not self._is_at_work(mpirun), now):
            return self._ended_ranks(mpirun, f"{self._seconds:.0f} s, in which nothing of the job was at work")
        if self._lasts("at work", have_ended, now, _PATIENCE_WITH_WORK):
            return self._ended_ranks(mpirun, f"{self._seconds * _PATIENCE_WITH_WORK:.0f} s")
        return None

    def _lasts(self, what: object, holds: bool, now: float, times: int = 1) -> bool:
        if not holds:
            self._since.pop(what, None)
            return False
        return now - self._since.setdefault(what, now) >= self._seconds * times

    def _is_at_work(self, mpirun: int) -> bool:
        """True if a process that ranks left, or a rank's own, has computed since the last look: it may save a file."""
        ranks = [process for _, process in self._explainer.ranks().values() if process]
        left = [process for _, process, _ in self._left_behind(mpirun)]
        ticks = {process: found.ticks for process in (*ranks, *left) if (found := _process(process)) is not None}
        before, self._ticks = self._ticks, ticks
        return any(count > before.get(process, count) for process, count in ticks.items())

    def _have_ranks_ended(self, mpirun: int) -> bool:
        has_children = bool(_children_of(mpirun))
        self._has_begun |= has_children
        if self._is_local and self._has_begun and not has_children:
            return True
        ranks = self._explainer.ranks().values()
        return all(state.doing is Doing.FINISHED or (process and not _runs(process)) for state, process in ranks)

    def _ended_ranks(self, mpirun: int, time_given: str) -> str:
        lines = [
            f"softmesh: all ranks have ended their programs, and mpirun (process {mpirun}) has not within {time_given}"
        ]
        remedy = "look at what these processes wait for, for example with py-spy dump --pid"
        for rank, (state, process) in self._explainer.ranks().items():
            if process and _runs(process):
                lines.append(f"  rank {rank} has ended its program, and its process {process} runs on")
            elif process and state.doing is not Doing.FINISHED:
                lines.append(f"  rank {rank} ended without a word to mpirun or tt-run (its process was {process})")
                remedy = (
                    "let a program close what it opened itself, and nothing else: os.closerange, or a library that "
                    "makes a daemon, takes the connections to mpirun away"
                )
        left = list(self._left_behind(mpirun))
        lines += [
            f"  {owner} left process {process} behind, which is ended now: {command}"
            for owner, process, command in left[:_MOST_NAMED]
        ]
        if left:
            kill([process for _, process, _ in left])  # some have a session of their own, and nobody else ends them
            remedy = (
                "join or end what a rank starts before it ends, or give it an output of its own "
                "(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL): mpirun waits until nobody holds that of a rank"
            )
        return "\n".join([*lines, f"  remedy: {remedy}"])

    def _left_behind(self, mpirun: int) -> Iterator[tuple[str, int, str]]:
        """A process that a rank started and did not end."""
        ranks = {process: rank for rank, (_, process) in self._explainer.ranks().items() if process}
        own = {os.getpid(), *self._sessions, *ranks, *_children_of(mpirun)}
        members, outputs = set(members_of(self._sessions)), _outputs(mpirun)
        for process in sorted(int(entry.name) for entry in Path("/proc").glob("[0-9]*")):
            found = None if process in own else _process(process)
            if found is None or found.state == "Z":
                continue
            environ = _words(process, "environ")
            is_named = process in members or any(self._explainer.address in word for word in environ)
            if is_named or outputs & {target for _, target in _opened(process)}:
                told = next((word.removeprefix(_RANK) for word in environ if word.startswith(_RANK)), "")
                rank = ranks.get(found.group, told)
                command = printable(" ".join(_words(process, "cmdline")))[:_LONGEST_COMMAND]
                yield f"rank {rank}" if rank != "" else "a rank", process, command


def _process(process: int) -> _Process | None:
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return _Process(fields[0], int(fields[1]), int(fields[2]), int(fields[11]) + int(fields[12]))


def _runs(process: int) -> bool:
    found = _process(process)
    return found is not None and found.state != "Z"


def _children_of(process: int) -> list[int]:
    """Return the processes that have not ended."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return [child for child in found if _runs(child)]


def _outputs(mpirun: int) -> set[str]:
    """Return the pipes and terminals on which mpirun listens to ranks, as those who write to them have them open.

    Its own streams, and what the launcher shares with it, are not of ranks: a shell has them too, or a reader of logs.
    """
    found: set[str] = set()
    opened = list(_opened(mpirun))
    foreign = {target for _, target in _opened(os.getpid())} | {target for number, target in opened if int(number) < 3}
    for number, target in opened:
        if target.startswith("pipe:"):
            found.add(target)
        elif target == "/dev/ptmx":
            with suppress(OSError):
                text = Path(f"/proc/{mpirun}/fdinfo/{number}").read_text()
                found.update(f"/dev/pts/{index}" for index in re.findall(r"^tty-index:\s*(\d+)", text, re.MULTILINE))
    return found - foreign


def _opened(process: int) -> Iterator[tuple[str, str]]:
    """The descriptors of a process of this user, each with what it has open there."""
    with suppress(OSError):
        for number in os.listdir(f"/proc/{process}/fd"):
            with suppress(OSError):
                yield number, os.readlink(f"/proc/{process}/fd/{number}")


def _words(process: int, kind: str) -> list[str]:
    """The environment or the command line of a process of this user."""
    with suppress(OSError):
        return Path(f"/proc/{process}/{kind}").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return []
