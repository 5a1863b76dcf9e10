"""Functions around ops, checked at their edge as ops are: names by the signature, kinds by its annotations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from softmesh.arguments import refused
from softmesh.dispatch.value_kinds import check_kinds
from softmesh.errors import did_you_mean

_Function = TypeVar("_Function", bound=Callable[..., Any])


def checked_function(function: _Function) -> _Function:
    """A wrong name is answered with the nearest right one, a wrong kind with the one that is wanted."""
    signature = inspect.signature(function)
    others = [name for name, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            known = list(signature.parameters)
            wrong = next((name for name in kwargs if name not in known), "")
            hint = did_you_mean(wrong, known) if wrong else ""
            raise refused(function.__name__, f"{error}.{hint} It takes {', '.join(known)}") from None
        named = {name: value for name, value in given.items() if name not in others}
        check_kinds(function.__name__, function, named)
        return function(*args, **kwargs)

    return cast(_Function, call)
