"""Placement rules in words: each says where an op's result lies, and help texts find the rule an op names."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SENTENCES: dict[str, str] = {}
_DEEPEST = 4  # of functions that call functions


def placed(sentence: str) -> Callable[[_Function], _Function]:
    """What the decorated rule, or the rule that the decorated function makes, answers."""

    def note(function: _Function) -> _Function:
        _SENTENCES[_key(function)] = sentence
        return function

    return note


def placement_sentence(define: Callable[..., Any]) -> str | None:
    """Of a definition, or of the first rule that it or the functions it calls name; None if there is none."""
    level: list[object] = [define]
    seen: set[int] = set()
    for _ in range(_DEEPEST):
        for function in level:
            if _key(function) in _SENTENCES:
                return _SENTENCES[_key(function)]
        seen.update(map(id, level))
        level = [named for function in level for named in _named(function) if id(named) not in seen]
    return None


def _key(function: object) -> str:
    name = getattr(function, "__qualname__", "").partition(".<locals>")[0]
    return f"{getattr(function, '__module__', '')}.{name}"


def _named(function: object) -> Iterator[object]:
    """The package's functions that a function has in its closure, or calls by name."""
    function = getattr(function, "answer", function)  # of a rule
    if not isinstance(function, FunctionType):
        return
    for cell in function.__closure__ or ():
        yield from _functions_in(cell.cell_contents)
    for held in (function.__defaults__ or (), (function.__kwdefaults__ or {}).values()):
        yield from (one for one in held if _is_ours(one))
    yield from _called(function.__code__, function.__globals__)


def _functions_in(held: object) -> Iterator[object]:
    return filter(_is_ours, held if isinstance(held, tuple) else (held,))


def _called(code: CodeType, known: dict[str, Any]) -> Iterator[object]:
    holder: object = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            holder = known.get(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(holder, ModuleType):
            holder = getattr(holder, step.argval, None)
        else:
            continue
        called = getattr(getattr(holder, "definition", holder), "define", holder)  # an op, by its definition
        if _is_ours(called):
            yield called
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name != "rule":  # which says more than those it uses
            yield from _called(constant, known)


def _is_ours(value: object) -> bool:
    return isinstance(getattr(value, "answer", value), FunctionType) and value.__module__.startswith(
        __name__.partition(".")[0]
    )
