"""The text of a call on which the ranks of a mesh must agree: the op, its operands and all of its arguments."""

from __future__ import annotations

from enum import Enum
from typing import Any

from softmesh.dispatch.definition import Definition
from softmesh.dispatch.signature import BoundCall, listed
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.processes.lockstep import SharedCall, described
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.queue_id import current_queue
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE


def tell_ranks(definition: Definition, call: BoundCall, mesh: MeshDevice) -> SharedCall | None:
    """Report a call that all ranks of a mesh make together, for the lockstep check.

    Outputs that were given count: all chips write them.
    """
    if mesh.ranks is None:
        return None
    said = (f"{name}={_said(value)}" for name, value in call.named.items() if value is not None)
    shared = described(definition.name, said, mesh.told_place)
    operands = [tensor for tensor in (*call.tensors, *listed(call.target)) if isinstance(tensor, Tensor)]
    # On every chip: tensors of equal shapes are no less different.
    addresses = tuple(tensor.storage.address for tensor in operands if tensor.storage.device is not None)
    mesh.ranks.calls.note(shared, addresses, current_queue())
    return shared


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
