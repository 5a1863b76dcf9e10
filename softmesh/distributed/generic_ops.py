"""Unified forms of all ops that are not described one by one: sharding choices derived from the labels of its dims.

A dim that has a label can be split, in all operands that have it. An op without labels is done whole on every device,
which is right for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import torch

from softmesh.collectives.collective_operation import is_collective
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.plan import Local, rank_padder, result_distributions
from softmesh.dispatch.shape_only import form_only
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.described_ops import described
from softmesh.distributed.images import are_images, describe_images
from softmesh.distributed.layouts import SUM, Extents, Value
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, Split, by_labels
from softmesh.distributed.split_prices import defined_on_pieces
from softmesh.distributed.unified_op import Unified
from softmesh.errors import NotModelled, SoftmeshError
from softmesh.placement.dim_labels import DimLabels, Labels
from softmesh.placement.distribution import distribution
from softmesh.placement.placements import REPLICATE, Partial
from softmesh.placement.rules import Pointwise
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import facts


def shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents | None:
    """Return the shape of an element-wise op's result; None for any other op."""
    is_pointwise = isinstance(local.rule, Pointwise)
    return tuple(broadcast_shapes(*(operand.shape for operand in operands))) if is_pointwise else None


def shape_of_first(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    """Of an op whose result is like its first operand."""
    return operands[0].shape


def always(call: Callable[..., Any]) -> Callable[[Split], Callable[..., Any]]:
    """The same call, however the work is split."""
    return lambda split: call


def describe(given: CallDescription) -> SplitOptions:
    """Derive the ways to share the work from the labels of the op's dims."""
    if are_images(given):
        return describe_images(given)
    dims, is_pointwise = _labels(given), isinstance(given.local.rule, Pointwise)
    found = {n: tuple(_choices(given, dims, n)) for n in set(given.mesh)}
    is_true = is_defined if is_pointwise else _nests
    return SplitOptions(
        [found[n] for n in given.mesh],
        always(given.plain()),
        is_true=lambda split: is_true(given, split),
    )


def _labels(given: CallDescription) -> DimLabels:
    """The labels of the call, of its tensors alone: a number is no operand here."""
    flat = _flat(given, given.arguments)
    shapes = [value.shape if isinstance(value, Operand) else None for value in flat]
    dims = given.local.rule.labels(shapes, [tuple(spec.shape) for spec in given.results])
    tensors = [at for at, shape in enumerate(shapes) if shape is not None]
    passes = (frozenset(map(tensors.index, passing)) for passing in dims.passes)
    return dims._replace(
        operands=tuple(dims.operands[at] for at in tensors),
        passes=tuple(passes),
        terms=frozenset(map(tensors.index, dims.terms)),
        unread=frozenset(map(tensors.index, dims.unread)),
    )


def _choices(given: CallDescription, dims: DimLabels, devices: int) -> Iterator[Choice]:
    """Split along each label whose dims the devices can share, and hand on contributions where the op does."""
    own: list[Labels] = [labels or () for labels in dims.operands]
    shapes = [*(operand.shape for operand in given.operands), *(tuple(spec.shape) for spec in given.results)]
    labels = dict.fromkeys(label for one in own for label in one if label is not None)
    labelled = [*own, *(dims.result for _ in given.results)]
    extents = {one: _extents(one, labelled, shapes) for one in labels}
    wanted = [one for one in labels if len(extents[one]) == 1 or all(n % devices == 0 for n in extents[one])]
    has_sums = given.container is None
    splits = by_labels(
        own,
        dims.result,
        [one for one in wanted if one in dims.result or (has_sums and one in dims.sums)],
        combines={label: Partial(op) for label, op in dims.sums.items()},
        carries=dims.passes if has_sums else (),
        terms=dims.terms,
        names=given.short_names,
    )
    moving = {f"split {one}" for one in labels if len(extents[one]) > 1}  # filler would stand between elements
    yield from (replace(choice, takes_uneven=False) if choice.name in moving else choice for choice in splits)
    for at in dims.unread:
        needs = tuple(SUM if at == i else REPLICATE for i in range(len(own)))
        yield Choice(f"contributions of {given.short_names[at]}", needs, REPLICATE)


def _extents(label: str, labelled: Sequence[Labels], shapes: Sequence[Extents]) -> set[int]:
    """The extents of the dims that have a label."""
    return {shape[one.index(label)] for one, shape in zip(labelled, shapes, strict=True) if label in one}


def _tried(given: CallDescription, shapes: tuple[Extents, ...]) -> tuple[Local, tuple[Extents, ...]]:
    """The op as defined on pieces of these shapes, and the shapes of what it makes of them."""
    local, arguments = defined_on_pieces(given, shapes)
    made = form_only(local.compute)(*_meta(local, given, arguments))
    results = [made] if isinstance(made, torch.Tensor) else list(made)
    return local, tuple(tuple(result.shape[1:]) for result in results)


def is_defined(given: CallDescription, split: Split) -> bool:
    """Whether the op takes pieces of this size: one that wants whole tiles, say."""
    shapes = (value.local_shape(split.needs(i)) for i, value in enumerate(given.values))
    try:
        defined_on_pieces(given, tuple(shapes))
    except SoftmeshError:
        return False
    return True


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
            blank = torch.empty((1, *value.shape), dtype=wide, device="meta")
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
def _unified(plain: Operation) -> Unified:
    """The one unified form of a plain op, under whatever name it is asked for."""
    own = described().get(plain.name.rpartition(".")[2])
    is_it = isinstance(own, Unified) and own.plain.name == plain.name
    return own if is_it else Unified(plain.name, describe, shape_of)  # type: ignore[return-value]


def unified(found: object) -> object:
    """What `softmesh.distributed.X` is for `ttnn.X`: a plain op plans its communication, anything else is itself."""
    if isinstance(found, Operation) and is_collective(found):
        raise NotModelled(
            f"softmesh.distributed has no {found.name!r}: unified ops insert the collectives they need. "
            f"ttnn.{found.name} is the collective itself; softmesh.distributed.redistribute(x, placements) changes a "
            "placement."
        )
    if isinstance(found, Operation):
        return _unified(found)
    if isinstance(found, ModuleType) and any(isinstance(held, Operation) for held in vars(found).values()):
        return UnifiedNamespace(found)
    return found
