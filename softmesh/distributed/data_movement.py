"""Data movement on whole values: reshape and slice; and `redistribute`, which changes a placement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from softmesh.arguments import refused
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import Local
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.generic_ops import always, shape_of_first
from softmesh.distributed.layouts import Extents, Value
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, Labels, Split, by_labels
from softmesh.distributed.uneven_shards import without_nested_uneven
from softmesh.distributed.unified_op import Unified, own_operation
from softmesh.kinds import Kind
from softmesh.ops.data_movement.reshaping import new_shape, reshape_local
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import Placement
from softmesh.tensor.tensor import Tensor

# -- reshape ---------------------------------------------------------------------------------------


@own_operation("reshape", Kind.RESHAPE, cost=moves_bytes, precision="data", controls="memory_config")
def _reshape_pieces(input_tensor: Operand, shape: Sequence[int], dims: Sequence[int | None]) -> Local:
    """Each device's piece under its own new shape; a split of dim d is one of `dims[d]` afterwards."""
    plain = reshape_local("reshape", input_tensor, shape)

    @rules.labelled(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> rules.Placement:
        if not isinstance(at.word, rules.Shard):
            return at.word
        to = dims[at.word.dim]
        return rules.LOCAL if to is None else at.word.at(to)

    return replace(plain, rule=rule)


def describe_reshape(given: CallDescription) -> SplitOptions:
    """A split dim is followed where it starts a run of elements that a dim of the new shape starts too."""
    (operand,), shape = given.operands, given.shape
    if _takes_padding(given.arguments, operand):
        return _describe_other_bounds(given)
    before, after = _matched(operand.shape, shape)
    dims = tuple(None if label is None else after.index(label) for label in before)
    labels = [label for label in before if label is not None]
    choices = by_labels([before], after, labels, carries=(frozenset({0}),), names=given.short_names)
    whole_dims = {
        f"split {label}" for label in labels if operand.shape[before.index(label)] == shape[after.index(label)]
    }
    exact = [_even_unless(choice, choice.name in whole_dims) for choice in choices]
    result = Value(shape, 0, given.mesh)

    def call(split: Split) -> Callable[..., Any]:
        local = result.local_shape(split.gives)
        return given.plain() if local == shape else given.plain(_reshape_pieces, shape=local, dims=dims)

    return SplitOptions(exact, call)


def _takes_padding(arguments: dict[str, Any], operand: Operand) -> bool:
    """Whether it is TT-NN's second form, which draws the line between values and padding anew."""
    shape = arguments["shape"]
    is_other = -1 not in shape and math.prod(shape) != math.prod(operand.shape)
    return arguments.get("padded_shape") is not None and is_other


def _describe_other_bounds(given: CallDescription) -> SplitOptions:
    """Dims that keep their extent may be split."""
    (operand,), shape, padded = given.operands, given.shape, tuple(given.arguments["padded_shape"])
    is_same_rank = len(shape) == operand.rank
    kept = tuple(
        f"dim {dim}" if is_same_rank and n == operand.shape[dim] == room else None
        for dim, (n, room) in enumerate(zip(shape, padded, strict=True))
    )
    before = kept if is_same_rank else (None,) * operand.rank
    labels = [label for label in kept if label is not None]
    choices = by_labels([before], kept, labels, carries=(frozenset({0}),), names=given.short_names)
    result = Value(shape, 0, given.mesh)

    def call(split: Split) -> Callable[..., Any]:
        local = result.local_shape(split.gives)
        if local == shape:
            return given.plain()
        room = tuple(whole if n == own else own for n, own, whole in zip(shape, local, padded, strict=True))
        return given.plain(shape=local, padded_shape=room)

    return SplitOptions([_even_unless(choice, False) for choice in choices], call)


def _reshaped(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    if _takes_padding(arguments, operands[0]):
        return tuple(arguments["shape"])
    return new_shape("reshape", operands[0], arguments["shape"])


def _even_unless(choice: Choice, whole: bool) -> Choice:
    """An uneven split goes on only where its dim comes through as it is."""
    return Choice(choice.name, choice.needs, choice.gives, takes_uneven=whole)


def _matched(shape: Extents, new: Extents) -> tuple[Labels, Labels]:
    """Labels for the dims of both shapes at which the same number of elements lies before them."""
    before: list[str | None] = [None] * len(shape)
    after: list[str | None] = [None] * len(new)
    starts = {math.prod(new[:dim]): dim for dim, n in enumerate(new) if n > 1}
    for dim, n in enumerate(shape):
        to = starts.get(math.prod(shape[:dim])) if n > 1 else None
        if to is not None:
            before[dim] = after[to] = f"dim {dim}"
    return tuple(before), tuple(after)


# -- slice ------------------------------------------------------------------------


def describe_slice(given: CallDescription) -> SplitOptions:
    """Dims that are taken whole may be split; one that is cut every device has whole."""
    (operand,), shape = given.operands, given.shape
    labels = tuple(
        f"dim {dim}" if n == cut else None for dim, (n, cut) in enumerate(zip(operand.shape, shape, strict=True))
    )
    uncut = [label for label in labels if label is not None]
    choices = by_labels([labels], labels, uncut, carries=(frozenset({0}),), names=given.short_names)
    starts, ends = given.arguments["slice_start"], given.arguments["slice_end"]

    def call(split: Split) -> Callable[..., Any]:
        local = given.values[0].local_shape(split.needs(0))
        first = [start if label is None else 0 for start, label in zip(starts, labels, strict=True)]
        last = [end if label is None else n for end, label, n in zip(ends, labels, local, strict=True)]
        return given.plain(slice_start=first, slice_end=last)

    return SplitOptions(choices, call)


def _cut(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    shape = operands[0].shape
    steps = arguments["slice_step"] or [1] * len(shape)
    bounds = zip(shape, arguments["slice_start"], arguments["slice_end"], steps, strict=True)
    return tuple(len(range(n)[start:end:step]) for n, start, end, step in bounds)


# -- placements themselves -------------------------------------------------------------------------


def _describe_redistribution(given: CallDescription) -> SplitOptions:
    start = without_nested_uneven(given.layouts[0], given.values[0], given.lines)
    choices = [[_as_it_is(word)] for word in start.layout]
    return SplitOptions(choices, always(lambda tensor: tensor), is_work=False)


def _as_it_is(word: Placement) -> Choice:
    return Choice("as it is", (word,), word)


class Redistribution(Unified):
    """Communication that is asked for: no policy forbids it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """`(input_tensor, placements)`: the same value, placed as asked, by the cheapest sequence of collectives."""
        tensor, placements = self.tensor_and_placements(args, kwargs)
        made: Tensor = super().__call__(tensor, output_topology=placements, implicit="allow")
        return made

    def tensor_and_placements(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The tensor and the placements, by position or by name."""
        names = ("input_tensor", "placements")
        given = dict(zip(names, args, strict=False)) | kwargs
        if set(given) != set(names) or len(args) + len(kwargs) != len(names):
            got = ", ".join([*(type(value).__name__ for value in args), *kwargs]) or "nothing"
            raise refused(f"distributed.{self.name}", f"it takes input_tensor and placements, got {got}")
        return given["input_tensor"], given["placements"]


redistribute = Redistribution("identity", _describe_redistribution, shape_of_first, called="redistribute")
reshape = Unified("reshape", describe_reshape, _reshaped)
slice = Unified("slice", describe_slice, _cut)
