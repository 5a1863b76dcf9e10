"""What a caller hands in as bytes, or wants filled: torch tensors, numpy arrays, anything with a buffer."""

from __future__ import annotations

import numpy as np
import torch

from softmesh.arguments import described, refused
from softmesh.errors import MeshError

HostData = torch.Tensor | np.ndarray | bytes | bytearray | memoryview
_WANTED = "a torch.Tensor, a numpy array, bytes or a bytearray"


def bytes_of(where: str, name: str, data: object) -> torch.Tensor:
    """`data` as a row of torch.uint8, without a copy where its memory is in one piece."""
    if isinstance(data, torch.Tensor):
        if data.requires_grad:
            data = data.detach()
        row = data if data.ndim == 1 else data.reshape(-1)
        return row if row.dtype is torch.uint8 else row.contiguous().view(torch.uint8)
    if isinstance(data, np.ndarray):
        return torch.from_numpy(_bytes_of_array(where, name, np.ascontiguousarray(data)))
    try:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
    except TypeError:
        raise refused(where, f"{name} must be {_WANTED}, got {described(data)}") from None
    held = np.frombuffer(view, np.uint8)
    return torch.from_numpy(held if held.flags.writeable else held.copy())


def _bytes_of_array(where: str, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.hasobject:
        raise refused(where, f"{name} must hold numbers, got a numpy array of {array.dtype}")
    held = array.reshape(-1).view(np.uint8)
    return held if held.flags.writeable else held.copy()


def at_least(where: str, name: str, data: torch.Tensor, size: int) -> torch.Tensor:
    """The first `size` bytes."""
    if data.numel() < size:
        raise MeshError(f"{where}: {name} has {data.numel()} bytes, and {size} are needed.")
    return data if data.numel() == size else data[:size]


def room_for(where: str, name: str, destination: object, size: int) -> torch.Tensor:
    """`size` bytes to fill: those of the destination itself. A bytearray grows or shrinks to them, None makes new."""
    if destination is None:
        return torch.empty(size, dtype=torch.uint8)
    if isinstance(destination, bytearray):
        destination[size:] = bytes(max(size - len(destination), 0))
        return torch.frombuffer(destination, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
    _check_fillable(where, name, destination)
    return at_least(where, name, bytes_of(where, name, destination), size)


def _check_fillable(where: str, name: str, destination: object) -> None:
    if isinstance(destination, torch.Tensor):
        fillable = destination.is_contiguous()
    elif isinstance(destination, np.ndarray):
        fillable = destination.flags.c_contiguous and destination.flags.writeable
    else:
        fillable = isinstance(destination, memoryview) and not destination.readonly and destination.contiguous
    if not fillable:
        raise refused(
            where,
            f"{name} is filled in place and must be None, a bytearray, or a contiguous and writable torch.Tensor or "
            f"numpy array; got {described(destination)}",
        )
