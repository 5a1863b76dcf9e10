"""Which part of a 2-D array each card of a mesh holds: TT-Metal's rule for sharded mesh buffers, row-major."""

from __future__ import annotations

from typing import NamedTuple

from softmesh.mesh import MeshShape
from softmesh.runtime.buffers.config import ShardedBufferConfig
from softmesh.runtime.buffers.shape_2d import Shape2D
from softmesh.runtime.buffers.shards import ShardedLayout


class Block(NamedTuple):
    """Rows and columns of the array."""

    rows: slice
    columns: slice


def blocks_by_rank(shape: MeshShape, whole: Shape2D, shard: Shape2D) -> dict[int, Block]:
    """The block of each rank that holds one; the others have room for one, and nothing in it.

    >>> blocks_by_rank(MeshShape(1, 2), Shape2D(4, 8), Shape2D(0, 4))[1]
    Block(rows=slice(0, 4, None), columns=slice(4, 8, None))
    """
    columns = tuple(shape)[-1]
    layout = ShardedLayout(
        ShardedBufferConfig(whole.height * whole.width, whole, shard), shape.mesh_size() // columns, columns
    )
    layout.check_fits()
    numbers = {rank: _shard_of(layout, *divmod(rank, columns)) for rank in range(shape.mesh_size())}
    return {
        rank: _block(layout.config, number) for rank, number in numbers.items() if number < layout.num_shards
    }


def _shard_of(layout: ShardedLayout, row: int, column: int) -> int:
    """Counted along the mesh dims that hold different shards."""
    rows, columns = layout.extents
    return row % rows * columns + column % columns


def _block(config: ShardedBufferConfig, number: int) -> Block:
    height, width = config.physical_shard_shape()
    down, across = divmod(number, config.shard_grid().width)
    return Block(slice(down * height, (down + 1) * height), slice(across * width, (across + 1) * width))
