"""Layers of a graph, from where to where: by the numbers in the names of what they read, or by what repeats."""

from __future__ import annotations

import re
from collections import Counter

from softmesh.planner.op_graph import OpGraph
from softmesh.planner.placement_problem import PlacementProblem
from softmesh.planner.repeated_layers import classes_of

Spans = tuple[tuple[int, int], ...]  # the first node of each layer, and the node after its last
_NUMBERED = re.compile(r"([^\d]*)(\d+)\b")


def layer_spans(problem: PlacementProblem) -> Spans:
    return spans_by_names(problem.graph) or _with_the_first(classes_of(problem).layers)


def _with_the_first(layers: Spans) -> Spans:
    """The first layer is unlike the others in where its inputs come from."""
    if not layers:
        return ()
    first, after = layers[0]
    period = after - first
    return ((first - period, first), *layers) if first >= period else layers


def spans_by_names(graph: OpGraph) -> Spans:
    """`layers.0.wq`, `layers.1.wq`: a layer begins where a name of its number is read first."""
    told = {leaf.number: match for leaf in graph.leaves if (match := _NUMBERED.match(leaf.name)) is not None}
    prefixes = Counter(match[1] for match in told.values())
    for prefix, _ in prefixes.most_common():
        starts: dict[int, int] = {}
        for node in graph.nodes:
            for value in node.operands:
                match = told.get(graph.root(value))
                if match is not None and match[1] == prefix:
                    starts.setdefault(int(match[2]), node.number)
        begins = list(starts.values())
        if len(starts) > 1 and list(starts) == sorted(starts) and begins == sorted(set(begins)):
            length = begins[-1] - begins[-2]
            ends = [*begins[1:], min(begins[-1] + length, len(graph.nodes))]
            return tuple(zip(begins, ends, strict=True))
    return ()
