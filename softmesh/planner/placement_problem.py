"""The placement problem: which strategy each op of a graph takes and where each leaf lies; and the one evaluator of
what an assignment costs and holds.

A value is brought to a layout once, from the one in which it is made or kept, and shared by all its consumers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from softmesh.cost.launches import launch_seconds
from softmesh.cost.link_costs import Line
from softmesh.distributed.layouts import Extents, Layout, Value, bits
from softmesh.distributed.redistribution import HERE, Way, routes
from softmesh.hardware.enums import DataType
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.planner.joined_products import Join
from softmesh.planner.op_graph import GraphNode, GraphValue, OpGraph
from softmesh.planner.op_strategies import OpStrategy
from softmesh.systems.chip import Chip


class Home(NamedTuple):
    """Where and as what a leaf is kept; of an output, where it is left."""

    layout: Layout
    dtype: DataType


@dataclass(frozen=True)
class Assignment:
    strategies: tuple[int, ...]  # for each node, the number of its strategy
    homes: Mapping[int, int]  # for each leaf and each output that is none, the number of its home


class Move(NamedTuple):
    """A value, brought from where it is to where consumers need it."""

    value: int
    start: Layout
    end: Layout
    way: Way
    consumers: tuple[int, ...]  # nodes; none: the function's caller
    is_left: bool = False  # whether it is left there for the caller

    def nodes(self, graph: OpGraph) -> tuple[int, ...]:
        """Where it is done: for those that read it, and for the caller where it was made."""
        return (*self.consumers, graph.makers[self.value]) if self.is_left else self.consumers


@dataclass(frozen=True)
class PlanCost:
    seconds: float
    ranked_seconds: float  # with something for every launch: what is minimised
    by_node: tuple[float, ...]  # the work of each, with what is exchanged in its midst
    moves: tuple[Move, ...]
    memory: tuple[int, ...]  # bytes on each device while each node runs
    kept_bytes: int  # of them, leaves
    fits: bool
    broken: tuple[str, ...] = ()  # why it cannot run at all

    @property
    def peak(self) -> int:
        return max(self.memory, default=self.kept_bytes)

    @property
    def move_seconds(self) -> float:
        return sum(move.way.seconds for move in self.moves)


@dataclass(frozen=True)
class PlacementProblem:
    graph: OpGraph
    mesh_shape: Extents
    lines: tuple[Line, ...]
    chip: Chip
    strategies: tuple[tuple[OpStrategy, ...], ...]  # of each node
    homes: Mapping[int, tuple[Home, ...]]  # of each leaf, and of each output that is none
    memory_bytes: int  # that tensors may take on each device
    closed_axes: frozenset[int] = frozenset()  # along which nothing is sent
    kept_share: float = 1.0  # of the leaves, what each stage of a pipeline has
    l1_limits: Mapping[int, int] = field(default_factory=dict)  # of values that may stay in L1: bytes of a piece
    joins: tuple[Join, ...] = ()  # of nodes whose strategies have the same `joined`, or none

    @cached_property
    def launch(self) -> float:
        """Seconds that are counted for each op that moves a value."""
        return launch_seconds(self.chip, is_traced=True)

    def cost(self, assignment: Assignment) -> PlanCost:
        return _Evaluation(self, assignment).result()

    def value(self, number: int, dtype: DataType) -> Value:
        value = self.graph.values[number]
        limit = self.l1_limits.get(number, 0)
        return Value(value.shape, bits(dtype), self.mesh_shape, form=value.layout, l1_limit=limit)

    def way(self, number: int, dtype: DataType, start: Layout, end: Layout) -> Way | None:
        """How it is brought there; None where it cannot be."""
        return HERE if start == end else self.ways_from(number, dtype, start).get(end)

    def ways_from(self, number: int, dtype: DataType, start: Layout) -> Mapping[Layout, Way]:
        """How it is brought to every other layout that it can be brought to."""
        return routes(self.value(number, dtype), self.lines, self.closed_axes, is_traced=True).ways_from(start)

    def held_bytes(self, number: int, dtype: DataType, layout: Layout) -> int:
        """On each device, in whole tiles where it is tiled."""
        value = self.graph.values[number]
        return _held_bytes(value.shape, value.layout, dtype, layout, self.mesh_shape)

    @cached_property
    def last_uses(self) -> dict[int, int]:
        """The last node that reads a value or a later version of it; those that are returned outlive all nodes."""
        graph = self.graph
        found = dict.fromkeys(range(len(graph.values)), -1)
        for node in graph.nodes:
            for value in (*node.operands, *node.results):
                root = graph.root(value)
                found[root] = max(found[root], node.number)
        for value in graph.outputs:
            found[graph.root(value)] = len(graph.nodes)
        return found

    def given(self, assignment: Assignment, number: int) -> Home:
        """How a value lies where it is made or kept."""
        maker = self.graph.makers.get(number)
        if maker is None:
            return self.homes[number][assignment.homes[number]]
        strategy = self.strategies[maker][assignment.strategies[maker]]
        place = self.graph.nodes[maker].results.index(number)
        return Home(strategy.gives[place], self.graph.values[number].dtype)


@lru_cache(maxsize=1 << 14)
def _held_bytes(shape: Extents, kind: TensorLayout, dtype: DataType, layout: Layout, mesh: Extents) -> int:
    return Value(shape, bits(dtype), mesh, form=kind).held_on_each(layout)


class _Evaluation:
    def __init__(self, problem: PlacementProblem, assignment: Assignment) -> None:
        graph = problem.graph
        self._problem, self._assignment = problem, assignment
        self._chosen = [own[at] for own, at in zip(problem.strategies, assignment.strategies, strict=True)]
        self._given = [problem.given(assignment, value.number) for value in graph.values]
        self._changes = [0] * (len(graph.nodes) + 1)  # of memory, before each node
        self._broken: list[str] = []

    def result(self) -> PlanCost:
        problem, graph = self._problem, self._problem.graph
        moves = self._moves()
        self._check_joins()
        kept = math.ceil(sum(self._held(value) for value in graph.leaves) * problem.kept_share)
        for value in graph.values:
            maker = graph.makers.get(value.number)
            if maker is not None and value.version_of is None:
                self._hold(maker, problem.last_uses[value.number], self._held(value))
        for node, strategy in zip(graph.nodes, self._chosen, strict=True):
            self._hold(node.number, node.number, strategy.held_bytes)
        memory, now = [], kept
        for change in self._changes[:-1]:
            now += change
            memory.append(now)
        by_node = tuple(strategy.total_seconds for strategy in self._chosen)
        seconds = math.inf if self._broken else sum(by_node) + sum(move.way.seconds for move in moves)
        launches = sum(s.launches for s in self._chosen) + sum(move.way.launches for move in moves)
        fits = max(memory, default=kept) <= problem.memory_bytes and not self._broken
        ranked = seconds + launches * problem.launch
        return PlanCost(seconds, ranked, by_node, tuple(moves), tuple(memory), kept, fits, tuple(self._broken))

    def _held(self, value: GraphValue) -> int:
        layout, dtype = self._given[value.number]
        return self._problem.held_bytes(value.number, dtype, layout)

    def _hold(self, first: int, last: int, size: int) -> None:
        """From one node to another, both included."""
        self._changes[first] += size
        self._changes[min(last + 1, len(self._changes) - 1)] -= size

    def _moves(self) -> list[Move]:
        problem, graph = self._problem, self._problem.graph
        wanted: dict[tuple[int, Layout], list[int]] = {}
        for node, strategy in zip(graph.nodes, self._chosen, strict=True):
            for place, value in enumerate(node.operands):
                self._check(node, place, strategy)
                if strategy.needs[place] != self._given[value].layout:
                    wanted.setdefault((value, strategy.needs[place]), []).append(node.number)
        for value in graph.outputs:  # left for the caller while the last node runs
            if value in problem.homes and value in graph.makers:
                home = problem.homes[value][self._assignment.homes[value]]
                if home.layout != self._given[value].layout:
                    wanted.setdefault((value, home.layout), []).append(len(graph.nodes))
        moves = []
        for (value, end), consumers in wanted.items():
            start, dtype = self._given[value]
            way = problem.way(value, dtype, start, end)
            if way is None:
                self._broken.append(f"{graph.values[value].name} cannot be brought to where it is needed")
                continue
            nodes = tuple(number for number in consumers if number < len(graph.nodes))
            moves.append(Move(value, start, end, way, nodes, len(nodes) < len(consumers)))
            held = problem.held_bytes(value, dtype, end)
            last = len(graph.nodes) - 1
            self._hold(min(consumers[0], last), min(consumers[-1], last), held)
        return moves

    def _check_joins(self) -> None:
        graph = self._problem.graph
        for join in self._problem.joins:
            if len({self._chosen[number].joined for number in join.nodes}) > 1:
                self._broken.append(f"{join.name(graph)} is one weight to some of its products, and several to others")
            for number, weight in zip(join.nodes, join.weights(graph), strict=True):
                strategy = self._chosen[number]
                if strategy.joined is not None and strategy.needs[1] != self._given[weight.number].layout:
                    self._broken.append(f"{weight.name} is a part of {join.name(graph)}, and lies elsewhere")

    def _check(self, node: GraphNode, place: int, strategy: OpStrategy) -> None:
        value = self._problem.graph.values[node.operands[place]]
        given = self._given[value.number]
        if strategy.dtypes[place] is not given.dtype:
            self._broken.append(f"{value.name} is kept as {given.dtype.name}, {node.op} takes {strategy.dtypes[place]}")
        if place in node.writes and strategy.needs[place] != given.layout:
            self._broken.append(f"{node.op} changes {value.name} in place, which does not lie where it is changed")
