"""Tensors as reports show them: a `TensorRecord` of each operand, worked out when a run is over.

While a program runs only what a tensor is made of is noted, once for each: its spec, its placement and its claim on
memory, which knows the address. None of them keeps the tensor alive.
"""

from __future__ import annotations

from typing import Any

from softmesh.cost.timeline import TensorRecord
from softmesh.runtime.command_tensor import CommandTensor
from softmesh.tensor.footprint import footprint


class TensorRecords:
    def __init__(self) -> None:
        self._noted: dict[int, tuple[Any, Any, Any, Any]] = {}  # spec, memory map, distribution and claim, by number
        self._forms: dict[tuple[Any, ...], TensorRecord] = {}
        self._made: dict[int, TensorRecord] = {}

    def note(self, tensors: tuple[CommandTensor, ...]) -> tuple[int, ...]:
        """Their numbers; what is seen for the first time is noted."""
        noted, numbers = self._noted, []
        for tensor in tensors:
            number = tensor.tensor_id
            if number not in noted:
                storage: Any = tensor.storage
                device = storage.device
                memory_map = None if device is None else device.memory.memory_map
                dist = storage.dist if tensor.shard_positions is None else tensor.view_distribution()
                noted[number] = tensor.spec, memory_map, dist, storage.claim
            numbers.append(number)
        return tuple(numbers)

    def record(self, number: int) -> TensorRecord:
        """Of a tensor that was noted."""
        known = self._made.get(number)
        if known is None:
            spec, memory_map, dist, claim = self._noted[number]
            address = None if claim is None or memory_map is None else claim.address
            known = self._form(spec, memory_map, dist)._replace(tensor_id=number, address=address)
            self._made[number] = known
        return known

    def claims(self) -> dict[int, tuple[int, Any]]:
        """By the number of an allocation: the first tensor that lay there, and its spec."""
        found: dict[int, tuple[int, Any]] = {}
        for number, (spec, _, _, claim) in self._noted.items():
            if claim is not None:
                found.setdefault(claim.number, (number, spec))
        return found

    def allocation_of(self, number: int) -> int | None:
        """The number of the allocation that a tensor lies in."""
        claim = self._noted[number][3]
        return None if claim is None else claim.number

    def _form(self, spec: Any, memory_map: Any, dist: Any) -> TensorRecord:
        key = (spec, id(memory_map), dist)
        known = self._forms.get(key)
        if known is None:
            known = self._forms[key] = _form_of(spec, memory_map, dist)
        return known


def _form_of(spec: Any, memory_map: Any, dist: Any) -> TensorRecord:
    """Of a tensor without a number and an address."""
    config = spec.memory_config
    room = None if memory_map is None else footprint(spec, memory_map)
    shards = config.shard_spec
    cut = config.nd_shard_spec
    shard = tuple(shards.shape) if shards is not None else tuple(cut.shard_shape) if cut is not None else None
    return TensorRecord(
        tensor_id=0,
        shape=tuple(spec.shape),
        padded_shape=tuple(spec.padded_shape),
        dtype=spec.dtype.name,
        layout=spec.layout.name,
        memory_config=repr(config),
        memory_layout=config.memory_layout.name,
        buffer_type=None if room is None else config.buffer_type.name,
        address=None,
        bytes_per_bank=0 if room is None else room.bytes_per_bank,
        page_bytes=spec.page_size() if spec.volume() else 0,
        banks=0 if room is None else room.banks,
        shard_shape=shard,
        placement=tuple(map(repr, dist.placements)),
    )
