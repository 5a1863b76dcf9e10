"""A plan as a table of facts: rows of text for `explain()`, which the terminal and a page set each in their own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmesh.cost.link_costs import Line
from softmesh.distributed.layout_planner import Plan, Strategy, ranking
from softmesh.distributed.layouts import Layout, described
from softmesh.distributed.redistribution import RING, Step

_KIB = 1024


class Timed(NamedTuple):
    seconds: float
    what: str


class RejectedStrategy(NamedTuple):
    """A strategy that was not taken; `seconds` is None where it does not fit."""

    strategy: str
    seconds: float | None
    reason: str


class PlanTable(NamedTuple):
    op: str
    mesh: str
    seconds: float
    bytes_on_each: int
    tensors: list[tuple[str, str, str, str]]  # name, whole shape, dtype, placement
    choices: list[tuple[str, str]]  # axis, what its devices do
    steps: list[Timed]
    lost: list[RejectedStrategy]


def plan_table(plan: Plan, axis_names: Sequence[str] | None, runners_up: int) -> PlanTable:
    problem = plan.problem
    return PlanTable(
        problem.op,
        "x".join(map(str, problem.mesh)),
        plan.seconds,
        plan.strategy.bytes_on_each,
        _tensors(plan, axis_names),
        _choices(plan.strategy, axis_names),
        _steps(plan, axis_names),
        _lost(plan, axis_names, runners_up),
    )


def _tensors(plan: Plan, names: Sequence[str] | None) -> list[tuple[str, str, str, str]]:
    problem = plan.problem
    values = (*problem.operands, problem.result)
    layouts: list[Layout] = [*problem.given_layouts, plan.final_layout]
    return [
        (name, str(list(value.shape)), form, described(layout, names))
        for name, value, form, layout in zip((*problem.names, "result"), values, problem.forms, layouts, strict=True)
    ]


def axis_name(axis: int, names: Sequence[str] | None) -> str:
    return f"axis {axis}" if names is None else names[axis]


def _choices(strategy: Strategy, names: Sequence[str] | None) -> list[tuple[str, str]]:
    return [
        (f"{axis_name(axis, names)} ({n} devices)", choice.name)
        for axis, (n, choice) in enumerate(zip(strategy.split.mesh, strategy.split.choices, strict=True))
        if n > 1
    ]


def _steps(plan: Plan, names: Sequence[str] | None) -> list[Timed]:
    problem, strategy = plan.problem, plan.strategy
    shapes = [
        str(list(value.local_shape(layout))) for value, layout in zip(problem.operands, strategy.needs, strict=True)
    ]
    lines = problem.lines
    found = [_timed(step, f" of {name}", lines, names) for name, step in plan.steps_before]
    work = f"{problem.op} of {' and '.join(shapes)} on each device"
    if strategy.compute_seconds:
        found.append(Timed(strategy.compute_seconds, work))
    found += [_timed(step, " of statistics", lines, names) for step in strategy.inside]
    return found + [_timed(step, " of the result", lines, names) for step in plan.steps_behind]


def _timed(step: Step, of: str, lines: Sequence[Line], names: Sequence[str] | None) -> Timed:
    said = f"{step.named(axis_name(step.axis, names))}{of}"
    line = lines[step.axis]
    shape = f"a {'ring' if line.is_ring else 'line'} of {line.devices}"
    if not step.travels:
        return Timed(step.cost.seconds, f"{said}: nothing travels")
    links = f"each of {line.links} links" if line.links > 1 else "the link"
    if step.kind == RING:
        said = f"keys and values passed on along {axis_name(step.axis, names)}, beside the work"
    return Timed(
        step.cost.seconds,
        f"{said}: {size(step.cost.bytes_per_link)} through {links} between neighbours in {shape}",
    )


def _lost(plan: Plan, names: Sequence[str] | None, limit: int) -> list[RejectedStrategy]:
    plans, too_big = ranking(plan.problem)
    others = [other for other in plans if other.strategy.split != plan.strategy.split]
    found = [
        RejectedStrategy(strategy_text(other.strategy, names), other.seconds, _reason(plan, other, names))
        for other in others
    ]
    room = plan.problem.memory
    found += [
        RejectedStrategy(
            strategy_text(strategy, names),
            None,
            f"needs {size(strategy.bytes_on_each)} on each of {size(room)}",
        )
        for strategy in too_big
    ]
    return found[:limit]


def strategy_text(strategy: Strategy, names: Sequence[str] | None) -> str:
    """The strategy in one line; axes along which nothing is split are left out."""
    choices = [(axis, choice) for axis, choice in _choices(strategy, names) if choice != "all"]
    if not choices:
        return "every device does all of it"
    return ", ".join(f"{axis.partition(' (')[0]}: {choice}" for axis, choice in choices)


def _reason(plan: Plan, other: Plan, names: Sequence[str] | None) -> str:
    """Where most of the difference lies."""
    if other.ranked_seconds <= plan.ranked_seconds:
        return "as cheap, and named later"
    more_ops = other.launches - plan.launches
    if other.seconds <= plan.seconds:
        return f"launching {more_ops} more op{'s' if more_ops > 1 else ''} takes the host longer than it saves"
    mine, theirs = _parts(plan), _parts(other)
    part = max(mine, key=lambda name: theirs[name] - mine[name])
    more = time(theirs[part] - mine[part])
    if part == "work":
        return f"its devices work {more} longer"
    steps = _steps_of(other, part)
    slowest = max(steps, key=lambda step: step[1].cost.seconds)
    return f"{slowest[1].named(axis_name(slowest[1].axis, names))} of {slowest[0]} makes it {more} longer"


def _parts(plan: Plan) -> dict[str, float]:
    parts = {
        part: sum(step.cost.seconds for _, step in _steps_of(plan, part)) for part in ("before", "inside", "behind")
    }
    return parts | {"work": plan.strategy.compute_seconds}


def _steps_of(plan: Plan, part: str) -> list[tuple[str, Step]]:
    if part == "before":
        return plan.steps_before
    if part == "inside":
        return [("statistics", step) for step in plan.strategy.inside]
    return [("the result", step) for step in plan.steps_behind]


def time(seconds: float) -> str:
    """
    >>> time(2.34e-5), time(0.0123)
    ('23.4 us', '12.3 ms')
    """
    micro = seconds * 1e6
    return f"{micro:.1f} us" if micro < 1000 else f"{micro / 1000:.1f} ms"


def size(count: int) -> str:
    """
    >>> size(96), size(1536), size(3 << 20)
    ('96 B', '1.5 KiB', '3.0 MiB')
    """
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} GiB"
