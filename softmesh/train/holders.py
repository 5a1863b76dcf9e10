"""Where several processes hold one mesh: who speaks for what they share."""

from __future__ import annotations

from softmesh.placement.words import Replicate
from softmesh.tensor.tensor import Tensor


def is_first_holder(tensor: Tensor) -> bool:
    """Whether no process before this one stores the same: what several share is saved, and counts, once."""
    storage = tensor.storage
    block = None if storage.device is None else storage.device.block
    if storage.dist.spread is None or block is None:
        return True
    return all(
        at == 0
        for at, word in zip(block.at, storage.dist.placements, strict=True)
        if isinstance(word, Replicate)
    )
