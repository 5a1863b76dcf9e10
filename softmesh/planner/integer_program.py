"""The integer program of a placement problem, solved by HiGHS: the best assignment, and a bound on how far it may be
from the optimum.

    x[class, strategy], x[leaf, home]   in {0, 1}, one of each
    f[consumer, from, to]               a consumer's value, brought from a layout in which it is given
    z[value, from, to] >= f             brought once, shared by all consumers
    kept + live values and copies <= memory    while each node runs

Minimised is what `PlacementProblem.cost` calls `ranked_seconds`. Nodes of equal layers share their variables.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from softmesh.distributed.layouts import Layout
from softmesh.hardware.enums import DataType
from softmesh.planner.first_assignment import Priced, first_assignment
from softmesh.planner.linear_model import INFINITE, LinearModel, Terms
from softmesh.planner.placement_problem import LAUNCH_SECONDS, Assignment, Home, PlacementProblem, PlanCost
from softmesh.planner.repeated_layers import NodeClasses, classes_of, untied

_FEW_NODES = 16  # graphs up to this size have no layers to be tied
_MICRO, _MEGA = 1e6, 1e6  # the solver sees microseconds and megabytes


_Consumers = tuple[Hashable, ...]


class Status(Enum):
    OPTIMAL = "optimal"  # within the gap that was asked for
    TIME_LIMIT = "time limit"  # the best so far
    INFEASIBLE = "infeasible"  # nothing fits


@dataclass(frozen=True)
class Solution:
    assignment: Assignment | None
    cost: PlanCost | None
    bound: float  # seconds: no assignment with equal layers alike takes less
    status: Status
    seconds: float  # that the search took

    @property
    def priced(self) -> Priced | None:
        return None if self.assignment is None or self.cost is None else (self.assignment, self.cost)

    @property
    def gap(self) -> float:
        """How much of its time the plan may be above the optimum."""
        if self.cost is None or self.cost.ranked_seconds == 0:
            return math.inf if self.cost is None else 0.0
        return max(0.0, 1 - self.bound / self.cost.ranked_seconds)


def solved(
    problem: PlacementProblem,
    time_limit_s: float = 60.0,
    gap: float = 1e-4,
    below: float = math.inf,
    first: Priced | None = None,
) -> Solution:
    """The best assignment that is found in time; one of `below` seconds or more is of no use.

    `first` is one that is known; without it, the one that is found op by op.
    """
    started = time.monotonic()
    if _least_kept(problem) > problem.memory_bytes:
        return Solution(None, None, math.inf, Status.INFEASIBLE, time.monotonic() - started)
    classes = classes_in(problem)
    first = first or first_assignment(problem, classes)
    if first is not None and first[1].ranked_seconds >= below:
        first = None
    program = _Program(problem, classes)
    left = max(1.0, time_limit_s - (time.monotonic() - started))
    answer = program.model.minimised(left, gap, below * _MICRO)
    found = first
    if answer.values is not None:
        assignment = program.assignment(answer.values)
        cost = problem.cost(assignment)
        if first is None or cost.ranked_seconds <= first[1].ranked_seconds:
            found = assignment, cost
    bound, took = answer.bound / _MICRO, time.monotonic() - started
    status = Status.TIME_LIMIT if answer.is_out_of_time else Status.OPTIMAL if found else Status.INFEASIBLE
    if found is None:
        return Solution(None, None, bound, status, took)
    return Solution(*found, bound, status, took)


def first_solution(problem: PlacementProblem) -> Solution:
    """What is found op by op; its bound is that every op is at its fastest, and nothing is sent."""
    started = time.monotonic()
    bound = sum(min(one.total_seconds for one in own) for own in problem.strategies)
    found = first_assignment(problem, classes_in(problem))
    assignment, cost = found or (None, None)
    return Solution(assignment, cost, bound, Status.TIME_LIMIT, time.monotonic() - started)


def classes_in(problem: PlacementProblem) -> NodeClasses:
    """What is decided once: equal layers, in graphs that can have some."""
    return untied(problem) if len(problem.graph.nodes) <= _FEW_NODES else classes_of(problem)


def _least_kept(problem: PlacementProblem) -> float:
    """Bytes on each device of leaves that are split as far as they may be."""
    held = problem.held_bytes
    sizes = (
        min(held(leaf.number, home.dtype, home.layout) for home in problem.homes[leaf.number])
        for leaf in problem.graph.leaves
    )
    return sum(sizes) * problem.kept_share


class _Use(NamedTuple):
    """How a class of nodes reads a value: `options` are (variable, layout, dtype) for each of its strategies."""

    consumer: Hashable
    options: tuple[tuple[int, Layout, DataType], ...]
    in_place: bool


class _Pair(NamedTuple):
    """Where a value comes from and goes to, and what is moved of it."""

    start: Layout
    dtype: DataType
    end: Layout


class _Program:
    def __init__(self, problem: PlacementProblem, classes: NodeClasses) -> None:
        self.model = LinearModel()
        self._problem, self._classes = problem, classes
        self._strategy: dict[int, list[int]] = {}  # of a class of nodes: its variables
        self._home: dict[int, list[int]] = {}
        self._flows: dict[Hashable, dict[_Pair, int]] = {}  # of a class of values: z
        self._consumers: dict[Hashable, dict[Hashable, dict[Home, list[int]]]] = {}  # and f, by where it ends
        self._live: dict[Hashable, int] = {}
        self._parts: dict[Hashable, int] = {}
        self._part_terms: list[Terms] = []
        self._add_choices()
        self._value_class = {value.number: self._class_of_value(value.number) for value in problem.graph.values}
        self._add_moves()
        self._add_memory()

    # -- choices ---------------------------------------------------------------------------------

    def _add_choices(self) -> None:
        problem, classes = self._problem, self._classes
        for number, strategies in enumerate(problem.strategies):
            own = classes.nodes[number]
            if own not in self._strategy:
                self._strategy[own] = self.model.binaries(len(strategies))
            for variable, strategy in zip(self._strategy[own], strategies, strict=True):
                seconds = strategy.total_seconds + LAUNCH_SECONDS * len(strategy.inside)
                self.model.add_cost(variable, seconds * _MICRO)
        for number, homes in problem.homes.items():
            if classes.leaves[number] not in self._home:
                self._home[classes.leaves[number]] = self.model.binaries(len(homes))

    def _given(self, number: int) -> list[tuple[int, Layout, DataType]]:
        """The variables that decide how a value lies where it is made, and how."""
        graph = self._problem.graph
        maker = graph.makers.get(number)
        if maker is None:
            variables = self._home[self._classes.leaves[number]]
            homes = self._problem.homes[number]
            return [(variable, home.layout, home.dtype) for variable, home in zip(variables, homes, strict=True)]
        place = graph.nodes[maker].results.index(number)
        dtype = graph.values[number].dtype
        variables = self._strategy[self._classes.nodes[maker]]
        strategies = self._problem.strategies[maker]
        return [(v, s.gives[place], dtype) for v, s in zip(variables, strategies, strict=True)]

    def _uses(self, number: int) -> Iterator[tuple[int, _Use]]:
        """Who reads a value, and when; its caller reads an output while the last node runs."""
        problem, graph = self._problem, self._problem.graph
        for node, place in graph.consumers[number]:
            own = self._classes.nodes[node]
            strategies = problem.strategies[node]
            options = tuple(
                (variable, strategy.needs[place], strategy.dtypes[place])
                for variable, strategy in zip(self._strategy[own], strategies, strict=True)
            )
            yield node, _Use((own, place), options, place in graph.nodes[node].writes)
        if number in graph.outputs and number in problem.homes and number in graph.makers:
            own = self._classes.leaves[number]
            homes = zip(self._home[own], problem.homes[number], strict=True)
            options = tuple((variable, home.layout, home.dtype) for variable, home in homes)
            yield len(graph.nodes) - 1, _Use(("left", own), options, False)

    def _class_of_value(self, number: int) -> Hashable:
        """Values that are given by the same class, and read by the same classes."""
        graph, classes = self._problem.graph, self._classes
        maker = graph.makers.get(number)
        if maker is None:
            given: Hashable = ("leaf", classes.leaves[number])
        else:
            given = (classes.nodes[maker], graph.nodes[maker].results.index(number))
        value = graph.values[number]
        return given, frozenset(use.consumer for _, use in self._uses(number)), value.shape, value.dtype

    # -- moves -----------------------------------------------------------------------------------

    def _add_moves(self) -> None:
        counts: dict[Hashable, int] = {}
        first: dict[Hashable, int] = {}
        for number, own in self._value_class.items():
            counts[own] = counts.get(own, 0) + 1
            first.setdefault(own, number)
        for own, number in first.items():
            self._add_moves_of(own, number, counts[own])

    def _add_moves_of(self, own: Hashable, number: int, count: int) -> None:
        uses = {use.consumer: use for _, use in self._uses(number)}
        given: dict[tuple[Layout, DataType], list[int]] = {}
        for variable, layout, dtype in self._given(number):
            given.setdefault((layout, dtype), []).append(variable)
        shared = self._flows.setdefault(own, {})
        ends = self._consumers.setdefault(own, {})
        for use in uses.values():
            flows = self._flow(number, use, given)
            arriving = ends.setdefault(use.consumer, {})
            for pair, flow in flows.items():
                if pair.start != pair.end:
                    arriving.setdefault(Home(pair.end, pair.dtype), []).append(flow)
                    self._share(number, shared, pair, flow, len(uses), count)

    def _flow(self, number: int, use: _Use, given: dict[tuple[Layout, DataType], list[int]]) -> dict[_Pair, int]:
        """What a consumer takes: all that is given leaves, all that is needed arrives."""
        model, problem = self.model, self._problem
        needed: dict[tuple[Layout, DataType], list[int]] = {}
        for variable, layout, dtype in use.options:
            needed.setdefault((layout, dtype), []).append(variable)
        flows: dict[_Pair, int] = {}
        leaving: dict[tuple[Layout, DataType], list[int]] = {key: [] for key in given}
        arriving: dict[tuple[Layout, DataType], list[int]] = {key: [] for key in needed}
        for start, dtype in given:
            for end, wanted in needed:
                if dtype is not wanted or (use.in_place and start != end):
                    continue
                if problem.way(number, dtype, start, end) is None:
                    continue
                flow = flows[_Pair(start, dtype, end)] = model.continuous()
                leaving[start, dtype].append(flow)
                arriving[end, dtype].append(flow)
        for key, variables in given.items():
            model.add_row(0, 0, [*((f, 1.0) for f in leaving[key]), *((v, -1.0) for v in variables)])
        for key, variables in needed.items():
            model.add_row(0, 0, [*((f, 1.0) for f in arriving[key]), *((v, -1.0) for v in variables)])
        return flows

    def _share(
        self,
        number: int,
        shared: dict[_Pair, int],
        pair: _Pair,
        flow: int,
        uses: int,
        count: int,
    ) -> None:
        """One move for all consumers that need the same."""
        if pair not in shared:
            way = self._problem.way(number, pair.dtype, pair.start, pair.end)
            assert way is not None
            shared[pair] = flow if uses == 1 else self.model.continuous()
            seconds = way.seconds + LAUNCH_SECONDS * len(way.steps)
            self.model.add_cost(shared[pair], count * seconds * _MICRO)
        if shared[pair] != flow:
            self.model.add_row(0, INFINITE, [(shared[pair], 1.0), (flow, -1.0)])

    # -- memory ----------------------------------------------------------------------------------

    def _add_memory(self) -> None:
        problem, graph = self._problem, self._problem.graph
        kept = self.model.continuous(INFINITE)
        terms: Terms = [(kept, -1.0)]
        for leaf in graph.leaves:
            terms += [(variable, size * problem.kept_share) for variable, size in self._held_terms(leaf.number)]
        self.model.add_row(0, 0, terms)
        limit = problem.memory_bytes / _MEGA
        self.model.add_row(-INFINITE, limit, [(kept, 1.0)])
        for row in _largest(self._rows_of_nodes()):
            self.model.add_row(-INFINITE, limit, [(kept, 1.0), *row.items()])

    def _held_terms(self, number: int) -> Terms:
        held = self._problem.held_bytes
        return [(v, held(number, dtype, layout) / _MEGA) for v, layout, dtype in self._given(number)]

    def _rows_of_nodes(self) -> Iterator[tuple[Hashable, dict[int, float]]]:
        """What lives while each node runs, beside the leaves."""
        problem, graph = self._problem, self._problem.graph
        begins: dict[int, list[int]] = {}
        ends: dict[int, list[int]] = {}
        uses = {value.number: sorted(self._uses(value.number), key=lambda use: use[0]) for value in graph.values}
        for value in graph.values:
            maker = graph.makers.get(value.number)
            spans = [use[0] for use in uses[value.number]]
            first = min([*spans, *([] if maker is None else [maker])], default=0)
            last = max([*spans, problem.last_uses[graph.root(value.number)] if maker is not None else first], default=0)
            begins.setdefault(first, []).append(value.number)
            ends.setdefault(min(last, len(graph.nodes) - 1), []).append(value.number)
        live: dict[int, None] = {}
        known: set[Hashable] = set()
        for node in graph.nodes:
            live.update(dict.fromkeys(begins.get(node.number, ())))
            parts = sorted(self._part_at(number, node.number, uses[number]) for number in live)
            own = self._classes.nodes[node.number]
            if (own, *parts) not in known:
                known.add((own, *parts))
                yield own, self._row(own, parts)
            for number in ends.get(node.number, ()):
                live.pop(number, None)

    def _row(self, own: int, parts: list[int]) -> dict[int, float]:
        row: dict[int, float] = {}
        for part in parts:
            for variable, size in self._part_terms[part]:
                row[variable] = row.get(variable, 0.0) + size
        for variable, strategy in zip(self._strategy[own], self._problem.strategies[own], strict=True):
            if strategy.held_bytes:
                row[variable] = row.get(variable, 0.0) + strategy.held_bytes / _MEGA
        return row

    def _part_at(self, number: int, node: int, uses: list[tuple[int, _Use]]) -> int:
        """The number of what a value holds while a node runs: itself, and its copies. Equal layers share them."""
        problem, value = self._problem, self._problem.graph.values[number]
        maker = problem.graph.makers.get(number)
        is_there = maker is not None and value.version_of is None and maker <= node <= problem.last_uses[number]
        before = tuple(dict.fromkeys(use.consumer for at, use in uses if at <= node))
        after = tuple(dict.fromkeys(use.consumer for at, use in uses if at >= node))
        key = (self._value_class[number], is_there, before, after)
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = len(self._part_terms)
            own = self._held_terms(number) if is_there else []
            self._part_terms.append([*own, *(self._copies(number, before, after) if before and after else ())])
        return found

    def _copies(self, number: int, before: _Consumers, after: _Consumers) -> Iterator[tuple[int, float]]:
        arriving = self._consumers[self._value_class[number]]
        for end in dict.fromkeys(end for own in before for end in arriving.get(own, {})):
            size = self._problem.held_bytes(number, end.dtype, end.layout)
            yield self._copy(number, end, before, after), size / _MEGA

    def _copy(self, number: int, end: Home, before: _Consumers, after: _Consumers) -> int:
        """1 where somebody has needed the copy already, and somebody needs it still."""
        own = self._value_class[number]
        key = (own, end, before, after)
        if key not in self._live:
            variable = self._live[key] = self.model.continuous()
            arriving = self._consumers[own]
            for one in before:
                for other in after:
                    flows = [(flow, -1.0) for flow in arriving[one].get(end, ())]
                    if one != other:
                        flows += [(flow, -1.0) for flow in arriving[other].get(end, ())]
                    if flows:
                        self.model.add_row(0.0 if one == other else -1.0, INFINITE, [(variable, 1.0), *flows])
        return self._live[key]

    # -- the answer ------------------------------------------------------------------------------

    def assignment(self, values: list[float]) -> Assignment:
        def chosen(variables: list[int]) -> int:
            return max(range(len(variables)), key=lambda at: values[variables[at]])

        nodes = tuple(chosen(self._strategy[own]) for own in self._classes.nodes)
        return Assignment(nodes, {n: chosen(self._home[own]) for n, own in self._classes.leaves.items()})


def _largest(rows: Iterator[tuple[Hashable, dict[int, float]]]) -> list[dict[int, float]]:
    """Without rows that another row of the same class of nodes implies."""
    kept: dict[Hashable, list[dict[int, float]]] = {}
    for own, row in rows:
        others = kept.setdefault(own, [])
        if any(_implies(other, row) for other in others):
            continue
        kept[own] = [other for other in others if not _implies(row, other)] + [row]
    return [row for several in kept.values() for row in several if row]


def _implies(row: dict[int, float], other: dict[int, float]) -> bool:
    return all(row.get(variable, 0.0) >= size for variable, size in other.items())
