"""Collectives that read only those rows of their operands that were written, and write all of their results."""

from __future__ import annotations

from typing import Any

from softmesh.collectives.collective import Collective
from softmesh.dispatch.operation import Marking
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import warn_if_undefined


class PickingRows(Collective):
    reads_other_devices = False

    def _marking(self, values: list[Any], tensors: list[Tensor], target: Any) -> Marking | None:
        for tensor in tensors:
            undefined = tensor.storage.undefined
            if undefined is not None and not undefined.in_rows:
                warn_if_undefined(tensor, self.name)
        return None
