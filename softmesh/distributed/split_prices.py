"""The price of a split: that of the op, on the pieces that each device works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from softmesh.cost.command_cost import CommandCost
from softmesh.cost.op_workloads import OpCall
from softmesh.cost.pricing import price
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import CostRule, Local
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.layouts import Extents, Layout, Value
from softmesh.distributed.split_choices import Split
from softmesh.errors import SoftmeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, L1_MEMORY_CONFIG
from softmesh.tensor.footprint import keeps_pages
from softmesh.tensor.spec import TensorSpec, make_spec

Told = Callable[[Split], dict[str, Any]]  # the arguments that a device is given in the place of those of the whole
WorksOn = Callable[[Split], Sequence[Layout]]


def split_price(
    given: CallDescription, split: Split, told: Told | None = None, works_on: WorksOn | None = None
) -> CommandCost:
    """`works_on`: how the operands lie that a device works on, where it sees more than its own pieces."""
    needs = [split.needs(i) for i in range(len(given.operands))] if works_on is None else works_on(split)
    operands = tuple(
        piece_spec(operand.spec, value, need)
        for operand, value, need in zip(given.operands, given.values, needs, strict=True)
    )
    results = tuple(piece_spec(spec, value, split.gives) for spec, value in zip(given.results, given.made, strict=True))
    instead = {} if told is None else told(split)
    flops = _cost_rule(given, operands, instead)(operands, results).flops
    arguments = dict(zip(given.op.definition.signature.names, given.bound, strict=True)) | instead
    in_place = bool(given.op.definition.writes) or _is_view(given.local, operands, results)
    return price(
        OpCall(given.op.name, given.op.definition.kind, operands, results, arguments, flops, in_place), given.chip
    )


def piece_spec(spec: TensorSpec, value: Value, layout: Layout) -> TensorSpec:
    memory = L1_MEMORY_CONFIG if value.is_in_l1(layout) else DRAM_MEMORY_CONFIG
    return make_spec(value.local_shape(layout), spec.dtype, spec.layout, memory, spec.tile)


def _is_view(local: Local, operands: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> bool:
    """True if a device hands on its piece; its result is in L1 where the piece is."""
    return local.keeps_memory and keeps_pages(operands[0], results[0].with_memory_config(operands[0].memory_config))


def _cost_rule(given: CallDescription, pieces: Sequence[TensorSpec], instead: Mapping[str, Any]) -> CostRule:
    own = given.local.cost
    if own is not None:
        with suppress(SoftmeshError, RuntimeError, IndexError, ValueError, TypeError):  # its arguments are the whole's
            own = defined_on_pieces(given, [tuple(piece.shape) for piece in pieces], instead)[0].cost
    return own or given.op.definition.cost


def defined_on_pieces(
    given: CallDescription, shapes: Sequence[Extents], instead: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Local, dict[str, Any]]:
    """The op as defined on pieces of these shapes, and its arguments: with them, and with those that are `instead`."""
    operands = [
        operand._replace(spec=make_spec(shape, operand.dtype, operand.layout, DRAM_MEMORY_CONFIG, operand.spec.tile))
        for operand, shape in zip(given.operands, shapes, strict=True)
    ]
    waiting = iter(operands)
    arguments = {name: _with_pieces(value, waiting) for name, value in _in_order(given)} | dict(instead)
    return given.op.definition.local(arguments), arguments


def _in_order(given: CallDescription) -> list[tuple[str, Any]]:
    """The arguments, operands first and in the order of the signature."""
    first = given.op.definition.signature.operand_names
    return [(name, given.arguments[name]) for name in (*first, *(n for n in given.arguments if n not in first))]


def _with_pieces(value: Any, operands: Iterator[Operand]) -> Any:
    if isinstance(value, Operand):
        return next(operands)
    if isinstance(value, list) and any(isinstance(item, Operand) for item in value):
        return [_with_pieces(item, operands) for item in value]
    return value
