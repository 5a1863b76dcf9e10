"""Argument checks at the API's edge: errors name the function, the argument and what it got."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from softmesh.errors import ArgumentError, did_you_mean

_LONGEST_REPR = 60
_LIBRARIES = {"torch": "torch", "numpy": "numpy", "softmesh": "ttnn"}
_ARRAYS = ("Tensor", "Parameter", "ndarray")  # told by their shapes, not by their values
_Kind = TypeVar("_Kind")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def described(value: object) -> str:
    """A value as an error shows it: itself where that is short, else what it is.

    >>> described("2x4"), described(list(range(100)))
    ("'2x4'", 'a list')
    """
    library = _LIBRARIES.get(type(value).__module__.partition(".")[0])
    if library is not None and type(value).__name__ in _ARRAYS:
        return f"a {library}.{type(value).__name__} {list(getattr(value, 'shape', ()))}"
    text = repr(value)
    return text if len(text) <= _LONGEST_REPR and "\n" not in text else f"a {type(value).__name__}"


def refused(where: str, cause: str) -> ArgumentError:
    return ArgumentError(f"{where}(): incompatible function arguments: {cause}.")


def checked(where: str, name: str, value: object, kind: type[_Kind], wanted: str) -> _Kind:
    """`value`, known to be of this kind; `wanted` says in words what that is and how to get one."""
    if not isinstance(value, kind):
        raise refused(where, f"{name} must be {wanted}, got {described(value)}")
    return value


def checked_int(where: str, name: str, value: object) -> int:
    """`value` as an int; anything that counts as one will do, but neither bool nor float does."""
    try:
        if not isinstance(value, bool):
            return operator.index(cast(int, value))
    except TypeError:
        pass
    raise refused(where, f"{name} must be an int, got {described(value)}")


def checked_ints(where: str, name: str, values: object) -> list[int]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise refused(where, f"{name} must be a list of ints, got {described(values)}")
    return [checked_int(where, f"{name}[{i}]", value) for i, value in enumerate(values)]


def checked_all(
    where: str, name: str, values: object, kinds: tuple[type[_Kind], ...], wanted: str
) -> list[_Kind]:
    """`values` as a list, every one of them of one of the kinds."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise refused(where, f"{name} must be a list of {wanted}, got {described(values)}")
    found = list(values)
    for i, value in enumerate(found):
        if not isinstance(value, kinds):
            raise refused(where, f"{name}[{i}] must be one of the {wanted}, got {described(value)}")
    return found


def reject_unknown_keywords(function: _Function) -> _Function:
    """An unknown keyword argument is answered with the nearest right spelling."""
    names = inspect.signature(function).parameters.keys()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.keys() <= names:
            wrong = next(name for name in kwargs if name not in names)
            hint = did_you_mean(wrong, names)
            raise refused(
                function.__name__, f"it has no argument {wrong!r}.{hint} It takes {', '.join(names)}"
            )
        return function(*args, **kwargs)

    return cast(_Function, call)
