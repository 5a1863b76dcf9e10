"""Pipeline cuts by dynamic programming: consecutive layers to stages, so that the slowest stage is as fast as can be.

A stage holds the leaves that its nodes read, and what lives while they run. Where cuts are allowed layers begin: the
whole graph has been placed on the mesh of one stage, and equal layers lie alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

from softmesh.cost.link_costs import Line, all_gather
from softmesh.planner.goal import Goal, Stage
from softmesh.planner.layer_spans import layer_spans
from softmesh.planner.placement_problem import Assignment, PlacementProblem, PlanCost

_Cut = tuple[float, tuple[int, ...] | None]  # the pace, and where stages begin and end


def boundaries(problem: PlacementProblem) -> tuple[int, ...]:
    """The nodes before which a stage may begin, where layers do; without repeated layers there is none."""
    return tuple(start for start, _ in layer_spans(problem)[1:])


def pipeline_seconds(goal: Goal, stages: Sequence[Stage]) -> float:
    """By the goal: of all stages one after the other, or of the slowest, which sets the pace."""
    if goal is Goal.DECODE:
        return sum(stage.seconds + stage.send_seconds for stage in stages)
    return max(stage.seconds + stage.send_seconds for stage in stages)


def least_seconds(goal: Goal, seconds: float, stages: int) -> float:
    """What a pipeline takes at least, of work that takes one stage so long."""
    return seconds if goal is Goal.DECODE else seconds / stages


def cut(problem: PlacementProblem, assignment: Assignment, cost: PlanCost, count: int) -> tuple[Stage, ...] | None:
    """So many stages, the slowest of them as fast as can be; None where no cut fits the memory."""
    starts = (0, *boundaries(problem), len(problem.graph.nodes))
    if len(starts) - 1 < count:
        return None
    cuts = _Cuts(problem, assignment, cost, starts)
    _, places = cuts.best(len(starts) - 1, count)
    return None if places is None else tuple(cuts.stage(a, b) for a, b in pairwise(places))


@dataclass(frozen=True)
class _Cuts:
    problem: PlacementProblem
    assignment: Assignment
    cost: PlanCost
    starts: tuple[int, ...]  # nodes; the last one is the end of the graph

    def best(self, end: int, count: int) -> _Cut:
        """The pace of the first `end` pieces in so many stages, and where they begin and end."""
        if count == 1:
            alone = self.stage(0, end)
            return (self._pace(alone), (0, end)) if alone.memory <= self.problem.memory_bytes else (math.inf, None)
        return self._known(end, count)

    @cached_property
    def _known(self) -> Callable[[int, int], _Cut]:
        return cache(self._best)

    @cached_property
    def stage(self) -> Callable[[int, int], Stage]:
        return cache(self._stage)

    @cached_property
    def _send(self) -> Callable[[int], float]:
        return cache(self._send_before)

    def _best(self, end: int, count: int) -> _Cut:
        found: _Cut = (math.inf, None)
        for middle in range(count - 1, end):
            last = self.stage(middle, end)
            if last.memory > self.problem.memory_bytes or self._pace(last) >= found[0]:
                continue
            before, places = self.best(middle, count - 1)
            pace = max(before, self._pace(last))
            if places is not None and pace < found[0]:
                found = pace, (*places, end)
        return found

    def _pace(self, stage: Stage) -> float:
        return stage.seconds + stage.send_seconds

    def _stage(self, first: int, end: int) -> Stage:
        """Of the pieces from one to another."""
        start, after = self.starts[first], self.starts[end]
        seconds = self._seconds_before[after] - self._seconds_before[start]
        kept = sum(size for size, nodes in self._leaves if any(start <= node < after for node in nodes))
        live = max(self._live[start:after], default=0)
        send = self._send(after) if after < len(self.problem.graph.nodes) else 0.0
        return Stage(start, after, seconds, send, kept + live, end - first)

    @cached_property
    def _seconds_before(self) -> list[float]:
        """Of all nodes before each one, with the moves of what they read."""
        each = list(self.cost.by_node)
        for move in self.cost.moves:
            each[move.consumers[0] if move.consumers else -1] += move.way.seconds
        total = [0.0]
        for seconds in each:
            total.append(total[-1] + seconds)
        return total

    @cached_property
    def _live(self) -> list[int]:
        kept = self.cost.kept_bytes
        return [size - kept for size in self.cost.memory]

    @cached_property
    def _leaves(self) -> list[tuple[int, tuple[int, ...]]]:
        """The bytes of each leaf, and the nodes that read it or a later version of it."""
        graph = self.problem.graph
        nodes: dict[int, set[int]] = {}
        for node in graph.nodes:
            for value in node.operands:
                nodes.setdefault(graph.root(value), set()).add(node.number)
        found = []
        for leaf in graph.leaves:
            home = self.problem.given(self.assignment, leaf.number)
            size = self.problem.held_bytes(leaf.number, home.dtype, home.layout)
            found.append((size, tuple(nodes.get(leaf.number, ()))))
        return found

    def _send_before(self, node: int) -> float:
        """What was made before a node and is read from it on, over one hop to the next stage."""
        problem, graph = self.problem, self.problem.graph
        links = max(line.links for line in problem.lines)
        size = 0
        for value, maker in graph.makers.items():
            is_kept = graph.root(value) not in graph.makers
            if maker < node <= problem.last_uses[value] and not is_kept and problem.last_uses[value] < len(graph.nodes):
                home = problem.given(self.assignment, value)
                size += problem.held_bytes(value, home.dtype, home.layout)
        return all_gather(Line(problem.chip, 2, links, False), size).seconds
