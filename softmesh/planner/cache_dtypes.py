"""Caches in the smallest of the dtypes that they may be kept in: less is read, and ops see the same shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from softmesh.cost.link_costs import Line
from softmesh.distributed.layouts import bits
from softmesh.hardware.enums import DataType, Layout
from softmesh.planner.constraints import WeightDtypes
from softmesh.planner.op_graph import GraphValue, OpGraph, Role
from softmesh.planner.op_strategies import StrategyFinder
from softmesh.systems.chip import Chip
from softmesh.value_free import without_values


def with_smaller_caches(graph: OpGraph, chip: Chip, liberties: Sequence[WeightDtypes]) -> OpGraph:
    """The graph with caches in the smallest dtype that is allowed, where all ops which read or write them take it."""
    wanted = {
        value.number: dtype for value in graph.values if (dtype := _smallest(value, liberties)) is not value.dtype
    }
    if not wanted:
        return graph
    changed = _changed(graph, wanted)
    finder = StrategyFinder((1,), chip, (Line(chip, 1, 1, False),))
    with without_values():
        refused = {
            graph.root(number)
            for node in graph.nodes
            if not wanted.keys().isdisjoint(node.operands) and not finder.takes(changed, node)
            for number in node.operands
        }
    return _changed(graph, {number: dtype for number, dtype in wanted.items() if graph.root(number) not in refused})


def _changed(graph: OpGraph, dtypes: dict[int, DataType]) -> OpGraph:
    return replace(graph, values=tuple(replace(v, dtype=dtypes.get(v.number, v.dtype)) for v in graph.values))


def _smallest(value: GraphValue, liberties: Sequence[WeightDtypes]) -> DataType:
    if value.role is not Role.CACHE or value.layout is not Layout.TILE:
        return value.dtype
    allowed = (dtype for one in liberties if fnmatchcase(value.name, one.names) for dtype in one.dtypes)
    return min((value.dtype, *allowed), key=bits)
