"""Forms of a program that a search does not look at, of those that the planned program has a place for."""

from __future__ import annotations

from collections.abc import Iterator

from softmesh.dispatch.operation import factors_of
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.op_graph import OpGraph, Role
from softmesh.planner.program.leaf_patterns import leaf_word


def unsearched_forms(plan: ChosenLayout) -> list[str]:
    """In words; a program by hand that has them may be faster than the plan."""
    return [*_joined_products(plan.problem.graph), *_shards(plan)]


def _joined_products(graph: OpGraph) -> Iterator[str]:
    found = dict.fromkeys(
        words for uses in graph.consumers.values() if len(words := tuple(_weights_of(graph, uses))) > 1
    )
    if found:
        yield f"one product of weights that read the same value ({'; '.join(', '.join(words) for words in found)})"


def _weights_of(graph: OpGraph, uses: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """The weights with which products read a value."""
    for number, place in uses:
        node = graph.nodes[number]
        factors = factors_of(node.op)
        if factors and place == factors[0]:
            weight = graph.values[node.operands[factors[1]]]
            if weight.role is Role.WEIGHT and weight.number not in graph.makers:
                yield leaf_word(weight.name)


def _shards(plan: ChosenLayout) -> Iterator[str]:
    if plan.problem.l1_limits:
        yield "results in shards over L1"
