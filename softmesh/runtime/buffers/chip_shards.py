"""Which core, or DRAM bank, of a chip holds which pages of a buffer: values only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from softmesh.arguments import checked
from softmesh.cores import CoreCoord, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import (
    ShardDistributionStrategy,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.runtime.buffers.shape_2d import Shape2D, shape_2d


@dataclass(frozen=True)
class BufferDistributionSpec:
    """Shards of any rank, counted in pages, dealt to cores (DRAM: bank x is core x-0)."""

    tensor_shape_in_pages: tuple[int, ...]
    shard_shape_in_pages: tuple[int, ...]
    cores: tuple[CoreCoord, ...]
    strategy: ShardDistributionStrategy = ShardDistributionStrategy.ROUND_ROBIN_1D
    grid_columns: int = 0  # of cores, for GRID_2D

    def __post_init__(self) -> None:
        tensor, shard = self.tensor_shape_in_pages, self.shard_shape_in_pages
        if len(tensor) != len(shard) or not tensor or min(shard) < 1:
            raise MeshError(
                f"Shards of {list(shard)} pages cannot cut a tensor of {list(tensor)}: both have the same rank, and a "
                "shard at least one page."
            )
        if not self.cores:
            raise MeshError("A sharded buffer needs at least one core to lie on.")

    @classmethod
    def dealt(
        cls,
        tensor_shape_in_pages: tuple[int, ...],
        shard_shape_in_pages: tuple[int, ...],
        grid: CoreRangeSet,
        orientation: ShardOrientation,
        strategy: ShardDistributionStrategy,
    ) -> BufferDistributionSpec:
        """On the cores of a grid, row by row or column by column."""
        row_wise = orientation is ShardOrientation.ROW_MAJOR
        cores = tuple(corerange_to_cores(grid, row_wise=row_wise))
        columns = 0
        if cores and strategy is ShardDistributionStrategy.GRID_2D:
            box = grid.bounding_box().grid_size()
            columns = box.x if row_wise else box.y
        return cls(tuple(tensor_shape_in_pages), tuple(shard_shape_in_pages), cores, strategy, columns)

    def shard_grid(self) -> tuple[int, ...]:
        """How many shards there are along each dim; the last ones may be partly empty."""
        pairs = zip(self.tensor_shape_in_pages, self.shard_shape_in_pages, strict=True)
        return tuple(-(-n // m) for n, m in pairs)


@dataclass(frozen=True)
class ShardSpecBuffer:
    """2-D shards: as the tensor counts them, and the pages they are made of."""

    tensor_shard_spec: ShardSpec
    page_shape: Shape2D
    tensor2d_shape_in_pages: Shape2D

    def __post_init__(self) -> None:
        where = "ShardSpecBuffer"
        checked(where, "tensor_shard_spec", self.tensor_shard_spec, ShardSpec, "a ttnn.ShardSpec")
        for name in ("page_shape", "tensor2d_shape_in_pages"):
            object.__setattr__(self, name, shape_2d(where, name, getattr(self, name)))
        shard = self.tensor_shard_spec.shape
        if 0 in self.page_shape or any(n % m for n, m in zip(shard, self.page_shape, strict=True)):
            raise MeshError(
                f"Shard shape {shard} must be a whole number of pages of {self.page_shape} elements."
            )

    @property
    def grid(self) -> CoreRangeSet:
        return self.tensor_shard_spec.grid

    def shape_in_pages(self) -> Shape2D:
        height, width = self.tensor_shard_spec.shape
        return Shape2D(height // self.page_shape.height, width // self.page_shape.width)

    def distribution(self, layout: TensorMemoryLayout) -> BufferDistributionSpec:
        """The same shards, dealt to the cores of the grid as the layout says: no more than one to each."""
        is_block = layout is TensorMemoryLayout.BLOCK_SHARDED
        dealt = BufferDistributionSpec.dealt(
            self.tensor2d_shape_in_pages,
            self.shape_in_pages(),
            self.grid,
            self.tensor_shard_spec.orientation,
            ShardDistributionStrategy.GRID_2D if is_block else ShardDistributionStrategy.ROUND_ROBIN_1D,
        )
        if math.prod(dealt.shard_grid()) > len(dealt.cores):
            raise MeshError(
                f"{self.tensor2d_shape_in_pages} pages make {math.prod(dealt.shard_grid())} shards of "
                f"{self.shape_in_pages()} pages, and there are {len(dealt.cores)} cores: make the shards larger or "
                "give more cores."
            )
        return dealt


@dataclass(frozen=True)
class BufferShardingArgs:
    """Which core (or DRAM bank) of a chip holds which pages; without any, pages are interleaved over all banks."""

    shard_spec: ShardSpecBuffer | BufferDistributionSpec | None = None
    buffer_layout: TensorMemoryLayout = TensorMemoryLayout.INTERLEAVED

    def __post_init__(self) -> None:
        is_sharded = self.buffer_layout is not TensorMemoryLayout.INTERLEAVED
        if isinstance(self.shard_spec, BufferDistributionSpec) and not is_sharded:
            object.__setattr__(self, "buffer_layout", TensorMemoryLayout.ND_SHARDED)
        elif is_sharded != (self.shard_spec is not None):
            raise MeshError(
                f"{self.buffer_layout} and shard_spec={self.shard_spec} contradict each other: a sharded layout needs "
                "a ShardSpecBuffer, an interleaved one has none."
            )

    def distribution(self) -> BufferDistributionSpec | None:
        spec = self.shard_spec
        return spec.distribution(self.buffer_layout) if isinstance(spec, ShardSpecBuffer) else spec
