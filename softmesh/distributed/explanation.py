"""`explain()`: what was planned, and why. Each op's operands, its strategy, what it inserts, and what was rejected."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from html import escape
from typing import Any, overload

from softmesh.callsite import user_call_site
from softmesh.dispatch.operation import Operation
from softmesh.distributed.data_movement import Redistribution
from softmesh.distributed.layout_planner import Plan
from softmesh.distributed.placement_requests import axis_names
from softmesh.distributed.plan_table import (
    PlanTable,
    RejectedStrategy,
    axis_name,
    plan_table,
    size,
    strategy_text,
    time,
)
from softmesh.distributed.unified_op import Unified, listening
from softmesh.errors import ArgumentError, SoftmeshError
from softmesh.runtime.device import MeshDevice

_RUNNERS_UP = 3


class Explanation:
    """Of one op. Printed as text; a notebook shows it as a table."""

    def __init__(self, plan: Plan, device: MeshDevice, runners_up: int = _RUNNERS_UP) -> None:
        self.plan = plan
        self.axis_names = axis_names(device)
        self._runners_up = runners_up

    @cached_property
    def table(self) -> PlanTable:
        return plan_table(self.plan, self.axis_names, self._runners_up)

    def __str__(self) -> str:
        return "\n".join(_lines(self.table))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html(self.table)


class Program:
    """The unified ops of a block, in the order in which they came first; alike ones are counted."""

    def __init__(self, runners_up: int) -> None:
        self._runners_up = runners_up
        self._seen: dict[int, int] = {}
        self._sites: list[str] = []
        self.ops: list[Explanation] = []

    def record(self, plan: Plan, device: MeshDevice) -> None:
        if id(plan) not in self._seen:
            self.ops.append(Explanation(plan, device, self._runners_up))
            self._sites.append(str(user_call_site()))
        self._seen[id(plan)] = self._seen.get(id(plan), 0) + 1

    @property
    def counts(self) -> list[int]:
        return list(self._seen.values())

    @property
    def seconds(self) -> float:
        """Predicted for all of them."""
        return sum(op.plan.seconds * n for op, n in zip(self.ops, self.counts, strict=True))

    @property
    def communication(self) -> float:
        """Of that, to bring values where they are needed."""
        return sum(op.plan.moving_seconds * n for op, n in zip(self.ops, self.counts, strict=True))

    def summary(self) -> str:
        """A line for each op: how it was split, what was inserted, and what it costs."""
        rows = []
        for number, (op, count) in enumerate(zip(self.ops, self.counts, strict=True), 1):
            plan, names = op.plan, op.axis_names
            steps = [step.named(axis_name(step.axis, names)) for _, step in plan.inserted]
            times = f" x{count}" if count > 1 else ""
            spent = time(plan.seconds * count)
            rows.append(
                (
                    str(number),
                    plan.problem.op + times,
                    strategy_text(plan.strategy, names),
                    ", ".join(steps) or "-",
                    spent,
                )
            )
        return "\n".join([*_aligned(rows, right=True), self._total()])

    def __str__(self) -> str:
        blocks = []
        for number, (op, site, count) in enumerate(zip(self.ops, self._sites, self.counts, strict=True), 1):
            title = f"{number}. {site}{f', {count} times' if count > 1 else ''}"
            blocks.append("\n".join([title, *(f"   {line}" for line in str(op).splitlines())]))
        return "\n\n".join([*blocks, self._total()])

    __repr__ = __str__

    def _total(self) -> str:
        count = sum(self.counts)
        said = f"{count} unified op{'' if count == 1 else 's'}: predicted {time(self.seconds)}"
        return f"{said}, of that {time(self.communication)} to bring values where they are needed."

    def _repr_html_(self) -> str:
        parts = [
            f"<p>{number}. {escape(site)}{f', {count} times' if count > 1 else ''}</p>{op._repr_html_()}"
            for number, (op, site, count) in enumerate(zip(self.ops, self._sites, self.counts, strict=True), 1)
        ]
        return "".join([*parts, f"<p>{escape(self._total())}</p>"])


@overload
def explain(*, runners_up: int = _RUNNERS_UP, show: bool = True) -> AbstractContextManager[Program]: ...
@overload
def explain(op: Callable[..., Any] | str, *args: Any, runners_up: int = _RUNNERS_UP, **kwargs: Any) -> Explanation: ...
def explain(
    op: Callable[..., Any] | str | None = None,
    *args: Any,
    runners_up: int = _RUNNERS_UP,
    show: bool = True,
    **kwargs: Any,
) -> Explanation | AbstractContextManager[Program]:
    """How a unified op would be done, without doing it; or, as a context manager, how those of a block were done.

    `explain(softmesh.distributed.matmul, a, b, output_topology=...)` takes what the op takes. `with explain():`
    shows its ops at the end of the block; `show=False` only gives them to the name after `as`.
    """
    if op is None:
        return _explaining(runners_up, show)
    known = _unified(op)
    request = kwargs.pop("output_topology", None)
    kwargs.pop("implicit", None)
    if isinstance(known, Redistribution):
        tensor, request = known.tensor_and_placements(args, kwargs)
        args, kwargs = (tensor,), {}
    runnable, _, device = known.planned(args, kwargs, request)
    return Explanation(runnable.plan, device, runners_up)


def _unified(op: Callable[..., Any] | str) -> Unified:
    from softmesh import distributed

    found: Any = op
    if isinstance(op, str | Operation):
        name = op if isinstance(op, str) else op.name.rpartition(".")[2]
        try:
            found = getattr(distributed, name)
        except SoftmeshError as error:
            raise ArgumentError(f"explain(): softmesh.distributed has no op {name!r}. {error}") from error
    if not isinstance(found, Unified):
        raise ArgumentError(
            f"explain(): op must be a unified op such as softmesh.distributed.matmul, or its name, got {op!r}."
        )
    return found


@contextmanager
def _explaining(runners_up: int, show: bool) -> Iterator[Program]:
    program = Program(runners_up)
    try:
        with listening(program.record):
            yield program
    finally:
        if show:
            _show(program)


def _show(program: Program) -> None:
    notebook = sys.modules.get("IPython")
    if notebook is not None and notebook.get_ipython() is not None:
        notebook.display.display(program)
    else:
        print(program)


def _lines(table: PlanTable) -> list[str]:
    found = _aligned(table.tensors)
    found += _aligned(table.choices)
    found += _aligned([(time(step.seconds), step.what) for step in table.steps], right=True)
    if table.lost:
        found += [
            "lost:",
            *("  " + line for line in _aligned([_lost_row(lost) for lost in table.lost], right=True)),
        ]
    return [_title(table), *("  " + line for line in found)]


def _title(table: PlanTable) -> str:
    said = f"{table.op} on a {table.mesh} mesh: {time(table.seconds)}"
    return f"{said}, {size(table.bytes_on_each)} on each device"


def _lost_row(lost: RejectedStrategy) -> tuple[str, str]:
    return ("no room" if lost.seconds is None else time(lost.seconds)), f"{lost.strategy}; {lost.reason}"


def _aligned(rows: Any, *, right: bool = False) -> list[str]:
    """Columns of one width each; the first of numbers to the right."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        first = row[0].rjust(widths[0]) if right else row[0].ljust(widths[0])
        others = [cell.ljust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([first, *others]).rstrip())
    return lines


def _html(table: PlanTable) -> str:
    rows = [
        *(_row(*cells) for cells in table.tensors),
        *(_row(axis, choice) for axis, choice in table.choices),
        *(_row(time(step.seconds), step.what) for step in table.steps),
        *(_row(*_lost_row(lost), style="color: gray") for lost in table.lost),
    ]
    return f"<table><caption>{escape(_title(table))}</caption>{''.join(rows)}</table>"


def _row(*cells: str, style: str = "") -> str:
    """The last cell takes what is left of four columns."""
    spans = ["", *[""] * (len(cells) - 2), f' colspan="{5 - len(cells)}"'][-len(cells) :]
    made = "".join(
        f'<td style="text-align: left"{span}>{escape(cell)}</td>' for cell, span in zip(cells, spans, strict=True)
    )
    return f'<tr style="{style}">{made}</tr>' if style else f"<tr>{made}</tr>"
