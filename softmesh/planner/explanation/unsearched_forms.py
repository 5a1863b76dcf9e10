"""Forms of a program that a search does not look at, of those that the planned program has a place for."""

from __future__ import annotations

from collections.abc import Iterator

from softmesh.dispatch.operation import factors_of
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.op_graph import GraphNode, GraphValue, OpGraph, Role
from softmesh.planner.placement_problem import PlacementProblem
from softmesh.planner.program.leaf_patterns import leaf_word


def unsearched_forms(plan: ChosenLayout) -> list[str]:
    """In words; a program by hand that has them may be faster than the plan."""
    return [*_joined_products(plan.problem), *_shards(plan)]


def _joined_products(problem: PlacementProblem) -> Iterator[str]:
    """Products of one value that were not looked at as one: stages of a pipeline, products with a bias."""
    graph = problem.graph
    searched = {number: join for join in problem.joins for number in join.nodes}
    found: dict[tuple[str, ...], None] = {}
    for uses in graph.consumers.values():
        nodes = [graph.nodes[number] for number, place in uses if factors_of(graph.nodes[number].op)[:1] == (place,)]
        several = [node for node in nodes if _is_kept(graph, _weight(graph, node))]
        if len(several) > 1 and len({searched.get(node.number, node) for node in several}) > 1:
            found[tuple(leaf_word(_weight(graph, node).name) for node in several)] = None
    if found:
        yield f"one product of weights that read the same value ({'; '.join(', '.join(words) for words in found)})"


def _is_kept(graph: OpGraph, value: GraphValue) -> bool:
    return value.role is Role.WEIGHT and value.number not in graph.makers


def _weight(graph: OpGraph, node: GraphNode) -> GraphValue:
    return graph.values[node.operands[factors_of(node.op)[1]]]


def _shards(plan: ChosenLayout) -> Iterator[str]:
    if plan.problem.l1_limits:
        yield "results in shards over L1"
