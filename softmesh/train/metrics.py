"""Metrics and progress of a training run: time, throughput, collective traffic; a line of JSON for each step."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import MeshError
from softmesh.processes.current_context import launched
from softmesh.progress import NotebookBar, is_notebook
from softmesh.runtime.command_tensor import CommandTensor
from softmesh.runtime.commands import Command
from softmesh.tensor.dtype import facts


class Traffic:
    """Counts collectives as they run: calls, and the bytes that each device puts into them."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def on_command(self, command: Command) -> None:
        op = OPERATIONS.get(command.name)
        if op is not None and op.reads_other_devices:
            self.calls[command.name] += 1
            self.bytes[command.name] += sum(map(_bytes, command.inputs))

    def as_record(self) -> dict[str, Any]:
        by_name = {name: {"calls": n, "bytes": self.bytes[name]} for name, n in sorted(self.calls.items())}
        return {"calls": self.calls.total(), "bytes": self.bytes.total(), "by_name": by_name}


def _bytes(tensor: CommandTensor) -> int:
    return tensor.logical_volume() * facts(tensor.dtype).bits // 8


@dataclass
class Measured:
    """One step: `rows` of all its batches, `tokens` where they have any."""

    step: int
    loss: float
    lr: float
    seconds: float
    rows: int
    tokens: int | None
    grad_norm: float | None = None
    traffic: Traffic | None = field(default=None, repr=False)

    def as_record(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "step": self.step,
            "loss": self.loss,
            "lr": self.lr,
            "grad_norm": self.grad_norm,
            "time_ms": round(1e3 * self.seconds, 3),
            "samples_per_s": round(self.rows / self.seconds, 3),
            "tokens_per_s": None if self.tokens is None else round(self.tokens / self.seconds, 3),
        }
        return values if self.traffic is None else values | {"collectives": self.traffic.as_record()}


class JsonLines:
    """A file that grows by a line for each step; a run that goes back to a checkpoint takes back what came after."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        except OSError as error:
            raise MeshError(f"Trainer: metrics cannot be written to {self.path}: {error}.") from error

    def write(self, values: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def truncate_after(self, step: int) -> None:
        """Drop the lines of later steps, and one that a crash cut off."""
        rest = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with (
            self.path.open(encoding="utf-8", errors="replace") as old,
            rest.open("w", encoding="utf-8") as new,
        ):
            new.writelines(line for line in old if _is_up_to(line, step))
        os.replace(rest, self.path)


def _is_up_to(line: str, step: int) -> bool:
    try:
        found = json.loads(line)["step"] if line.endswith("\n") else None
    except (ValueError, LookupError, TypeError):
        return False
    return isinstance(found, int) and found <= step


# Display: a progress bar on a terminal and in a notebook, otherwise the lines that tools read.


class Lines(AbstractContextManager["Lines"]):
    """`Step: 3, Loss: 2.5, Time: 12.34 ms`, every so many steps; never with 0."""

    def __init__(self, every: int) -> None:
        self.every = every

    def __exit__(self, *_: object) -> None:
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
            TextColumn("{task.fields[text]}"),
        )
        self._progress = Progress(*columns, TimeRemainingColumn())
        self._task: Any = self._progress.add_task("training", total=steps, completed=done, text="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, measured: Measured) -> None:
        self._progress.update(self._task, completed=measured.step, text=_loss_and_rate(measured))


class BarBelowCell(Lines):
    """The same in a notebook."""

    def __init__(self, every: int, steps: int) -> None:
        super().__init__(every)
        self._bar = NotebookBar("training", steps)

    def __enter__(self) -> BarBelowCell:
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()

    def show(self, measured: Measured) -> None:
        self._bar.show(measured.step, _loss_and_rate(measured))


def _loss_and_rate(measured: Measured) -> str:
    count, unit = (measured.rows, "rows/s") if measured.tokens is None else (measured.tokens, "tokens/s")
    return f"loss {measured.loss:.4f}  {count / measured.seconds:,.0f} {unit}"


def display(wants_bar: bool, every: int, done: int, steps: int, speaks: bool = True) -> Lines:
    """`speaks` is False in all but one of the processes that train together. A launcher's output is never drawn on."""
    if not speaks:
        return Lines(0)
    if wants_bar and is_notebook():
        return BarBelowCell(every, steps)
    return Bar(every, done, steps) if wants_bar and sys.stdout.isatty() and not launched() else Lines(every)
