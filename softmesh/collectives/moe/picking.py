"""Collectives that read only those rows of their operands that were written, and write all of their results."""

from __future__ import annotations

from typing import Any

from softmesh.dispatch.bound_call import BoundCall
from softmesh.dispatch.signature import Signature
from softmesh.tensor.undefined import warn_if_undefined


def _picked(op: str, signature: Signature, call: BoundCall) -> None:
    for tensor in call.tensors:
        undefined = tensor.storage.undefined
        if undefined is not None and not undefined.in_rows:
            warn_if_undefined(tensor, op)


PICKING_ROWS: dict[str, Any] = {"reads_other_devices": False, "undefined": _picked}
