"""Activation offload: values freed after the forward pass and reloaded when the backward pass reads them.

The graph of a forward pass holds on to what its ops read. An `Offload` frees the memory of such a value and keeps its
place: whatever refers to it, views included, finds the values there again once they are reloaded. What ops save inside
`saving_offloaded_values()` is reloaded on demand; whoever keeps values elsewhere calls `reload_values`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary, ref

import torch
from torch.autograd.graph import saved_tensors_hooks


class Offloader(Protocol):
    def reload_values(self) -> None:
        """Fill the loans that are away: somebody reads one of them."""
        ...


class Offload:
    def __init__(self, data: torch.Tensor, offloader: Offloader) -> None:
        self.data = data.data  # with versions of its own: bringing values back is no change of them
        self._bytes = data.untyped_storage().nbytes()
        self._offloader = ref(offloader)  # a part of the graph, as all are that read the values
        self.is_offloaded = False
        _OFFLOADS[_place(data)] = self

    def evict(self, *, frees_memory: bool) -> None:
        """`frees_memory`: give the memory back too."""
        self.is_offloaded = True
        if frees_memory:
            self.data.untyped_storage().resize_(0)

    def reload_values(self) -> None:
        offloader = self._offloader()
        if self.is_offloaded and offloader is not None:
            offloader.reload_values()

    def fill(self, values: torch.Tensor) -> None:
        """Put the values in their place again."""
        self.is_offloaded = False
        storage = self.data.untyped_storage()
        if storage.nbytes() < self._bytes:
            storage.resize_(self._bytes)
            self.data.copy_(values)


class _Part(NamedTuple):
    """A view of a value on offload."""

    offload: Offload
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


_OFFLOADS: WeakValueDictionary[int, Offload] = WeakValueDictionary()


def _place(data: torch.Tensor) -> int:
    return int(data.untyped_storage()._cdata)


def _packed(saved: torch.Tensor) -> Any:
    offload = _OFFLOADS.get(_place(saved))
    if offload is None or saved.dtype is not offload.data.dtype:
        return saved.detach()
    return _Part(offload, saved.size(), saved.stride(), int(saved.storage_offset()))


def _unpacked(kept: Any) -> torch.Tensor:
    if not isinstance(kept, _Part):
        return kept
    kept.offload.reload_values()
    return kept.offload.data.as_strided(kept.size, kept.stride, kept.offset)


def saving_offloaded_values() -> AbstractContextManager[Any]:
    """While it lasts, ops that save a value on offload for the backward pass save only where it is found."""
    return saved_tensors_hooks(_packed, _unpacked)


def reload_values(values: Iterable[Any]) -> None:
    """Make sure that those of the values that are on offload are there."""
    if not _OFFLOADS:
        return
    for value in values:
        if isinstance(value, torch.Tensor):
            offload = _OFFLOADS.get(_place(value))
            if offload is not None:
                offload.reload_values()
