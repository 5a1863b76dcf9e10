"""Counts the owners of a torch storage: the tensors and views, in Python and in C++, that keep its memory alive.

torch tells it by a function of its own alone, which its CUDA graphs rest upon; no public one does. Memory that nobody
else reads can be written over or handed out again, and that is the only safe way to know. Asking for the storage
object of a tensor makes one owner more, for as long as the object lives.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

# By the handle `storage._cdata`, which may be kept: it is asked for at every call of a hot path.
storage_owners: Callable[[int], int] = torch._C._storage_Use_Count


def without_view_base(data: torch.Tensor) -> torch.Tensor:
    """The same memory as no view of another tensor: `is_sole_owner` can tell whether that one is still there."""
    if data._base is None:
        return data
    place = data.untyped_storage(), data.storage_offset(), data.shape, data.stride()
    return data.new_empty(0).set_(*place)
