"""Errors of the machine that simulates the chips, in words: host or GPU memory has run out, or the GPU works no more.

A GPU's memory is told apart from that of the modelled chips, which runs out by itself (`out_of_memory`): a card of
140 GiB holds eight chips of 12 GiB, and not thirty-two.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from softmesh.errors import GpuFailure, MeshError, OutOfGpuMemory, SoftmeshError
from softmesh.hardware.enums import BufferType
from softmesh.runtime.memory.host_memory import shortage_of

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+ [KMGT]?i?B)")


_FAILED = re.compile(r"CUDA error: (.*)")
_OF_A_CAPTURE = "captur"  # what a graph cannot hold: the card is well


_P = ParamSpec("_P")
_R = TypeVar("_R")


def raise_machine_error(where: str, error: BaseException, mesh: MeshDevice | None) -> None:
    """Raise the error in words, if it is one of the machine; return if it is any other."""
    if isinstance(error, SoftmeshError):
        return
    found = shortage_of(where, error) or gpu_error_of(where, error, mesh)
    if found is not None:
        raise found from error


def mesh_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The mesh that a call is about, where it names one or a tensor on one."""
    for value in (*args, *kwargs.values()):
        storage = getattr(value, "storage", None)
        mesh = value if hasattr(value, "torch_device") else getattr(storage, "device", None)
        if mesh is not None:
            return mesh
    return None


def gpu_error_of(where: str, error: BaseException, mesh: MeshDevice | None) -> MeshError | None:
    """For memory that the GPU refused, and for a GPU that has failed; None for any other error."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return _shortage(where, error, mesh)
    failed = _FAILED.search(str(error))
    if failed is None or _OF_A_CAPTURE in failed[1]:
        return None
    return GpuFailure(
        f"{where}: the GPU has failed: {failed[1].rstrip('.')}. A GPU tells it late: an earlier call may be the cause, "
        "which CUDA_LAUNCH_BLOCKING=1 finds. Tensors on the GPU are lost, and this process cannot use it again. See "
        "with nvidia-smi whether it is still there, and start the program anew; SOFTMESH_DEVICE=cpu does without it."
    )


def _shortage(where: str, error: BaseException, mesh: MeshDevice | None) -> OutOfGpuMemory:
    found = _ASKED.search(str(error))
    asked = f"{found[1]} more are needed" if found else "more is needed"
    return OutOfGpuMemory(
        f"{where}: the GPU's memory has run out: {asked}{_left_on_card(mesh)}. It holds the values of all modelled "
        f"chips{_left_on_chips(mesh)}. Deallocate what is no longer used, release traces, use a smaller shape or "
        "dtype, shard instead of replicating, or take a card with more memory. What was computed before is still there."
    )


def _left_on_card(mesh: MeshDevice | None) -> str:
    if not torch.cuda.is_initialized():
        return ""
    card = None if mesh is None else mesh.torch_device  # None: the current one
    free, total = torch.cuda.mem_get_info(card)
    held = torch.cuda.memory_allocated(card)
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
