"""Processes that the kernel kills because memory ran out: whether a SIGKILL that nobody sent may have been one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_KEY = "oom_kill"
_MACHINE = Path("proc/vmstat")


class MemoryKills:
    """The kernel's counts when a job begins; compared with those at its end."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = self._counts()

    def evidence(self) -> str:
        """One sentence on what the kernel did since; empty where it does not tell."""
        now = self._counts()
        more = {file: now[file] - count for file, count in self._before.items() if file in now}
        machine = more.pop(self._root / _MACHINE, None)
        for file, count in more.items():
            if count > 0:
                return (
                    f"the kernel killed {_processes(count)} of this control group while the job ran, because its "
                    f"memory ran out ({_KEY} in {file}): give the job more memory, or start fewer ranks"
                )
        if machine is None:
            return ""
        if machine > 0:
            return (
                f"the kernel killed {_processes(machine)} of this machine while the job ran, because memory ran out "
                f"({_KEY} in /{_MACHINE}); dmesg names them"
            )
        return (
            "the kernel killed no process for memory while the job ran: a person, a scheduler or a program sent "
            "the signal"
        )

    def _counts(self) -> dict[Path, int]:
        found = {}
        for file in (*self._files_of_groups(), self._root / _MACHINE):
            with suppress(OSError, ValueError, StopIteration):
                lines = [line.split() for line in file.read_text().splitlines()]
                found[file] = next(int(words[1]) for words in lines if words[:1] == [_KEY])
        return found

    def _files_of_groups(self) -> Iterator[Path]:
        """The files in which control groups count, of either version."""
        with suppress(OSError):
            for line in (self._root / "proc/self/cgroup").read_text().splitlines():
                number, kinds, path = line.split(":", 2)
                if number == "0":
                    yield self._root / "sys/fs/cgroup" / path.lstrip("/") / "memory.events"
                elif "memory" in kinds.split(","):
                    yield self._root / "sys/fs/cgroup/memory" / path.lstrip("/") / "memory.oom_control"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"
