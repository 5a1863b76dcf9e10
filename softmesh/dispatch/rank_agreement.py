"""The text of a call on which the ranks of a mesh must agree: the op, its operands and all of its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from softmesh.dispatch.definition import Definition
from softmesh.dispatch.signature import BoundCall, listed
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.processes.lockstep import SharedCall, described
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE


def shared_call(definition: Definition, call: BoundCall, mesh: MeshDevice) -> SharedCall:
    """Of a call that all ranks of a mesh make together."""
    said = (f"{name}={_said(value)}" for name, value in call.named.items() if value is not None)
    return described(definition.name, said, mesh.told_place)


def addresses_of(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Where they lie, on every chip: which tensors they are, for those of equal shapes are no less different."""
    return tuple(tensor.storage.address for tensor in tensors if tensor.storage.device is not None)


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{_spec_said(value.spec)} {list(value.view_distribution().placements)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_said, value))}]"
    if isinstance(value, Enum):
        return value.name
    address = getattr(value, "address", None)  # of a semaphore or a buffer
    if callable(address):
        return f"{type(value).__name__} at {address():#x}"
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def _spec_said(spec: TensorSpec) -> str:
    """What is not as usual of its tile and its memory is said, too: pages are of that size and lie there."""
    tile = "" if spec.tile == DEFAULT_TILE else f" of {spec.tile}"
    place, kind = spec.memory_config, spec.memory_config.buffer_type.name
    if place.is_sharded():
        kind += f" {place.memory_layout.name} {place.shard_spec or place.nd_shard_spec}"
    memory = "" if place == DRAM_MEMORY_CONFIG else f" in {kind}"
    return f"{spec.dtype.name} {list(spec.shape)} {spec.layout.name}{tile}{memory}"


def operands_of(call: BoundCall) -> list[Tensor]:
    """Outputs that were given, too: they are written on every chip."""
    return [*call.tensors, *(tensor for tensor in listed(call.target) if isinstance(tensor, Tensor))]
