"""Strategies of an op of a graph: the ways to split its work over the axes of a mesh, what each needs, gives, takes.

They are those of the unified op of the same name (`softmesh.distributed`), asked with whole blank tensors; what they
cost is priced as the commands of a running program are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from softmesh.cost.command_cost import Bound, CommandCost
from softmesh.cost.link_costs import Line
from softmesh.cost.op_workloads import OpCall
from softmesh.cost.pricing import price
from softmesh.dispatch.operation import OPERATIONS
from softmesh.distributed.call_description import CallDescription, blank_tensor
from softmesh.distributed.generic_ops import unified
from softmesh.distributed.layouts import Extents, Layout, is_whole
from softmesh.distributed.redistribution import Step, routes
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, Split, without_partial_results
from softmesh.distributed.split_prices import piece_spec
from softmesh.distributed.unified_op import Unified
from softmesh.errors import NotModelled, SoftmeshError
from softmesh.hardware.activation import UnaryWithParam
from softmesh.hardware.enums import DataType
from softmesh.placement.placements import Partial, Shard
from softmesh.planner.op_graph import GraphNode, OpGraph, ValueRef
from softmesh.systems.chip import Chip
from softmesh.tensor.dtype import facts
from softmesh.tensor.spec import TensorSpec

# Splits of unified ops that no public op of TT-NN does: their ops are softmesh's own.
RING_OF_KEYS = "ring of keys"
_OWN = {"split rows", "split queries", RING_OF_KEYS}
OPS_WITH_OWN_SPLITS = ("embedding", "transformer.scaled_dot_product_attention")


@dataclass(frozen=True)
class OpStrategy:
    """`dtypes` has one for each operand: that of the graph, or another one that a weight may be kept in."""

    split_names: tuple[str, ...]  # what the devices along each axis split
    needs: tuple[Layout, ...]  # for each operand
    gives: tuple[Layout, ...]  # for each result
    seconds: float  # of the work on a device
    inside: tuple[Step, ...]  # what is exchanged in the midst of it
    held_bytes: int  # beside operands and results
    is_plain: bool  # whether public ops of TT-NN do it
    dtypes: tuple[DataType, ...]
    bound: Bound = Bound.DISPATCH  # what the work waits for
    bare: Layout | None = None  # of the result before the steps `inside`, where they are followed by activations
    behind: tuple[UnaryWithParam, ...] = ()  # those activations; none where they are handed on to who reads the result
    joined: int | None = None  # as a part of one product with other weights: the number that all its parts have

    @property
    def launches(self) -> int:
        """Ops beside the work itself."""
        return sum(step.launches for step in self.inside)

    @property
    def total_seconds(self) -> float:
        return self.seconds + sum(step.cost.seconds for step in self.inside)


class StrategyFinder:
    """For ops on one mesh; equal calls have the same strategies."""

    def __init__(self, mesh_shape: Extents, chip: Chip, lines: tuple[Line, ...]) -> None:
        self.mesh_shape, self.chip, self.lines = mesh_shape, chip, lines
        self._known: dict[Any, tuple[OpStrategy, ...]] = {}
        self._equal: dict[tuple[OpStrategy, ...], tuple[OpStrategy, ...]] = {}  # one object, by which layers are alike

    def strategies(
        self,
        graph: OpGraph,
        node: GraphNode,
        instead: Mapping[int, DataType] = MappingProxyType({}),
        l1_limits: Mapping[int, int] = MappingProxyType({}),
        *,
        hands_on: bool = False,
    ) -> tuple[OpStrategy, ...]:
        """`instead` has other dtypes for some of its operands: none where the op does not take them.

        `hands_on`: who reads its result can do the activation behind it.
        """
        limits = tuple(l1_limits.get(number, 0) for number in (*node.operands, *node.results))
        key = (
            call_key(graph, node, node.bound),
            tuple(instead.get(number) for number in node.operands),
            limits,
            hands_on,
        )
        found = self._known.get(key)
        if found is None:
            given = graph if not instead else _with_dtypes(graph, instead)
            found = tuple(self._found(given, node, limits, hands_on, is_needed=not instead))
            found = self._known[key] = self._equal.setdefault(found, found)
        return found

    def described(
        self, graph: OpGraph, node: GraphNode, l1_limits: Sequence[int] = ()
    ) -> tuple[CallDescription, SplitOptions]:
        """The unified op's own description of the call: whoever runs a plan asks it for the op as a split has it.

        `l1_limits` has for each operand and result the bytes up to which a piece of it is in L1.
        """
        op = unified(OPERATIONS[node.op])
        assert isinstance(op, Unified)
        whole = [_blank(graph, value) for value in _for_any_size(op, node)]
        try:
            return op.split_options(whole, self.mesh_shape, self.chip, self.lines, l1_limits)
        except NotModelled:
            raise
        except SoftmeshError:  # a memory config, or cores, for one device's shapes
            return op.split_options(_without_tuning(op, whole), self.mesh_shape, self.chip, self.lines, l1_limits)

    def takes(self, graph: OpGraph, node: GraphNode) -> bool:
        """True if the op takes operands of these dtypes, and makes results of those that the graph has."""
        return bool(self.strategies(graph, node, {number: graph.values[number].dtype for number in node.operands}))

    def _found(
        self, graph: OpGraph, node: GraphNode, l1_limits: Sequence[int], hands_on: bool, *, is_needed: bool
    ) -> Iterator[OpStrategy]:
        try:
            given, options = self.described(graph, node, l1_limits)
        except SoftmeshError:
            if is_needed:
                raise
            return
        if any(spec.dtype is not graph.values[n].dtype for spec, n in zip(given.results, node.results, strict=False)):
            return
        best: dict[tuple[Any, ...], OpStrategy] = {}
        for split in splits_of(given, options):
            strategy = _strategy(given, options, node, split)
            if all(strategy.needs[place] == split.gives for place in node.writes):
                _keep_best(best, strategy)
        if options.behind and len(node.results) == 1:
            for strategy in self._reduced_first(given, options, node, hands_on=hands_on):
                _keep_best(best, strategy)
        yield from best.values()

    def _reduced_first(
        self,
        given: CallDescription,
        options: SplitOptions,
        node: GraphNode,
        *,
        hands_on: bool,
    ) -> Iterator[OpStrategy]:
        """Contributions to a sum, which is made before the activation."""
        spec = given.result
        result = replace(given.made[0], form=spec.layout)
        behind = () if hands_on else options.behind
        for split in splits_of(given, options, gives_parts=True):
            if is_whole(split.gives):
                continue
            bare = _strategy(given, options, node, split)
            for end, way in routes(result, self.lines, is_traced=True).ways_from(split.gives).items():
                if is_sum_of(end, split.gives):
                    piece = piece_spec(spec, result, end)
                    activated = [activation_seconds(self.chip, piece)] * len(behind)
                    yield replace(
                        bare,
                        gives=(end,),
                        seconds=bare.seconds + sum(activated),
                        inside=(*bare.inside, *way.steps),
                        bare=split.gives,
                        behind=behind,
                    )


def is_sum_of(end: Layout, parts: Layout) -> bool:
    """True if contributions were summed to get there, and nothing else was moved: that can be done later."""
    return is_whole(end) and all(
        word == before or isinstance(before, Partial) for word, before in zip(end, parts, strict=True)
    )


def _keep_best(best: dict[tuple[Any, ...], OpStrategy], strategy: OpStrategy) -> None:
    key = (strategy.needs, strategy.gives, strategy.is_plain)
    known = best.get(key)
    if known is None or strategy.total_seconds < known.total_seconds:
        best[key] = strategy


def _strategy(given: CallDescription, options: SplitOptions, node: GraphNode, split: Split) -> OpStrategy:
    work = options.price(given, split)
    return OpStrategy(
        tuple(choice.name for choice in split.choices),
        tuple(split.needs(i) for i in range(len(given.operands))),
        (split.gives,) * len(node.results),
        work.seconds,
        () if options.inside is None else options.inside(split),
        _passing_bytes(given, split),
        not any(choice.name in _OWN for choice in split.choices),
        tuple(operand.dtype for operand in given.operands),
        work.bound,
    )


def activation_seconds(chip: Chip, piece: TensorSpec) -> float:
    return price_on_piece("unary_chain", chip, piece, piece).seconds


def price_on_piece(op: str, chip: Chip, operand: TensorSpec, result: TensorSpec) -> CommandCost:
    """Return the price of an op of one operand, which is added to those of the program."""
    known = OPERATIONS[op].definition
    flops = known.cost([operand], [result]).flops
    return price(OpCall(op, known.kind, (operand,), (result,), {}, flops), chip)


def splits_of(given: CallDescription, options: SplitOptions, *, gives_parts: bool = False) -> Iterator[Split]:
    """One choice for each axis, of those whose pieces are even and that the op takes.

    `gives_parts`: also those that leave contributions before an activation.
    """
    first = options.choices[0]
    per_axis: Any = [options.choices] * len(given.mesh) if isinstance(first, Choice) else options.choices
    cuts = any(o.is_float for o in given.operands) and not facts(given.result.dtype).is_float
    drops = cuts or (options.after is not None and not gives_parts)
    open_choices = []
    for n, choices in zip(given.mesh, per_axis, strict=True):
        left = without_partial_results(choices) if drops else choices
        open_choices.append([c for c in left if _divides(given, c, n)] if n > 1 else [choices[0]])
    for chosen in product(*open_choices):
        split = Split(given.mesh, tuple(chosen))
        fits = all(value.can_be(split.needs(i)) for i, value in enumerate(given.values))
        fits = fits and all(result.can_be(split.gives) for result in given.made)
        if fits and (options.is_true is None or options.is_true(split)):
            yield split


def _divides(given: CallDescription, choice: Choice, devices: int) -> bool:
    words = [*zip(given.values, choice.needs, strict=True), *((result, choice.gives) for result in given.made)]
    return all(value.shape[word.dim] % devices == 0 for value, word in words if isinstance(word, Shard))


def _passing_bytes(given: CallDescription, split: Split) -> int:
    """Room for the block of keys and values that comes in while a device works on another."""
    if not split.axes(RING_OF_KEYS):
        return 0
    return sum(given.values[place].bytes_on_each(split.needs(place)) for place in (1, 2))


def _with_dtypes(graph: OpGraph, instead: Mapping[int, DataType]) -> OpGraph:
    values = (replace(v, dtype=instead[v.number]) if v.number in instead else v for v in graph.values)
    return replace(graph, values=tuple(values))


def _blank(graph: OpGraph, value: Any) -> Any:
    if isinstance(value, ValueRef):
        known = graph.values[value.number]
        return blank_tensor(known.shape, known.dtype, known.layout)
    return [_blank(graph, item) for item in value] if isinstance(value, list | tuple) else value


def _for_any_size(op: Unified, node: GraphNode) -> list[Any]:
    """The arguments without the program config of a product, which is for the whole: its activation is the op's own."""
    names, bound = op.plain.definition.signature.names, list(node.bound)
    if "program_config" not in names or "activation" not in names:
        return bound
    config, activation = names.index("program_config"), names.index("activation")
    fused = None if bound[config] is None else bound[config].activation
    if fused is not None and bound[activation] is not None:
        raise NotModelled(
            f"softmesh.plan: {node.op} at {node.site} has an activation, and its program config another: leave one to "
            "an op of its own."
        )
    bound[config], bound[activation] = None, bound[activation] if fused is None else fused
    return bound


def _without_tuning(op: Unified, whole: list[Any]) -> list[Any]:
    signature = op.plain.definition.signature
    dropped = {signature.memory_config_at, *signature.tuning_at}
    for at, name in enumerate(signature.names):
        if name == "compute_kernel_config" or getattr(whole[at], "activation", None) is not None:
            dropped.discard(at)  # it is of what is computed
    return [signature.defaults[at] if at in dropped else value for at, value in enumerate(whole)]


def call_key(graph: OpGraph, node: GraphNode, value: Any) -> Any:
    if value is node.bound:
        return (node.op, node.writes, node.is_view, len(node.results), *(call_key(graph, node, v) for v in value))
    if isinstance(value, ValueRef):
        known = graph.values[value.number]
        return (known.shape, known.dtype, known.layout)
    if isinstance(value, list | tuple):
        return tuple(call_key(graph, node, item) for item in value)
    return (type(value), repr(value))
