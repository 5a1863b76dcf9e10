"""The bytes of what travels between processes, without a copy.

A buffer is anything that holds contiguous bytes: bytes, numpy arrays, memoryviews, torch tensors on the CPU.
"""

from __future__ import annotations

from typing import Any

from softmesh.errors import MeshError

Buffer = Any


def byte_view(buffer: Buffer, *, written: bool = False) -> memoryview:
    """The bytes of a buffer, without a copy."""
    view = memoryview(_bytes_of_tensor(buffer, written) if hasattr(buffer, "data_ptr") else buffer)
    if not view.contiguous:
        raise MeshError("a buffer that travels between processes must be contiguous")
    if written and view.readonly:
        raise MeshError("a buffer that is received into must be writable")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _bytes_of_tensor(tensor: Any, written: bool) -> Any:
    import torch

    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise MeshError("a tensor that travels between processes must be contiguous and on the CPU")
    if written and not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)  # torch does not see what comes through numpy
    # numpy does not know all of torch's types, but it knows bytes
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()
