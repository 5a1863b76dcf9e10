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
    """Return the same memory as a tensor that is no view, so that its owners can be counted.

    `detach` shares the version counter of the base: answers that were cached by (address, version) stay valid, and a
    write through any other view of the memory still invalidates them.
    """
    return data if data._base is None else data.detach()
