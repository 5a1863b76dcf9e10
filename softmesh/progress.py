"""Progress bars of long work, on the error stream; without a terminal nothing is shown, and nothing loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")


def is_watched() -> bool:
    """Whether somebody sees a bar: a terminal, and no file, pipe or CI."""
    return bool(getattr(sys.stderr, "isatty", lambda: False)())


def tracked(items: Sequence[_Item], doing: str) -> Iterator[_Item]:
    """The items, with a bar that tells how many of them are done; it goes away with the last."""
    if not is_watched():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, doing, console=Console(stderr=True), transient=True)


@contextmanager
def working(doing: str) -> Iterator[None]:
    """A sign of life for work whose end is not known beforehand."""
    if not is_watched():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(doing):
        yield
