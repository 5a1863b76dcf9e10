"""`log_commands()`: the command stream as a table a person can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from softmesh.runtime.commands import Command, observe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from softmesh.tensor.tensor import Tensor


class CommandLog:
    """What ran, a row for each command. Keeps texts only, never tensors."""

    columns = ("#", "command", "inputs", "outputs", "placement", "queue", "devices", "at")

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []

    def on_command(self, command: Command) -> None:
        self.rows.append(
            (
                str(len(self.rows)),
                command.name,
                _shapes(command.inputs),
                _shapes(command.outputs),
                ", ".join(_placement(tensor) for tensor in command.outputs),
                str(command.queue),
                str(len(command.coords)),
                str(command.site),
            )
        )

    def table(self) -> Table:
        from rich.table import Table

        table = Table(*self.columns, title=f"{len(self.rows)} commands")
        for row in self.rows:
            table.add_row(*row)
        return table

    def __len__(self) -> int:
        return len(self.rows)


def _shapes(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{tensor.dtype.name.lower()}{list(tensor.shape)}" for tensor in tensors) or "-"


def _placement(tensor: Tensor) -> str:
    return " x ".join(map(repr, tensor.view_distribution().placements))


@contextmanager
def log_commands(console: Console | None = None, *, show: bool = True) -> Iterator[CommandLog]:
    """Print every command of the block as one table when it ends, also when it ends in an error."""
    log = CommandLog()
    try:
        with observe(log):
            yield log
    finally:
        if show:
            from rich.console import Console

            (console or Console()).print(log.table())
