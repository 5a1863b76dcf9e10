"""Arguments that no check of an op foresaw: Python's or torch's own error, told as one of the call.

An op checks what it knows to go wrong, in words of its own; this is for the rest. Errors of the program's own
functions, which some calls call in turn, are left as they are.
"""

from __future__ import annotations

import os
import re
import sysconfig
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

from softmesh.callsite import is_ours
from softmesh.diagnosis.refusal import called_with
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError, SoftmeshError, TensorIndexError

_LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_TOLD_AS: tuple[tuple[type[Exception], type[SoftmeshError]], ...] = (
    (LookupError, TensorIndexError),
    (ValueError, ArgumentValueError),
    (TypeError, ArgumentError),
    (AttributeError, ArgumentError),
)
_CAUSES = {
    r"index out of range|not enough values": "a tensor has fewer dims, or a list fewer entries, than it needs",
    r"too many values": "a tensor has more dims, or a list more entries, than it can use",
    r"too large|verflow|cannot fit|cannot be represented": "a number is larger than can be computed with",
    r"truth value|Boolean value": "an array is given where True or False belongs",
    r"not iterable|iteration over|has no len": "one value is given where a list belongs",
    r"has no attribute": "an argument is of another kind than it can use",
    r"by zero": "a size or a count is 0",
    r"NaN|math domain": "a number is not finite",
}


def tell_unforeseen(name: str, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the error in words, unless it is told already or comes from a function of the program."""
    if isinstance(error, SoftmeshError | Warning | NotImplementedError | RecursionError) or _passed_the_program(
        error.__traceback__
    ):
        return
    said = str(error).partition("\n")[0] or "no more is known"
    cause = next((words for pattern, words in _CAUSES.items() if re.search(pattern, said)), None)
    raw = f"{type(error).__name__}: {said}"
    told = raw if cause is None else f"{cause} ({raw})"
    kind = next((kind for raised, kind in _TOLD_AS if isinstance(error, raised)), MeshError)
    called = called_with(args, kwargs)
    raise kind(f"{name} cannot be computed with these arguments: {told}.\nCalled with: ({called})") from error


def _passed_the_program(trace: TracebackType | None) -> bool:
    """Whether the error comes out of a function that is neither softmesh's nor of a library."""
    return not all(map(_is_foreign, (frame for frame, _ in walk_tb(trace))))


def _is_foreign(frame: FrameType) -> bool:
    """Of softmesh or a library. Code without a file (`<string>`) is that of the module for which it was made."""
    file = frame.f_code.co_filename
    if file.startswith("<") and not file.startswith("<frozen "):
        file = str(frame.f_globals.get("__file__") or file)
    return is_ours(file) or file.startswith(("<frozen ", *_LIBRARIES))
