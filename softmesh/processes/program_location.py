"""The line of the user's program that a rank is at: asked from another thread, or by a signal that dumps its stack.

The line is the innermost one that belongs neither to softmesh nor to an installed library, so that a rank in an
endless loop is located where its author wrote the loop.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from softmesh.processes.wait_report import LONGEST_TEXT, Site

_LIBRARIES = tuple(
    os.path.realpath(path) + os.sep
    for path in (
        os.path.dirname(os.path.dirname(__file__)),
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
    )
)


def main_thread_site() -> Site:
    return user_site(_stack(sys._current_frames().get(threading.main_thread().ident or 0)))


def site_of(frame: FrameType | None) -> Site:
    """The user's line among the callers of a frame, else the innermost line there is."""
    return user_site(_stack(frame))


def _stack(frame: FrameType | None) -> list[Site]:
    """Written down at once, innermost first, before anybody asks whose files these are.

    A frame that another thread holds keeps its local variables alive. Looking at files lets the program go on, so that
    its tensors would be freed later than on other ranks, and their memory would lie at other addresses.
    """
    sites = []
    while frame is not None:
        sites.append(Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return sites


def user_site(stack: Sequence[Site]) -> Site:
    """The same of a stack that was written down, innermost first."""
    return next((site for site in stack if not _is_library(site.file)), stack[0] if stack else Site())


def _is_library(file: str) -> bool:
    return file.startswith("<frozen") or os.path.realpath(file).startswith(_LIBRARIES)


# Where a rank is whose reporting thread never gets its turn: a call into C may hold the interpreter lock (GIL). The
# launcher sends such a rank a signal. The handler is faulthandler's, which needs no interpreter: it writes the stack of
# the thread it interrupts to the connection on which the rank reports.


# One of those that have no meaning of their own, so that it is unlikely to be the program's.
_SIGNAL = signal.SIGRTMIN + 17 if hasattr(signal, "SIGRTMIN") and hasattr(faulthandler, "register") else None
_FRAME = re.compile(r'  File "(.+)", line (\d{1,9}) in (.+)')
_AROUND_FRAMES = ("Stack (most recent call first)", "  ")


@contextmanager
def dump_stack_on_signal(line: int) -> Iterator[None]:
    """The stack of this process goes to that file descriptor whenever the signal comes."""
    if _SIGNAL is None or signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
        yield
        return
    faulthandler.register(_SIGNAL, line, all_threads=False)
    try:
        yield
    finally:
        faulthandler.unregister(_SIGNAL)


def request_stack(process: int, address: str) -> bool:
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


def is_stack_line(text: str) -> bool:
    return text.startswith(_AROUND_FRAMES)


def parse_frame(text: str) -> Site | None:
    found = _FRAME.fullmatch(text)
    return Site(found[1][:LONGEST_TEXT], int(found[2]), found[3][:LONGEST_TEXT]) if found else None


def is_stopped(process: int) -> bool:
    """True if a process of this machine is stopped, by a signal or a debugger, as the process table tells."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in ("T", "t")
