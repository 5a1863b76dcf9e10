"""The memory behind tensors: one torch tensor for a whole mesh, shared by all its views.

`data` is `(*extents, *local_shape)`, extent 1 where devices agree (see placement.distribution).
A write to one device first gives it a value of its own (copy on write); a write never reaches memory
that something else still reads: results that are views of an input, autograd's saved tensors, or the
user's own torch tensor.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import stored_index
from softmesh.placement.words import LOCAL, Shard
from softmesh.tensor.undefined import Undefined

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

_ADDRESSES = itertools.count(1)
_ADDRESS_STEP = 32


class Storage:
    """`data is None` once deallocated; `device is None` on the host."""

    __slots__ = ("_address", "data", "device", "dist", "undefined")

    def __init__(self, data: torch.Tensor | None, dist: Distribution, device: MeshDevice | None) -> None:
        self.data = data
        self.dist = dist
        self.device = device
        self._address = 0
        self.undefined: Undefined | None = None  # pieces that no op has written yet

    @property
    def address(self) -> int:
        """A stable number of its own, aligned as device memory is; the allocator's model is not this."""
        if not self._address:
            self._address = next(_ADDRESSES) * _ADDRESS_STEP
        return self._address

    def replace(self, data: torch.Tensor, dist: Distribution) -> None:
        """Overwrite everything: all views see the new values under the new distribution.

        Where the shape stays, values are copied into the memory that is there, so that whoever recorded
        its place (a trace) reads the new ones.
        """
        old = self.data
        if (
            old is not None
            and old.shape == data.shape
            and old.dtype == data.dtype
            and not (old.requires_grad or data.requires_grad)
            and is_sole_owner(old)
        ):
            old.copy_(data)
        else:
            self.data = data if data is old else alias(data)
        self.dist = dist
        self.undefined = None

    def writable(self) -> torch.Tensor:
        """The data, safe to change in place."""
        assert self.data is not None
        if not is_sole_owner(self.data):
            self.data = self.data.clone()
        return self.data

    def piece(self, position: int) -> torch.Tensor:
        """A view of what the device at this position of the flattened grid holds."""
        assert self.data is not None
        return self.data[stored_index(self.dist, position)]

    def write_piece(self, position: int, values: torch.Tensor) -> None:
        """Give one device new values; the others keep theirs. A split stays, any other word becomes Local."""
        assert self.data is not None
        dist = self.dist
        own = tuple(
            word if n == 1 or isinstance(word, Shard) else LOCAL
            for word, n in zip(dist.placements, dist.grid, strict=True)
        )
        self.dist = dist.with_placements(own)
        if self.dist.extents != dist.extents:
            self.data = self.data.expand(*self.dist.extents, *self.data.shape[dist.lead :]).clone()
        self.writable()[stored_index(self.dist, position)] = values
        if self.undefined is not None:
            self.undefined = self.undefined.without(self.dist.coordinates()[position])


def is_sole_owner(data: torch.Tensor) -> bool:
    """Whether nothing but `data` reads its memory.

    torch counts the owners of a storage; asking for the storage makes one more.
    """
    if data._base is not None or data.requires_grad:
        return False
    storage = data.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata) <= 2


def alias(data: torch.Tensor) -> torch.Tensor:
    """The same memory under a torch tensor of its own, so that both are seen to share it."""
    return data.view_as(data)
