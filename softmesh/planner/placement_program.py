"""The integer program of a placement problem: what is chosen, and how values get from where they are to where they are
needed.

    x[class, strategy], x[leaf, home]   in {0, 1}, one of each
    f[consumer, from, to]               a consumer's value, brought from a layout in which it is given
    z[value, from, to] >= f             brought once, shared by all consumers

Nodes of equal layers share their variables. What is minimised is a sum of the seconds of ops and of moves: of all nodes
what `PlacementProblem.cost` calls `ranked_seconds`, or of some.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from softmesh.distributed.layouts import Layout
from softmesh.distributed.redistribution import HERE
from softmesh.hardware.enums import DataType
from softmesh.planner.linear_model import INFINITE, Costs, LinearModel, Terms
from softmesh.planner.placement_problem import Assignment, PlacementProblem
from softmesh.planner.repeated_layers import NodeClasses

MICRO, MEGA = 1e6, 1e6  # the solver sees microseconds and megabytes
_LEFT = "left"

Consumer = tuple[Hashable, int]  # a class of nodes and a place among their operands; or the caller, and a class
Consumers = frozenset[Consumer]
Option = tuple[int, Layout, DataType]  # a variable, and how a value lies where it is 1


class Pair(NamedTuple):
    """Where a value comes from and goes to, and what is moved of it."""

    start: Layout
    dtype: DataType
    end: Layout


class Work(NamedTuple):
    """Of some nodes: how many there are of each class, and of values of each class that are brought to consumers."""

    nodes: tuple[tuple[int, int], ...]
    moves: tuple[tuple[tuple[int, Consumers], int], ...]


class PlacementProgram:
    def __init__(self, problem: PlacementProblem, classes: NodeClasses) -> None:
        self.model = LinearModel()
        self.problem, self.classes = problem, classes
        self._strategy: dict[int, list[int]] = {}  # of a class of nodes: its variables
        self._home: dict[int, list[int]] = {}
        self._flows: dict[tuple[int, Consumer], dict[Pair, int]] = {}  # of a class of values and a consumer
        self._seconds: dict[int, dict[Pair, float]] = {}  # of a class of values: what moves take
        self._shared: dict[tuple[int, Consumers], dict[Pair, int]] = {}
        self._add_choices()
        self.uses = {value.number: self._uses(value.number) for value in problem.graph.values}
        self.value_class = self._value_classes()
        first: dict[int, int] = {}
        for number, own in self.value_class.items():
            first.setdefault(own, number)
        for own, number in first.items():
            self._add_flows(own, number)
        self._add_joins()

    # -- choices ---------------------------------------------------------------------------------

    def _add_choices(self) -> None:
        for number, strategies in enumerate(self.problem.strategies):
            own = self.classes.nodes[number]
            if own not in self._strategy:
                self._strategy[own] = self.model.binaries(len(strategies))
        for number, homes in self.problem.homes.items():
            if self.classes.leaves[number] not in self._home:
                self._home[self.classes.leaves[number]] = self.model.binaries(len(homes))

    def _add_joins(self) -> None:
        """Parts of one product are chosen together, and with weights that lie where it needs them."""
        known = set[tuple[int, ...]]()
        for join in self.problem.joins:
            own = tuple(self.classes.nodes[number] for number in join.nodes)
            if own in known:
                continue
            known.add(own)
            parts = [self._joined(number) for number in join.nodes]
            for at in set[int]().union(*parts):
                first, *others = (part.get(at, []) for part in parts)
                for other in others:
                    self.model.add_row(0, 0, [*((v, 1.0) for v in first), *((v, -1.0) for v in other)])
            for number, weight in zip(join.nodes, join.weights(self.problem.graph), strict=True):
                self._add_place(number, weight.number)

    def _joined(self, node: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for variable, strategy in zip(self.strategy_variables(node), self.problem.strategies[node], strict=True):
            if strategy.joined is not None:
                found.setdefault(strategy.joined, []).append(variable)
        return found

    def _add_place(self, node: int, weight: int) -> None:
        chosen: dict[Layout, list[int]] = {}
        for variable, strategy in zip(self.strategy_variables(node), self.problem.strategies[node], strict=True):
            if strategy.joined is not None:
                chosen.setdefault(strategy.needs[1], []).append(variable)
        for layout, variables in chosen.items():
            there = [v for v, own, _ in self.given(weight) if own == layout]
            self.model.add_row(-INFINITE, 0, [*((v, 1.0) for v in variables), *((v, -1.0) for v in there)])

    def strategy_variables(self, node: int) -> list[int]:
        return self._strategy[self.classes.nodes[node]]

    def home_variables(self, number: int) -> list[int]:
        """Of a leaf, or of an output."""
        return self._home[self.classes.leaves[number]]

    def given(self, number: int) -> list[Option]:
        """The variables that decide how a value lies where it is made or kept."""
        graph = self.problem.graph
        maker = graph.makers.get(number)
        if maker is None:
            homes = self.problem.homes[number]
            return [(v, home.layout, home.dtype) for v, home in zip(self.home_variables(number), homes, strict=True)]
        place, dtype = graph.nodes[maker].results.index(number), graph.values[number].dtype
        chosen = zip(self.strategy_variables(maker), self.problem.strategies[maker], strict=True)
        return [(variable, strategy.gives[place], dtype) for variable, strategy in chosen]

    def _uses(self, number: int) -> tuple[tuple[int, Consumer], ...]:
        """Which nodes read a value, and their classes; its caller reads an output while the last node runs."""
        problem, graph = self.problem, self.problem.graph
        found: list[tuple[int, Consumer]] = [
            (node, (self.classes.nodes[node], place)) for node, place in graph.consumers[number]
        ]
        if number in graph.outputs and number in problem.homes and number in graph.makers:
            found.append((len(graph.nodes) - 1, (_LEFT, self.classes.leaves[number])))
        return tuple(sorted(found, key=lambda use: use[0]))

    def _value_classes(self) -> dict[int, int]:
        """Values that are given by the same class, and read by the same classes."""
        graph, classes = self.problem.graph, self.classes
        numbers: dict[Hashable, int] = {}
        found = {}
        for value in graph.values:
            maker = graph.makers.get(value.number)
            if maker is None:
                given: Hashable = ("leaf", classes.leaves[value.number])
            else:
                given = (classes.nodes[maker], graph.nodes[maker].results.index(value.number))
            key = given, self.consumers(value.number), value.shape, value.dtype
            found[value.number] = numbers.setdefault(key, len(numbers))
        return found

    def consumers(self, number: int) -> Consumers:
        return frozenset(consumer for _, consumer in self.uses[number])

    # -- moves -----------------------------------------------------------------------------------

    def _add_flows(self, own: int, number: int) -> None:
        given: dict[tuple[Layout, DataType], list[int]] = {}
        for variable, layout, dtype in self.given(number):
            given.setdefault((layout, dtype), []).append(variable)
        seconds = self._seconds[own] = {}
        graph, seen = self.problem.graph, set[Consumer]()
        for node, place in graph.consumers[number]:
            consumer: Consumer = (self.classes.nodes[node], place)
            if consumer not in seen:
                seen.add(consumer)
                chosen = zip(self.strategy_variables(node), self.problem.strategies[node], strict=True)
                options = [(variable, one.needs[place], one.dtypes[place]) for variable, one in chosen]
                in_place = place in graph.nodes[node].writes
                self._flows[own, consumer] = self._flow(number, options, given, seconds, in_place=in_place)
        for _, consumer in self.uses[number]:
            if consumer not in seen:
                homes = zip(self.home_variables(number), self.problem.homes[number], strict=True)
                options = [(variable, home.layout, home.dtype) for variable, home in homes]
                self._flows[own, consumer] = self._flow(number, options, given, seconds, in_place=False)

    def _flow(
        self,
        number: int,
        options: Sequence[Option],
        given: dict[tuple[Layout, DataType], list[int]],
        seconds: dict[Pair, float],
        *,
        in_place: bool,
    ) -> dict[Pair, int]:
        """What a consumer takes: all that is given leaves, all that is needed arrives."""
        model, problem = self.model, self.problem
        needed: dict[tuple[Layout, DataType], list[int]] = {}
        for variable, layout, dtype in options:
            needed.setdefault((layout, dtype), []).append(variable)
        moved: dict[Pair, int] = {}
        leaving: dict[tuple[Layout, DataType], list[int]] = {key: [] for key in given}
        arriving: dict[tuple[Layout, DataType], list[int]] = {key: [] for key in needed}
        for start, dtype in given:
            ways = problem.ways_from(number, dtype, start)
            for end, wanted in needed:
                if dtype is not wanted or (in_place and start != end):
                    continue
                way = HERE if start == end else ways.get(end)
                if way is None:
                    continue
                flow, pair = model.continuous(), Pair(start, dtype, end)
                leaving[start, dtype].append(flow)
                arriving[end, dtype].append(flow)
                if start != end:
                    moved[pair] = flow
                    seconds[pair] = way.seconds + self.problem.launch * way.launches
        for key, variables in given.items():
            model.add_row(0, 0, [*((f, 1.0) for f in leaving[key]), *((v, -1.0) for v in variables)])
        for key, variables in needed.items():
            model.add_row(0, 0, [*((f, 1.0) for f in arriving[key]), *((v, -1.0) for v in variables)])
        return moved

    def moves(self, own: int, consumers: Consumers) -> dict[Pair, int]:
        """Variables: what is brought for any of these consumers of a value of this class, once for all of them."""
        key = (own, consumers)
        found = self._shared.get(key)
        if found is None:
            several = [self._flows[own, consumer] for consumer in sorted(consumers, key=str)]
            found = self._shared[key] = several[0] if len(several) == 1 else self._together(several)
        return found

    def _together(self, several: Sequence[dict[Pair, int]]) -> dict[Pair, int]:
        shared: dict[Pair, int] = {}
        for flows in several:
            for pair, flow in flows.items():
                if pair not in shared:
                    shared[pair] = self.model.continuous()
                self.model.add_row(0, INFINITE, [(shared[pair], 1.0), (flow, -1.0)])
        return shared

    # -- what it takes ---------------------------------------------------------------------------

    @cached_property
    def _brought_at(self) -> dict[int, tuple[tuple[int, Consumer], ...]]:
        """As `uses`, but for what is left for the caller: it is brought there where it is made."""
        graph, found = self.problem.graph, {}
        for number, uses in self.uses.items():
            left = [(graph.makers[number], consumer) for _, consumer in uses if consumer[0] == _LEFT]
            found[number] = (*(use for use in uses if use[1][0] != _LEFT), *left)
        return found

    def work(self, first: int, end: int, *, own_only: bool = False) -> Work:
        """Of the nodes from one to another. `own_only`: without moves of what is read by other nodes, too."""
        nodes: dict[int, int] = {}
        for node in range(first, end):
            nodes[self.classes.nodes[node]] = nodes.get(self.classes.nodes[node], 0) + 1
        moves: dict[tuple[int, Consumers], int] = {}
        for number, uses in self._read_from(first, end):
            here = frozenset(consumer for node, consumer in uses if first <= node < end)
            if here and not (own_only and any(not first <= node < end for node, _ in uses)):
                key = (self.value_class[number], here)
                moves[key] = moves.get(key, 0) + 1
        return Work(tuple(sorted(nodes.items())), tuple(sorted(moves.items(), key=lambda item: item[0][0])))

    def _read_from(self, first: int, end: int) -> Iterable[tuple[int, tuple[tuple[int, Consumer], ...]]]:
        if (first, end) == (0, len(self.problem.graph.nodes)):
            return self._brought_at.items()
        numbers = dict.fromkeys(number for node in range(first, end) for number in self._read_at[node])
        return [(number, self._brought_at[number]) for number in numbers]

    @cached_property
    def _read_at(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.problem.graph.nodes]
        for number, uses in self._brought_at.items():
            for node, _ in uses:
                found[node].append(number)
        return found

    def costs(self, work: Work) -> Costs:
        """In microseconds, with something for every launch."""
        found: Costs = {}
        for own, count in work.nodes:
            for variable, strategy in zip(self._strategy[own], self.problem.strategies[own], strict=True):
                seconds = strategy.total_seconds + self.problem.launch * strategy.launches
                found[variable] = count * seconds * MICRO
        for (own, consumers), count in work.moves:
            seconds_of = self._seconds[own]
            for pair, variable in self.moves(own, consumers).items():
                found[variable] = found.get(variable, 0.0) + count * seconds_of[pair] * MICRO
        return found

    def held(self, number: int) -> Terms:
        """The megabytes of a value where it is made or kept."""
        held = self.problem.held_bytes
        return [(v, held(number, dtype, layout) / MEGA) for v, layout, dtype in self.given(number)]

    # -- the answer ------------------------------------------------------------------------------

    def assignment(self, values: Sequence[float]) -> Assignment:
        def chosen(variables: list[int]) -> int:
            return max(range(len(variables)), key=lambda at: values[variables[at]])

        nodes = {own: chosen(variables) for own, variables in self._strategy.items()}
        homes = {own: chosen(variables) for own, variables in self._home.items()}
        return Assignment(
            tuple(nodes[own] for own in self.classes.nodes),
            {number: homes[own] for number, own in self.classes.leaves.items()},
        )
