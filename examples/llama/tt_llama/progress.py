"""A progress bar on a terminal; silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def progress(items: Iterable[T], doing: str, total: int | None = None) -> Iterator[T]:
    console = Console(stderr=True)
    yield from track(items, doing, total, console=console, transient=True, disable=not sys.stderr.isatty())
