"""Unified forms of all ops that are not described one by one: sharding choices derived from the op's placement rule.

Element-wise ops are split along any dim. For others each way of placing the operands along one axis is tried: the op
is defined on pieces of that size, and its rule says what the results would be. What comes out as slices of the whole
result, or as contributions to it, is a choice. An op that nothing is known of is done whole on every device, which is
right for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from types import MappingProxyType, ModuleType
from typing import Any

import torch

from softmesh import distributed
from softmesh.collectives.collective_operation import is_collective
from softmesh.cost.chip_costs import elementwise_seconds
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.plan import Local, rank_padder, result_distributions
from softmesh.dispatch.shape_only import form_only
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.images import are_images, describe_images
from softmesh.distributed.layouts import SUM, Extents, Value, bits
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, Split, broadcast_labels, by_labels, together
from softmesh.distributed.unified_op import Unified
from softmesh.errors import NotModelled, SoftmeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.placement import rules
from softmesh.placement.distribution import distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.placement.rules import Situation, UsesPartial
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import facts
from softmesh.tensor.spec import make_spec

# Ops of one element at a time: operands are brought to the same placement; contributions pass through linear ones.


_EITHER, _TOGETHER, _FIRST = "either", "together", "first"
# How the op of a rule hands contributions on: those of either factor, of all terms together, of its one operand.
_CARRIES: dict[rules.Rule, str | None] = {
    rules.elementwise: None,
    rules.linear: _FIRST,
    rules.keeping: _FIRST,
    rules.additive: _TOGETHER,
    rules.multiplicative: _EITHER,
    rules.dividing: _FIRST,
    rules.scaling: None,
}


def is_elementwise(local: Local) -> bool:
    return local.rule in _CARRIES


def shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents | None:
    """Of an element-wise op; of no other."""
    if not is_elementwise(local):
        return None
    return tuple(broadcast_shapes(*(operand.shape for operand in operands)))


def shape_of_first(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    """Of an op whose result is like its first operand."""
    return operands[0].shape


def describe_elementwise(given: CallDescription) -> SplitOptions:
    shape = given.shape
    result = tuple(f"dim {dim}" for dim in range(len(shape)))
    choices = by_labels(
        [broadcast_labels(operand.shape, result, shape) for operand in given.operands],
        result,
        [label for label, extent in zip(result, shape, strict=True) if extent > 1],
        carries=_carries(given),
        names=given.short_names,
    )
    return SplitOptions(choices, memory_seconds(given), always(given.plain()))


def _carries(given: CallDescription) -> tuple[frozenset[int], ...]:
    how, count = _CARRIES[given.local.rule], len(given.operands)
    numbers = len(given.op.definition.signature.operand_at) - count  # a number beside a tensor, or nothing
    if how == _EITHER:
        return tuple(frozenset({i}) for i in range(count))
    if how == _TOGETHER:
        return (frozenset(range(count)),) if not numbers else ()
    first_is_tensor = given.names[0] == given.op.definition.signature.operand_names[0]
    return (frozenset({0}),) if how == _FIRST and first_is_tensor else ()


def memory_seconds(given: CallDescription, flops: int = 1) -> Callable[[Sequence[Extents], Extents], float]:
    """Of an op that reads its operands and writes its result, with so much arithmetic for each element."""
    chip = given.chip
    sizes = [*(value.bits for value in given.values), bits(given.result.dtype)]

    def seconds(operands: Sequence[Extents], result: Extents) -> float:
        volumes = [math.prod(shape) for shape in (*operands, result)]
        moved = sum(volume * size for volume, size in zip(volumes, sizes, strict=True)) // 8
        return elementwise_seconds(chip, flops * max(volumes), moved)

    return seconds


def always(call: Callable[..., Any]) -> Callable[[Split], Callable[..., Any]]:
    """The same call, however the work is split."""
    return lambda split: call


_MOST_TRIALS = 256
_NOWHERE = torch.device("meta")


def describe(given: CallDescription) -> SplitOptions:
    if is_elementwise(given.local):
        return replace(describe_elementwise(given), is_true=lambda split: is_defined(given, split))
    if are_images(given):
        return describe_images(given, memory_seconds(given))
    found = {n: tuple(_choices(given, n)) for n in set(given.mesh)}
    return SplitOptions(
        [found[n] for n in given.mesh],
        memory_seconds(given),
        always(given.plain()),
        is_true=lambda split: _nests(given, split),
    )


def _choices(given: CallDescription, devices: int) -> Iterator[Choice]:
    yield together(len(given.operands))
    if devices == 1 or "all_gather" in given.op.name.replace("allgather", "all_gather"):
        return  # the halves of TT-NN's distributed norms count devices by the extents of their operands
    for words in _trials(given, devices):
        gives = _outcome(given, words, devices)
        if gives is not None:
            yield Choice(_name(given, words), words, gives, takes_uneven=False)


def _trials(given: CallDescription, devices: int) -> Iterator[tuple[Placement, ...]]:
    """All words of all operands; of many operands: one is split, all are alike, or all but indices."""
    several: list[list[Placement]] = []
    for operand in given.operands:
        splits = [Shard(d) for d, n in enumerate(operand.shape) if n % devices == 0 and n]
        several.append([REPLICATE, *splits, SUM])
    count = 1
    for words in several:
        count *= len(words)
    if count <= _MOST_TRIALS:
        yield from (words for words in product(*several) if any(word is not REPLICATE for word in words))
        return
    alike = sorted({word.dim for words in several for word in words if isinstance(word, Shard)})
    of_values = [words if operand.is_float else [] for words, operand in zip(several, given.operands, strict=True)]
    for able in (several, of_values):
        yield from (tuple(Shard(dim) if Shard(dim) in words else REPLICATE for words in able) for dim in alike)
    for at, words in enumerate(several):
        for word in words[1:]:
            yield tuple(word if i == at else REPLICATE for i in range(len(several)))


def _name(given: CallDescription, words: tuple[Placement, ...]) -> str:
    said = []
    for name, word in zip(given.short_names, words, strict=True):
        if isinstance(word, Shard):
            said.append(f"split dim {word.dim} of {name}")
        elif word is not REPLICATE:
            said.append(f"contributions of {name}")
    return ", ".join(said)


def _outcome(given: CallDescription, words: tuple[Placement, ...], devices: int) -> Placement | None:
    """What the results would be along an axis of so many devices; None where they would mean nothing."""
    shapes = tuple(_piece(operand.shape, word, devices) for operand, word in zip(given.operands, words, strict=True))
    try:
        local, made = _tried(given, shapes)
        at = Situation(*_situated(given, words, shapes), made)
        if local.is_one_value is not None and not local.is_one_value(at):
            return None
        answer = local.rule(at)
    except (SoftmeshError, UsesPartial, RuntimeError, IndexError, ValueError, TypeError, AttributeError):
        return None
    found = {answer} if isinstance(answer, Placement) else set(answer)
    gives = found.pop()
    is_uneven = isinstance(gives, Shard) and gives.size is not None
    if found or gives is LOCAL or is_uneven or (isinstance(gives, Partial) and given.container is not None):
        return None
    wholes = [tuple(spec.shape) for spec in given.results]
    try:
        pieces = [_piece(whole, gives, devices) for whole in wholes]
    except IndexError:
        return None
    return gives if list(made) == pieces else None


def _piece(shape: Extents, word: Placement, devices: int) -> Extents:
    if not isinstance(word, Shard):
        return shape
    return (*shape[: word.dim], shape[word.dim] // devices, *shape[word.dim + 1 :])


def _tried(given: CallDescription, shapes: tuple[Extents, ...]) -> tuple[Local, tuple[Extents, ...]]:
    """The op as defined on pieces of these shapes, and the shapes of what it makes of them."""
    local, arguments = defined_on_pieces(given, shapes)
    made = form_only(local.compute)(*_meta(local, given, arguments))
    results = [made] if isinstance(made, torch.Tensor) else list(made)
    return local, tuple(tuple(result.shape[1:]) for result in results)


def defined_on_pieces(
    given: CallDescription, shapes: tuple[Extents, ...], told: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Local, dict[str, Any]]:
    """The op as defined on pieces of these shapes, and its arguments with them, and with those that it is `told`."""
    operands = [
        operand._replace(spec=make_spec(shape, operand.dtype, operand.layout, DRAM_MEMORY_CONFIG, operand.spec.tile))
        for operand, shape in zip(given.operands, shapes, strict=True)
    ]
    waiting = iter(operands)
    arguments = {name: _with_pieces(value, waiting) for name, value in _in_order(given)} | dict(told)
    return given.op.definition.define(**arguments), arguments


def is_defined(given: CallDescription, split: Split) -> bool:
    """Whether the op takes pieces of this size: one that wants whole tiles, say."""
    shapes = (value.local_shape(split.needs(i)) for i, value in enumerate(given.values))
    try:
        defined_on_pieces(given, tuple(shapes))
    except SoftmeshError:
        return False
    return True


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


def _flat(given: CallDescription, arguments: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for name in given.op.definition.signature.operand_names:
        value = arguments[name]
        found += value if isinstance(value, list) else [value]
    return found


def _meta(local: Local, given: CallDescription, arguments: dict[str, Any]) -> list[Any]:
    """What the computation is given on one device, without values: one leading dim, widened as the op wants it."""
    data = []
    for value in _flat(given, arguments):
        if isinstance(value, Operand):
            storage = facts(value.dtype).storage
            wide = torch.float32 if given.op.definition.precision == "float32" and value.is_float else storage
            blank = torch.empty((1, *value.shape), dtype=wide, device=_NOWHERE)
            pad = rank_padder(1, max(local.broadcast_rank - value.rank, 0))
            value = blank if pad is None else pad(blank)
        data.append(value)
    return data


def _situated(given: CallDescription, words: tuple[Any, ...], shapes: tuple[Extents, ...]) -> tuple[Any, Any]:
    """Words (or distributions) and shapes as rules count operands: None for a number, or for one that is not there."""
    is_tensor = [isinstance(value, Operand) for value in _flat(given, given.arguments)]
    word, shape = iter(words), iter(shapes)
    return (
        tuple(next(word) if yes else None for yes in is_tensor),
        tuple(next(shape) if yes else None for yes in is_tensor),
    )


def _nests(given: CallDescription, split: Split) -> bool:
    """Whether the choices of all axes together make what each of them makes alone, as the plain op sees it."""
    if all(choice.name == "all" for choice in split.choices):
        return True
    mesh = split.mesh
    layouts = [split.needs(i) for i in range(len(given.operands))]
    shapes = tuple(value.local_shape(layout) for value, layout in zip(given.values, layouts, strict=True))
    dists = tuple(distribution(mesh, mesh, layout) for layout in layouts)
    wanted = tuple(Value(tuple(spec.shape), 0, mesh).local_shape(split.gives) for spec in given.results)
    try:
        local, made = _tried(given, shapes)
        words, pieces = _situated(given, dists, shapes)
        found, misused = result_distributions(local.rule, words, pieces, made)
    except (SoftmeshError, RuntimeError, IndexError, ValueError, TypeError):
        return False
    return made == wanted and not misused and all(dist.placements == split.gives for dist in found)


# The unified form of an op that has no description of its own, and of the namespaces ops stand in.


class UnifiedNamespace:
    """`softmesh.distributed.experimental`: the ops of `ttnn.experimental`, each in its unified form."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> object:
        found = unified(getattr(self._module, name))
        setattr(self, name, found)
        return found


@cache
def _unified(plain: str) -> Unified:
    """The one unified form of a plain op, under whatever name it is asked for."""
    short = plain.rpartition(".")[2]
    own = getattr(distributed, short) if short in distributed.DESCRIBED else None
    is_it = isinstance(own, Unified) and own.plain.name == plain
    return own if is_it else Unified(plain, describe, shape_of)  # type: ignore[return-value]


def unified(found: object) -> object:
    """What `softmesh.distributed.X` is for `ttnn.X`: a plain op plans its communication, anything else is itself."""
    if isinstance(found, Operation) and is_collective(found):
        raise NotModelled(
            f"softmesh.distributed has no {found.name!r}: unified ops insert the collectives they need. "
            f"ttnn.{found.name} is the collective itself; softmesh.distributed.redistribute(x, placements) changes a "
            "placement."
        )
    if isinstance(found, Operation):
        return _unified(found.name)
    if isinstance(found, ModuleType) and any(isinstance(held, Operation) for held in vars(found).values()):
        return UnifiedNamespace(found)
    return found
