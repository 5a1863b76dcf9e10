"""The bytes of a mesh buffer: one torch tensor, its leading dims the mesh (extent 1 where all devices agree)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.runtime.buffers.placed import PageLayout, Placed


class MeshMemory(Placed):
    """Zeros until written. `mesh` are the extents of the mesh, or of this process's part of it."""

    def __init__(self, layout: PageLayout, address: int, mesh: Sequence[int], on: torch.device) -> None:
        super().__init__(layout, address)
        self.mesh = tuple(mesh)
        self._on = on
        self.was_allocated = False  # otherwise only views look at it
        self._data: torch.Tensor | None = None

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has asked for the bytes yet: nothing was ever written."""
        return self._data is None

    @property
    def data(self) -> torch.Tensor:
        if self._data is None:
            self._data = self._room((1,) * len(self.mesh)).zero_()
        return self._data

    def materialise(self) -> torch.Tensor:
        return self.extended(self.mesh)

    def extended(self, extents: Sequence[int]) -> torch.Tensor:
        """The data with at least these extents; devices that agreed so far get copies."""
        data = self.data
        wanted = [max(have, n) for have, n in zip(data.shape, extents, strict=False)]
        if wanted != list(data.shape[: len(wanted)]):
            self._data = data = self._room(wanted).copy_(data)
        return data

    def replaced(self, extents: Sequence[int]) -> torch.Tensor:
        """Room with exactly these extents, all of which the caller writes."""
        if self._data is None or tuple(self._data.shape[: len(self.mesh)]) != tuple(extents):
            self._data = self._room(extents)
        return self._data

    def store(self) -> None:
        """`data` is the memory itself: what was written into it is there."""

    def _room(self, extents: Sequence[int]) -> torch.Tensor:
        size = (*extents, self.layout.num_pages, self.layout.page_size)
        with torch.inference_mode(False):  # it will be written to, in that mode and out of it
            return torch.empty(size, dtype=torch.uint8, device=self._on)
