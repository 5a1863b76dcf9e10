"""Products of one value with several weights, done as one: each device has its pieces of the weights side by side.

One launch and one sum take the place of several; every result is then a slice of the product. That is a strategy of
each op: the first does the product, and either all of them are done so or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from softmesh.cost.link_costs import Line
from softmesh.dispatch.operation import OPERATIONS, factors_of
from softmesh.distributed.layouts import Layout, Value, bits, is_whole
from softmesh.distributed.redistribution import HERE, Way, routes
from softmesh.distributed.split_prices import piece_spec
from softmesh.hardware.enums import DataType
from softmesh.hardware.enums import Layout as TensorLayout
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.placement.placements import Partial, Shard
from softmesh.planner.handed_activations import activations_behind, takes_over
from softmesh.planner.op_graph import GraphNode, GraphValue, OpGraph, Role, ValueRef
from softmesh.planner.op_strategies import (
    OpStrategy,
    StrategyFinder,
    activation_seconds,
    call_key,
    is_sum_of,
    price_on_piece,
)
from softmesh.planner.program.leaf_patterns import leaf_word
from softmesh.tensor.dtype import TILE_SIZE
from softmesh.tensor.spec import make_spec


class Join(NamedTuple):
    """Nodes that may be one product. The call of the `leader`, which has no activation, stands for all of them."""

    nodes: tuple[int, ...]
    leader: int

    def weights(self, graph: OpGraph) -> list[GraphValue]:
        return [graph.values[graph.nodes[number].operands[1]] for number in self.nodes]

    def widths(self, graph: OpGraph) -> list[int]:
        return [weight.shape[-1] for weight in self.weights(graph)]

    def name(self, graph: OpGraph) -> str:
        """The name of the joined weight: `layers.0.wq+wk+wv`."""
        first, *others = (weight.name for weight in self.weights(graph))
        return "+".join([first, *map(leaf_word, others)])

    def product(self, graph: OpGraph, mesh: tuple[int, ...], l1_limits: Mapping[int, int]) -> Value:
        """The results side by side. The product may stay in L1 where all of its slices may."""
        results = [graph.values[graph.nodes[number].results[0]] for number in self.nodes]
        limit = min(l1_limits.get(one.number, 0) for one in results)
        shape = (*results[0].shape[:-1], sum(self.widths(graph)))
        return Value(shape, bits(results[0].dtype), mesh, form=results[0].layout, l1_limit=limit)


def joins_of(graph: OpGraph) -> Iterator[Join]:
    for alike in products_of_one_value(graph):
        leader = next((node.number for node in alike if not _given(node).get("activation")), None)
        if leader is not None:
            yield Join(tuple(node.number for node in alike), leader)


def products_of_one_value(graph: OpGraph) -> Iterator[list[GraphNode]]:
    """Products that read the same value, each with a weight of its own, and that differ in nothing but activations."""
    for uses in graph.consumers.values():
        alike: dict[tuple[Any, ...], list[GraphNode]] = {}
        for node in (graph.nodes[number] for number, place in uses if place == 0):
            if factors_of(node.op) == (0, 1) and _may_be_joined(graph, node):
                alike.setdefault(_kind(graph, node), []).append(node)
        yield from (nodes for nodes in alike.values() if len(nodes) > 1)


def _may_be_joined(graph: OpGraph, node: GraphNode) -> bool:
    given = _given(node)
    if len(node.operands) != 2 or given.get("transpose_b") is not False or given.get("program_config") is not None:
        return False
    weight = graph.values[node.operands[1]]
    is_free = weight.role is Role.WEIGHT and weight.number not in graph.makers and weight.number not in graph.outputs
    is_own = len(graph.consumers[weight.number]) == 1 and len(weight.shape) > 1 and weight.layout is TensorLayout.TILE
    return is_free and is_own and (not given.get("activation") or bool(activations_behind(node)))


def _kind(graph: OpGraph, node: GraphNode) -> tuple[Any, ...]:
    weight, result = graph.values[node.operands[1]], graph.values[node.results[0]]
    signature = OPERATIONS[node.op].definition.signature
    defaults = dict(zip(signature.names, signature.defaults, strict=True))
    told = {
        name: repr(value)
        for name, value in _given(node).items()
        if name != "activation" and value is not defaults[name] and not isinstance(value, ValueRef)
    }
    return weight.shape[:-1], weight.dtype, result.shape[:-1], result.dtype, tuple(sorted(told.items()))


def _given(node: GraphNode) -> dict[str, Any]:
    return dict(zip(OPERATIONS[node.op].definition.signature.names, node.bound, strict=True))


class JoinedStrategies:
    """What a join may do on one mesh, as strategies of its nodes; equal layers have the same."""

    def __init__(
        self,
        graph: OpGraph,
        finder: StrategyFinder,
        dtypes_of: Callable[[GraphValue], Sequence[DataType]],
        l1_limits: Mapping[int, int],
    ) -> None:
        """`dtypes_of` has those that a weight may be kept in."""
        self.joins = tuple(joins_of(graph))
        self._graph, self._finder, self._dtypes_of, self._limits = graph, finder, dtypes_of, l1_limits
        self._joins = {number: join for join in self.joins for number in join.nodes}
        self._known: dict[Any, list[tuple[OpStrategy, ...]]] = {}

    def strategies(self, node: GraphNode) -> tuple[OpStrategy, ...]:
        """Those of a node as a part of its join, with weights in any dtype that all of them may be kept in."""
        join = self._joins.get(node.number)
        if join is None:
            return ()
        graph = self._graph
        nodes = [graph.nodes[number] for number in join.nodes]
        limits = tuple(self._limits.get(number, 0) for one in nodes for number in (*one.operands, *one.results))
        handed = tuple(takes_over(graph, one) for one in nodes)
        each = [self._dtypes_of(weight) for weight in join.weights(graph)]
        dtypes = tuple(dtype for dtype in each[0] if all(dtype in own for own in each))
        key = (tuple(call_key(graph, one, one.bound) for one in nodes), limits, handed, dtypes)
        if key not in self._known:
            parts = [part for dtype in dtypes for part in self._parts(join, dtype)]
            numbered = [[replace(one, joined=at) for one in part] for at, part in enumerate(parts)]
            self._known[key] = list(zip(*numbered, strict=True)) if numbered else [()] * len(nodes)
        return self._known[key][join.nodes.index(node.number)]

    def _parts(self, join: Join, dtype: DataType) -> Iterator[list[OpStrategy]]:
        """One strategy for each node, wherever that is faster than a product for each."""
        graph, leader, at = self._graph, self._graph.nodes[join.leader], len(self._graph.values)
        whole = join.product(graph, self._finder.mesh_shape, self._limits)
        weight = graph.values[leader.operands[1]]
        weight = replace(weight, number=at, shape=(*weight.shape[:-1], whole.shape[-1]))
        result = replace(graph.values[leader.results[0]], number=at + 1, shape=whole.shape)
        refs = {leader.operands[1]: ValueRef(at)}
        bound = tuple(refs.get(v.number, v) if isinstance(v, ValueRef) else v for v in leader.bound)
        node = replace(leader, operands=(leader.operands[0], at), results=(at + 1,), bound=bound)
        wider = replace(graph, values=(*graph.values, weight, result))
        instead = {at: dtype} if dtype is not weight.dtype else {}
        nodes = [graph.nodes[number] for number in join.nodes]
        for product in self._finder.strategies(wider, node, instead, {**self._limits, at + 1: whole.l1_limit}):
            for end, way in _sums(whole, product.gives[0], self._finder.lines).items():
                slices = [part for one in nodes if (part := self._slice(one, product, whole, end)) is not None]
                if len(slices) < len(nodes):
                    continue
                first = replace(
                    slices[0], seconds=slices[0].seconds + product.seconds, inside=way.steps, bound=product.bound
                )
                together = [first, *slices[1:]]
                alone = sum(self._seconds_alone(one, product, end) for one in nodes)
                if sum(one.total_seconds for one in together) < alone:
                    yield together

    def _slice(self, node: GraphNode, product: OpStrategy, whole: Value, end: Layout) -> OpStrategy | None:
        """Its part of a product that is summed; None where a device's pieces are no whole tiles."""
        mine, parts = self._graph.values[node.results[0]], product.gives[0]
        value, weight = self._value(node.results[0]), self._value(node.operands[1])
        pieces = [(weight, product.needs[1]), (value, parts), (value, end)]
        if not all(one.can_be(layout) and one.local_shape(layout)[-1] % TILE_SIZE == 0 for one, layout in pieces):
            return None
        spec = make_spec(mine.shape, mine.dtype, mine.layout, DRAM_MEMORY_CONFIG)
        chip, piece = self._finder.chip, piece_spec(spec, value, end)
        work = price_on_piece("slice", chip, piece_spec(spec, whole, end), piece)
        behind = () if takes_over(self._graph, node) else activations_behind(node)
        return replace(
            product,
            gives=(end,),
            seconds=work.seconds + len(behind) * activation_seconds(chip, piece),
            held_bytes=whole.held_on_each(end),
            bound=work.bound,
            bare=parts,
            behind=behind,
        )

    def _seconds_alone(self, node: GraphNode, product: OpStrategy, end: Layout) -> float:
        """What a product of its own takes that is split the same way."""
        graph, (weight, dtype) = self._graph, (node.operands[1], product.dtypes[1])
        instead = {weight: dtype} if dtype is not graph.values[weight].dtype else {}
        hands_on, value = takes_over(graph, node), self._value(node.results[0])
        found = []
        for one in self._finder.strategies(graph, node, instead, self._limits, hands_on=hands_on):
            ways = {one.gives[0]: HERE} | routes(value, self._finder.lines, is_traced=True).ways_from(one.gives[0])
            if one.needs == product.needs and end in ways:
                found.append(one.total_seconds + ways[end].seconds)
        return min(found, default=0.0)

    def _value(self, number: int) -> Value:
        value, mesh = self._graph.values[number], self._finder.mesh_shape
        return Value(value.shape, bits(value.dtype), mesh, form=value.layout, l1_limit=self._limits.get(number, 0))


def _sums(product: Value, parts: Layout, lines: tuple[Line, ...]) -> dict[Layout, Way]:
    """The layouts in which each device has its pieces of all results, and the ways there."""
    if is_whole(parts):
        return {parts: HERE}
    last, along = len(product.shape) - 1, {axis for axis, word in enumerate(parts) if isinstance(word, Partial)}
    return {
        end: way
        for end, way in routes(product, lines, is_traced=True).ways_from(parts).items()
        if is_sum_of(end, parts)
        and all(step.axis in along for step in way.steps)
        and not any(end[axis] == Shard(last) for axis in along)
    }
