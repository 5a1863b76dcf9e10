"""Any other op: how it can be split is found out by asking its own placement rule.

For each way of placing the operands along one axis the op is defined on pieces of that size, and its rule says what
the results would be. What comes out as slices of the whole result, or as contributions to it, is a choice. An op
that nothing is known of is done whole on every device, which is right for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import torch

from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import Local, rank_padder, result_distributions
from softmesh.dispatch.shape_only import form_only
from softmesh.distributed.elementwise import always, describe_elementwise, is_elementwise, memory_seconds
from softmesh.distributed.given import Given
from softmesh.distributed.layouts import SUM, Extents, Value
from softmesh.distributed.patterns import Choice, Split, together
from softmesh.distributed.planned import Work
from softmesh.errors import SoftmeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.placement.distribution import distribution
from softmesh.placement.rules import Situation, UsesPartial
from softmesh.placement.words import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.tensor.dtype import facts
from softmesh.tensor.spec import make_spec

_MOST_TRIALS = 256
_NOWHERE = torch.device("meta")


def describe(given: Given) -> Work:
    if is_elementwise(given.local):
        return replace(describe_elementwise(given), is_true=lambda split: _is_defined(given, split))
    found = {n: tuple(_choices(given, n)) for n in set(given.mesh)}
    return Work(
        [found[n] for n in given.mesh],
        memory_seconds(given),
        always(given.plain()),
        is_true=lambda split: _nests(given, split),
    )


def _choices(given: Given, devices: int) -> Iterator[Choice]:
    yield together(len(given.operands))
    if devices == 1 or "all_gather" in given.op.name.replace("allgather", "all_gather"):
        return  # the halves of TT-NN's distributed norms count devices by the extents of their operands
    for words in _trials(given, devices):
        gives = _outcome(given, words, devices)
        if gives is not None:
            yield Choice(_name(given, words), words, gives, takes_uneven=False)


def _trials(given: Given, devices: int) -> Iterator[tuple[Placement, ...]]:
    """All words of all operands; of many operands, those where one is split, or all of one rank alike."""
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
    yield from (tuple(Shard(dim) if Shard(dim) in words else REPLICATE for words in several) for dim in alike)
    for at, words in enumerate(several):
        for word in words[1:]:
            yield tuple(word if i == at else REPLICATE for i in range(len(several)))


def _name(given: Given, words: tuple[Placement, ...]) -> str:
    said = []
    for name, word in zip(given.spoken, words, strict=True):
        if isinstance(word, Shard):
            said.append(f"split dim {word.dim} of {name}")
        elif word is not REPLICATE:
            said.append(f"contributions of {name}")
    return ", ".join(said)


def _outcome(given: Given, words: tuple[Placement, ...], devices: int) -> Placement | None:
    """What the results would be along an axis of so many devices; None where they would mean nothing."""
    shapes = tuple(
        _piece(operand.shape, word, devices) for operand, word in zip(given.operands, words, strict=True)
    )
    try:
        local, made = _tried(given, shapes)
        answer = local.rule(Situation(*_situated(given, words, shapes), made))
    except (SoftmeshError, UsesPartial, RuntimeError, IndexError, ValueError, TypeError):
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


def _tried(given: Given, shapes: tuple[Extents, ...]) -> tuple[Local, tuple[Extents, ...]]:
    """The op as defined on pieces of these shapes, and the shapes of what it makes of them."""
    local, arguments = _defined(given, shapes)
    made = form_only(local.compute)(*_meta(local, given, arguments))
    results = [made] if isinstance(made, torch.Tensor) else list(made)
    return local, tuple(tuple(result.shape[1:]) for result in results)


def _defined(given: Given, shapes: tuple[Extents, ...]) -> tuple[Local, dict[str, Any]]:
    operands = [
        operand._replace(
            spec=make_spec(shape, operand.dtype, operand.layout, DRAM_MEMORY_CONFIG, operand.spec.tile)
        )
        for operand, shape in zip(given.operands, shapes, strict=True)
    ]
    waiting = iter(operands)
    arguments = {name: _with_pieces(value, waiting) for name, value in _in_order(given)}
    return given.op.definition.define(**arguments), arguments


def _is_defined(given: Given, split: Split) -> bool:
    """Whether the op takes pieces of this size: one that wants whole tiles, say."""
    shapes = (value.local_shape(split.needs(i)) for i, value in enumerate(given.values))
    try:
        _defined(given, tuple(shapes))
    except SoftmeshError:
        return False
    return True


def _in_order(given: Given) -> list[tuple[str, Any]]:
    """The arguments, operands first and in the order of the signature."""
    first = given.op.definition.signature.operand_names
    return [
        (name, given.arguments[name]) for name in (*first, *(n for n in given.arguments if n not in first))
    ]


def _with_pieces(value: Any, operands: Iterator[Operand]) -> Any:
    if isinstance(value, Operand):
        return next(operands)
    if isinstance(value, list) and any(isinstance(item, Operand) for item in value):
        return [_with_pieces(item, operands) for item in value]
    return value


def _flat(given: Given, arguments: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for name in given.op.definition.signature.operand_names:
        value = arguments[name]
        found += value if isinstance(value, list) else [value]
    return found


def _meta(local: Local, given: Given, arguments: dict[str, Any]) -> list[Any]:
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


def _situated(given: Given, words: tuple[Any, ...], shapes: tuple[Extents, ...]) -> tuple[Any, Any]:
    """Words (or distributions) and shapes as rules count operands: None for a number, or for one that is not there."""
    is_tensor = [isinstance(value, Operand) for value in _flat(given, given.arguments)]
    word, shape = iter(words), iter(shapes)
    return (
        tuple(next(word) if yes else None for yes in is_tensor),
        tuple(next(shape) if yes else None for yes in is_tensor),
    )


def _nests(given: Given, split: Split) -> bool:
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
