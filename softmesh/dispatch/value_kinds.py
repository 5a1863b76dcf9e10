"""Whether the arguments of a call are what the op's definition says they are: `dim: int`, `shape: Sequence[int]`.

Asked once, when a call is planned; the annotations of the definition are the only list of kinds there is.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

from softmesh.arguments import described, refused
from softmesh.dispatch.operand import Operand
from softmesh.tensor.dtype import DataType, Layout

_ONE: dict[object, str] = {
    Operand: "a ttnn.Tensor",
    int: "an int",
    float: "a number",
    bool: "True or False",
    str: "a string",
    type(None): "None",
    DataType: "a ttnn dtype such as ttnn.bfloat16",
    Layout: "ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT",
}
_SEVERAL: dict[object, str] = {Operand: "tensors", int: "ints", float: "numbers"}


@cache
def _hints(define: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(define)


def check_kinds(op: str, define: Callable[..., Any], arguments: Mapping[str, object]) -> None:
    hints = _hints(define)
    for name, value in arguments.items():
        if not _fits(value, hints[name]):
            raise refused(op, f"{name} must be {kind_in_words(hints[name])}, got {_shown(value)}")


def _fits(value: object, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is Sequence or origin is list:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return all(_fits(item, get_args(hint)[0]) for item in value)
    if hint is bool:
        return isinstance(value, int)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, Real)
    return not isinstance(hint, type) or isinstance(value, hint)


def kind_in_words(hint: Any) -> str:
    """`a ttnn.Tensor or a number`, for a type as annotations have it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [part for part in parts if not (part is int and float in parts)]
        return " or ".join(kind_in_words(kind) for kind in kinds)
    if origin in (Sequence, list):
        return f"a sequence of {_SEVERAL.get(parts[0]) or kind_in_words(parts[0])}"
    return _ONE.get(hint) or f"a ttnn.{getattr(hint, '__name__', hint)}"


def _shown(value: object) -> str:
    if isinstance(value, Operand):
        return f"a ttnn.Tensor {list(value.shape)}"
    if isinstance(value, Iterable) and any(isinstance(item, Operand) for item in value):
        return "a list with tensors in it"
    return described(value)
