"""Progress of long work: a bar in a terminal (on the error stream) and in a notebook, lines elsewhere.

Neither a file nor a pipe nor a CI sees a bar, and then nothing is loaded for one: after five seconds a line says that
the first item is at work, or how much is done and how long the rest takes, and again when twice as much time is over.
"""

from __future__ import annotations

import html
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from softmesh.terminal_text import console

_Item = TypeVar("_Item")
_QUIET_SECONDS, _REDRAW_SECONDS = 0.5, 0.1
_FIRST_LINE_SECONDS = 5.0
_THREAD = threading.local()


def is_terminal() -> bool:
    return bool(getattr(sys.stderr, "isatty", lambda: False)())


def is_notebook() -> bool:
    """Whether this is the kernel of a notebook; IPython in a terminal is a terminal."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def tracked(items: Sequence[_Item], doing: str) -> Iterator[_Item]:
    """Yield the items, and show how many are done and how long the rest takes. Within another one, show nothing."""
    if getattr(_THREAD, "is_tracking", False):
        yield from items
        return
    _THREAD.is_tracking = True
    try:
        with counted(doing, len(items)) as done:
            for item in items:
                yield item
                done()
    finally:
        _THREAD.is_tracking = False


@contextmanager
def working(doing: str, most_seconds: float | None = None) -> Iterator[None]:
    """Show that work goes on whose end is not known beforehand, and how long it takes at most."""
    limit = "" if most_seconds is None else f", {most_seconds:.0f} s at most"
    if is_notebook():
        with NotebookBar(f"{doing}{limit}", None) as bar, _later(_QUIET_SECONDS, lambda: bar.show(0)):
            yield
    elif is_terminal():
        with console(stderr=True).status(f"{doing}{limit}"):
            yield
    else:
        line = f"{doing}: at work for {_FIRST_LINE_SECONDS:.0f} s{limit}"
        with _later(_FIRST_LINE_SECONDS, lambda: print(line, file=sys.stderr, flush=True)):
            yield


@contextmanager
def _later(seconds: float, show: Callable[[], None]) -> Iterator[None]:
    """Call it after so many seconds, unless the block has ended by then."""
    waiting = threading.Timer(seconds, show)
    waiting.daemon = True
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()
        waiting.join()


@contextmanager
def counted(doing: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Yields what is to be called for each item that is done; without a total nobody knows how many there will be."""
    if is_notebook():
        done = itertools.count(1)
        with NotebookBar(doing, total) as bar:
            yield lambda: bar.show(next(done))
    elif is_terminal():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console(stderr=True), transient=True) as bars:
            task = bars.add_task(doing, total=total)
            yield lambda: bars.advance(task)
    else:
        lines = _Lines(doing, total)
        with _later(_FIRST_LINE_SECONDS, lines.begun):
            yield lines.step


class _Lines:
    """Progress where there is no terminal: a line after 5 seconds, and each time when twice as many have passed."""

    def __init__(self, doing: str, total: int | None) -> None:
        self._doing, self._total, self._done = doing, total, 0
        self._start = time.monotonic()
        self._next = self._start + _FIRST_LINE_SECONDS

    def begun(self) -> None:
        """Tell that the first item takes long: how long the rest takes is known once it is done."""
        if not self._done:
            of_them = "" if self._total is None else f" of {self._total:,}"
            print(f"{self._doing}: at work on the first{of_them}", file=sys.stderr, flush=True)

    def step(self) -> None:
        self._done += 1
        now = time.monotonic()
        if now < self._next:
            return
        spent = now - self._start
        self._next = now + spent
        text = f"{self._doing}: {self._done:,} after {spent:.0f} s"
        if self._total is not None and self._total >= self._done:
            left = spent * (self._total - self._done) / self._done
            text = f"{self._doing}: {self._done:,} of {self._total:,} after {spent:.0f} s, about {left:.0f} s left"
        print(text, file=sys.stderr, flush=True)


class NotebookBar:
    """A bar below the cell that runs, without a widget library; without a total it moves, and tells no number.

    Work that is soon done shows none: an empty output would be left of it.
    """

    def __init__(self, doing: str, total: int | None) -> None:
        self.doing, self.total = doing, total
        self._shown: Any = None
        self._next = time.monotonic() + _QUIET_SECONDS

    def __enter__(self) -> NotebookBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._draw("")

    def show(self, done: int, text: str = "") -> None:
        """How many are done, and a word beside the bar; drawn a few times a second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REDRAW_SECONDS
            self._draw(self._html(done, text))

    def _draw(self, page: str) -> None:
        from IPython.display import HTML, display

        if self._shown is None:
            self._shown = display(HTML(page), display_id=True)
        else:
            self._shown.update(HTML(page))

    def _html(self, done: int, text: str) -> str:
        if self.total is None:
            return f"{html.escape(self.doing)} <progress></progress>"
        bar = f"<progress value='{done}' max='{self.total}'></progress>"
        return f"{html.escape(self.doing)} {bar} {done}/{self.total} {html.escape(text)}"
