"""Bottlenecks of a plan: work on the chips by what bounds it, the links along each axis, and the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from softmesh.cost.command_cost import Bound
from softmesh.planner.chosen_layout import ChosenLayout

_SAID = {
    Bound.COMPUTE: "arithmetic",
    Bound.DRAM: "reading and writing memory",
    Bound.NOC: "the network on the chip",
    Bound.DISPATCH: "launching ops",
}
LOCAL = "copies on each chip"


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


def _parts(plan: ChosenLayout) -> Iterator[TimePart]:
    problem = plan.problem
    for own, at in zip(problem.strategies, plan.assignment.strategies, strict=True):
        yield TimePart(_SAID.get(own[at].bound, own[at].bound.value), own[at].seconds)
        for step in own[at].inside:
            yield TimePart(_links(plan, step.axis), step.cost.seconds, step.axis)
    for move in plan.cost.moves:
        for step in move.way.steps:
            if step.travels:
                yield TimePart(_links(plan, step.axis), step.cost.seconds, step.axis)
            else:
                yield TimePart(LOCAL, step.cost.seconds)


def _links(plan: ChosenLayout, axis: int) -> str:
    line = plan.problem.lines[axis]
    links = f"{line.links} links" if line.links > 1 else "one link"
    return f"links along axis {axis}: a {'ring' if line.is_ring else 'line'} of {line.devices}, {links} each"
