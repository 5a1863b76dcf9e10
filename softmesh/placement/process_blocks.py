"""Process blocks: one mesh held by several processes, each of which has a block of it and of every tensor on it.

A block's tensors have the block's own leading dims; the words for their axes speak of the whole mesh. What
needs more than the block (a collective along an axis, reading a tensor back) is widened: the blocks along
some axes are put side by side, and afterwards the own part is taken again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from softmesh.errors import NotModelled
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Distribution, Extents, distribution
from softmesh.placement.placements import REPLICATE

# (data, mesh axes) -> what the processes along these axes hold, side by side
Gather = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]


@dataclass(frozen=True)
class Block:
    """`hosts` blocks along each axis of `mesh`, this one `at` these places among them."""

    mesh: Extents
    hosts: Extents
    at: Extents

    @property
    def shape(self) -> Extents:
        return tuple(n // h for n, h in zip(self.mesh, self.hosts, strict=True))

    @property
    def origin(self) -> Extents:
        return tuple(i * n for i, n in zip(self.at, self.shape, strict=True))

    def contains(self, coordinate: Sequence[int]) -> bool:
        pairs = zip(coordinate, self.origin, self.shape, strict=True)
        return all(first <= c < first + n for c, first, n in pairs)

    def coordinates(self) -> list[MeshCoordinate]:
        """Where this block's devices lie in the whole mesh, row-major."""
        ranges = [range(first, first + n) for first, n in zip(self.origin, self.shape, strict=True)]
        return [MeshCoordinate(list(place)) for place in product(*ranges)]

    def own_part(self, data: torch.Tensor, dist: Distribution) -> tuple[torch.Tensor, Distribution]:
        """A tensor on the whole mesh, cut down to this block."""
        if dist.coords is not None or dist.grid != self.mesh:
            raise NotModelled(
                f"A tensor on {MeshShape(self.mesh)} over {math.prod(self.hosts)} processes must be distributed along "
                f"the axes of the mesh, on all of its devices; this one lies on a grid {dist.grid}. Use a mapper with "
                "one placement for each mesh axis, such as ttnn.ShardTensor2dMesh."
            )
        for axis, (first, n) in enumerate(zip(self.origin, self.shape, strict=True)):
            if dist.placements[axis] is not REPLICATE:
                data = data.narrow(axis, first, n)
        return data, self.narrow(dist)

    def wide(self, dist: Distribution, axes: Sequence[int]) -> Distribution:
        """How a tensor lies when the blocks along these axes are put side by side."""
        grid = tuple(n * self.hosts[axis] if axis in axes else n for axis, n in enumerate(dist.grid))
        spread = tuple(1 if axis in axes else n for axis, n in enumerate(self.hosts))
        left = None if all(n == 1 for n in spread) else spread
        return distribution(grid, grid, dist.placements, None, dist.label, left)

    def widened(self, data: torch.Tensor, dist: Distribution, axes: Sequence[int], gather: Gather) -> torch.Tensor:
        """The blocks along these mesh axes side by side; what all devices share needs no sending."""
        spread = self.spread_axes(dist, axes)
        return gather(data, spread) if spread else data

    def spread_axes(self, dist: Distribution, axes: Sequence[int]) -> tuple[int, ...]:
        """Those of the axes along which other processes hold other pieces."""
        return tuple(axis for axis in axes if self.hosts[axis] > 1 and dist.placements[axis] is not REPLICATE)

    def narrow(self, dist: Distribution) -> Distribution:
        """A wide distribution as this block sees it again."""
        label = self.mesh if dist.label == dist.mesh else dist.label
        return distribution(self.shape, self.shape, dist.placements, None, label, self.hosts)

    def narrowed(self, data: torch.Tensor, dist: Distribution, axes: Sequence[int]) -> torch.Tensor:
        """The own part along these axes, at the extents that the wide distribution names."""
        local = data.shape[dist.lead :]
        if (*dist.extents, *local) != tuple(data.shape):
            data = data.expand(*dist.extents, *local)
        for axis in axes:
            if dist.placements[axis] is not REPLICATE:
                data = data.narrow(axis, self.origin[axis], self.shape[axis])
        return data
