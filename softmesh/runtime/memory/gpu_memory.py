"""Memory of the GPU that holds the chips' values: how much is left, and the error when it runs out.

Told apart from the memory of the modelled chips, which runs out by itself (`out_of_memory`): a card of 140 GiB holds
eight chips of 12 GiB, and not thirty-two.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from softmesh.errors import OutOfGpuMemory
from softmesh.hardware.enums import BufferType

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+ [KMGT]?i?B)")


def gpu_shortage_of(where: str, error: BaseException, mesh: MeshDevice | None) -> OutOfGpuMemory | None:
    """For an allocation on a GPU that torch was refused; None for any other error."""
    if not isinstance(error, torch.cuda.OutOfMemoryError):
        return None
    found = _ASKED.search(str(error))
    asked = f"{found[1]} more are needed" if found else "more is needed"
    return OutOfGpuMemory(
        f"{where}: the GPU's memory has run out: {asked}{_left_on_card()}. It holds the values of all modelled chips"
        f"{_left_on_chips(mesh)}. Deallocate what is no longer used, release traces, use a smaller shape or dtype, "
        "shard instead of replicating, or take a card with more memory. What was computed before is still there."
    )


def _left_on_card() -> str:
    if not torch.cuda.is_initialized():
        return ""
    free, total = torch.cuda.mem_get_info()
    held = torch.cuda.memory_allocated()
    return f", and {_gib(free)} of {_gib(total)} are free ({_gib(held)} hold tensors)"


def _left_on_chips(mesh: MeshDevice | None) -> str:
    """They have room of their own, which did not run out."""
    if mesh is None:
        return ""
    found, banks = mesh.memory.get_statistics(BufferType.DRAM), mesh.memory.get_num_banks(BufferType.DRAM)
    free, total = (banks * count for count in (found.total_free_bytes, found.total_allocatable_size_bytes))
    return f"; each of these has {_gib(free)} of its {_gib(total)} DRAM left"


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB"
