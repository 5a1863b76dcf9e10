"""Pipeline cuts by dynamic programming: consecutive layers to stages, so that the slowest stage is as fast as can be.

A stage holds the leaves that its nodes read, and what lives while they run; what several stages read, each of them
brings to where it needs it. Where cuts are allowed layers begin: the whole graph has been placed on the mesh of one
stage, and equal layers lie alike.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from softmesh.cost.link_costs import Line, all_gather
from softmesh.planner.goal import Goal, Stage
from softmesh.planner.layer_spans import layer_spans
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.placement_problem import Assignment, PlacementProblem, PlanCost

Places = tuple[int, ...]  # pieces: where stages begin, and the end


def boundaries(problem: PlacementProblem) -> tuple[int, ...]:
    """The nodes before which a stage may begin, where layers do; without repeated layers there is none."""
    return tuple(start for start, _ in layer_spans(problem)[1:])


def pipeline_seconds(goal: Goal, stages: Sequence[Stage]) -> float:
    """By the goal: of all stages one after the other, or of the slowest, which sets the pace."""
    return together(goal, map(stage_seconds, stages))


def stage_seconds(stage: Stage) -> float:
    """Until the next stage has what it needs."""
    return stage.seconds + stage.send_seconds


def ranked_pipeline_seconds(goal: Goal, stages: Sequence[Stage]) -> float:
    """With something for every launch."""
    return together(goal, map(_ranked, stages))


def together(goal: Goal, seconds: Iterator[float]) -> float:
    return sum(seconds) if goal is Goal.DECODE else max(seconds)


def least_seconds(goal: Goal, seconds: float, stages: int) -> float:
    """What a pipeline takes at least, of work that takes one stage so long."""
    return seconds if goal is Goal.DECODE else seconds / stages


def crossing(graph: OpGraph, last_uses: dict[int, int], node: int) -> Iterator[int]:
    """The values that are made before a node and read from it on: the stage that begins there is sent them."""
    for value, maker in graph.makers.items():
        is_kept = graph.root(value) not in graph.makers
        if maker < node <= last_uses[value] < len(graph.nodes) and not is_kept:
            yield value


def send_line(problem: PlacementProblem) -> Line:
    """One hop to the next stage."""
    return Line(problem.chip, 2, max(line.links for line in problem.lines), False)


def cut(
    problem: PlacementProblem, assignment: Assignment, cost: PlanCost, count: int, goal: Goal = Goal.PREFILL
) -> tuple[Stage, ...] | None:
    """So many stages, as fast as can be by the goal; None where no cut fits the memory."""
    cuts = Cuts(problem, assignment, cost)
    places = None if cuts.pieces < count else cuts.best(count, goal)
    return None if places is None else cuts.stages(places)


def _ranked(stage: Stage) -> float:
    return stage_seconds(stage) + stage.launch_seconds


class _Part(NamedTuple):
    """What a stage has where it has one of these pieces: a leaf, or a move."""

    pieces: tuple[int, ...]
    bytes: int
    seconds: float
    launches: int


@dataclass(frozen=True)
class Cuts:
    """The stages of a graph that is placed."""

    problem: PlacementProblem
    assignment: Assignment
    cost: PlanCost

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Nodes at which the pieces begin that are not cut; the last one is the end of the graph."""
        return (0, *boundaries(self.problem), len(self.problem.graph.nodes))

    @property
    def pieces(self) -> int:
        return len(self.starts) - 1

    def stages(self, places: Places) -> tuple[Stage, ...]:
        return tuple(self.stage(a, b) for a, b in pairwise(places))

    def best(self, count: int, goal: Goal) -> Places | None:
        """Where so many stages begin and end."""

        @cache
        def found(end: int, count: int) -> tuple[float, Places | None]:
            best: tuple[float, Places | None] = (math.inf, None)
            for middle in range(count - 1, end) if count > 1 else (0,):
                last = self.stage(middle, end)
                if last.memory > self.problem.memory_bytes or _ranked(last) >= best[0]:
                    continue
                before, places = found(middle, count - 1) if count > 1 else (0.0, (0,))
                seconds = together(goal, iter((before, _ranked(last))))
                if places is not None and seconds < best[0]:
                    best = seconds, (*places, end)
            return best

        return found(self.pieces, count)[1]

    @cached_property
    def stage(self) -> Callable[[int, int], Stage]:
        return cache(self._stage)

    def _stage(self, first: int, end: int) -> Stage:
        """Of the pieces from one to another."""
        start, after = self.starts[first], self.starts[end]
        (seconds, launches, kept), (less, fewer, not_kept) = self._before[end], self._before[first]
        seconds, launches, kept = seconds - less, launches - fewer, kept - not_kept
        for part in self._spread:
            at = bisect_left(part.pieces, first)
            if at < len(part.pieces) and part.pieces[at] < end:
                seconds, launches, kept = seconds + part.seconds, launches + part.launches, kept + part.bytes
        live = max(self._live[first:end])
        send = self._send(after) if after < len(self.problem.graph.nodes) else 0.0
        return Stage(start, after, seconds, send, kept + live, end - first, launches * self.problem.launch)

    def over(self, first: int, end: int) -> list[tuple[int, int]]:
        """The nodes of a stage at which it does not fit the memory, with its bytes."""
        kept = self.stage(first, end).memory - max(self._live[first:end])
        nodes = range(self.starts[first], self.starts[end])
        held = ((kept + self.cost.memory[node] - self.cost.kept_bytes, node) for node in nodes)
        return [(size, node) for size, node in held if size > self.problem.memory_bytes]

    @cached_property
    def _live(self) -> list[int]:
        """Of each piece, the most that lives beside leaves."""
        return [max(self.cost.memory[a:b], default=0) - self.cost.kept_bytes for a, b in pairwise(self.starts)]

    @cached_property
    def _before(self) -> list[tuple[float, int, int]]:
        """Of all pieces before each one: seconds, launches and bytes of what no other piece has."""
        own = [(0.0, 0, 0)] * self.pieces
        for part in self._parts:
            if len(part.pieces) == 1:
                seconds, launches, kept = own[part.pieces[0]]
                own[part.pieces[0]] = seconds + part.seconds, launches + part.launches, kept + part.bytes
        nothing = (0.0, 0, 0)
        return list(accumulate(own, lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2]), initial=nothing))

    @cached_property
    def _spread(self) -> list[_Part]:
        return [part for part in self._parts if len(part.pieces) > 1]

    @cached_property
    def _parts(self) -> list[_Part]:
        problem, assignment = self.problem, self.assignment
        found = [
            _Part((self._piece(node),), 0, seconds, own[at].launches)
            for node, (seconds, own, at) in enumerate(
                zip(self.cost.by_node, problem.strategies, assignment.strategies, strict=True)
            )
        ]
        for move in self.cost.moves:
            pieces = self._pieces_of(move.nodes(problem.graph))
            found.append(_Part(pieces, 0, move.way.seconds, move.way.launches))
        readers: dict[int, list[int]] = {}
        for node in problem.graph.nodes:
            for value in node.operands:
                readers.setdefault(problem.graph.root(value), []).append(node.number)
        for leaf in problem.graph.leaves:
            home = problem.given(assignment, leaf.number)
            size = problem.held_bytes(leaf.number, home.dtype, home.layout)
            if leaf.number in readers:
                found.append(_Part(self._pieces_of(readers[leaf.number]), size, 0.0, 0))
        return found

    def _piece(self, node: int) -> int:
        return bisect_right(self.starts, node) - 1

    def _pieces_of(self, nodes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({self._piece(node) for node in nodes}))

    @cached_property
    def _send(self) -> Callable[[int], float]:
        return cache(self._send_before)

    def _send_before(self, node: int) -> float:
        """What the stage that begins with a node is sent."""
        problem = self.problem
        size = 0
        for value in crossing(problem.graph, problem.last_uses, node):
            home = problem.given(self.assignment, value)
            size += problem.held_bytes(value, home.dtype, home.layout)
        return all_gather(send_line(problem), size).seconds
