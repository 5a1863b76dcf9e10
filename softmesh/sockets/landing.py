"""Where a message goes: the memory it is received into, and what the receiving tensor is afterwards."""

from __future__ import annotations

from functools import lru_cache

import torch

from softmesh.placement.distribution import Distribution, distribution
from softmesh.placement.words import LOCAL, REPLICATE
from softmesh.sockets.parcel import Description, Routes
from softmesh.tensor.storage import Storage, alias, is_sole_owner
from softmesh.tensor.tensor import Tensor


@lru_cache(maxsize=1024)
def landing(dist: Distribution, description: Description, routes: Routes) -> Distribution | None:
    """How a tensor that is received into lies afterwards; None where pieces must be put in one by one."""
    coords, words = dist.coordinates(), description.words
    if routes.devices != frozenset(coords):
        return None
    if words is not None and (words.mesh, words.spread, None) == (dist.mesh, dist.spread, dist.coords):
        return distribution(dist.mesh, words.grid, words.placements, None, dist.label, dist.spread)
    if description.pieces == 1 and dist.spread is None:
        return dist.with_placements((REPLICATE,) * dist.lead)
    order = dict(zip(routes.coords, description.which, strict=True))
    if [order[coord] for coord in coords] == list(range(description.pieces)):
        return dist.with_placements((LOCAL,) * dist.lead)
    return None


class Target:
    """Where a parcel goes: memory to receive into, and what the tensor's storage is afterwards."""

    def __init__(self, storage: Storage, output: Tensor, description: Description, routes: Routes) -> None:
        self._storage, self._output, self._description, self._routes = storage, output, description, routes
        self._dist = (
            None if output.shard_positions is not None else landing(storage.dist, description, routes)
        )
        lead = (description.pieces,) if self._dist is None else self._dist.extents
        assert storage.data is not None
        self.shape, self.dtype = (*lead, *output.spec.shape), storage.data.dtype
        self._buffer: torch.Tensor | None = None

    @property
    def buffer(self) -> torch.Tensor:
        """The memory that is there, where nothing else reads it; or what was put in its place, of this shape."""
        if self._buffer is None:
            self._buffer = self._memory()
        return self._buffer

    @buffer.setter
    def buffer(self, memory: torch.Tensor) -> None:
        self._buffer = memory

    def _memory(self) -> torch.Tensor:
        old = self._storage.data
        if self._dist is not None and old is not None and is_usable(old, self.shape):
            return old
        return torch.empty(self.shape, dtype=self.dtype)

    def fill(self, payload: torch.Tensor) -> None:
        """From a parcel in this process: shares its memory where it can, as a later write is then a copy."""
        if self._dist is None:
            self.buffer = payload
        elif self._storage.data is self.buffer:
            self.buffer.copy_(payload.reshape(self.buffer.shape))
        else:
            self.buffer = alias(payload.reshape(self.buffer.shape))

    def finish(self) -> None:
        """`buffer` is full: make it the tensor's. Devices without a route keep what they have."""
        storage, device = self._storage, self._storage.device
        values = self.buffer if device is None else self.buffer.to(device.torch_device)
        if self._dist is not None:
            storage.data, storage.dist, storage.undefined = values, self._dist, None
            self._output.topology_label = None
            return
        position = {coord: at for at, coord in enumerate(storage.dist.coordinates())}
        for coord, piece in zip(self._routes.coords, self._description.which, strict=True):
            storage.write_piece(position[coord], values[piece])


def is_usable(memory: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Whether values of this shape can be put there, and nothing else reads it."""
    return memory.shape == shape and memory.is_contiguous() and memory.is_cpu and is_sole_owner(memory)
