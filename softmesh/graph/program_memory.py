"""Memory that an op's program takes on each of its cores while it runs, for the ops of which it is known.

Element-wise programs stream tiles through circular buffers that hold two of them, one buffer for each tensor; shards in
L1 are buffers themselves, and a number takes one tile.
`repeat` of rows has two dataflow buffers, each a page with room to align it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from softmesh.hardware.enums import BufferType, Layout
from softmesh.runtime.command_tensor import CommandTensor
from softmesh.tensor.footprint import footprint

CIRCULAR_BUFFER = "circular_buffer_allocate"
DATAFLOW_BUFFER = "dataflow_buffer_allocate"
SCRATCHPAD = "scratchpad_allocate"
PROGRAM_ENDS = "circular_buffer_deallocate_all"

# What says of a buffer that it lies in another's memory, by kind.
BORROWED = {CIRCULAR_BUFFER: "globally_allocated", DATAFLOW_BUFFER: "borrows_memory", SCRATCHPAD: ""}

_BINARY = "BinaryNgDeviceOperation"
_STREAMS_TILES = ("UnaryDeviceOperation", _BINARY, "TernaryDeviceOperation")
_TILES_AT_ONCE = 2
_ALIGNMENT = 64


class CoreMemory(NamedTuple):
    """A buffer on each core of a program, `size` in bytes."""

    kind: str
    size: int
    is_borrowed: bool

    @property
    def params(self) -> dict[str, str]:
        return {"size": str(self.size), BORROWED[self.kind]: str(int(self.is_borrowed))}


def of_program(
    native: str, arguments: Mapping[str, Any], inputs: Sequence[CommandTensor], outputs: Sequence[CommandTensor]
) -> list[CoreMemory]:
    """In the order in which the program makes them; none where they are not known, or where nothing runs on a chip."""
    tensors = (*inputs, *outputs)
    if not inputs or not outputs or any(tensor.storage.device is None for tensor in tensors):
        return []
    if native in _STREAMS_TILES and all(tensor.layout is Layout.TILE for tensor in tensors):
        streams = [_stream(tensor) for tensor in tensors]
        if native == _BINARY and len(inputs) == 1:
            streams.insert(1, CoreMemory(CIRCULAR_BUFFER, outputs[0].storage.spec.page_size(), is_borrowed=False))
        return streams
    if native == "RepeatDeviceOperation" and inputs[0].layout is Layout.ROW_MAJOR:
        kind = DATAFLOW_BUFFER if arguments.get("implementation") == "native" else CIRCULAR_BUFFER
        page = 2 * _ALIGNMENT + inputs[0].storage.spec.page_size()
        return [CoreMemory(kind, page, is_borrowed=False)] * 2
    return []


def _stream(tensor: CommandTensor) -> CoreMemory:
    spec, device = tensor.storage.spec, tensor.storage.device
    config = tensor.memory_config()
    if config.is_sharded() and config.buffer_type is BufferType.L1:
        assert device is not None
        return CoreMemory(CIRCULAR_BUFFER, footprint(spec, device.memory.memory_map).bytes_per_bank, is_borrowed=True)
    return CoreMemory(CIRCULAR_BUFFER, _TILES_AT_ONCE * spec.page_size(), is_borrowed=False)
