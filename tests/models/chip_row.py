"""Chips in a row that share a model, and what they exchange: semaphores in turn, gathers, sums cut over the row."""

from __future__ import annotations

from itertools import cycle

import torch
from sharding import DRAM, dram_sharded

import softmesh as ttnn


class Semaphores:
    """Two sets for each kind of collective, used in turn, so that one may begin before the last has ended."""

    def __init__(self, device: ttnn.MeshDevice) -> None:
        grid = device.compute_with_storage_grid_size()
        cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(grid.x - 1, grid.y - 1))})

        def made(count: int) -> list[object]:
            return [ttnn.create_global_semaphore(device, cores, 0) for _ in range(count)]

        self._gather, self._scatter = cycle([made(2), made(2)]), cycle([made(3), made(3)])
        self._barrier = cycle(made(2))

    def gather(self) -> dict[str, object]:
        return {"multi_device_global_semaphore": next(self._gather), "barrier_semaphore": next(self._barrier)}

    def scatter(self) -> dict[str, object]:
        return {"multi_device_global_semaphore": next(self._scatter), "barrier_semaphore": next(self._barrier)}


_LINK = {"num_links": 1, "chunks_per_sync": 10, "num_workers_per_link": 2, "num_buffers_per_channel": 2}


class Row:
    """The chips that share the model, and their collectives; alone, a chip has nothing to exchange."""

    def __init__(self, device: ttnn.MeshDevice) -> None:
        self.device, self.chips = device, device.get_num_devices()
        self.topology = ttnn.Topology.Ring if self.chips == 8 else ttnn.Topology.Linear
        self.semaphores = Semaphores(device)

    def all_gather(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        if self.chips == 1:
            return ttnn.to_memory_config(x, memory)
        return ttnn.experimental.all_gather_async(
            x, dim=3, topology=self.topology, memory_config=memory, **self.semaphores.gather(), **_LINK
        )

    def reduce_scatter(self, x: ttnn.Tensor, memory: ttnn.MemoryConfig) -> ttnn.Tensor:
        if self.chips == 1:
            return x
        result = ttnn.experimental.reduce_scatter_minimal_async(
            x,
            dim=3,
            memory_config=memory,
            intermediate_memory_config=DRAM,
            topology=self.topology,
            **self.semaphores.scatter(),
            **_LINK,
        )
        ttnn.deallocate(x)
        return result

    def weight(self, values: torch.Tensor, dtype: ttnn.DataType, dim: int, is_dram_sharded: bool = True) -> ttnn.Tensor:
        k, n = values.shape
        part = (k, n // self.chips) if dim == -1 else (k // self.chips, n)
        return ttnn.as_tensor(
            values[None, None],
            dtype=dtype,
            layout=ttnn.TILE_LAYOUT,
            device=self.device,
            memory_config=dram_sharded(self.device, *part) if is_dram_sharded else DRAM,
            mesh_mapper=ttnn.ShardTensorToMesh(self.device, dim=dim),
            cache_file_name=None,
        )

    def replicated(
        self,
        values: torch.Tensor,
        dtype: ttnn.DataType = ttnn.bfloat16,
        layout: ttnn.Layout = ttnn.TILE_LAYOUT,
        memory: ttnn.MemoryConfig = DRAM,
    ) -> ttnn.Tensor:
        return ttnn.as_tensor(
            values,
            dtype=dtype,
            layout=layout,
            device=self.device,
            memory_config=memory,
            mesh_mapper=ttnn.ReplicateTensorToMesh(self.device),
        )
