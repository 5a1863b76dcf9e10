"""GlobalSemaphore: a counter at the same L1 address on some cores of every chip, which outlives programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from softmesh.arguments import checked_int, refused
from softmesh.cores import CoreRangeSet
from softmesh.hardware.buffer_type import BufferType
from softmesh.runtime.buffers.per_core import check_cores, check_l1, page_per_core

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

_WORD = 4  # bytes
_MAX_VALUE = 2**32 - 1


class GlobalSemaphore:
    """`value` is what the host set last; what kernels made of it is in `buffer`."""

    __slots__ = ("buffer", "cores", "value")

    def __init__(
        self,
        device: MeshDevice,
        cores: CoreRangeSet,
        initial_value: int,
        buffer_type: BufferType = BufferType.L1,
    ) -> None:
        where = "Global semaphore"
        self.cores = check_cores(where, "cores", cores)
        value = _checked_count("initial_value", initial_value)
        self.buffer = page_per_core(device, cores, _WORD, check_l1(where, buffer_type))
        self.reset_semaphore_value(value)

    def device(self) -> MeshDevice:
        return self.buffer.device()

    def address(self) -> int:
        return self.buffer.address()

    def reset_semaphore_value(self, reset_value: int) -> None:
        self.value = _checked_count("reset_value", reset_value)
        words = torch.full((self.cores.num_cores(),), self.value, dtype=torch.int64).to(torch.uint32)
        self.device().mesh_command_queue().enqueue_write_mesh_buffer(self.buffer, words)

    def __repr__(self) -> str:
        return f"global_semaphore(address={self.address()}, value={self.value})"


def _checked_count(name: str, value: object) -> int:
    count = checked_int("GlobalSemaphore", name, value)
    if not 0 <= count <= _MAX_VALUE:
        raise refused("GlobalSemaphore", f"{name} must be 0 to {_MAX_VALUE}, got {count}")
    return count
