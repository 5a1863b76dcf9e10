"""Copies between a GPU and the host through pinned memory, for values that travel on to other ranks.

Ranks of one machine exchange bytes in memory of the host, so device memory comes there first. Pageable memory would be
copied once more on the way, by the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_WORTH_PINNING = 1 << 16  # bytes


def to_host(data: torch.Tensor) -> torch.Tensor:
    """The values on the host, there when this returns; itself, where they are there already."""
    if not data.is_cuda or data.nbytes < _WORTH_PINNING:
        return data.cpu()
    found = torch.empty(data.shape, dtype=data.dtype, pin_memory=True)
    found.copy_(data, non_blocking=True)
    torch.cuda.current_stream(data.device).synchronize()
    return found


def to_device(data: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The values where a mesh has them; from pinned memory without waiting for it."""
    return data.to(device, non_blocking=device.type == "cuda" and data.is_pinned())


def empty_on_host(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | None) -> torch.Tensor:
    """Memory for what will go on to this device."""
    return torch.empty(shape, dtype=dtype, pin_memory=device is not None and device.type == "cuda")


def over_host(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The same computation of tensors on a GPU, where it has to be made on the host."""

    def run(*data: Any) -> Any:
        device = next((value.device for value in data if isinstance(value, torch.Tensor)), None)
        if device is None or device.type != "cuda":
            return compute(*data)
        made = compute(*(to_host(value) if isinstance(value, torch.Tensor) else value for value in data))
        if isinstance(made, torch.Tensor):
            return to_device(made, device)
        return type(made)(to_device(one, device) for one in made)

    return run
