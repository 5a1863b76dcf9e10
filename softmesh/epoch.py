"""What a call that is like the last one takes for granted, so that it need not ask again.

That the mesh is open, nobody records or observes, the fabric is the same, no queue was chosen, nobody trains: an op
would ask a dozen objects for these, at every call and in vain. Instead whoever changes one of them says so here, and
every op forgets its last call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Remembering(Protocol):
    def keep(self, what: Any) -> None: ...
    def forget(self) -> None: ...


_LOCK = threading.RLock()  # forgetting may end what then changes something itself
_REMEMBERING: set[Remembering] = set()
_suspended = 0
moment: object | None = object()  # another one after each change; None where a block has its own rules


def changed() -> None:
    with _LOCK:
        _begin_anew()


def remember(one: Remembering, what: object, since: object | None) -> None:
    """Have `one` keep this until the next change; not at all, where there was one since that moment."""
    with _LOCK:
        if since is not None and since is moment:
            one.keep(what)
            _REMEMBERING.add(one)


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
    global moment, _REMEMBERING
    moment = None if _suspended else object()
    told, _REMEMBERING = _REMEMBERING, set()
    for one in told:
        one.forget()
