"""An explained plan in a terminal, as tables of rich."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from softmesh.planner.explanation.plan_explanation import PlanExplanation

_NUMBERS = ("through a link", "time", "memory", "on each device")


class PlanTables:
    """For a console: the tables one below the other, then what binds."""

    def __init__(self, explanation: PlanExplanation) -> None:
        self._explanation = explanation

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        explanation = self._explanation
        yield Text(explanation.title, style="bold")
        yield Text(explanation.subtitle)
        for heading, columns, rows in explanation.tables():
            if rows:
                yield Text()
                yield _table(heading, columns, rows)
        yield Text("\nwhat binds", style="bold")
        yield from (Text(f"  {line}") for line in explanation.binding)


def _table(heading: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(title=heading, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        is_number = name in _NUMBERS and heading != "one more"
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        is_sent = any(cell.startswith("-> ") for cell in row)
        table.add_row(*map(Text, row), style="dim" if is_sent else "")
    return table
