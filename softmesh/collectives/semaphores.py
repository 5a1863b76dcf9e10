"""TT-NN's functions for global semaphores, counters that kernels on all chips of a mesh wait on.

Collectives take them and count nothing: here a step ends before the next begins.
"""

from __future__ import annotations

from softmesh.arguments import checked, reject_unknown_keywords
from softmesh.cores import CoreRangeSet
from softmesh.hardware.enums import BufferType
from softmesh.runtime.buffers.global_buffers import GlobalSemaphore
from softmesh.runtime.device import MeshDevice

global_semaphore = GlobalSemaphore  # the class, as the native module calls it


@reject_unknown_keywords
def create_global_semaphore(
    mesh_device: MeshDevice,
    cores: CoreRangeSet,
    initial_value: int,
    buffer_type: BufferType = BufferType.L1,
) -> GlobalSemaphore:
    where = "create_global_semaphore"
    device = checked(where, "mesh_device", mesh_device, MeshDevice, "a MeshDevice")
    device.check_open(where)
    return GlobalSemaphore(device, cores, initial_value, buffer_type)


@reject_unknown_keywords
def get_global_semaphore_address(global_semaphore: GlobalSemaphore) -> int:
    return _checked_semaphore("get_global_semaphore_address", global_semaphore).address()


@reject_unknown_keywords
def reset_global_semaphore_value(global_semaphore: GlobalSemaphore, reset_value: int) -> None:
    _checked_semaphore("reset_global_semaphore_value", global_semaphore).reset_semaphore_value(reset_value)


def _checked_semaphore(where: str, semaphore: object) -> GlobalSemaphore:
    wanted = "a semaphore of ttnn.create_global_semaphore(...)"
    return checked(where, "global_semaphore", semaphore, GlobalSemaphore, wanted)
