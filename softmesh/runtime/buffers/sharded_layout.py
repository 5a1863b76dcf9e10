"""The sharding of a 2-D buffer over the rows and columns of a mesh: scatter from the host, gather back to it.

Shards are numbered row-major over the buffer. A shard is a block of it: strided on the host, dense on a device.
Each way is one strided copy for the whole mesh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from softmesh.errors import MeshError
from softmesh.hardware.memory_config import ShardOrientation
from softmesh.mesh import MeshShape
from softmesh.placement.process_blocks import Block
from softmesh.runtime.buffers.buffer_config import ShardedBufferConfig
from softmesh.runtime.buffers.mesh_memory import MeshMemory, Window


@dataclass(frozen=True)
class ShardedLayout:
    """A sharded config on a mesh of these rows and columns; `block` is this process's part of the mesh."""

    config: ShardedBufferConfig
    rows: int
    columns: int
    block: Block | None = None

    @cached_property
    def num_shards(self) -> int:
        return math.prod(self.config.shard_grid())

    @property
    def is_column_wise(self) -> bool:
        return self.config.shard_orientation is ShardOrientation.COL_MAJOR

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Along which mesh dims devices hold different bytes; 1 along the others."""
        copied = sum(self.config.replicated_dims())
        if copied == 0:
            return self.rows, self.columns
        if copied == 2:
            return 1, 1
        return (self.rows, 1) if self.is_column_wise else (1, self.columns)

    def check_fits(self) -> None:
        copied = sum(self.config.replicated_dims())
        times = {0: 1, 1: self.columns if self.is_column_wise else self.rows, 2: self.rows * self.columns}
        needed, devices = self.num_shards * times[copied], self.rows * self.columns
        if needed > devices:
            raise MeshError(
                f"The sharded tensor does not fit on the Mesh. Num shards in buffer: {needed} (copies counted), num "
                f"devices: {devices}. {self.config.global_buffer_shape} in shards of "
                f"{self.config.physical_shard_shape()}: make the shards larger or open a larger mesh."
            )

    def scatter(self, host: torch.Tensor, memory: MeshMemory | Window) -> None:
        """Write all shards; devices without one keep what they hold."""
        extents = self._own(self.extents)
        if self._owners is None:
            fills = self.num_shards == math.prod(self.extents)
            data = memory.replaced(extents) if fills else memory.extended(extents)
            self._first(data).copy_(self._blocks(host))
        else:
            data = memory.extended(extents)
            flat = data.flatten(0, 1).flatten(1)
            holders, numbers = self._held_by(data)
            flat[holders] = self._blocks(host).reshape(self.num_shards, -1)[numbers].to(data.device)
        memory.store()

    def gather(self, host: torch.Tensor, data: torch.Tensor) -> None:
        """Fill `host` from a buffer without replicated dims: the inverse of `scatter`."""
        blocks = self._blocks(host)
        if self._owners is None:
            blocks.copy_(self._first(data))
            return
        holders, numbers = self._held_by(data)
        held = data.flatten(0, 1)[holders].reshape(-1, *blocks.shape[2:]).to(host.device)
        blocks[numbers // blocks.shape[1], numbers % blocks.shape[1]] = held

    def _blocks(self, host: torch.Tensor) -> torch.Tensor:
        """The host's bytes as (shards down, shards across, rows of a shard, bytes of such a row): a view."""
        down, across = self.config.shard_grid()
        height, width = self.config.physical_shard_shape()
        row_bytes = width * self.config.compute_datum_size_bytes()
        return host.view(down, height, across, row_bytes).transpose(1, 2)

    def _first(self, data: torch.Tensor) -> torch.Tensor:
        """Where the shards go, as `_blocks` has them: the first devices along what is not replicated."""
        down, across = self.config.shard_grid()
        height, _ = self.config.physical_shard_shape()
        held = data.flatten(2).unflatten(2, (height, -1))
        if sum(self.config.replicated_dims()) == 0:
            return held.flatten(0, 1)[: self.num_shards].unflatten(0, (down, across))
        if sum(self.config.replicated_dims()) == 2:
            return held
        if self.is_column_wise:
            held = held.transpose(0, 1)
        held = held[:, : self.num_shards]  # (copies, shards): one of down and across is 1
        return held if across > 1 or down == 1 else held.transpose(0, 1)

    @cached_property
    def _owners(self) -> torch.Tensor | None:
        """The number of each device's shard, (rows, columns); None where strides say it all."""
        plain = sum(self.config.replicated_dims()) > 0 or not self.is_column_wise
        if self.block is None and plain:
            return None
        down, across = self.extents
        order = torch.arange(down * across)
        return order.view(across, down).T if self.is_column_wise else order.view(down, across)

    def _own(self, extents: tuple[int, int]) -> tuple[int, int]:
        """Extents of this process's part."""
        if self.block is None:
            return extents
        return tuple(1 if n == 1 else m for n, m in zip(extents, self.block.shape, strict=True))  # type: ignore[return-value]

    def _held_by(self, data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which devices of `data` hold a shard, and its number."""
        owners = self._owners
        assert owners is not None
        if self.block is not None:
            for axis, (first, n) in enumerate(zip(self.block.origin, self.block.shape, strict=True)):
                if owners.shape[axis] > 1:
                    owners = owners.narrow(axis, first, n)
        owners = owners.expand(data.shape[:2]).flatten()
        holders = (owners < self.num_shards).nonzero().flatten()
        return holders, owners[holders]


def sharded_layout(config: ShardedBufferConfig, shape: MeshShape, block: Block | None) -> ShardedLayout:
    if shape.dims() != 2:
        raise MeshError(
            f"A sharded buffer is split over the rows and columns of a mesh, and {shape} has {shape.dims()} dims: "
            "reshape the mesh, or use a ReplicatedBufferConfig."
        )
    layout = ShardedLayout(config, shape[0], shape[1], block)
    layout.check_fits()
    return layout
