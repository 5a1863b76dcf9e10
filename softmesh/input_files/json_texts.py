"""Values that were written as JSON, read back from a text that may be anything."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable
from typing import Any, TypeVar

from softmesh.arguments import described, refused
from softmesh.errors import ArgumentError
from softmesh.terminal_text import readable

_Value = TypeVar("_Value")
_LONGEST_TEXT = 1 << 20
_LONGEST_REASON = 300


def json_text(data: object) -> str:
    """In one line, and always in one order."""
    return json.dumps(data, separators=(",", ":"), sort_keys=True)


def from_json_text(where: str, text: object, read: Callable[[Any], _Value]) -> _Value:
    """What `read` makes of the text; one ArgumentError, in the name of `where`, for whatever else it holds."""
    if not isinstance(text, str | bytes | bytearray):
        raise refused(where, f"give the text of to_json(), got {described(text)}")
    try:
        if len(text) > _LONGEST_TEXT:
            raise ValueError(f"it has {len(text)} characters, and {_LONGEST_TEXT} are the most")
        return read(json.loads(text))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ArgumentError(f"{where}(): not what to_json() wrote: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no {reprlib.repr(error.args[0])}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return readable(str(error))[:_LONGEST_REASON]


def checked_json(data: Any, kind: type[_Value], what: str) -> _Value:
    """The value, where JSON has it as one of that kind."""
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise ValueError(f"{what} is needed, got {described(data)}")
    return data
