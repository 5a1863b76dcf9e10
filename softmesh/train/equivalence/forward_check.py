"""Compares the forward passes: the first op whose result is not what one device computes.

Values that enter and leave modules decide whether something is wrong; the ops between two such points tell which
of them it was. Collectives exist on the mesh only, so ops are matched by module, name and number of operands.
"""

from __future__ import annotations

import math
from difflib import SequenceMatcher
from typing import NamedTuple

import torch

from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_label
from softmesh.train.equivalence.diagnosis import missing_reduce, reduce_of_replicated
from softmesh.train.equivalence.findings import Comparison
from softmesh.train.equivalence.run_recorder import Place, Point, Run
from softmesh.train.equivalence.values import Difference, Value, is_comparable, whole


class Window(NamedTuple):
    """Ops of both runs between two points at which the runs are compared."""

    ours: slice
    theirs: slice

    def to(self, ours: int, theirs: int) -> Window:
        """The next window, which ends where so many ops have run."""
        return Window(slice(self.ours.stop, ours), slice(self.theirs.stop, theirs))


class ForwardCheck:
    def __init__(self, comparison: Comparison, ours: Run, theirs: Run) -> None:
        self.comparison, self.ours, self.theirs = comparison, ours, theirs

    def agrees(self, loss: Tensor, expected: Tensor) -> bool:
        """Whether the two runs are the same till the loss; what parts them is found if not."""
        others = {point.place: point for point in self.theirs.points}
        window = Window(slice(0, 0), slice(0, 0))
        for point in self.ours.points:
            other = others.get(point.place)
            if other is None or not _judges(point.value, should := whole("a value", other.value)):
                continue
            window = window.to(point.ops, other.ops)
            off = self.comparison.measured("values", point.value, should)
            if self._parts(window, point, should, off):
                return False
        window = window.to(len(self.ours.ops), len(self.theirs.ops))
        value, single = Value.of(loss), whole("the loss", Value.of(expected))
        point = Point(Place("", 0, "output", 0), value, len(self.ours.ops))
        return not self._parts(window, point, single, self._loss(value, single))

    def _parts(self, window: Window, point: Point, expected: torch.Tensor, off: Difference | None) -> bool:
        """Whether something is wrong at this point, or an op on the way to it took a contribution for the whole."""
        first = None if off is None else self._first_op(window)
        problem = self._problem(window, is_off=off is not None)
        if problem is not None and (first is None or problem <= first[0]):
            self._find_missing_reduce(problem)
            return True
        if off is None:
            return False
        if first is None:
            self._find_point(window, point, expected, off)
        else:
            self._find_op(*first)
        return True

    def _problem(self, window: Window, is_off: bool) -> int | None:
        """The first op that was told, or, where numbers are off, that was doubted."""
        numbers = range(window.ours.start, window.ours.stop)
        told = ((i, self.ours.ops[i]) for i in numbers)
        return next((i for i, op in told if op.problem is not None and (is_off or not op.is_doubted)), None)

    def _first_op(self, window: Window) -> tuple[int, Value, torch.Tensor, Difference] | None:
        mine, yours = self.ours.ops[window.ours], self.theirs.ops[window.theirs]
        matcher = SequenceMatcher(None, [op.key for op in mine], [op.key for op in yours], autojunk=False)
        for a, b, count in matcher.get_matching_blocks():
            for step in range(count):
                value = Value.of(mine[a + step].command.outputs[0])
                expected = whole("a result", Value.of(yours[b + step].command.outputs[0]))
                value = _each_whole(value, expected)
                if _judges(value, expected):
                    off = self.comparison.measured(None, value, expected)
                    if off is not None:
                        return window.ours.start + a + step, value, expected, off
        return None

    def _find_missing_reduce(self, number: int) -> None:
        op = self.ours.ops[number]
        message, axis = missing_reduce(self.comparison.mesh, self.ours.ops, number)
        value = Value.of(op.command.inputs[0])
        self.comparison.find(
            "forward", op.describe(), value, message, path=op.path, site=str(op.command.site), axis=axis
        )

    def _find_op(self, number: int, value: Value, expected: torch.Tensor, off: Difference) -> None:
        op = self.ours.ops[number]
        message, axis = self._cause(value, expected, off)
        self.comparison.find(
            "forward", op.describe(), value, message, off, path=op.path, site=str(op.command.site), axis=axis
        )

    def _cause(self, value: Value, expected: torch.Tensor, off: Difference) -> tuple[str, Axis | None]:
        """What the numbers alone give away."""
        for axis, word in enumerate(value.words):
            words = (*value.words[:axis], Partial("sum"), *value.words[axis + 1 :])
            summed = Value(value.data, value.dist.with_placements(words))
            if word is LOCAL and self.comparison.measured(None, summed, expected) is None:
                label = axis_label(self.comparison.mesh, axis)
                return (
                    f"missing all_reduce over mesh axis {label!r}: what the devices along {label!r} hold is right when "
                    f"it is added up. Call all_reduce(x, {label!r}, noop_backward=True).",
                    label,
                )
        message, multiple_of = self.comparison.multiple(off)
        return message or "all values before it are those of one device.", multiple_of

    def _find_point(self, window: Window, point: Point, expected: torch.Tensor, off: Difference) -> None:
        """No op that both runs have differs: it is one of the mesh's own, a collective."""
        mesh, ops = self.comparison.mesh, self.ours.ops[window.ours]
        alike = reduce_of_replicated(mesh, (op.command for op in ops))
        message, axis = self._cause(point.value, expected, off)
        if alike is None:
            last = ops[-1] if ops else None
            self.comparison.find(
                "forward",
                str(point.place),
                point.value,
                message,
                off,
                path=point.place.path if last is None else last.path,
                site="" if last is None else str(last.command.site),
                axis=axis,
            )
            return
        op, label = ops[alike[0]], axis_label(mesh, alike[1])
        self.comparison.find(
            "forward",
            op.describe(),
            point.value,
            f"it adds up {mesh.shape[alike[1]]} equal values: all devices along mesh axis {label!r} hold the same "
            "already. Leave it out.",
            off,
            path=op.path,
            site=str(op.command.site),
            axis=label,
        )

    def _loss(self, value: Value, single: torch.Tensor) -> Difference | None:
        """A loss of each device is right if their sum is, or their mean."""
        for kind in ("sum", "avg"):
            words = tuple(_loss_word(value, axis, kind) for axis in range(value.dist.lead))
            combined = Value(value.data, value.dist.with_placements(words))
            off = self.comparison.measured(None, combined, single)
            if off is None:
                averaged = [n for word, n in zip(words, value.dist.grid, strict=True) if word is Partial("avg")]
                self.comparison.losses = math.prod(averaged)
                break
        return off


def _judges(value: Value, expected: torch.Tensor) -> bool:
    """Whether the two can be compared. Losses of each device cannot, one by one."""
    if not value.data.is_floating_point() or not is_comparable(value, expected):
        return False
    return expected.numel() > 1 or value.dist.is_replicated


def _each_whole(value: Value, expected: torch.Tensor) -> Value:
    """Where the words imply more than one device has, but each device holds as much as it: all should be the same."""
    lead = value.dist.lead
    if is_comparable(value, expected) or value.data.shape[lead:] != expected.shape:
        return value
    words = tuple(LOCAL if isinstance(word, Shard) else word for word in value.words)
    return Value(value.data, value.dist.with_placements(words))


def _loss_word(value: Value, axis: int, kind: str) -> Placement:
    """How losses along an axis combine: not at all where the devices agree."""
    word = value.words[axis]
    if word is REPLICATE or isinstance(word, Partial):
        return word
    first = value.data.narrow(axis, 0, 1)
    return LOCAL if torch.allclose(value.data, first.expand_as(value.data)) else Partial(kind)
