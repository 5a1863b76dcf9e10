"""Bottlenecks of a plan: work on the chips by what bounds it, the links along each axis, and the memory.

Of a pipeline that serves calls which follow each other, they are those of its slowest stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from softmesh.cost.command_cost import Bound
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.goal import Goal, Stage
from softmesh.planner.pipeline_cuts import stage_seconds

_SAID = {
    Bound.COMPUTE: "arithmetic",
    Bound.DRAM: "reading and writing memory",
    Bound.NOC: "the network on the chip",
    Bound.DISPATCH: "launching ops",
}
LOCAL = "copies on each chip"
HANDED_ON = "handing values on to the next stage"


class TimePart(NamedTuple):
    what: str
    seconds: float
    axis: int | None = None  # of links


class Bottlenecks(NamedTuple):
    parts: tuple[TimePart, ...]  # the longest first; together they are the plan's time
    memory_bytes: int  # the most that a device holds
    room_bytes: int

    @property
    def is_tight(self) -> bool:
        """Whether memory decides: a tenth or less of it is left."""
        return self.memory_bytes > 0.9 * self.room_bytes


def bottlenecks_of(plan: ChosenLayout) -> Bottlenecks:
    seconds: dict[TimePart, float] = {}
    for part in _parts(plan):
        key = part._replace(seconds=0.0)
        seconds[key] = seconds.get(key, 0.0) + part.seconds
    found = sorted((key._replace(seconds=total) for key, total in seconds.items() if total), key=lambda p: -p.seconds)
    return Bottlenecks(tuple(found), plan.memory, plan.problem.memory_bytes)


def deciding_stages(plan: ChosenLayout) -> tuple[Stage, ...]:
    """Those of a pipeline that its time is made of: all, or the slowest, which sets the pace; none without one."""
    if plan.goal is Goal.DECODE or not plan.stages:
        return plan.stages
    return (max(plan.stages, key=stage_seconds),)


def _parts(plan: ChosenLayout) -> Iterator[TimePart]:
    if not plan.stages:
        yield from _parts_within(plan, 0, len(plan.problem.graph.nodes))
    for stage in deciding_stages(plan):
        yield from _parts_within(plan, stage.first, stage.end)
        yield TimePart(HANDED_ON, stage.send_seconds)


def _parts_within(plan: ChosenLayout, first: int, end: int) -> Iterator[TimePart]:
    """Of the nodes from one to another."""
    problem = plan.problem
    for strategy in plan.strategies[first:end]:
        yield TimePart(_SAID.get(strategy.bound, strategy.bound.value), strategy.seconds)
        for step in strategy.inside:
            yield TimePart(_links(plan, step.axis), step.cost.seconds, step.axis)
    for move in plan.cost.moves:
        if not any(first <= node < end for node in move.nodes(problem.graph)):
            continue
        for step in move.way.steps:
            if step.travels:
                yield TimePart(_links(plan, step.axis), step.cost.seconds, step.axis)
            else:
                yield TimePart(LOCAL, step.cost.seconds)


def _links(plan: ChosenLayout, axis: int) -> str:
    line = plan.problem.lines[axis]
    links = f"{line.links} links" if line.links > 1 else "one link"
    return f"links along axis {axis}: a {'ring' if line.is_ring else 'line'} of {line.devices}, {links} each"
