"""Functions that take turns on one thread: each runs until it waits for something that is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from softmesh.errors import MeshError

if TYPE_CHECKING:
    from greenlet import greenlet

_MOST_SHOWN = 8


class _Waiting(NamedTuple):
    name: str
    thread: greenlet
    ready: Callable[[], bool]
    reason: str


def wait_until(ready: Callable[[], bool], reason: str) -> None:
    """Let the others run until `ready()`. Only for functions that `take_turns` runs."""
    from greenlet import getcurrent

    if ready():
        return
    hub = getcurrent().parent
    if hub is None:
        raise MeshError(f"a wait {reason} outside a kernel would never end")
    hub.switch((ready, reason))


def take_turns(functions: Mapping[str, Callable[[], None]]) -> None:
    """Run all functions to their end; an error of one of them ends all, and so does a standstill."""
    from greenlet import greenlet

    waiting = [_Waiting(name, greenlet(run), lambda: True, "") for name, run in functions.items()]
    while waiting:
        before, still = waiting, list[_Waiting]()
        moved = False
        for each in before:
            if not each.ready():
                still.append(each)
                continue
            moved = True
            asked = each.thread.switch()
            if not each.thread.dead:
                still.append(_Waiting(each.name, each.thread, *asked))
        waiting = still
        if not moved:
            raise MeshError(_standstill(waiting))


def _standstill(waiting: list[_Waiting]) -> str:
    shown = [f"{each.name} waits {each.reason}" for each in waiting[:_MOST_SHOWN]]
    more = len(waiting) - len(shown)
    return "the program stands still: " + "; ".join(shown) + (f"; and {more} more" if more else "")
