"""The memory of a placement problem as rows of its integer program, of those nodes only for which they are asked:

    kept + live values and copies <= memory    while a node runs

Most plans are far from the limit at nearly all nodes, and rows with all that lives are what makes a program hard.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property

from softmesh.planner.linear_model import INFINITE, Terms
from softmesh.planner.placement_problem import Home
from softmesh.planner.placement_program import MEGA, Consumer, Pair, PlacementProgram

Span = tuple[int, int]  # a node, and the node after the last
_Consumers = tuple[Consumer, ...]


class MemoryRows:
    def __init__(self, program: PlacementProgram) -> None:
        self._program, self._problem, self._model = program, program.problem, program.model
        self._kept: dict[Span, int] = {}  # variables
        self._slack: dict[Span, int] = {}
        self._copies: dict[Hashable, int] = {}
        self._parts: dict[Hashable, tuple[int, Terms]] = {}
        self._known: set[Hashable] = set()
        self._arriving: dict[tuple[int, Consumer], dict[Home, list[int]]] = {}

    def add(self, node: int, span: Span) -> bool:
        """That of a node, where these nodes are on devices of their own. Whether it is new."""
        program, strategies = self._program, self._problem.strategies[node]
        parts = [self._part(number, node) for number in self._live_at(node)]
        own = program.classes.nodes[node]
        key = (span, own, tuple(sorted(at for at, _ in parts)))
        if key in self._known:
            return False
        self._known.add(key)
        row = [(self._kept_by(span), 1.0), *(term for _, terms in parts for term in terms)]
        held = zip(program.strategy_variables(node), strategies, strict=True)
        row += [(variable, one.held_bytes / MEGA) for variable, one in held if one.held_bytes]
        self._model.add_row(-INFINITE, self._room, row)
        return True

    @cached_property
    def _room(self) -> float:
        """Megabytes between the most that fits and the least that does not: a solver knows no single byte apart.

        All that is ever held is a number of grains.
        """
        problem, sizes = self._problem, set[int]()
        one_of_each = {own: node for node, own in enumerate(self._program.classes.nodes)}
        for node in (problem.graph.nodes[at] for at in one_of_each.values()):
            for one in problem.strategies[node.number]:
                taken = zip(node.operands, one.dtypes, one.needs, strict=True)
                given = (
                    (n, problem.graph.values[n].dtype, gives) for n, gives in zip(node.results, one.gives, strict=True)
                )
                sizes |= {one.held_bytes, *(problem.held_bytes(*lying) for lying in (*taken, *given))}
        for number, homes in problem.homes.items():
            sizes |= {problem.held_bytes(number, home.dtype, home.layout) for home in homes}
        grain = math.gcd(*sizes) or 1
        return (problem.memory_bytes // grain + 0.5) * grain / MEGA

    def slack(self, spans: Iterable[Span]) -> list[int]:
        """The variables that have to be 0 where the graph is cut so: rows of other stages say nothing then."""
        return [self._slack[span] for span in spans if span in self._slack]

    def _kept_by(self, span: Span) -> int:
        """A variable: the leaves that nodes of a stage read, less its slack; without stages all leaves."""
        found = self._kept.get(span)
        if found is None:
            found = self._kept[span] = self._model.continuous(INFINITE)
            slack = self._slack[span] = self._model.continuous(INFINITE)
            share = self._problem.kept_share if self._is_whole(span) else 1.0
            terms: Terms = [(found, -1.0), (slack, -1.0)]
            for number in self._leaves_of(span):
                terms += [(variable, size * share) for variable, size in self._program.held(number)]
            self._model.add_row(-INFINITE, 0, terms)
            self._model.add_row(-INFINITE, self._room, [(found, 1.0)])
        return found

    def _is_whole(self, span: Span) -> bool:
        return span == (0, len(self._problem.graph.nodes))

    def _leaves_of(self, span: Span) -> Iterator[int]:
        graph = self._problem.graph
        read = {graph.root(value) for node in graph.nodes[span[0] : span[1]] for value in node.operands}
        for leaf in graph.leaves:
            if leaf.number in read or self._is_whole(span):
                yield leaf.number

    # -- what lives while a node runs ------------------------------------------------------------

    def _live_at(self, node: int) -> list[int]:
        return [number for number, (first, last) in self.lives.items() if first <= node <= last]

    @cached_property
    def lives(self) -> dict[int, Span]:
        """Of each value the first and the last node while which it, or a copy of it, is held beside the leaves."""
        problem, graph = self._problem, self._problem.graph
        found = {}
        for value in graph.values:
            spans = [at for at, _ in self._program.uses[value.number]]
            maker = graph.makers.get(value.number)
            if maker is not None:
                spans += [maker, problem.last_uses[graph.root(value.number)]]
            if spans:
                found[value.number] = min(spans), max(spans)
        return found

    def _part(self, number: int, node: int) -> tuple[int, Terms]:
        """What a value holds while a node runs, with a number: itself, and its copies. Equal layers share them."""
        problem, value = self._problem, self._problem.graph.values[number]
        maker, uses = problem.graph.makers.get(number), self._program.uses[number]
        is_there = maker is not None and value.version_of is None and maker <= node <= problem.last_uses[number]
        before = tuple(dict.fromkeys(consumer for at, consumer in uses if at <= node))
        after = tuple(dict.fromkeys(consumer for at, consumer in uses if at >= node))
        key = (self._program.value_class[number], is_there, before, after)
        found = self._parts.get(key)
        if found is None:
            copies = list(self._copies_of(number, before, after)) if before and after else []
            own = self._program.held(number) if is_there else []
            found = self._parts[key] = len(self._parts), [*own, *copies]
        return found

    def _copies_of(self, number: int, before: _Consumers, after: _Consumers) -> Iterator[tuple[int, float]]:
        own = self._program.value_class[number]
        for end in dict.fromkeys(end for consumer in before for end in self._ends(own, consumer)):
            size = self._problem.held_bytes(number, end.dtype, end.layout)
            yield self._copy(own, end, before, after), size / MEGA

    def _ends(self, own: int, consumer: Consumer) -> dict[Home, list[int]]:
        """Where what a consumer has brought to it ends, and the variables of the moves."""
        found = self._arriving.get((own, consumer))
        if found is None:
            found = self._arriving[own, consumer] = {}
            moved: dict[Pair, int] = self._program.moves(own, frozenset((consumer,)))
            for pair, flow in moved.items():
                found.setdefault(Home(pair.end, pair.dtype), []).append(flow)
        return found

    def _copy(self, own: int, end: Home, before: _Consumers, after: _Consumers) -> int:
        """1 where somebody has needed the copy already, and somebody needs it still."""
        key = (own, end, before, after)
        if key not in self._copies:
            variable = self._copies[key] = self._model.continuous()
            for one in before:
                for other in after:
                    flows = [(flow, -1.0) for flow in self._ends(own, one).get(end, ())]
                    if one != other:
                        flows += [(flow, -1.0) for flow in self._ends(own, other).get(end, ())]
                    if flows:
                        self._model.add_row(0.0 if one == other else -1.0, INFINITE, [(variable, 1.0), *flows])
        return self._copies[key]
