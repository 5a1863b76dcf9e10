"""Where circular buffers lie in L1: from the bottom up, in order, at one address on all their cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware import SubDeviceId
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.program.circular_buffer import CircularBuffer

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


def place(buffers: Sequence[CircularBuffer], mesh: MeshDevice) -> None:
    """Give each its address."""
    base, alignment = mesh.memory.get_base_allocator_addr(BufferType.L1), mesh.system.chip.dram_alignment
    tops: dict[CoreCoord, int] = {}
    for buffer in buffers:
        if buffer.config.address is not None:
            buffer.address = buffer.config.address + buffer.config.address_offset
            continue
        top = max(tops.get(core, base) for core in buffer.places)
        buffer.address = -(-top // alignment) * alignment
        tops.update(dict.fromkeys(buffer.places, buffer.end))


def check_room(
    buffers: Sequence[CircularBuffer], mesh: MeshDevice, program: int, cores: CoreRangeSet
) -> None:
    """Refuse circular buffers that reach beyond L1, or into the buffers and tensors that lie there."""
    static = [buffer for buffer in buffers if buffer.is_static]
    if not static:
        return
    highest = max(static, key=lambda buffer: buffer.end)
    largest = mesh.system.chip.l1_bytes
    if highest.end > largest:
        raise MeshError(
            f"Statically allocated circular buffers on core range {highest.cores} grow to {highest.end} B which is "
            f"beyond max L1 size of {largest} B. Make them smaller, or work in smaller blocks."
        )
    used = [SubDeviceId(number) for number in sorted(mesh.sub_devices.of_cores(cores))]
    lowest = mesh.lowest_occupied_compute_l1_address(used)
    if lowest is not None and highest.end > lowest:
        raise MeshError(
            f"Statically allocated circular buffers in program {program} clash with L1 buffers on core range "
            f"{highest.cores}. L1 buffer allocated at {lowest} and static circular buffer region ends at "
            f"{highest.end}. Deallocate tensors in L1 or move them to DRAM, or make the circular buffers smaller."
        )
