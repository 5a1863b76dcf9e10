"""Which line of the user's program a thread is at, asked from another thread.

The line is the innermost one that belongs neither to softmesh nor to an installed library, so that a
rank in an endless loop is located where its author wrote the loop.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Sequence
from types import FrameType

from softmesh.processes.wait_report import Site

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
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return site_of(frame)


def site_of(frame: FrameType | None) -> Site:
    """The user's line among the callers of a frame, else the innermost line there is."""
    innermost = frame
    while frame is not None:
        if not _is_library(frame.f_code.co_filename):
            return _site(frame)
        frame = frame.f_back
    return Site() if innermost is None else _site(innermost)


def users_site(stack: Sequence[Site]) -> Site:
    """The same of a stack that was written down, innermost first."""
    return next((site for site in stack if not _is_library(site.file)), stack[0] if stack else Site())


def _site(frame: FrameType) -> Site:
    return Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _is_library(file: str) -> bool:
    return file.startswith("<frozen") or os.path.realpath(file).startswith(_LIBRARIES)
