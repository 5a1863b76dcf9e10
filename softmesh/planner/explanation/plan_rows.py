"""The rows of a plan's tables: an op with what is sent before it, a tensor with where it lies; layers that are alike
are one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from softmesh.distributed.layouts import Layout
from softmesh.distributed.redistribution import Step
from softmesh.placement.placements import Partial, Shard
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.layer_spans import layer_spans
from softmesh.planner.op_graph import GraphNode, Role
from softmesh.planner.placement_problem import Move
from softmesh.planner.program.leaf_patterns import counted_name, leaf_word


class Sent(NamedTuple):
    """A collective that the plan inserts."""

    what: str  # all_reduce(axis 1) of matmul 3
    axis: int
    bytes_per_link: int
    seconds: float


class Laid(NamedTuple):
    """A tensor as it lies."""

    name: str
    shape: tuple[int, ...]
    layout: Layout


class OpRow(NamedTuple):
    layer: str  # "0-31", "" outside of layers
    layers: int  # that have it
    op: str
    reads: str  # the weights and caches among its operands
    site: str
    placement: str  # what the devices along each axis share
    sent: tuple[Sent, ...]
    seconds: float  # of the work, without what is sent
    memory: int  # bytes on each device while it runs; the most of all layers
    kept: tuple[Laid, ...]  # the weights and caches that it reads, as it needs them
    result: Laid

    @property
    def total_seconds(self) -> float:
        """Of one layer."""
        return self.seconds + sum(one.seconds for one in self.sent)


class TensorRow(NamedTuple):
    name: str  # with # for the number of a layer
    layers: int  # that have one
    role: str
    shape: tuple[int, ...]
    dtype: str
    layout: Layout
    bytes_on_each: int  # of all of them


def op_rows(plan: ChosenLayout) -> list[OpRow]:
    sent = _sent_before(plan)
    rows = [_op_row(plan, node, sent.get(node.number, ())) for node in plan.problem.graph.nodes]
    found: list[OpRow] = []
    spans = layer_spans(plan.problem)
    at, number = 0, 0
    while at < len(rows):
        span = spans[number] if number < len(spans) else None
        if span is None or at < span[0]:
            found.append(rows[at])
            at += 1
            continue
        alike = number
        while alike + 1 < len(spans) and _alike(rows, span, spans[alike + 1]):
            alike += 1
        found += _together(rows, spans[number : alike + 1], number)
        at, number = spans[alike][1], alike + 1
    return [*found, *_returned(plan, sent.get(len(rows), ()))]


def _returned(plan: ChosenLayout, sent: Sequence[Sent]) -> Iterator[OpRow]:
    """What is done to outputs for the caller."""
    graph = plan.problem.graph
    if sent:
        number, mesh = graph.outputs[0], plan.mesh_shape
        left = Laid("", graph.values[number].shape, plan.left(number))
        where, held = placed(left.layout, mesh), plan.cost.memory[-1]
        yield OpRow("", 1, "returned", "", "", where, tuple(sent), 0.0, held, (), left)


def _op_row(plan: ChosenLayout, node: GraphNode, sent: Sequence[Sent]) -> OpRow:
    problem, graph = plan.problem, plan.problem.graph
    strategy = problem.strategies[node.number][plan.assignment.strategies[node.number]]
    inside = [_sent(step, f"within {_short(node.op)}") for step in strategy.inside]
    kept = [
        Laid(leaf_word(counted_name(root.name)), root.shape, layout)
        for n, layout in zip(node.operands, strategy.needs, strict=True)
        if (root := graph.values[graph.root(n)]).role in (Role.WEIGHT, Role.CACHE)
    ]
    split = zip(plan.mesh_shape, strategy.split_names, strict=True)
    words = [f"axis {at}: {_first(name)}" for at, (n, name) in enumerate(split) if n > 1 and name != "all"]
    if strategy.joined is not None:
        words += [f"part of {leaf_word(join.name(graph))}" for join in problem.joins if node.number in join.nodes]
    return OpRow(
        "",
        1,
        _short(node.op),
        ", ".join(dict.fromkeys(one.name for one in kept)),
        node.site,
        ", ".join(words) or "all on every device",
        (*sent, *inside),
        strategy.seconds,
        plan.cost.memory[node.number],
        tuple(kept),
        Laid("", graph.values[node.results[0]].shape, strategy.gives[0]),
    )


def _first(split_name: str) -> str:
    """What is split of the first operand that is; the others follow."""
    first, *others = split_name.split(", ")
    return f"{first} ..." if others else first


def _sent_before(plan: ChosenLayout) -> dict[int, tuple[Sent, ...]]:
    """By the node that needs it first; what only the caller needs, behind the last node."""
    found: dict[int, tuple[Sent, ...]] = {}
    for move in plan.cost.moves:
        node = min(move.consumers, default=len(plan.problem.graph.nodes))
        found[node] = (*found.get(node, ()), *_of_move(plan, move))
    return found


def _of_move(plan: ChosenLayout, move: Move) -> Iterator[Sent]:
    graph = plan.problem.graph
    maker = graph.makers.get(move.value)
    what = counted_name(graph.values[move.value].name) if maker is None else _short(graph.nodes[maker].op)
    for step in move.way.steps:
        if step.travels or step.cost.seconds:
            yield _sent(step, f"of {what}")


def _sent(step: Step, of: str) -> Sent:
    return Sent(f"{step} {of}", step.axis, step.cost.bytes_per_link, step.cost.seconds)


def _alike(rows: Sequence[OpRow], span: tuple[int, int], other: tuple[int, int]) -> bool:
    mine, theirs = (rows[first:end] for first, end in (span, other))
    return len(mine) == len(theirs) and all(
        (a.op, a.reads, a.placement, a.sent) == (b.op, b.reads, b.placement, b.sent)
        for a, b in zip(mine, theirs, strict=True)
    )


def _together(rows: Sequence[OpRow], spans: Sequence[tuple[int, int]], number: int) -> Iterator[OpRow]:
    (first, end), count = spans[0], len(spans)
    layer = str(number) if count == 1 else f"{number}-{number + count - 1}"
    for at in range(end - first):
        several = [rows[start + at] for start, _ in spans]
        yield several[0]._replace(layer=layer, layers=count, memory=max(row.memory for row in several))


def tensor_rows(plan: ChosenLayout) -> list[TensorRow]:
    problem = plan.problem
    found: dict[tuple[object, ...], TensorRow] = {}
    for leaf in problem.graph.leaves:
        layout, dtype = problem.given(plan.assignment, leaf.number)
        size = problem.held_bytes(leaf.number, dtype, layout)
        row = TensorRow(counted_name(leaf.name), 1, leaf.role.value, leaf.shape, dtype.name.lower(), layout, size)
        key = row[:1] + row[2:6]
        known = found.get(key)
        more = (
            row if known is None else known._replace(layers=known.layers + 1, bytes_on_each=known.bytes_on_each + size)
        )
        found[key] = more
    return list(found.values())


def placed(layout: Layout, mesh: Sequence[int]) -> str:
    """
    >>> placed((Shard(0), Shard(1)), (1, 8))
    'dim 1 over axis 1'
    """
    words = [
        f"dim {word.dim} over axis {axis}" if isinstance(word, Shard) else f"parts of a sum along axis {axis}"
        for axis, (n, word) in enumerate(zip(mesh, layout, strict=True))
        if n > 1 and isinstance(word, Shard | Partial)
    ]
    return ", ".join(words) or "on every device"


def _short(op: str) -> str:
    return op.rpartition(".")[2]
