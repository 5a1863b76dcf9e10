"""What a call that is like the last one takes for granted, so that it need not ask again.

That the mesh is open, nobody records or observes, the fabric is the same, no queue was chosen, nobody trains: an op
would ask a dozen objects for these, at every call and in vain. Instead whoever changes one of them says so here, and
every op forgets its last call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Forgetful(Protocol):
    def forget(self) -> None: ...


_LOCK = threading.Lock()
_REMEMBERING: set[Forgetful] = set()
_suspended = 0
moment: object | None = object()  # another one after each change; None where a block has its own rules


def changed() -> None:
    with _LOCK:
        _begin_anew()


def remember(one: Forgetful, since: object | None) -> bool:
    """Have `one` told of the next change; False where there was one since that moment, or none would be told."""
    with _LOCK:
        if since is None or since is not moment:
            return False
        _REMEMBERING.add(one)
        return True


@contextmanager
def suspended() -> Iterator[None]:
    """Within the block nothing is taken for granted, by any thread."""
    global _suspended
    with _LOCK:
        _suspended += 1
        _begin_anew()
    try:
        yield
    finally:
        with _LOCK:
            _suspended -= 1
            _begin_anew()


def _begin_anew() -> None:
    global moment
    moment = None if _suspended else object()
    for one in _REMEMBERING:
        one.forget()
    _REMEMBERING.clear()
