"""The line of the user's program that led here: the first frame outside the package."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_BETWEEN = (functools.__file__, contextlib.__file__)
_PROGRAMS = (_PACKAGE + "demo.py", _PACKAGE + "bench" + os.sep)  # written as a user would


class CallSite(NamedTuple):
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


def user_call_site() -> CallSite:
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _is_ours(file: str) -> bool:
    """Of the package, or between two of its frames: cached properties and context managers are."""
    return file in _BETWEEN or (file.startswith(_PACKAGE) and not file.startswith(_PROGRAMS))
