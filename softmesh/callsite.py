"""Call sites: the line of the user's program that led here, the first stack frame outside the package."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_BETWEEN = (functools.__file__, contextlib.__file__, "<trace>")  # the last: what a replay runs
_BACKWARD_PASS = tuple(  # by name: launchers load no torch
    os.path.join(os.sep, "torch", *path)
    for path in (("autograd", "function.py"), ("autograd", "graph.py"), ("autograd", "__init__.py"), ("_tensor.py",))
)
_PROGRAMS = (_PACKAGE + "demo", _PACKAGE + "bench" + os.sep)  # written as a user would


class CallSite(NamedTuple):
    file: str
    line: int
    function: str

    @property
    def cell(self) -> str | None:
        """`cell 3`, where the line stands in a notebook."""
        return None if _CELL_OF is None else _CELL_OF(self.file)

    def __str__(self) -> str:
        cell = self.cell
        return f"{os.path.basename(self.file)}:{self.line}" if cell is None else f"{cell}, line {self.line}"


_CELL_OF: Callable[[str], str | None] | None = None


def name_cells_with(cell_of: Callable[[str], str | None] | None) -> None:
    """From now on a file is asked for the notebook's cell it stands for; None ends that."""
    global _CELL_OF
    _CELL_OF = cell_of


def user_call_site() -> CallSite:
    return call_site_of(sys._getframe(1))


def call_site_of(frame: FrameType) -> CallSite:
    """The user's line from which this frame was reached."""
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def is_ours(file: str) -> bool:
    """Of the package, or between two of its frames: cached properties, context managers and backward passes are."""
    is_between = file in _BETWEEN or file.endswith(_BACKWARD_PASS)
    return is_between or (file.startswith(_PACKAGE) and not file.startswith(_PROGRAMS))


# A call site as it is cheapest to take (0.3 us): the line is worked out when somebody asks.
RawSite = tuple[CodeType, int]
_OURS: dict[str, bool] = {}  # by file, as far as they have been seen


def raw_call_site(depth: int = 1) -> RawSite:
    """Where the user's program called, however deep inside of the package this is asked.

    `depth` counts the callers that are known to be of the package.
    """
    frame: Any = sys._getframe(depth)
    try:
        while _OURS[(code := frame.f_code).co_filename]:
            frame = frame.f_back
    except (KeyError, AttributeError):  # a new file, or no frame of the program at all
        return _sought_call_site(sys._getframe(depth))
    return code, frame.f_lasti


def _sought_call_site(frame: FrameType) -> RawSite:
    """The same, and what is learnt of files on the way; the outermost frame where all are of the package."""
    while (is_package := is_ours(frame.f_code.co_filename)) and frame.f_back is not None:
        _OURS[frame.f_code.co_filename] = True
        frame = frame.f_back
    if not is_package:
        _OURS[frame.f_code.co_filename] = False
    return frame.f_code, frame.f_lasti


def raw_callers(site: RawSite, depth: int, most: int) -> list[RawSite]:
    """The calls that led to a site we are inside of, the innermost first; looked for from `depth` frames up."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_code is not site[0]:
        frame = frame.f_back
    found: list[RawSite] = []
    while frame is not None and len(found) < most:
        frame = frame.f_back
        if frame is not None:
            found.append((frame.f_code, frame.f_lasti))
    return found


def resolved(raw: RawSite) -> CallSite:
    code, at = raw
    lines = (line for first, end, line in code.co_lines() if first <= at < end and line is not None)
    return CallSite(code.co_filename, next(lines, code.co_firstlineno), code.co_name)
