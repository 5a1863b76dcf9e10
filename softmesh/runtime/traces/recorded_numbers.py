"""Python numbers that a trace holds, and that the program has changed since: doubts of strict mode.

A recorded call keeps its numbers. One that says where to write, a user or a position, comes from a variable. Where
that holds another number at a replay, the program means another place than the trace writes to. The variables are
found in the source of the recorded call and of the calls around it, as far as they hand a parameter on.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

from softmesh.callsite import CallSite, is_ours, user_call_site
from softmesh.errors import SoftmeshWarning
from softmesh.strictness import doubt

_MOST_VARIABLES = 16


class Variable(NamedTuple):
    """`owner` has it as an attribute, or is the globals that it is one of; None: frames of `code` have it."""

    code: CodeType
    name: str
    owner: object = None

    def value(self) -> object:
        """Return its current value, or None if no function that has it is running."""
        if isinstance(self.owner, dict):
            return self.owner.get(self.name)
        if self.owner is not None:
            return getattr(self.owner, "__dict__", {}).get(self.name)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        return None if frame is None else frame.f_locals.get(self.name)


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
    if isinstance(value, list | tuple):
        return list(value) if all(type(one) is int for one in value) else None
    return value if type(value) is int else None


def _identity(variable: Variable) -> tuple[object, ...]:
    """Identify the variable: owners that are equal are still two."""
    return variable.code, variable.name, id(variable.owner)


def doubt_changed(numbers: Iterable[RecordedNumber], others: Iterable[RecordedNumber]) -> None:
    """Warn of numbers whose variable holds another one now; `others` are those of all traces of the mesh.

    A variable that went on to be captured in another trace has done so for its sake.
    """
    elsewhere = {(*_identity(one), repr(held)) for other in others for one, held in other.variables}
    for recorded in numbers:
        for variable, held in recorded.variables:
            now = _numbers(variable.value())
            if now is None or now == held or (*_identity(variable), repr(now)) in elsewhere:
                continue
            doubt(
                f"execute_trace: {variable.name} is {now} by now, and was {held} when {recorded.op} ({recorded.site}) "
                f"was recorded with {recorded.argument}={recorded.number}: a trace keeps the Python numbers of its "
                "calls, and each replay writes to the same place. Give the place as a tensor and write it before each "
                "replay, or capture a trace for each place.",
                SoftmeshWarning,
            )
            break


def _variables(argument: str, place: int) -> Iterator[Variable]:
    """Those in the argument of the program's call, and in what its callers have handed on as a parameter."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    while frame is not None:
        call = _call_in(frame)
        given = None if call is None else _given(call, argument, place)
        if given is None:
            return
        yield from filter(None, (_variable(node, frame) for node in ast.walk(given)))
        code = frame.f_code
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if not isinstance(given, ast.Name) or given.id not in parameters:
            return
        argument, place = given.id, parameters.index(given.id)
        frame = frame.f_back
        outer = None if frame is None else _call_in(frame)
        if outer is not None and isinstance(outer.func, ast.Attribute) and parameters[0] in ("self", "cls"):
            place -= 1


def _variable(given: ast.AST, frame: FrameType) -> Variable | None:
    if isinstance(given, ast.Name) and isinstance(given.ctx, ast.Load):
        is_local = given.id in frame.f_locals and frame.f_locals is not frame.f_globals
        return Variable(_home(given.id, frame), given.id, None if is_local else frame.f_globals)
    if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name):
        owner = frame.f_locals.get(given.value.id, frame.f_globals.get(given.value.id))
        return None if owner is None else Variable(frame.f_code, given.attr, owner)
    return None


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
