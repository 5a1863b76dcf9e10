"""Python numbers that a trace holds, and that the program has changed since: doubts of strict mode.

A recorded call keeps its numbers. One that says where to write, a user or a position, comes from a variable. Where
that holds another number at a replay, the program means another place than the trace writes to. The variables are
found in the source of the recorded call and of the calls around it, as far as they hand a parameter on.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from softmesh.callsite import CallSite, is_ours, user_call_site
from softmesh.strictness import doubt

_MOST_VARIABLES = 16
_MOST_NUMBERS = 1024  # of a tensor on the host that places come from


class Variable(NamedTuple):
    """`owner` has it under `key`, as an attribute or an entry; without an owner it is a local of frames of `code`."""

    code: CodeType
    name: str  # as the program spells it
    owner: object = None
    key: Any = None

    def value(self) -> object:
        """Return its current value.

        None if no function that has it is running, and none that replays was given a value under its name.
        """
        if self.owner is not None:
            return _held_by(self.owner, self.key)
        given: object = None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is self.code:
                return frame.f_locals.get(self.name)
            if given is None and self.name in _parameters(frame.f_code):
                given = frame.f_locals.get(self.name)
            frame = frame.f_back
        return given


def _held_by(owner: object, key: Any) -> object:
    """The attribute or the entry of that name; None where looking for it would run code of the program."""
    try:
        if isinstance(owner, dict):
            return dict.get(owner, key)
        if type(owner) in (list, tuple) or isinstance(owner, torch.Tensor | np.ndarray):
            return owner[key]  # type: ignore[index]
    except (LookupError, TypeError, ValueError, RuntimeError):
        return None
    return getattr(owner, "__dict__", {}).get(key) if isinstance(key, str) else None


def _parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class RecordedNumber(NamedTuple):
    """`variables` come with what they held at the capture."""

    op: str
    argument: str
    number: object
    variables: tuple[tuple[Variable, object], ...]
    site: CallSite


def recorded_number(op: str, argument: str, place: int, number: object) -> RecordedNumber | None:
    """Record the variables behind this argument of the current call, or None if there is none."""
    found = [(one, _numbers(one.value())) for one in itertools.islice(_variables(argument, place), _MOST_VARIABLES)]
    known = tuple((variable, held) for variable, held in found if held is not None)
    return RecordedNumber(op, argument, number, known, user_call_site()) if known else None


def _numbers(value: object) -> object:
    """A whole number, or a copy of several; None for all else."""
    if isinstance(value, torch.Tensor | np.ndarray):
        is_read = math.prod(value.shape) <= _MOST_NUMBERS and not getattr(value, "is_meta", False)
        return _numbers(value.tolist()) if is_read else None
    if isinstance(value, list | tuple):
        return list(value) if all(type(one) is int for one in value) else None
    return value if type(value) is int else None


def _identity(variable: Variable) -> tuple[object, ...]:
    """Identify the variable: owners that are equal are still two."""
    return variable.code, variable.name, id(variable.owner), str(variable.key)


def doubt_changed(numbers: Iterable[RecordedNumber], others: Iterable[RecordedNumber]) -> None:
    """Warn of numbers whose variable holds another one now; `others` are those of all traces of the mesh.

    A variable that went on to be captured in another trace has done so for its sake.
    """
    elsewhere = {(*_identity(one), repr(held)) for other in others for one, held in other.variables}
    numbers = list(numbers)
    held_here = {(*_identity(one), repr(held)) for recorded in numbers for one, held in recorded.variables}
    places = Counter(identity[:-1] for identity in held_here)
    for recorded in numbers:
        for variable, held in recorded.variables:
            now = _numbers(variable.value())
            is_loop = places[_identity(variable)] > 1  # the trace writes to all that the variable ran through
            if now is None or now == held or is_loop or (*_identity(variable), repr(now)) in elsewhere:
                continue
            doubt(
                f"execute_trace: {variable.name} is {now} by now, and was {held} when {recorded.op} ({recorded.site}) "
                f"was recorded with {recorded.argument}={recorded.number}: a trace keeps the Python numbers of its "
                "calls, and each replay writes to the same place. Give the place as a tensor and write it before each "
                "replay, or capture a trace for each place.",
            )
            break


def _variables(argument: str, place: int) -> Iterator[Variable]:
    """Those in the argument of the program's call, and in what its callers have handed on as a parameter."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    while frame is not None:
        call, code = _call_in(frame), frame.f_code
        given = None if call is None else _given(call, argument, place)
        if given is None and (call is None or not _hands_on_all(call, code)):
            return
        if given is not None:
            yield from _variables_in(given, frame)
            if not isinstance(given, ast.Name) or given.id not in _parameters(code):
                return
            argument, place = given.id, _parameters(code).index(given.id)
        frame = frame.f_back
        outer = None if frame is None else _call_in(frame)
        if (
            outer is not None
            and isinstance(outer.func, ast.Attribute)
            and code.co_varnames[:1] in (("self",), ("cls",))
        ):
            place -= 1


def _hands_on_all(call: ast.Call, code: CodeType) -> bool:
    """True for `f(*args, **kwargs)` in a function that takes these and nothing else."""
    names = [one.value for one in call.args if isinstance(one, ast.Starred)]
    names += [keyword.value for keyword in call.keywords if keyword.arg is None]
    own = code.co_varnames[_count(code) :]
    return bool(names) and not _count(code) and all(isinstance(one, ast.Name) and one.id in own for one in names)


def _count(code: CodeType) -> int:
    return len(_parameters(code))


def _variables_in(given: ast.AST, frame: FrameType) -> Iterator[Variable]:
    """Those that hold whole numbers, with all that leads to an attribute or an entry."""
    found = _variable(given, frame)
    is_number = found is not None and _numbers(found.value()) is not None
    if found is not None and is_number:
        yield found
    inner = ast.iter_child_nodes(given) if not is_number else [given.slice] if isinstance(given, ast.Subscript) else ()
    for node in inner:
        yield from _variables_in(node, frame)


def _variable(given: ast.AST, frame: FrameType) -> Variable | None:
    if isinstance(given, ast.Name):
        if given.id in frame.f_locals and frame.f_locals is not frame.f_globals:
            return Variable(_home(given.id, frame), given.id)
        return Variable(frame.f_code, given.id, frame.f_globals, given.id)
    if not isinstance(given, ast.Attribute | ast.Subscript):
        return None
    owner = _held(given.value, frame)
    key = given.attr if isinstance(given, ast.Attribute) else _held(given.slice, frame)
    return None if owner is None or key is None else Variable(frame.f_code, ast.unparse(given), owner, key)


def _held(node: ast.AST, frame: FrameType) -> object:
    """What an expression of names, attributes and entries stands for now."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    found = _variable(node, frame)
    return None if found is None else found.value()


def _home(name: str, frame: FrameType) -> CodeType:
    """The function whose variable it is: where a nested one uses it, the function around that."""
    outer: FrameType | None = frame
    while name in frame.f_code.co_freevars and outer is not None:
        if name in outer.f_code.co_cellvars:
            return outer.f_code
        outer = outer.f_back
    return frame.f_code


def _given(call: ast.Call, argument: str, place: int) -> ast.expr | None:
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == argument), None)
    if by_name is not None or any(isinstance(one, ast.Starred) for one in call.args):
        return by_name
    return call.args[place] if 0 <= place < len(call.args) else None


def _call_in(frame: FrameType) -> ast.Call | None:
    """The call that the frame is in; None without its source, and before Python 3.11, which does not tell."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None or frame.f_lasti < 0:
        return None
    line, end_line, column, end_column = next(itertools.islice(positions(), frame.f_lasti // 2, None))
    return _calls_of(frame.f_code.co_filename).get((line, end_line, column, end_column))


@lru_cache(maxsize=64)
def _calls_of(file: str) -> dict[tuple[int | None, ...], ast.Call]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    return {
        (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset): node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
