"""Where each tensor of a plan lies, as tables of its file; layers whose names count are one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from softmesh.distributed.layouts import Layout
from softmesh.errors import NotModelled
from softmesh.placement.placements import Shard
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.joined_products import Join
from softmesh.planner.op_graph import GraphValue
from softmesh.planner.program.leaf_patterns import counted_name, pattern_of
from softmesh.planner.program.python_text import literal, quoted

SAID_OF_TENSORS = "# Each tensor: its shape, dtype and layout, and the dim that is shared along each axis of the mesh."


def tensor_rows(plan: ChosenLayout, leaves: Iterable[GraphValue], indent: int = 4) -> Iterator[str]:
    facts = []
    for leaf in leaves:
        home = plan.home(leaf.name)
        dims = dims_of(plan, leaf.name, home.layout)
        facts.append((leaf.name, literal((leaf.shape, home.dtype, leaf.layout, dims))))
    for (_, said), group in groupby(_sorted_by_form(facts), key=lambda fact: (counted_name(fact[0]), fact[1])):
        for row in _entries([name for name, _ in group], said):
            yield " " * indent + row


def joined_rows(plan: ChosenLayout) -> Iterator[str]:
    """By the name of each joined weight, those that it is made of."""
    graph = plan.problem.graph
    chosen = [join for join in plan.problem.joins if plan.strategies[join.nodes[0]].joined is not None]
    groups: dict[str, list[Join]] = {}
    for join in chosen:
        groups.setdefault(counted_name(join.name(graph)), []).append(join)
    for alike in groups.values():
        columns = list(zip(*([weight.name for weight in join.weights(graph)] for join in alike), strict=True))
        patterns = [pattern_of(names) for names in columns]
        known = [pattern for pattern in patterns if pattern is not None]
        if len(known) == len(columns) and len({pattern.first for pattern in known}) == 1:
            said = ", ".join(pattern.f_string() for pattern in known)
            yield from (f"    {row}" for row in _entries([join.name(graph) for join in alike], f"({said})"))
        else:
            names = ([weight.name for weight in join.weights(graph)] for join in alike)
            yield from (f"    {quoted(j.name(graph))}: {literal(tuple(n))}," for j, n in zip(alike, names, strict=True))


def output_dims(plan: ChosenLayout, number: int) -> tuple[int | None, ...]:
    return dims_of(plan, plan.problem.graph.values[number].name, plan.left(number))


def _sorted_by_form(facts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names that count follow each other, at the place of the first."""
    places: dict[tuple[str, str], int] = {}
    for name, said in facts:
        places.setdefault((counted_name(name), said), len(places))
    return sorted(facts, key=lambda fact: places[counted_name(fact[0]), fact[1]])


def _entries(names: list[str], said: str) -> Iterator[str]:
    pattern = pattern_of(names)
    if pattern is None:
        for name in names:
            yield f"{quoted(name)}: {said},"
        return
    span = f"range({pattern.first}, {pattern.first + len(names)})" if pattern.first else f"range({len(names)})"
    yield f"**{{{pattern.f_string()}: {said} for i in {span}}},"


def dims_of(plan: ChosenLayout, name: str, layout: Layout) -> tuple[int | None, ...]:
    """What `mapper` takes; TT-NN cuts a dim along one axis or along all."""
    dims = tuple(word.dim if isinstance(word, Shard) else None for word in layout)
    shared = [dim for dim in dims if dim is not None]
    several = sum(n > 1 for n in plan.mesh_shape)
    if len(set(shared)) < len(shared) and not (len(set(shared)) == 1 and len(shared) == several):
        raise NotModelled(
            f"softmesh.plan: {name} is split along one dim by some of the axes of {plan.mesh_shape}, which TT-NN's "
            "mappers do along one axis or along all: pin its placement, or plan for a mesh of two axes."
        )
    return dims
