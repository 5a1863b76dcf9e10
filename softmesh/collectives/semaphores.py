"""Counters that kernels on all chips of a mesh wait on. Here a step ends before the next begins: only bookkeeping."""

from __future__ import annotations

import itertools

from softmesh.arguments import checked, checked_int, knows_its_names, refused
from softmesh.cores import CoreRangeSet
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.memory import BufferType

_STEP = 16  # bytes: a word of its own, aligned as L1 is
_ADDRESSES = itertools.count(1)
_MAX_VALUE = 2**32 - 1


class GlobalSemaphore:
    """The same address on all cores and chips; `value` is what it was last set to."""

    __slots__ = ("address", "buffer_type", "cores", "device", "value")

    def __init__(self, device: MeshDevice, cores: CoreRangeSet, value: int, buffer_type: BufferType) -> None:
        self.device = device
        self.cores = cores
        self.value = value
        self.buffer_type = buffer_type
        self.address = next(_ADDRESSES) * _STEP

    def __repr__(self) -> str:
        return f"global_semaphore(address={self.address}, value={self.value})"


@knows_its_names
def create_global_semaphore(
    mesh_device: MeshDevice,
    cores: CoreRangeSet,
    initial_value: int,
    buffer_type: BufferType = BufferType.L1,
) -> GlobalSemaphore:
    where = "create_global_semaphore"
    device = checked(where, "mesh_device", mesh_device, MeshDevice, "a MeshDevice")
    device.check_open(where)
    wanted = "a ttnn.CoreRangeSet such as ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (7, 7))])"
    return GlobalSemaphore(
        device,
        checked(where, "cores", cores, CoreRangeSet, wanted),
        _checked_count(where, "initial_value", initial_value),
        checked(where, "buffer_type", buffer_type, BufferType, "a ttnn.BufferType"),
    )


@knows_its_names
def get_global_semaphore_address(global_semaphore: GlobalSemaphore) -> int:
    return _checked_semaphore("get_global_semaphore_address", global_semaphore).address


@knows_its_names
def reset_global_semaphore_value(global_semaphore: GlobalSemaphore, reset_value: int) -> None:
    where = "reset_global_semaphore_value"
    semaphore = _checked_semaphore(where, global_semaphore)
    semaphore.value = _checked_count(where, "reset_value", reset_value)


def _checked_semaphore(where: str, semaphore: object) -> GlobalSemaphore:
    wanted = "a semaphore of ttnn.create_global_semaphore(...)"
    return checked(where, "global_semaphore", semaphore, GlobalSemaphore, wanted)


def _checked_count(where: str, name: str, value: object) -> int:
    count = checked_int(where, name, value)
    if not 0 <= count <= _MAX_VALUE:
        raise refused(where, f"{name} must be 0 to {_MAX_VALUE}, got {count}")
    return count
