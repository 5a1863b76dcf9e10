"""Turns TF32 off: float32 with all of its bits on a GPU, where convolutions would round their factors to 11 of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


def full_float32(device: torch.device) -> AbstractContextManager[None]:
    """While it lasts, convolutions there are computed in float32 and give the same bits each time."""
    return nullcontext() if device.type != "cuda" else _full_on_gpus()


@contextmanager
def _full_on_gpus() -> Iterator[None]:
    cudnn: Any = torch.backends.cudnn
    # torch has two switches and refuses to read the older one once the newer was used, by us or by the user.
    switch, name, full = (
        (cudnn.conv, "fp32_precision", "ieee") if hasattr(cudnn, "conv") else (cudnn, "allow_tf32", False)
    )
    before = getattr(switch, name), cudnn.deterministic
    setattr(switch, name, full)
    cudnn.deterministic = True
    try:
        yield
    finally:
        setattr(switch, name, before[0])
        cudnn.deterministic = before[1]
