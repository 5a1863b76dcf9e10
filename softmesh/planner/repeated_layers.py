"""Repeated layers: nodes that do the same work for the same kind of neighbours are decided once, as one class.

A model of 80 equal layers has as many ops as one layer, counted 80 times. Two nodes are of one class where their
strategies are the same, and where they stand at the same place of a period that the graph repeats.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from softmesh.planner.op_graph import OpGraph, Role
from softmesh.planner.placement_problem import PlacementProblem


@dataclass(frozen=True)
class NodeClasses:
    """`nodes` has for each node, `leaves` for each leaf (and output) the number of its class."""

    nodes: tuple[int, ...]
    leaves: dict[int, int]
    layers: tuple[tuple[int, int], ...]  # first node of each layer of the longest repeated part, and the one after it


def classes_of(problem: PlacementProblem) -> NodeClasses:
    graph = problem.graph
    keys = [_node_key(problem, number) for number in range(len(graph.nodes))]
    numbers: dict[Hashable, int] = {}
    word = [numbers.setdefault(key, len(numbers)) for key in keys]
    nodes = list(range(len(graph.nodes)))
    longest = (0, 0, 1)
    for start, period, count in _repetitions(word, 0, len(word)):
        for at in range(start + period, start + period * count):
            nodes[at] = nodes[at - period]
        if period * count > longest[1] * longest[2]:
            longest = start, period, count
    leaves = _leaf_classes(problem, nodes)
    start, period, count = longest
    layers = tuple((start + at * period, start + (at + 1) * period) for at in range(count)) if count > 1 else ()
    return NodeClasses(tuple(nodes), leaves, layers)


def untied(problem: PlacementProblem) -> NodeClasses:
    """Every node and leaf a class of its own."""
    return NodeClasses(tuple(range(len(problem.graph.nodes))), {n: n for n in problem.homes}, ())


def _node_key(problem: PlacementProblem, number: int) -> Hashable:
    """What must be the same in each layer: the op, its strategies, and where its operands come from."""
    node, graph = problem.graph.nodes[number], problem.graph
    sources = []
    for value in node.operands:
        maker = graph.makers.get(value)
        sources.append(None if maker is None else (number - maker, graph.nodes[maker].results.index(value)))
    # A source before the layer is at another distance in the first layer than in the others: told by kind only.
    near = tuple(source if source is None or source[0] < 2 else "further" for source in sources)
    return node.op, id(problem.strategies[number]), near, node.writes


def _repetitions(word: Sequence[int], first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Those of the longest repeated part, and of what lies before and behind it: layers forward, backward, updates."""
    start, period, count = _longest(word[first:end])
    if count == 1:
        return
    start += first
    yield start, period, count
    yield from _repetitions(word, first, start)
    yield from _repetitions(word, start + period * count, end)


def _longest(word: Sequence[int]) -> tuple[int, int, int]:
    """Where the longest repeated part starts, how long one period is, and how many there are."""
    letters = np.asarray(word)
    n = len(word)
    best = (0, n, 1)
    for period in range(1, n // 2 + 1):
        edges = np.flatnonzero(np.diff(letters[:-period] == letters[period:], prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]  # of runs in which each letter is that of a period later
        counts = (ends - starts) // period + 1
        if len(counts) and (longest := int(counts.max())) > 1 and (longest - 1) * period > (best[2] - 1) * best[1]:
            last = int(np.flatnonzero(counts == longest)[-1])
            best = (int(starts[last] + (ends[last] - starts[last]) % period), period, longest)
    return best


def _leaf_classes(problem: PlacementProblem, nodes: Sequence[int]) -> dict[int, int]:
    """Leaves that nodes of the same classes read at the same places, and that may lie in the same homes."""
    graph: OpGraph = problem.graph
    found: dict[Hashable, int] = {}
    classes = {}
    for number, homes in problem.homes.items():
        uses = tuple((nodes[node], place) for node, place in graph.consumers[number])
        maker = graph.makers.get(number)
        value = graph.values[number]
        is_shared = len(uses) != len(set(uses))  # by several layers: there is one of it
        own: Hashable = number if is_shared or value.role is Role.INPUT else None
        key = (uses, homes, value.shape, value.dtype, None if maker is None else nodes[maker], own)
        classes[number] = found.setdefault(key, number)
    return classes
