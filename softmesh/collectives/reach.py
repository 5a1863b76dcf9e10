"""How far the data of a collective must be brought together where several processes hold one mesh.

The blocks of the processes along the collective's axis are put side by side, the collective's expression is
applied to them, and each process takes its own part of the result: the same expression on the same values as
in one process, and so the same bits. What all devices share is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from softmesh.placement.blocks import Block
from softmesh.placement.distribution import Distribution
from softmesh.processes.rank_grid import RankGrid
from softmesh.runtime.device import MeshDevice

if TYPE_CHECKING:
    from softmesh.collectives.collective import Moved


@dataclass(frozen=True)
class Reach:
    """`block` is None where this process holds the whole mesh."""

    op: str
    axes: tuple[int, ...]
    block: Block | None = None
    ranks: RankGrid | None = None

    @classmethod
    def of(cls, op: str, mesh: MeshDevice, cluster_axis: int | None) -> Reach:
        axes = tuple(range(mesh.shape.dims())) if cluster_axis is None else (cluster_axis,)
        return cls(op, axes, mesh.block, mesh.ranks)

    def wide(self, dist: Distribution) -> Distribution:
        return dist if self.block is None else self.block.wide(dist, self.axes)

    def around(self, moved: Moved, held: Sequence[Distribution]) -> Moved:
        """The same collective, from blocks to blocks."""
        block = self.block
        if block is None:
            return moved

        def compute(*data: Any) -> Any:
            dists = iter(held)
            together = [
                self._widened(block, d, next(dists)) if isinstance(d, torch.Tensor) else d for d in data
            ]
            result = moved.compute(*together)
            if isinstance(result, torch.Tensor):
                return block.narrowed(result, moved.dists[0], self.axes)
            return [block.narrowed(r, dist, self.axes) for r, dist in zip(result, moved.dists, strict=True)]

        return replace(moved, compute=compute, dists=tuple(map(block.narrow, moved.dists)))

    def _widened(self, block: Block, data: torch.Tensor, dist: Distribution) -> torch.Tensor:
        return block.widened(data, dist, self.axes, self._gather)

    @property
    def _gather(self) -> Callable[[torch.Tensor, int], Sequence[torch.Tensor]]:
        ranks = self.ranks
        assert ranks is not None
        return lambda data, axis: ranks.gather(data, axis, self.op)
