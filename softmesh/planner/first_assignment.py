"""A first assignment, found op by op without a search: what there is where a search finds none in time.

Each op takes the strategy that costs least after those before it were chosen; a leaf lies where its first reader wants
it. Bytes that a leaf takes on each device have a price, which is raised until all of it fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from softmesh.distributed.layouts import is_whole
from softmesh.planner.op_graph import GraphNode
from softmesh.planner.op_strategies import OpStrategy
from softmesh.planner.placement_problem import Assignment, Home, PlacementProblem, PlanCost
from softmesh.planner.repeated_layers import NodeClasses

Priced = tuple[Assignment, PlanCost]
_PRICES = (0.0, 1e-13, 1e-12, 1e-11, 1e-9)  # seconds for a byte


def first_assignment(problem: PlacementProblem, classes: NodeClasses) -> Priced | None:
    """The cheapest that fits, of those that the prices lead to; None where none of them does."""
    best: Priced | None = None
    for price in _PRICES:
        found = _Greedy(problem, classes, price).assignment()
        if found is None:
            continue
        cost = problem.cost(found)
        if cost.fits and (best is None or cost.ranked_seconds < best[1].ranked_seconds):
            best = found, cost
    return best


class _Greedy:
    def __init__(self, problem: PlacementProblem, classes: NodeClasses, price: float) -> None:
        self._problem, self._classes, self._price = problem, classes, price
        self._chosen: dict[int, int] = {}  # of a class of nodes
        self._homes: dict[int, int] = {}  # of a class of leaves
        self._given: dict[int, Home] = {}  # of a value

    def assignment(self) -> Assignment | None:
        problem, classes = self._problem, self._classes
        for node in problem.graph.nodes:
            own = classes.nodes[node.number]
            if own not in self._chosen:
                best = self._best_of(node)
                if best is None:
                    return None
                self._chosen[own] = best
            self._take(node, problem.strategies[node.number][self._chosen[own]])
        for number in problem.homes:
            if classes.leaves[number] not in self._homes:
                self._homes[classes.leaves[number]] = self._left_at(number)
        nodes = tuple(self._chosen[own] for own in classes.nodes)
        return Assignment(nodes, {number: self._homes[own] for number, own in classes.leaves.items()})

    def _best_of(self, node: GraphNode) -> int | None:
        costs = [self._cost(node, strategy) for strategy in self._problem.strategies[node.number]]
        at = min(range(len(costs)), key=costs.__getitem__)
        return at if math.isfinite(costs[at]) else None

    def _cost(self, node: GraphNode, strategy: OpStrategy) -> float:
        total = strategy.total_seconds if strategy.joined is None else math.inf  # which others would have to take, too
        for place, number in enumerate(node.operands):
            found = min((cost for cost, _ in self._ways(node, place, strategy, number)), default=math.inf)
            total += found
        return total

    def _ways(
        self, node: GraphNode, place: int, strategy: OpStrategy, number: int
    ) -> Iterator[tuple[float, int | None]]:
        """What it costs to have an operand where a strategy needs it; of a leaf without a home, from each."""
        known = self._known(number)
        homes = enumerate(self._problem.homes[number]) if known is None else [(None, known)]
        for at, home in homes:
            if home.dtype is not strategy.dtypes[place]:
                continue
            if place in node.writes and home.layout != strategy.needs[place]:
                continue
            way = self._problem.way(number, home.dtype, home.layout, strategy.needs[place])
            if way is not None:
                held = self._problem.held_bytes(number, home.dtype, home.layout) if at is not None else 0
                yield way.seconds + self._problem.launch * way.launches + held * self._price, at

    def _known(self, number: int) -> Home | None:
        if number in self._given:
            return self._given[number]
        own = self._classes.leaves.get(number)
        return self._problem.homes[number][self._homes[own]] if own in self._homes else None

    def _take(self, node: GraphNode, strategy: OpStrategy) -> None:
        for place, number in enumerate(node.operands):
            if self._known(number) is None:
                ways = list(self._ways(node, place, strategy, number))
                at = min(ways, key=lambda way: way[0])[1] if ways else 0
                self._homes[self._classes.leaves[number]] = at or 0
        for number, layout in zip(node.results, strategy.gives, strict=True):
            self._given[number] = Home(layout, self._problem.graph.values[number].dtype)

    def _left_at(self, number: int) -> int:
        """An output is left where it was made, if it may be; anything else where it comes cheapest."""
        homes, given = self._problem.homes[number], self._given.get(number)
        if given is None:
            return 0
        if is_whole(given.layout) and given in homes:
            return homes.index(given)
        ways = [self._problem.way(number, given.dtype, given.layout, home.layout) for home in homes]
        return min(range(len(homes)), key=lambda at: math.inf if (way := ways[at]) is None else way.seconds)
