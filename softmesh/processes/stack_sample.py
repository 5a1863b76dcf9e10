"""Where a rank is whose reporting thread never gets its turn: a call into C may keep the interpreter to itself.

The launcher sends such a rank a signal. The handler is faulthandler's, which needs no interpreter: it writes
the stack of the thread it interrupts to the line on which the rank reports.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softmesh.processes.wait_report import LONGEST_TEXT, Site

# One of those that have no meaning of their own, so that it is unlikely to be the program's.
_SIGNAL = signal.SIGRTMIN + 17 if hasattr(signal, "SIGRTMIN") and hasattr(faulthandler, "register") else None
_FRAME = re.compile(r'  File "(.+)", line (\d{1,9}) in (.+)')
_AROUND_FRAMES = ("Stack (most recent call first)", "  ")


@contextmanager
def answering_on(line: int) -> Iterator[None]:
    """The stack of this process goes to that file descriptor whenever the signal comes."""
    if _SIGNAL is None or signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
        yield
        return
    faulthandler.register(_SIGNAL, line, all_threads=False)
    try:
        yield
    finally:
        faulthandler.unregister(_SIGNAL)


def ask(process: int, address: str) -> bool:
    """Whether the signal could be sent: to a process of this machine that reports to that address."""
    try:
        environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        if _SIGNAL is None or not any(entry.endswith(f"={address}".encode()) for entry in environment):
            return False
        if not _catches(process, _SIGNAL):
            return False
        os.kill(process, _SIGNAL)
    except OSError:
        return False
    return True


def _catches(process: int, number: int) -> bool:
    """A process without a handler would be ended by it."""
    status = Path(f"/proc/{process}/status").read_text(errors="replace")
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def is_part_of_a_stack(text: str) -> bool:
    return text.startswith(_AROUND_FRAMES)


def frame_in(text: str) -> Site | None:
    found = _FRAME.fullmatch(text)
    return Site(found[1][:LONGEST_TEXT], int(found[2]), found[3][:LONGEST_TEXT]) if found else None
