"""`plan.explained()`: the plan as tables, what it waits for, what lost, and what more of something would change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from softmesh.distributed.plan_table import size, time
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.explanation.alternatives import Alternative, Change, one_more, runners_up
from softmesh.planner.explanation.bottlenecks import Bottlenecks, bottlenecks_of, deciding_stages
from softmesh.planner.explanation.compared_words import gap_words
from softmesh.planner.explanation.plan_rows import OpRow, TensorRow, op_rows, placed, tensor_rows

_TOLD = 5e-4  # of a plan's time: less than that is no difference
PAINTERS: dict[str, Callable[[PlanExplanation], str]] = {}  # "html", "page", "svg": report/ binds its own


@dataclass(frozen=True)
class PlanExplanation:
    """Printed as text; a notebook shows it as a page with a picture."""

    plan: ChosenLayout
    ops: tuple[OpRow, ...]
    tensors: tuple[TensorRow, ...]
    bottlenecks: Bottlenecks
    lost: tuple[Alternative, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def title(self) -> str:
        return title_of(self.plan)

    @property
    def subtitle(self) -> str:
        plan = self.plan
        seconds = sum(part.seconds for part in self.bottlenecks.parts if part.axis is not None)
        sent = f"{time(seconds)} to send values" if seconds else "nothing is sent"
        held = f"{size(plan.memory)} of {size(plan.problem.memory_bytes)} on each device"
        return f"{gap_words(plan)}; {sent}; {held}"

    @property
    def binding(self) -> list[str]:
        """What the plan waits for, in sentences."""
        stages, deciding = self.plan.stages, deciding_stages(self.plan)
        pace = [f"stage {stages.index(deciding[0])} of {len(stages)} sets the pace"] if len(deciding) == 1 else []
        whole = sum(part.seconds for part in self.bottlenecks.parts)
        parts = self.bottlenecks.parts
        said = [f"{percent(part.seconds / whole):>4}  {part.what}, {time(part.seconds)}" for part in parts]
        used, room = self.bottlenecks.memory_bytes, self.bottlenecks.room_bytes
        memory = f"{percent(used / room):>4}  of the memory: {size(used)} of {size(room)}"
        return [*pace, *said, memory + (", nearly all there is" if self.bottlenecks.is_tight else "")]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.shown_as("html")

    def page(self) -> str:
        """An HTML file of its own."""
        return self.shown_as("page")

    def svg(self) -> str:
        """A picture of the layout: how each tensor is cut, what is sent, and what takes how long."""
        return self.shown_as("svg")

    def shown_as(self, form: str) -> str:
        return PAINTERS[form](self)

    def _lines(self) -> Iterator[str]:
        yield self.title
        yield self.subtitle
        for heading, columns, rows in self.tables():
            if rows:
                yield f"\n{heading}"
                yield from aligned([columns, *rows])
        yield "\nwhat binds"
        yield from (f"  {line}" for line in self.binding)

    def tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """Heading, names of columns, and rows of text."""
        tensors = [_tensor(row, self.plan.mesh_shape) for row in self.tensors]
        return [
            ("tensors", ("tensor", "shape", "dtype", "lies", "on each device"), tensors),
            ("ops", ("layer", "op", "split", "through a link", "time", "memory"), _op_cells(self.ops)),
            ("runners-up", ("time", "plan", "why it lost"), [self._lost(one) for one in self.lost]),
            ("one more", ("of", "time"), [(one.what, one.said) for one in self.changes]),
        ]

    def _lost(self, one: Alternative) -> tuple[str, ...]:
        if one.seconds is None:
            return "-", one.what, one.reason
        more = one.seconds / self.plan.seconds - 1 if self.plan.seconds else 0.0
        how = f"{more:+.1%}" if abs(more) >= _TOLD else "as fast"
        return f"{time(one.seconds)} ({how})", one.what, one.reason


def percent(share: float) -> str:
    """
    >>> percent(0.62), percent(0.003), percent(0.0)
    ('62%', '<1%', '0%')
    """
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def title_of(plan: ChosenLayout) -> str:
    mesh = "x".join(map(str, plan.mesh_shape))
    system = "" if plan.opening is None or plan.opening.system is None else f" of {plan.opening.system}"
    stages = f", {len(plan.stages)} stages" if len(plan.stages) > 1 else ""
    return f"{plan.goal.value} on a {mesh} mesh{system}{stages}: {time(plan.seconds)}"


def explanation_of(plan: ChosenLayout, count: int = 0, time_limit: float = 20.0) -> PlanExplanation:
    """`count` runners-up are searched, half of the time for them; none, and nothing is searched at all."""
    lost = runners_up(plan, count, time_limit / 2) if count else []
    changes = one_more(plan, time_limit / 2) if count else []
    return PlanExplanation(
        plan, tuple(op_rows(plan)), tuple(tensor_rows(plan)), bottlenecks_of(plan), tuple(lost), tuple(changes)
    )


def _tensor(row: TensorRow, mesh: Sequence[int]) -> tuple[str, ...]:
    name = f"{row.name} x{row.layers}" if row.layers > 1 else row.name
    return name, "x".join(map(str, row.shape)), row.dtype, placed(row.layout, mesh), size(row.bytes_on_each)


def _op_cells(rows: Sequence[OpRow]) -> list[tuple[str, ...]]:
    """Each collective on a line of its own, before the op that needs it."""
    cells: list[tuple[str, ...]] = []
    for row in rows:
        layer = f"{row.layer} x{row.layers}" if row.layers > 1 else row.layer
        for one in row.sent:
            through = size(one.bytes_per_link) if one.bytes_per_link else "-"
            cells.append((layer, f"-> {one.what}", "", through, time(one.seconds * row.layers), ""))
        name = f"{row.op} {row.reads}".strip()
        cells.append((layer, name, row.placement, "", time(row.seconds * row.layers), size(row.memory)))
    return cells


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
