"""Calls that repeat from layer to layer: found by their form, so that a program says them once, in a loop."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from softmesh.planner.program.plan_calls import PlanCall, PlanCalls
from softmesh.planner.program.symbols import Symbol


@dataclass
class Block:
    """Calls that follow each other, and the tensors that they have from elsewhere, in the order of their first use."""

    calls: Sequence[PlanCall]
    form: Hashable = None
    given: list[Symbol] = field(default_factory=list)
    leaves: list[Symbol] = field(default_factory=list)
    made: list[Symbol] = field(default_factory=list)


@dataclass
class Layers:
    """Blocks of one form, run one after the other.

    `shared` and `carried` are places in `given`: the same tensor in every layer, or what the layer before has made, at
    that place in its `made`. `kept` are places in `made` that are needed of every layer, `last` those of the last.
    """

    blocks: list[Block]
    shared: list[int]
    carried: dict[int, int]
    kept: list[int]
    last: list[int]


def blocks_of(calls: PlanCalls, layers: Sequence[tuple[int, int]]) -> list[Block]:
    """`layers`: the first node of each, and the node after its last."""
    return [_block(some, calls) for some in _cut(calls.calls, layers)]


def parts_of(blocks: list[Block], calls: PlanCalls, repeated: Container[Hashable] = ()) -> list[Block | Layers]:
    """A block alone is a layer where its form is one of those that are `repeated` elsewhere."""
    parts: list[Block | Layers] = []
    at = 0
    while at < len(blocks):
        end = at + 1
        while end < len(blocks) and blocks[end].form == blocks[at].form:
            end += 1
        is_layer = end - at > 1 or blocks[at].form in repeated
        together = _layers(blocks[at:end], _used_after(blocks, end, calls)) if is_layer else None
        parts += [together] if together is not None else blocks[at:end]
        at = end
    return parts


def _cut(calls: Sequence[PlanCall], layers: Sequence[tuple[int, int]]) -> Iterator[list[PlanCall]]:
    edges = sorted({edge for layer in layers for edge in layer})
    some: list[PlanCall] = []
    for call in calls:
        while edges and call.node >= edges[0]:
            if some:
                yield some
            some = []
            edges.pop(0)
        some.append(call)
    if some:
        yield some


def _block(calls: Sequence[PlanCall], every: PlanCalls) -> Block:
    block = Block(calls)
    block.form = tuple(
        (call.op.name, _told(block, every, (call.args, call.kwargs)), _made(block, call)) for call in calls
    )
    return block


def _made(block: Block, call: PlanCall) -> int:
    block.made += call.results
    return len(call.results)


def _told(block: Block, every: PlanCalls, value: Any) -> Hashable:
    """An argument, with tensors told by where they come from."""
    if isinstance(value, Symbol):
        if value in block.made:
            return "made", block.made.index(value)
        if value in every.masks:
            return "mask", every.masks[value][0]
        kind, known = ("leaf", block.leaves) if value in every.leaves else ("given", block.given)
        if value not in known:
            known.append(value)
        return kind, known.index(value)
    if isinstance(value, dict):
        return tuple((name, _told(block, every, item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return type(value).__name__, *(_told(block, every, item) for item in value)
    return repr(value)


def _used_after(blocks: Sequence[Block], end: int, calls: PlanCalls) -> set[Symbol]:
    return {symbol for block in blocks[end:] for symbol in block.given} | {*calls.outputs}


def _layers(blocks: list[Block], wanted: set[Symbol]) -> Layers | None:
    """None where a layer has something that neither all have nor the one before has made."""
    shared: list[int] = []
    carried: dict[int, int] = {}
    first = blocks[0]
    for place, symbol in enumerate(blocks[:2][-1].given):
        if symbol in first.made:
            carried[place] = first.made.index(symbol)
        else:
            shared.append(place)
    for before, block in pairwise(blocks):
        if any(block.given[place] is not first.given[place] for place in shared):
            return None
        if any(block.given[place] is not before.made[at] for place, at in carried.items()):
            return None
    kept = [at for at in range(len(first.made)) if any(block.made[at] in wanted for block in blocks[:-1])]
    last = [at for at, symbol in enumerate(blocks[-1].made) if symbol in wanted and at not in kept]
    return Layers(blocks, shared, carried, kept, last)
