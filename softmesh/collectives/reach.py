"""How far the data of a collective must be brought together where several processes hold one mesh.

The blocks of the processes along the collective's axis are put side by side, the collective's expression is
applied to them, and each process takes its own part of the result: the same expression on the same values as
in one process, and so the same bits. What all devices share is not sent. For the most used collectives the
processes share the work as well (`over_ranks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from softmesh.collectives.across import Moved
from softmesh.collectives.columns import Fellows
from softmesh.collectives.over_ranks import dealt_out, is_dealt_out
from softmesh.placement.blocks import Block
from softmesh.placement.distribution import Distribution
from softmesh.processes.rank_grid import RankGrid
from softmesh.runtime.device import MeshDevice


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

        shared = self._dealt_out(moved.compute, held[0], compute) if len(held) == 1 else compute
        return replace(moved, compute=shared, dists=tuple(map(block.narrow, moved.dists)))

    def _dealt_out(
        self, compute: object, dist: Distribution, alone: Callable[..., Any]
    ) -> Callable[..., Any]:
        """The collective with its work dealt out, where that can be; `alone` each process does all of it."""
        block, ranks = self.block, self.ranks
        assert block is not None
        assert ranks is not None
        axes = block.spread_axes(dist, self.axes)
        group = ranks.group(axes)
        if group is None or not is_dealt_out(compute):
            return alone
        fellows = Fellows(self.op, block, ranks, group, axes)
        is_whole = axes == ranks.split_axes(self.axes)  # else some hold the same, and take their part of it
        plan: Callable[..., Any] | None = None

        def run(data: torch.Tensor) -> Any:
            nonlocal plan
            if data.requires_grad:
                data = data.detach()
            if plan is None:  # all data that comes here is alike
                plan = dealt_out(compute, fellows, data, is_whole) or alone
            return plan(data)

        return run

    def _widened(self, block: Block, data: torch.Tensor, dist: Distribution) -> torch.Tensor:
        ranks = self.ranks
        assert ranks is not None
        wide = block.widened(data, dist, self.axes, lambda d, axes: ranks.gather(d, axes, self.op))
        return wide.to(data.device)
