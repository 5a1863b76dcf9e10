"""Zeros that take none of the host's memory until they are written: pages that the system has not given yet."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch

from softmesh import value_free

LARGE = 1 << 20  # bytes; below, zeros in memory that is reused are made faster than a page is got


def untouched_zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device | None = None) -> torch.Tensor:
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE or value_free.is_on or (device is not None and device.type != "cpu"):
        return torch.zeros(*shape, dtype=dtype, device=device)
    try:
        pages = mmap.mmap(-1, size)
    except OSError:  # as large as no machine: torch says so
        return torch.zeros(*shape, dtype=dtype)
    # Not a view of another tensor, as a reshape would be: who writes must see that nobody else reads it.
    storage = torch.frombuffer(pages, dtype=dtype).untyped_storage()
    place = storage, 0, torch.Size(shape), torch.empty(*shape, device="meta").stride()
    return torch.empty(0, dtype=dtype).set_(*place)
