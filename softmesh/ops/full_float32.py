"""float32 with all of its bits on a GPU, where convolutions would round their factors to 11 of them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def full_float32(device: torch.device) -> AbstractContextManager[None]:
    """While it lasts, convolutions there are computed in float32 and give the same bits each time."""
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
