"""Tensors as reports show them: a `TensorRecord` of an operand, made once for each tensor."""

from __future__ import annotations

from typing import Any

from softmesh.cost.timeline import TensorRecord
from softmesh.runtime.command_tensor import CommandTensor
from softmesh.tensor.footprint import footprint


class TensorRecords:
    """Keeps records, never tensors. A tensor that is placed otherwise later gets another record."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], TensorRecord] = {}
        self._forms: dict[tuple[Any, ...], TensorRecord] = {}

    def of(self, tensor: CommandTensor) -> TensorRecord:
        storage = tensor.storage
        key = (tensor.tensor_id, id(storage.dist))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._record(tensor)
        return known

    def _record(self, tensor: CommandTensor) -> TensorRecord:
        storage, spec = tensor.storage, tensor.spec
        device = storage.device
        is_placed = device is not None and getattr(storage, "claim", None) is not None
        form = self._form(spec, device, tensor.view_distribution())
        address = storage.address if is_placed else None
        return form._replace(tensor_id=tensor.tensor_id, address=address)

    def _form(self, spec: Any, device: Any, dist: Any) -> TensorRecord:
        memory_map = None if device is None else device.memory.memory_map
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
