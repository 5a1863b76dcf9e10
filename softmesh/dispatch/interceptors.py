"""Who stands between a caller and the ops: hooks, comparisons, tracers.

While nobody does, an op asks whether the list is empty, and that is all it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softmesh.dispatch.operation import Operation

Proceed = Callable[..., Any]  # the call itself, or the next one in line
Interceptor = Callable[["Operation", tuple[Any, ...], dict[str, Any], Proceed], Any]

INTERCEPTORS: list[Interceptor] = []


@contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """Within the block `interceptor(op, args, kwargs, proceed)` answers for every call of an op.

    What it returns is the op's result: mostly that of `proceed(*args, **kwargs)`. The latest comes first.
    """
    INTERCEPTORS.append(interceptor)
    try:
        yield
    finally:
        INTERCEPTORS.remove(interceptor)


def call_through(op: Operation, call: Proceed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The op's `call`, asked through everyone in line."""
    proceed = call
    for interceptor in INTERCEPTORS:
        proceed = _before(interceptor, op, proceed)
    return proceed(*args, **kwargs)


def _before(interceptor: Interceptor, op: Operation, proceed: Proceed) -> Proceed:
    return lambda *args, **kwargs: interceptor(op, args, kwargs, proceed)
