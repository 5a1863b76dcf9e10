"""How a run looks while it goes: a bar on a terminal, otherwise the lines that tools read."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from softmesh.processes.context import launched
from softmesh.train.loop.metrics import Measured


class Lines(AbstractContextManager["Lines"]):
    """`Step: 3, Loss: 2.5, Time: 12.34 ms`, every so many steps; never with 0."""

    def __init__(self, every: int) -> None:
        self.every = every

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, measured: Measured) -> None:
        if self.every and measured.step % self.every == 0:
            print(
                f"Step: {measured.step}, Loss: {measured.loss:.6f}, Time: {1e3 * measured.seconds:.2f} ms",
                flush=True,
            )


class Bar(Lines):
    """Drawn by rich: steps done, loss, tokens (or rows) in a second, time left."""

    def __init__(self, every: int, done: int, steps: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__(every)
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
        )
        self._progress = Progress(*columns, TimeRemainingColumn())
        self._task: Any = self._progress.add_task("training", total=steps, completed=done, told="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, measured: Measured) -> None:
        count, unit = (measured.rows, "rows/s") if measured.tokens is None else (measured.tokens, "tokens/s")
        told = f"loss {measured.loss:.4f}  {count / measured.seconds:,.0f} {unit}"
        self._progress.update(self._task, completed=measured.step, told=told)


class Silence(Lines):
    def __init__(self) -> None:
        super().__init__(0)


def display(wants_bar: bool, every: int, done: int, steps: int, speaks: bool = True) -> Lines:
    """`speaks` is False in all but one of the processes that train together. A launcher's output is never drawn on."""
    if not speaks:
        return Silence()
    return Bar(every, done, steps) if wants_bar and sys.stdout.isatty() and not launched() else Lines(every)
