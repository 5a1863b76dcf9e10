"""Checks of placements: calls of which they say that something else was meant.

A remark is told always (an error under SOFTMESH_STRICT=1): the numbers are wrong. A doubt is a warning that is told
under SOFTMESH_STRICT=1 only, for there are right programs with the same text: shards may be contributions that were
stacked and split, copies may be added up to scale them, a device may look for the best of its own part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from softmesh import value_free
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.plan import ValueDoubt
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Replicate, Shard
from softmesh.placement.rules import Rule, Situation, UsesPartial

Inner = tuple[int, int]  # the dim of each factor over which a product adds up, counted from the last
_MULTIPLIED = "multiply"


class Doubt(NamedTuple):
    text: str
    is_certain: bool = False  # a remark
    is_open: bool = False  # it holds unless the result is added up next


def of_crossed_splits(
    op: str,
    operands: Sequence[tuple[str, Sequence[int], Distribution]],
    made: Distribution,
    inner: Inner | None = None,
    fewest: int = 1,
) -> Iterator[str]:
    """Operands (name, shape, distribution) that are split over one axis in ways that do not fit together.

    Along at least so many dims. `inner`: of a matrix product.
    """
    for axis, result in enumerate(made.placements):
        words = [dist.placements[axis] for _, _, dist in operands if axis < dist.lead]
        if result != LOCAL or LOCAL in words or made.grid[axis] == 1:
            continue
        split = [
            (name, word.dim, shape)
            for (name, shape, _), word in zip(operands, words, strict=False)
            if isinstance(word, Shard) and shape[word.dim] > 1
        ]
        is_block = inner is not None and len(split) > 1 and not _multiplies_along(operands, axis, inner)
        is_met = len({dim for _, dim, _ in split}) < fewest
        if not (is_block or is_met) and len(split) == len([word for word in words if isinstance(word, Shard)]):
            parts = " and ".join(f"dim {dim} of {name} {list(shape)}" for name, dim, shape in split)
            is_alone = "is split, and the other operand is whole where they meet" if len(split) == 1 else "are split"
            yield (
                f"{op}: over mesh axis {axis} {parts} {is_alone}: each device computes with parts that do not belong "
                "to each other, and its result is no part of a whole. Distribute both along dims that meet."
            )


def _is_known(values: torch.Tensor) -> bool:
    return not (values.is_meta or value_free.is_on)


def _differ_along(operand: int, dim: int, data: Sequence[Any]) -> bool:
    values: torch.Tensor = data[operand]
    return _is_known(values) and bool((values != values.narrow(dim, 0, 1)).any())


def _differ_and_are_no_angles(operand: int, dim: int, data: Sequence[Any]) -> bool:
    """True if the values differ along the dim, and are no cosines or sines of a head.

    Those lie between -1 and 1; columns that are turned together share them, or some are negative.
    """
    if not _differ_along(operand, dim, data):
        return False
    values = data[operand].movedim(dim, 0)
    halves, pairs = values.chunk(2), (values[::2], values[1::2])
    is_repeated = any(one.shape == other.shape and torch.equal(one, other) for one, other in (halves, pairs))
    return bool((values.abs() > 1).any()) or not (is_repeated or bool((values < 0).any()))


def of_shared_parts(
    op: str,
    rule: Rule,
    operands: Sequence[tuple[str, Sequence[int], Distribution] | None],
    outs: Sequence[tuple[Sequence[int], Distribution]],
    numbers: int = 0,
    skipped: Collection[tuple[int, int]] = (),
) -> Iterator[ValueDoubt]:
    """Operands that all devices share, and that the op's rule would take split along with another: by parts as long.

    It holds if their values differ along that dim. Most often they are the positions, the mask or the scales of the
    first part. `operands` are those of the call's data, None for what is no tensor; the last ones may be `numbers` of
    one list. `skipped` has the operands of which nothing is said, each with a mesh axis.
    """
    out, made = outs[0]
    for axis, word in enumerate(made.placements):
        if not isinstance(word, Shard) or made.devices[axis] == 1:
            continue
        words = tuple(None if one is None else one[2].placements[axis] for one in operands)
        shapes = tuple(None if one is None else tuple(one[1]) for one in operands)
        at = Situation(words, shapes, tuple(tuple(extents) for extents, _ in outs))
        results = [dist.placements[axis] for _, dist in outs]
        part = next((shape[w.dim] for w, shape in zip(words, shapes, strict=True) if isinstance(w, Shard) and shape), 1)
        where = f"{op}: dim {word.dim} is split over mesh axis {axis}, and"
        devices = made.devices[axis]
        for index, one in enumerate(operands):
            if one is None or words[index] is not REPLICATE or (index, axis) in skipped:
                continue
            name, shape, _ = one
            for dim in _dims_split_along(rule, at, index, part, results):
                text = (
                    f"{where} {name} {list(shape)} is the same on all {devices} devices: every part meets the same "
                    f"values along dim {dim} of it, and not those in its own place. Split it along dim {dim} over this "
                    "axis, too."
                )
                holds = _differ_and_are_no_angles if _may_be_angles(op, shape, out, dim) else _differ_along
                yield ValueDoubt(text, partial(holds, index, dim - len(shape)))
        if 1 < part == numbers and (len(operands) - 1, axis) not in skipped:
            text = (
                f"{where} the {part} numbers in its list are the same on all {devices} devices: every part has those "
                "of the first one. Give them as a tensor that is split over this axis, too."
            )
            yield ValueDoubt(text, lambda data: len(set(data[-numbers:])) > 1)


def _dims_split_along(rule: Rule, at: Situation, index: int, part: int, results: Sequence[Placement]) -> Iterator[int]:
    """The dims of an operand, as long as a part, along which it could be split and all results were placed as now."""
    shape = at.shapes[index] or ()
    for dim, extent in enumerate(shape):
        if not 1 < extent == part:
            continue
        words = (*at.words[:index], Shard(dim), *at.words[index + 1 :])
        try:
            answer = rule(at._replace(words=words))
        except (UsesPartial, MeshError):
            continue
        if (len(results) * [answer] if isinstance(answer, Placement) else list(answer)) == list(results):
            yield dim


def _may_be_angles(op: str, shape: Sequence[int], out: Sequence[int], dim: int) -> bool:
    """True if the columns of a product may be those of one head on each device, turned by a table that all share."""
    is_row = math.prod(shape) == shape[dim] and len(out) > 1 and out[-2] > 1
    return op == _MULTIPLIED and dim == len(shape) - 1 and not is_row


def _multiplies_along(operands: Sequence[tuple[str, Sequence[int], Distribution]], axis: int, inner: Inner) -> bool:
    """Whether the inner dim of one factor is split. Rows of one and columns of the other make a block of the product:
    attention goes around a ring so."""
    words = [dist.placements[axis] if axis < dist.lead else None for _, _, dist in operands[:2]]
    dims = [len(shape) + at for (_, shape, _), at in zip(operands[:2], inner, strict=True)]
    return any(isinstance(word, Shard) and word.dim == dim for word, dim in zip(words, dims, strict=True))


def of_a_collective(
    op: Definition, dist: Distribution, axes: Sequence[int], shape: Sequence[int], *, is_sum: bool, joins: int | None
) -> Iterable[Doubt]:
    """What is to be said of a collective along mesh axes, by how its operand is placed.

    `joins`: the dim along which it puts what devices hold in this shape side by side.
    """
    words = {axis: dist.placements[axis] for axis in axes if dist.devices[axis] > 1}
    if is_sum:
        return _of_a_sum(op.name, dist, words, shape)
    if op.kind is Kind.PARTITION:
        return _of_a_partition(op.name.rpartition(".")[2], dist, words)
    if op.kind in (Kind.BROADCAST, Kind.ALL_BROADCAST, Kind.POINT_TO_POINT):
        return _of_a_broadcast(op.name, dist, words)
    return () if joins is None else _of_a_gather(op.name, dist, words, joins, shape)


def _of_a_partition(op: str, dist: Distribution, words: Mapping[int, Placement]) -> Iterator[Doubt]:
    """Each device keeps a part of its own piece: right where all of them hold the same."""
    for axis, word in words.items():
        devices = dist.devices[axis]
        if isinstance(word, Partial):
            yield Doubt(
                f"{op}: along mesh axis {axis} {devices} devices hold contributions to a sum ({word}), and each keeps "
                "a part of its own one: what the others have to add to that part is lost. "
                f"ttnn.reduce_scatter(x, dim, cluster_axis={axis}) adds up and deals out.",
                is_certain=True,
            )
        elif isinstance(word, Shard):
            yield Doubt(
                f"{op}: along mesh axis {axis} {devices} devices hold parts of dim {word.dim} already, and each keeps "
                f"a part of its part: the rest is on no device. ttnn.all_gather(x, {word.dim}, cluster_axis={axis}) "
                "comes first."
            )


def _of_a_sum(op: str, dist: Distribution, words: Mapping[int, Placement], shape: Sequence[int]) -> Iterator[Doubt]:
    """A collective that adds up along mesh axes what each device has in this shape.

    Shards of extent 1 are contributions that were stacked, one for each device.
    """
    if any(isinstance(word, Partial) for word in words.values()):
        yield from _of_contributions(op, dist, words)
        return
    elsewhere = [axis for axis, word in enumerate(dist.placements) if axis not in words and isinstance(word, Partial)]
    for axis, word in words.items():
        devices = dist.devices[axis]
        if isinstance(word, Replicate) and elsewhere:
            yield Doubt(
                f"{op}: it adds up over mesh axis {axis}, along which {devices} devices hold the same; the "
                f"contributions lie along axis {elsewhere[0]}, and stay apart. Use cluster_axis={elsewhere[0]}.",
                is_certain=True,
            )
        elif isinstance(word, Replicate):
            yield Doubt(
                f"{op}: {devices} devices along mesh axis {axis} hold the same, so that the sum is {devices} times "
                "that: was it added up before?"
            )
        elif isinstance(word, Shard) and shape[word.dim] > 1:
            yield Doubt(
                f"{op}: along mesh axis {axis} {devices} devices hold parts of dim {word.dim}, not contributions to a "
                f"sum: ttnn.all_gather(x, {word.dim}, cluster_axis={axis}) puts them together."
            )


def _of_contributions(op: str, dist: Distribution, words: Mapping[int, Placement]) -> Iterator[Doubt]:
    """Of a sum along these axes, one of which has contributions to it."""
    partial = next(axis for axis, word in words.items() if isinstance(word, Partial))
    for axis, word in words.items():
        n = dist.devices[axis]
        if isinstance(word, Replicate):
            yield Doubt(
                f"{op}: the contributions lie along mesh axis {partial}, and it adds up over axis {axis} too, along "
                f"which {n} devices hold the same: the sum is {n} times too large. Use cluster_axis={partial}."
            )
        elif isinstance(word, Partial) and word.op == "avg":
            yield Doubt(
                f"{op}: along mesh axis {axis} {n} devices hold averages of their own ({word}), and their sum is {n} "
                f"times the average of all: divide it by {n}."
            )


def _of_a_broadcast(op: str, dist: Distribution, words: Mapping[int, Placement]) -> Iterator[Doubt]:
    """A collective that hands on what single devices hold."""
    for axis, word in words.items():
        devices = dist.devices[axis]
        if isinstance(word, Partial):
            yield Doubt(
                f"{op}: along mesh axis {axis} {devices} devices hold contributions to a sum ({word}), and what it "
                f"hands on is one of them, not the whole. ttnn.all_reduce(x, cluster_axis={axis}) adds them up."
            )


def of_lost_parts(
    op: str, dist: Distribution, axes: Sequence[int], shape: Sequence[int], bring: Callable[[Any], torch.Tensor]
) -> Iterator[ValueDoubt]:
    """A collective that keeps one device's piece: parts of a whole that others hold are on no device afterwards.

    It holds if several devices have something: parts that are constant may stand for nothing. `bring` puts a call's
    data where `dist` says.
    """
    for axis in axes:
        word, devices = dist.placements[axis], dist.devices[axis]
        if isinstance(word, Shard) and devices > 1 and shape[word.dim] > 1:
            yield ValueDoubt(
                f"{op}: along mesh axis {axis} {devices} devices hold parts of dim {word.dim}, and what one of them "
                f"holds takes the place of all others. ttnn.all_gather(x, {word.dim}, cluster_axis={axis}) gives every "
                "device the whole.",
                partial(_hold_several, axis, bring),
            )


def _hold_several(axis: int, bring: Callable[[Any], torch.Tensor], data: Sequence[Any]) -> bool:
    """True if two devices along the axis have different values, which are not all one number."""
    if not _is_known(data[0]):
        return False
    values = bring(data[0])
    pieces = values.movedim(axis, 0).reshape(*values.shape[axis : axis + 1], -1)
    filled = pieces[(pieces != pieces[:, :1]).any(1)]
    return bool((filled != filled[:1]).any())


def _of_a_gather(
    op: str, dist: Distribution, words: Mapping[int, Placement], dim: int, shape: Sequence[int]
) -> Iterator[Doubt]:
    """A collective that puts what devices hold in this shape side by side along `dim`."""
    for axis, word in words.items():
        devices = dist.devices[axis]
        if isinstance(word, Partial):
            # Of extent 1 they may be stacked to be combined: statistics of rows are, most often.
            is_stacked = shape[dim] == 1
            if not is_stacked or (word.op == "sum" and 1 not in shape[-2:]):
                stacked = ", unless they are added up next" if is_stacked else ""
                yield Doubt(
                    f"{op}: along mesh axis {axis} {devices} devices hold contributions to a sum ({word}), and it puts "
                    f"them side by side{stacked}: ttnn.all_reduce(x, cluster_axis={axis}) adds them up.",
                    is_certain=not is_stacked,
                    is_open=is_stacked,
                )
        elif isinstance(word, Shard) and word.dim != dim:
            yield Doubt(
                f"{op}: dim {word.dim} was split over mesh axis {axis}, and dim {dim} is put together: what was side "
                f"by side lies behind each other. Use dim={word.dim}."
            )
        elif isinstance(word, Replicate):
            yield Doubt(f"{op}: {devices} devices along mesh axis {axis} hold the same, and the result repeats it.")
