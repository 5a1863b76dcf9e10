"""C++ template parameters in Python: `reduce_tile[SUM, REDUCE_ROW](...)`, or the same by name.

A call that C++ writes with `<...>` takes what stands there in brackets, or as keyword arguments; where the
parameter has a default, neither is needed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from softmesh.errors import ArgumentError

P = ParamSpec("P")
R = TypeVar("R")


class Templated(Generic[P, R]):
    """A function whose keyword-only arguments may be given in brackets, in their order."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        self._names = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __getitem__(self, given: Any) -> Callable[..., R]:
        values = given if isinstance(given, tuple) else (given,)
        if len(values) > len(self._names):
            raise ArgumentError(
                f"{self._function.__name__}[...]: it has the template parameters {', '.join(self._names)}, got "
                f"{len(values)}."
            )
        return functools.partial(self._function, **dict(zip(self._names, values, strict=False)))


def templated(function: Callable[P, R]) -> Templated[P, R]:
    return Templated(function)
