"""The calls of a plan in the order in which they run: public ops of TT-NN on symbols, collectives between them.

A unified op's own description of a call is asked for the op as the plan splits it, and given symbols for tensors; the
calls that it makes of them are written down. Nothing runs, and no mesh need be open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.dispatch.operation import OPERATIONS
from softmesh.distributed.images import COUNT
from softmesh.distributed.layouts import Extents, Layout, Value
from softmesh.distributed.redistribution import Step
from softmesh.distributed.split_choices import Split
from softmesh.errors import NotModelled
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, L1_MEMORY_CONFIG
from softmesh.placement.placements import Shard
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.handed_activations import INPUT_ACTIVATIONS, activations_behind, takes_over
from softmesh.planner.joined_products import Join
from softmesh.planner.op_graph import GraphNode, OpGraph, ValueRef
from softmesh.planner.op_strategies import OpStrategy, StrategyFinder, splits_of
from softmesh.planner.placement_problem import Move
from softmesh.planner.program.plain_ops import PLAIN_OPS, as_public, is_part_of_a_function, not_public
from softmesh.planner.program.plain_steps import take_step
from softmesh.planner.program.symbols import Extent, StandIn, Symbol
from softmesh.value_free import without_values

BEFORE_ALL = -1  # the node of what is done before the first


@dataclass(frozen=True)
class PlanCall:
    op: EntryPoint
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Symbol, ...]
    node: int  # of the graph: the one that is computed, or that needs what is moved
    step: Step | None = None  # of a move
    is_listed: bool = False  # whether the call returns a list, of one result too
    is_in_l1: bool = False  # whether its results are


@dataclass(frozen=True)
class PlanCalls:
    calls: tuple[PlanCall, ...]
    leaves: dict[Symbol, int]  # the values that are there before
    given: tuple[Symbol, ...]  # what earlier nodes have made
    masks: dict[Symbol, tuple[int, Any]]  # 1 on the first device along an axis and 0 on the others; and their dtype
    outputs: tuple[Symbol, ...]

    @cached_property
    def last_uses(self) -> dict[Symbol, PlanCall | None]:
        """The last call that reads each tensor, or makes it where none does; None of what is left to the caller."""
        found: dict[Symbol, PlanCall | None] = {}
        for call in self.calls:
            read = (value for value in _flat((call.args, call.kwargs)) if isinstance(value, Symbol))
            found |= dict.fromkeys((*read, *call.results), call)
        return found | dict.fromkeys(self.outputs)

    @cached_property
    def used(self) -> frozenset[Symbol]:
        """What anybody reads."""
        read = (value for call in self.calls for value in _flat((call.args, call.kwargs)))
        return frozenset(value for value in read if isinstance(value, Symbol)) | {*self.outputs}


class Part(NamedTuple):
    """Of a graph: some of its nodes, what they have from nodes before, and what they leave to the caller."""

    first: int  # node
    end: int  # the node after the last
    given: tuple[int, ...]  # values
    left: tuple[int, ...]  # values


def calls_of(
    plan: ChosenLayout, hoisted: Callable[[Move], bool] = lambda move: False, part: Part | None = None
) -> PlanCalls:
    """`hoisted` tells which moves are made as soon as a value is there; without a part it is all of the plan."""
    graph = plan.problem.graph
    return _Writer(plan, hoisted).written(part or Part(0, len(graph.nodes), (), graph.outputs))


class OpForm(NamedTuple):
    call: Callable[..., Any]  # of operands that lie as the split needs them
    is_listed: bool  # whether the op returns a list
    after: Callable[[Any], Any] | None = None  # the activation that `call` leaves out where it gives contributions


class OpForms:
    """Unified ops as a plan splits them: functions of operands that lie as the split needs them."""

    def __init__(self, mesh: Extents, chip: Any, lines: Any) -> None:
        self._finder = StrategyFinder(mesh, chip, lines)
        self._known: dict[tuple[int, Any], OpForm] = {}

    def form(self, graph: OpGraph, node: GraphNode, strategy: OpStrategy) -> OpForm:
        key = _key(graph, node)
        found = self._known.get((id(strategy), key))
        if found is None:
            with without_values():
                given, options = self._finder.described(graph, node)
                splits = splits_of(given, options, gives_parts=strategy.bare is not None)
                split = next(split for split in splits if _is_taken(split, strategy, node))
            found = OpForm(options.call(split), given.container is not None, options.after)
            self._known[id(strategy), key] = found
        return found


def _is_taken(split: Split, strategy: OpStrategy, node: GraphNode) -> bool:
    names = tuple(choice.name for choice in split.choices)
    needs = tuple(split.needs(i) for i in range(len(node.operands)))
    return (names, needs, split.gives) == (strategy.split_names, strategy.needs, strategy.bare or strategy.gives[0])


class _Writer:
    def __init__(self, plan: ChosenLayout, hoisted: Callable[[Move], bool]) -> None:
        self._plan, self._graph, self._problem = plan, plan.problem.graph, plan.problem
        self._hoisted = hoisted
        self._forms = OpForms(plan.mesh_shape, plan.problem.chip, plan.problem.lines)
        self._calls: list[PlanCall] = []
        self._leaves: dict[Symbol, int] = {}
        self._masks: dict[tuple[int, Any], Symbol] = {}
        self._symbols: dict[tuple[int, Layout], Symbol] = {}
        self._node: GraphNode | None = None
        self._is_listed = False
        self._at = BEFORE_ALL
        self._step: Step | None = None
        self._is_in_l1: set[Symbol] = set()
        self._wants_l1: bool | None = None  # of what is called now; None: nothing is said
        self._joins = {number: join for join in plan.problem.joins for number in join.nodes}
        self._products: dict[Join, Symbol] = {}  # that several nodes have their parts of

    def written(self, part: Part) -> PlanCalls:
        graph, plan = self._graph, self._plan
        for leaf in graph.leaves:
            symbol = self._symbols[leaf.number, plan.home(leaf.name).layout] = Symbol(leaf.name)
            self._leaves[symbol] = leaf.number
        given = tuple(Symbol(graph.nodes[graph.makers[n]].op.rpartition(".")[2]) for n in part.given)
        self._symbols.update({(n, self._given(n)): one for n, one in zip(part.given, given, strict=True)})
        with intercepting(self._called):
            for number in (*(leaf.number for leaf in graph.leaves), *part.given):
                self._hoist(number, part)
            for node in graph.nodes[part.first : part.end]:
                self._at = node.number
                self._compute(node)
                for number in node.results:
                    self._hoist(number, part)
            self._at = part.end
            outputs = tuple(self._left(number) for number in part.left)
        masks = {symbol: key for key, symbol in self._masks.items()}
        return PlanCalls(tuple(self._calls), self._leaves, given, masks, outputs)

    @cached_property
    def _early(self) -> dict[int, list[Move]]:
        """By value: moves that are made as soon as it is there."""
        found: dict[int, list[Move]] = {}
        for move in self._plan.cost.moves:
            if self._hoisted(move):
                found.setdefault(move.value, []).append(move)
        return found

    def _hoist(self, number: int, part: Part) -> None:
        for move in self._early.get(number, ()):
            if any(part.first <= node < part.end for node in move.consumers):
                self._moved(number, move.end)

    def _compute(self, node: GraphNode) -> None:
        strategy = self._problem.strategies[node.number][self._plan.assignment.strategies[node.number]]
        if strategy.joined is not None:
            self._symbols[node.results[0], strategy.gives[0]] = self._part(node, strategy)
            return
        operands = [self._moved(v, need) for v, need in zip(node.operands, strategy.needs, strict=True)]
        self._node = node
        form = self._forms.form(self._graph, node, strategy)
        self._is_listed = form.is_listed
        left = zip(node.results, strategy.gives, strict=True)
        self._wants_l1 = None if node.writes else any(self._stays_in_l1(number, layout) for number, layout in left)
        if strategy.bare is not None:
            self._wants_l1 = self._stays_in_l1(node.results[0], strategy.bare)
        made = form.call(*operands)
        if strategy.bare is not None:
            made = self._activated(node, strategy, made, form.after)
        self._node = self._wants_l1 = None
        if node.writes:
            made = [operands[place] for place in node.writes]
        results = list(made) if isinstance(made, list | tuple) else [made]
        for number, gives, symbol in zip(node.results, strategy.gives, results, strict=True):
            self._symbols[number, gives] = symbol

    def _part(self, node: GraphNode, strategy: OpStrategy) -> Symbol:
        """The result of a node that is a slice of one product with several weights; the first node does that."""
        graph, join, (gives,) = self._graph, self._joins[node.number], strategy.gives
        form = self._forms.form(graph, node, strategy)
        if join not in self._products:
            self._products[join] = self._product(join, strategy, self._moved(node.operands[0], strategy.needs[0]))
        start = sum(join.widths(graph)[: join.nodes.index(node.number)])
        whole = graph.values[node.results[0]].shape
        pieces = [local_extents((*whole[:-1], n), gives) for n in (start, start + whole[-1])]
        self._wants_l1 = self._stays_in_l1(node.results[0], gives)
        starts = [*(0 for _ in whole[:-1]), pieces[0][-1] if start else 0]
        made: Symbol = OPERATIONS["slice"](self._products[join], starts, [*pieces[1]])
        made = form.after(made) if strategy.behind and form.after is not None else made
        self._wants_l1 = None
        return made

    def _product(self, join: Join, strategy: OpStrategy, operand: Symbol) -> Symbol:
        """The product, summed."""
        graph, problem, leader = self._graph, self._problem, self._graph.nodes[join.leader]
        weight, bare = Symbol(join.name(graph)), strategy.bare
        assert bare is not None
        self._leaves[weight] = join.weights(graph)[0].number
        value = join.product(graph, problem.mesh_shape, problem.l1_limits)
        self._node, self._wants_l1 = leader, value.is_in_l1(bare)
        made: Symbol = self._forms.form(graph, leader, strategy).call(operand, weight)
        self._node = None
        return self._taken(strategy.inside, made, value, graph.values[leader.results[0]].dtype, bare)

    def _given(self, number: int) -> Layout:
        return self._problem.given(self._plan.assignment, number).layout

    def _moved(self, number: int, end: Layout) -> Symbol:
        """The value in this layout, brought there where it is not."""
        symbol = self._symbols.get((number, end))
        if symbol is not None:
            return symbol
        start, dtype = self._given(number), self._problem.given(self._plan.assignment, number).dtype
        way = self._problem.way(number, dtype, start, end)
        assert way is not None
        value, made = self._problem.value(number, dtype), self._symbols[number, start]
        symbol = self._symbols[number, end] = self._taken(way.steps, made, value, dtype, start)
        return symbol

    def _activated(
        self, node: GraphNode, strategy: OpStrategy, made: Symbol, after: Callable[[Any], Any] | None
    ) -> Symbol:
        """The sum of contributions, and what is not linear behind it, where nobody who reads it does that."""
        assert strategy.bare is not None
        assert after is not None
        (number,), dtype = node.results, self._graph.values[node.results[0]].dtype
        made = self._taken(strategy.inside, made, self._problem.value(number, dtype), dtype, strategy.bare)
        self._wants_l1 = self._stays_in_l1(node.results[0], strategy.gives[0])
        return after(made) if strategy.behind else made

    def _taken(self, steps: Sequence[Step], symbol: Symbol, value: Value, dtype: Any, layout: Layout) -> Symbol:
        for step in steps:
            self._step, self._wants_l1 = step, value.is_in_l1(step.after)
            symbol = take_step(step, symbol, value, layout, lambda axis: self._mask(axis, dtype))
            layout = step.after
        self._step = self._wants_l1 = None
        return symbol

    def _mask(self, axis: int, dtype: Any) -> Symbol:
        return self._masks.setdefault((axis, dtype), Symbol(f"first along axis {axis}"))

    def _left(self, number: int) -> Symbol:
        """An output, where the plan leaves it."""
        home = self._plan.assignment.homes.get(number)
        if number in self._problem.homes and home is not None:
            return self._moved(number, self._problem.homes[number][home].layout)
        return self._symbols[number, self._given(number)]

    # -- what is called --------------------------------------------------------------------------

    def _called(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        if not any(isinstance(value, StandIn) for value in _flat((args, kwargs))):
            return proceed(*args, **kwargs)
        if op.name in PLAIN_OPS:
            return PLAIN_OPS[op.name](self._local_shape, *args, **kwargs)
        if op.name == "all_gather":
            rows = args[0].gathered(*args[1:], **kwargs)
            if rows is not None:
                return rows
        where = "" if self._node is None else f"{self._node.op} at {self._node.site}"
        if op.name.startswith("distributed."):
            raise not_public(op.name, where)
        if is_part_of_a_function(op):
            raise NotModelled(
                f"softmesh.plan: {where} is a part of what TT-NN does in one function, and cannot be written into a "
                "file alone: leave it out, or run the plan by `with plan.followed(mesh):`."
            )
        args, kwargs = as_public(op, args, kwargs)
        node = self._node
        is_own = node is not None and op.name == node.op and not node.writes
        if is_own and node is not None:
            kwargs = kwargs | self._taken_over(node)
        is_listed, count = is_own and self._is_listed, len(node.results) if is_own and node is not None else 1
        short = op.name.rpartition(".")[2]
        made = tuple(Symbol(short) for _ in range(count))
        if is_own and op.name == "slice":
            kwargs = self._portable_slice(kwargs)
        if is_own and COUNT in kwargs:
            kwargs = self._portable_count(kwargs)
        kwargs = self._kept_in_l1(op, args, kwargs, made)
        is_in_l1 = made[0] in self._is_in_l1
        self._calls.append(PlanCall(op, args, kwargs, made, self._at, self._step, is_listed, is_in_l1))
        return made if is_listed or count > 1 else made[0]

    def _taken_over(self, node: GraphNode) -> dict[str, Any]:
        """Activations that its operands hand on to it."""
        found = {}
        for place, number in enumerate(node.operands):
            maker = self._graph.makers.get(number)
            if maker is not None and takes_over(self._graph, self._graph.nodes[maker]):
                strategy = self._problem.strategies[maker][self._plan.assignment.strategies[maker]]
                if strategy.bare is not None and not strategy.behind:
                    found[INPUT_ACTIVATIONS[place]] = list(activations_behind(self._graph.nodes[maker]))
        return found

    def _stays_in_l1(self, number: int, layout: Layout) -> bool:
        return self._problem.value(number, self._graph.values[number].dtype).is_in_l1(layout)

    def _kept_in_l1(
        self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], made: tuple[Symbol, ...]
    ) -> dict[str, Any]:
        """The arguments, with L1 for the result, or DRAM where an op might leave it beside its first operand in L1."""
        first = next((value for value in _flat((args, kwargs)) if isinstance(value, Symbol)), None)
        signature = op.definition.signature  # type: ignore[attr-defined]
        at, is_near = signature.memory_config_at, first in self._is_in_l1
        if at is not None and self._wants_l1 is not None:
            if self._wants_l1:
                kwargs = kwargs | {signature.names[at]: L1_MEMORY_CONFIG}
            elif is_near and kwargs.get(signature.names[at]) is None:
                kwargs = kwargs | {signature.names[at]: DRAM_MEMORY_CONFIG}
            is_near = self._wants_l1
        self._is_in_l1.update(made if is_near else ())
        return kwargs

    def _portable_slice(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Its ends in terms of the mesh, where they are those of a piece."""
        node = self._node
        assert node is not None
        layout = self._problem.strategies[node.number][self._plan.assignment.strategies[node.number]].needs[0]
        whole = self._graph.values[node.operands[0]].shape
        piece = self._problem.value(node.operands[0], self._graph.values[node.operands[0]].dtype).local_shape(layout)
        told = local_extents(whole, layout)
        ends = kwargs.get("slice_end")
        if not isinstance(ends, list | tuple) or len(ends) != len(piece):
            return kwargs
        named = [said if end == n else end for end, n, said in zip(ends, piece, told, strict=True)]
        return kwargs | {"slice_end": named}

    def _portable_count(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Of images: in terms of the mesh, where its devices share them."""
        node = self._node
        assert node is not None
        gives = self._problem.strategies[node.number][self._plan.assignment.strategies[node.number]].gives[0]
        axes = tuple(axis for axis, word in enumerate(gives) if isinstance(word, Shard))
        whole = kwargs[COUNT] * math.prod(self._plan.mesh_shape[axis] for axis in axes)
        return kwargs | {COUNT: Extent(whole, axes)} if axes else kwargs

    def _local_shape(self, shape: Extents) -> tuple[Any, ...]:
        """Of the result of the node that is computed now, in terms of the mesh."""
        node = self._node
        if node is None or len(node.results) != 1:
            return shape
        strategy = self._problem.strategies[node.number][self._plan.assignment.strategies[node.number]]
        whole, gives = self._graph.values[node.results[0]].shape, strategy.gives[0]
        return local_extents(whole, gives)


def local_extents(whole: Extents, layout: Layout) -> tuple[Any, ...]:
    """The extents of a device's piece, in terms of the mesh where they depend on it."""
    axes: list[list[int]] = [[] for _ in whole]
    for axis, word in enumerate(layout):
        dim = getattr(word, "dim", None)
        if dim is not None:
            axes[dim].append(axis)
    return tuple(Extent(n, tuple(own)) if own else n for n, own in zip(whole, axes, strict=True))


def _key(graph: OpGraph, node: GraphNode) -> str:
    """The arguments, with what is known of values in their places."""
    return repr((node.op, [_told(graph, value) for value in node.bound]))


def _told(graph: OpGraph, value: Any) -> Any:
    if isinstance(value, ValueRef):
        known = graph.values[value.number]
        return (known.shape, known.dtype, known.layout)
    return [_told(graph, item) for item in value] if isinstance(value, list | tuple) else value


def _flat(nest: Any) -> Iterator[Any]:
    if isinstance(nest, list | tuple):
        for item in nest:
            yield from _flat(item)
    elif isinstance(nest, dict):
        for item in nest.values():
            yield from _flat(item)
    else:
        yield nest
