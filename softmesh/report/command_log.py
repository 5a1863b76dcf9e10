"""`log_commands()`: the command stream as a table a person can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from softmesh import terminal_text
from softmesh.runtime.commands import Command, observe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from softmesh.runtime.command_tensor import CommandTensor


_SHORT = {
    "BFLOAT16": "bf16",
    "FLOAT32": "f32",
    "BFLOAT8_B": "bf8",
    "BFLOAT4_B": "bf4",
    "FP8_E4M3": "fp8",
    "UINT8": "u8",
    "UINT16": "u16",
    "UINT32": "u32",
    "INT8": "i8",
    "INT32": "i32",
}


class CommandLog:
    """What ran, a row for each command. Keeps texts only, never tensors."""

    columns = ("#", "command", "inputs", "outputs, placement", "cq", "devices", "at")
    _kept_whole = ("command", "inputs", "outputs, placement", "devices", "at")

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []

    def __repr__(self) -> str:
        names = [row[1] for row in self.rows[:5]] + ["..."] * (len(self.rows) > 5)
        return (
            f"CommandLog({len(self.rows)} command{'s' * (len(self.rows) != 1)}: {', '.join(names)})"
            if names
            else "CommandLog(0 commands)"
        )

    def on_command(self, command: Command) -> None:
        self.rows.append(
            (
                str(len(self.rows)),
                command.name,
                "\n".join(map(_shape, command.inputs)) or "-",
                "\n".join(f"{_shape(tensor)}\n{_placement(tensor)}" for tensor in command.outputs) or "-",
                str(command.queue),
                _range(command),
                str(command.site),
            )
        )

    def table(self) -> Table:
        from rich import box
        from rich.table import Table

        table = Table(title=f"{len(self.rows)} commands", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in self.columns:
            table.add_column(column, no_wrap=column in self._kept_whole, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def __len__(self) -> int:
        return len(self.rows)


def _shape(tensor: CommandTensor) -> str:
    """`bf16 1x1x32x64`"""
    return f"{_SHORT[tensor.dtype.name]} {'x'.join(map(str, tensor.shape)) or 'scalar'}"


def _placement(tensor: CommandTensor) -> str:
    return ", ".join(map(repr, tensor.view_distribution().placements))


def _range(command: Command) -> str:
    """Where it ran: `0,0..1,3`, a box after another."""
    boxes = []
    for box in command.mesh_range.ranges():
        start, end = (",".join(map(str, corner)) for corner in (box.start, box.end))
        boxes.append(start if start == end else f"{start}..{end}")
    return "\n".join(boxes)


@contextmanager
def log_commands(console: Console | None = None, *, show: bool = True) -> Iterator[CommandLog]:
    """Print every command of the block as one table when it ends, also when it ends in an error."""
    log = CommandLog()
    try:
        with observe(log):
            yield log
    finally:
        if show:
            (console or terminal_text.console()).print(log.table())
