"""What has been compared so far, and what of it differed."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.placement.words import LOCAL, Partial
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType
from softmesh.train.axes import Axis, axis_label
from softmesh.train.checking.axis_words import axes_text, placement_text
from softmesh.train.checking.findings import Finding, Report
from softmesh.train.checking.multiples import axes_of_ratio
from softmesh.train.checking.values import Difference, Value, difference
from softmesh.train.module import Module

_TOLERANCES = {DataType.FLOAT32: 1e-4}
_COARSE = 5e-2  # bfloat16 and below


class Comparison:
    """Collects findings about a model on a mesh."""

    def __init__(self, mesh: MeshDevice, model: Module, tolerance: float | None) -> None:
        self.mesh, self.model = mesh, model
        dtypes = [tensor.dtype for tensor in model.parameters()]
        by_dtype = max(_TOLERANCES.get(dtype, _COARSE) for dtype in dtypes)
        self.tolerance = by_dtype if tolerance is None else tolerance
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.compared = {"values": 0, "gradients of values": 0, "gradients of parameters": 0}
        self.largest = 0.0
        self.losses = 1  # of how many losses the average is taken: gradients on the mesh are of each of them

    def report(self) -> Report:
        shape = "x".join(str(n) for n in self.mesh.shape)
        names = ", ".join(str(axis_label(self.mesh, axis)) for axis in range(self.mesh.shape.dims()))
        return Report(
            f"{shape} ({names})", tuple(self.findings), self.compared, self.largest, tuple(self.notes)
        )

    def measured(
        self, kind: str | None, value: Value, expected: torch.Tensor, floor: float = 1e-6
    ) -> Difference | None:
        """The difference, if there is one; a value of a `kind` is counted as compared."""
        off = difference(value, expected, self.tolerance, floor)
        if kind is not None:
            self.compared[kind] += 1
            self.largest = max(self.largest, 0.0 if off.devices else off.relative)
        return off if off.devices else None

    def find(
        self, phase: str, what: str, value: Value, message: str, off: Difference | None = None, **more: Any
    ) -> None:
        """`more`: path, site and axis of the finding."""
        words = placement_text(self.mesh, value.words)
        devices, relative = ((), None) if off is None else (off.devices, off.relative)
        self.findings.append(
            Finding(phase, what, message, placement=words, devices=devices, difference=relative, **more)
        )

    def find_parameters_apart(self) -> None:
        """Parameters that devices should share and do not."""
        for name, tensor in self.model.named_parameters():
            value = Value.of(tensor)
            for axis, word in enumerate(value.words):
                if word is LOCAL or isinstance(word, Partial):
                    label = axis_label(self.mesh, axis)
                    message = (
                        f"the devices along mesh axis {label!r} hold values of their own: the parameter has come "
                        "apart, in a step whose gradients were not combined. Call "
                        f"sync_gradients(model, axes=[{label!r}]) before each step, and load the parameters again."
                    )
                    self.find("parameter", name, value, message, axis=label)

    def multiple(self, off: Difference) -> tuple[str, Axis | None]:
        """What a value gives away that is a multiple of the right one."""
        candidates = axes_of_ratio(self.mesh, off.ratio)
        if not candidates or off.ratio is None:
            return "", None
        along = " or ".join(axes_text(axes) for axes in candidates)
        if off.ratio < 1:
            times = f"1/{1 / off.ratio:.4g} of"
            why = f"contributions of the devices along {along} were averaged instead of added up"
        else:
            times = f"{off.ratio:.4g} times"
            why = f"along {along} equal values were added up, or contributions added up instead of averaged"
        return f"it is {times} what it should be: {why}.", candidates[0][0]
