"""Compares the backward passes: the first gradient that differs, then the gradients of all parameters."""

from __future__ import annotations

import torch

from softmesh.autograd.leaves import gradient_tensor
from softmesh.placement.placements import LOCAL, Partial
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_label
from softmesh.train.equivalence.diagnosis import missing_broadcast, reduce_of_replicated
from softmesh.train.equivalence.findings import Comparison
from softmesh.train.equivalence.run_recorder import Place, Run
from softmesh.train.equivalence.values import Difference, Value, axes_text, is_comparable, is_partial, whole
from softmesh.train.module import Module

_VALUE_FLOOR = 1e-3  # of the largest gradient: one much smaller is compared as if it had this size
_PARAMETER_FLOOR = 2e-2  # some, as that of a key's bias, are zero but for rounding


class BackwardCheck:
    def __init__(self, comparison: Comparison, ours: Run, theirs: Run) -> None:
        self.comparison, self.mesh = comparison, comparison.mesh
        self.ours, self.theirs = ours, theirs

    def find_first(self) -> None:
        """The first gradient of a value, on the way back, that is not what it should be."""
        pairs = self._pairs()
        floor = _VALUE_FLOOR * max((float(single.abs().max()) for _, single in pairs), default=0.0)
        before = 0
        for place, single in pairs:
            value, commands = self.ours.gradients[place]
            off = self.comparison.measured("gradients of values", value, single, max(floor, 1e-12))
            if off is not None:
                self._find(place, value, off, slice(before, commands))
                return
            before = commands

    def _pairs(self) -> list[tuple[Place, torch.Tensor]]:
        """What is compared, in the order in which gradients came, and what it should be."""
        values = {point.place: point.value for point in self.ours.points}
        found = []
        for place, returned in self.ours.gradients.items():
            other = self.theirs.gradients.get(place)
            if other is None or not _has_one_gradient(values[place]):
                continue
            single = whole("a gradient of one device", other.value) * self.comparison.losses
            if single.numel() > 1 and is_comparable(returned.value, single):
                found.append((place, single))
        return found

    def _find(self, place: Place, value: Value, off: Difference, window: slice) -> None:
        path = place.path
        message, axis = self.comparison.multiple(off)
        alike = reduce_of_replicated(self.mesh, self.ours.returning[window])
        if alike is not None:
            axis = axis_label(self.mesh, alike[1])
            message = f"{message} " if message else ""
            message += (
                f"An all_reduce of the backward pass adds up {self.mesh.shape[alike[1]]} equal gradients along mesh "
                f"axis {axis!r}. Call all_reduce(x, {axis!r}, noop_backward=True) in {path or 'the model'}."
            )
        elif not message:
            branching = missing_broadcast(self.mesh, self.ours, place, range(self.mesh.shape.dims()))
            if branching is not None:
                message, axis, path = str(branching), branching.label, branching.place.path
        message = message or "all gradients that came back before it are those of one device."
        self.comparison.find("backward", f"gradient of {place}", value, message, off, path=path, axis=axis)

    def find_parameters(self, single: Module) -> None:
        """Every parameter's gradient, after what the program does to combine them."""
        expected = {name: tensor.grad for name, tensor in single.named_parameters()}
        sizes = [float(gradient.view_data().abs().max()) for gradient in expected.values() if gradient is not None]
        floor = max(_PARAMETER_FLOOR * max(sizes, default=0.0), 1e-12)
        for name, tensor in self.comparison.model.named_parameters():
            gradient, theirs = tensor.storage.gradient, expected[name]
            if gradient is None or theirs is None:
                self._find_missing(name, tensor, gradient is None, theirs is None)
                continue
            value = Value.of(gradient_tensor(tensor.storage, tensor, gradient))
            self._judge(name, value, whole(name, Value.of(theirs)), floor)

    def _find_missing(self, name: str, tensor: Tensor, here: bool, there: bool) -> None:
        if here and there:
            self.comparison.notes.append(f"{name} takes no part in the loss: it has no gradient on one device either.")
            return
        where = "the mesh" if here else "one device"
        message = f"it has no gradient on {where}: there the way from the loss to it is cut."
        self.comparison.find("gradient", name, Value.of(tensor), message, path=_module_of(name))

    def _judge(self, name: str, value: Value, expected: torch.Tensor, floor: float) -> None:
        axes = [axis for axis in range(len(value.words)) if is_partial(value, axis)]
        kind = None if axes else "gradients of parameters"
        off = self.comparison.measured(kind, value, expected, floor)
        label: Axis | None
        if axes:
            message, label = self._uncombined(name, value, expected, floor, axes)
        elif off is not None:
            message, label = self._wrong(off)
        else:
            return
        self.comparison.find("gradient", name, value, message, off, path=_module_of(name), axis=label)

    def _wrong(self, off: Difference) -> tuple[str, Axis | None]:
        message, label = self.comparison.multiple(off)
        first = self.comparison.findings[0] if self.comparison.findings else None
        if first is not None and first.phase == "backward":
            message = f"{message or 'it is wrong.'} It follows from the first difference: {first.what}."
        elif label is not None and off.ratio is not None and off.ratio > 1:
            message += f" Average what the devices bring: sync_gradients(model, axes=[{label!r}], average=True)."
        elif label is not None:
            message += f" Add it up: sync_gradients(model, axes=[{label!r}], average=False)."
        return message or "it is not that of one device, though all values on the way to it are.", label

    def _uncombined(
        self, name: str, value: Value, expected: torch.Tensor, floor: float, axes: list[int]
    ) -> tuple[str, Axis]:
        """A gradient that is still Partial: what would make it right, tried out."""
        labels = [axis_label(self.mesh, axis) for axis in axes]
        held = f"its gradient is still {value.words[axes[0]]!r} over mesh axis {axes_text(labels)}"
        call = f"sync_gradients(model, axes={labels!r}"
        if self._is_right_as("avg", value, expected, floor):
            return f"{held}. Call {call}) after backward().", labels[0]
        branching = missing_broadcast(self.mesh, self.ours, self._behind(name), axes)
        if self._is_right_as("sum", value, expected, floor):
            also = "" if branching is None else f" It looks like a {branching}"
            return f"{held}. Call {call}, average=False) after backward().{also}", labels[0]
        if branching is None:
            return f"{held}, and neither its sum nor its mean is that of one device.", labels[0]
        return f"{held}, and its sum is not that of one device: {branching}", branching.label

    def _is_right_as(self, kind: str, value: Value, expected: torch.Tensor, floor: float) -> bool:
        words = tuple(Partial(kind) if isinstance(word, Partial) else word for word in value.words)
        as_kind = Value(value.data, value.dist.with_placements(words))
        return self.comparison.measured(None, as_kind, expected, floor) is None

    def _behind(self, name: str) -> Place | None:
        """The output of the module that a parameter belongs to, where gradients came back to it."""
        path = _module_of(name)
        places = (p for p in self.ours.gradients if p.path == path and p.kind == "output")
        return next(places, None) if path else None


def _module_of(name: str) -> str:
    return name.rpartition(".")[0]


def _has_one_gradient(value: Value) -> bool:
    """Values that each device has of its own, or that are averaged, have gradients of their own scale."""
    return not any(word is LOCAL or (isinstance(word, Partial) and word.op != "sum") for word in value.words)
