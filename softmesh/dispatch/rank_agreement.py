"""The text of a call on which the ranks of a mesh must agree: the op, its operands and all of its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from softmesh.dispatch.definition import Definition
from softmesh.dispatch.signature import BoundCall, listed
from softmesh.processes.lockstep import SharedCall, described
from softmesh.tensor.tensor import Tensor


def shared_call(definition: Definition, call: BoundCall) -> SharedCall:
    """Of a call that all ranks make together."""
    said = (f"{name}={_said(value)}" for name, value in call.named.items() if value is not None)
    return described(definition.name, said)


def addresses_of(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Where they lie, on every chip: which tensors they are, for those of equal shapes are no less different."""
    return tuple(tensor.storage.address for tensor in tensors if tensor.storage.device is not None)


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        spec = value.spec
        return f"{spec.dtype.name} {list(spec.shape)} {spec.layout.name} {list(value.view_distribution().placements)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_said, value))}]"
    if isinstance(value, Enum):
        return value.name
    address = getattr(value, "address", None)  # of a semaphore or a buffer
    if callable(address):
        return f"{type(value).__name__} at {address():#x}"
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def operands_of(call: BoundCall) -> list[Tensor]:
    """Outputs that were given, too: they are written on every chip."""
    return [*call.tensors, *(tensor for tensor in listed(call.target) if isinstance(tensor, Tensor))]
