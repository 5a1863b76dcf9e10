"""A Llama for a grid of chips, 8 x 4: weights cut along both axes, users cut over the columns.

Each row holds an eighth of the heads and of the MLP's width, each column a quarter of the residual stream. A product
whose inner dim is cut gives partial sums, which are gathered on a new dim and added up on every chip.
"""

from __future__ import annotations

import torch
from chip_row import Semaphores
from llama_modules import Pair
from sharding import (
    ATTENTION,
    DRAM,
    GRID,
    HIFI2,
    L1,
    L1_HEIGHT,
    LOFI,
    NORM,
    TILE,
    core_grid,
    height_sharded,
    norm_program,
    sdpa_program,
    width_sharded,
)
from torch_llama import LlamaConfig, Weights, angles

import softmesh as ttnn

_LINK = {
    "topology": ttnn.Topology.Linear,
    "chunks_per_sync": 10,
    "num_workers_per_link": 2,
    "num_buffers_per_channel": 2,
}


class Grid:
    """Chips [rows, columns] and what they exchange along one axis."""

    def __init__(self, device: ttnn.MeshDevice) -> None:
        self.device, self.shape = device, list(device.shape)
        self.semaphores = Semaphores(device)

    def put(
        self,
        values: torch.Tensor,
        dims: tuple[int | None, int | None],
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
            mesh_mapper=ttnn.ShardTensor2dMesh(self.device, dims=dims, mesh_shape=self.shape),
        )

    def all_gather(
        self, x: ttnn.Tensor, dim: int, axis: int, memory: ttnn.MemoryConfig, num_links: int = 1
    ) -> ttnn.Tensor:
        return ttnn.experimental.all_gather_async(
            x,
            persistent_output_buffer=None,
            dim=dim,
            cluster_axis=axis,
            num_links=num_links,
            memory_config=memory,
            **self.semaphores.gather(),
            **_LINK,
        )

    def all_reduce(self, x: ttnn.Tensor, axis: int, is_composite: bool = False) -> ttnn.Tensor:
        """Gathered on dim 0 and added up there, or scattered over the last dim and gathered again."""
        shape = x.shape
        x = ttnn.to_memory_config(x, L1, ttnn.bfloat16)
        if is_composite:
            part = ttnn.experimental.reduce_scatter_minimal_async(
                x,
                persistent_output_buffers=None,
                dim=3,
                cluster_axis=axis,
                num_links=1,
                memory_config=DRAM,
                intermediate_memory_config=DRAM,
                **self.semaphores.scatter(),
                **_LINK,
            )
            return self.all_gather(part, 3, axis, L1)
        gathered = self.all_gather(x, 0, axis, L1)
        x.deallocate(True)
        result = ttnn.experimental.fast_reduce_nc(
            gathered, dims=[0], output=None, compute_kernel_config=None, memory_config=L1
        )
        gathered.deallocate(True)
        return ttnn.reshape(result, shape)


class GalaxyNorm:
    """The stream stays cut over the columns: only statistics travel."""

    def __init__(self, grid: Grid, weight: torch.Tensor, eps: float) -> None:
        self._grid, self._eps = grid, eps
        self._weight = grid.put(weight.reshape(1, 1, -1, TILE), (None, 2), layout=ttnn.ROW_MAJOR_LAYOUT)

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        width = x.shape[-1]
        cores = width // TILE
        x = ttnn.to_memory_config(x, memory_config=width_sharded(width, cores))
        program = norm_program(width, cores)
        stats = ttnn.rms_norm_pre_all_gather(x, program_config=program)
        columns = self._grid.shape[1]
        stats = self._grid.all_gather(stats, 3, 1, width_sharded(columns * TILE, 1))
        result = ttnn.rms_norm_post_all_gather(
            x, epsilon=self._eps, weight=self._weight, program_config=program, stats=stats
        )
        ttnn.deallocate(stats)
        return result

    def prefill(self, x: ttnn.Tensor) -> ttnn.Tensor:
        stats = ttnn.rms_norm_pre_all_gather(x, compute_kernel_config=NORM, dtype=ttnn.bfloat16)
        stats = ttnn.reshape(stats, ttnn.Shape((1, 1, x.shape[-2], TILE)))
        stats = self._grid.all_gather(stats, 3, 1, DRAM)
        return ttnn.rms_norm_post_all_gather(
            x, stats, epsilon=self._eps, weight=self._weight, compute_kernel_config=NORM
        )


class GalaxyAttention:
    def __init__(self, grid: Grid, config: LlamaConfig, weights: Weights, layer: int, users: int) -> None:
        self._grid, self._config = grid, config
        rows, columns = grid.shape
        self._users, self._own_users = users, users // columns
        self._heads = {"num_heads": config.heads // rows, "num_kv_heads": config.kv_heads // rows}
        parts = [weights[f"{layer}.w{name}"].chunk(rows, -1) for name in "qkv"]
        fused = torch.cat([part for own in zip(*parts, strict=True) for part in own], -1)
        self._wqkv = grid.put(fused[None, None], (3, 2), ttnn.bfloat8_b)
        self._wo = grid.put(weights[f"{layer}.wo"][None, None], (2, 3), ttnn.bfloat8_b)
        # which of the users are this column's, and where the rows of real users are among those of padded tiles
        choose = torch.zeros(1, columns, TILE, users)
        back = torch.zeros(1, 1, users, columns * TILE)
        for user in range(users):
            column, place = divmod(user, self._own_users)
            choose[0, column, place, user] = 1
            back[0, 0, user, column * TILE + place] = 1
        self._choose = grid.put(choose, (None, 1))
        self._back = grid.put(back, (None, None))
        blocks = users * config.length // config.block
        shape = (blocks, self._heads["num_kv_heads"], config.block, config.head_dim)
        self.caches = [grid.put(torch.zeros(shape), (None, None), ttnn.bfloat8_b) for _ in range(2)]

    def __call__(
        self, x: ttnn.Tensor, angles: Pair, turn: ttnn.Tensor, positions: ttnn.Tensor, page_table: ttnn.Tensor
    ) -> ttnn.Tensor:
        config, grid = self._config, self._grid
        fused = ttnn.linear(
            ttnn.to_memory_config(x, L1),
            self._wqkv,
            core_grid=core_grid(32),
            dtype=ttnn.bfloat16,
            memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
            compute_kernel_config=ATTENTION,
        )
        fused = grid.all_reduce(fused, axis=1)
        fused = ttnn.matmul(self._choose, fused, dtype=ttnn.bfloat16, memory_config=L1)
        width = fused.shape[3]
        fused = ttnn.reshape(fused, (1, 1, self._own_users, width), (1, 1, TILE, width))
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(fused, memory_config=L1_HEIGHT, **self._heads)
        q, k = (ttnn.experimental.rotary_embedding_llama(y, *angles, turn, is_decode_mode=True) for y in (q, k))
        for cache, new in zip(self.caches, (k, v), strict=True):
            ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions, page_table=page_table)
        attended = ttnn.transformer.paged_scaled_dot_product_attention_decode(
            q,
            *self.caches,
            page_table_tensor=page_table,
            cur_pos_tensor=positions,
            scale=config.head_dim**-0.5,
            program_config=sdpa_program(),
            compute_kernel_config=ATTENTION,
            memory_config=DRAM,
        )
        cores = ttnn.num_cores_to_corerangeset(self._own_users, GRID, row_wise=True)
        attended = ttnn.to_memory_config(attended, memory_config=height_sharded(config.head_dim, cores))
        joined = ttnn.experimental.nlp_concat_heads_decode(attended, num_heads=self._heads["num_heads"])
        gathered = grid.all_gather(joined, 2, 1, L1, num_links=2)
        chosen = ttnn.matmul(
            self._back,
            gathered,
            core_grid=core_grid(32),
            dtype=ttnn.bfloat16,
            memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
        )
        dense = ttnn.matmul(
            chosen,
            self._wo,
            core_grid=core_grid(32),
            memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
            dtype=ttnn.bfloat8_b,
            compute_kernel_config=ATTENTION,
        )
        return grid.all_reduce(dense, axis=0)

    def prefill(
        self, x: ttnn.Tensor, angles: Pair, turn: ttnn.Tensor, user: int, page_table: ttnn.Tensor
    ) -> ttnn.Tensor:
        """All tokens of one user, whose keys and values only the chips of its column keep."""
        config, grid = self._config, self._grid
        fused = ttnn.linear(x, self._wqkv, dtype=ttnn.bfloat16, memory_config=DRAM, compute_kernel_config=ATTENTION)
        fused = grid.all_reduce(fused, axis=1, is_composite=True)
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(
            fused, transpose_k_heads=False, memory_config=DRAM, **self._heads
        )
        q, k = (ttnn.experimental.rotary_embedding_llama(y, *angles, turn, is_decode_mode=False) for y in (q, k))
        q, k, v = (ttnn.typecast(y, dtype=ttnn.bfloat8_b) for y in (q, k, v))
        column, place = divmod(user, self._own_users)
        for cache, new in zip(self.caches, (k, v), strict=True):
            pieces = ttnn.get_device_tensors(ttnn.clone(new))[column :: grid.shape[1]]
            own = ttnn.combine_device_tensors(tensors=pieces)
            ttnn.experimental.paged_fill_cache(cache, own, page_table, batch_idx=place)
        attended = ttnn.transformer.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=config.head_dim**-0.5, program_config=sdpa_program(32, 32)
        )
        joined = ttnn.experimental.nlp_concat_heads(attended, memory_config=DRAM)
        dense = ttnn.linear(joined, self._wo, dtype=ttnn.bfloat16, memory_config=DRAM, compute_kernel_config=ATTENTION)
        return grid.all_reduce(dense, axis=0)


class GalaxyMlp:
    def __init__(self, grid: Grid, config: LlamaConfig, weights: Weights, layer: int) -> None:
        self._grid = grid
        dims = {"w1": (-1, -2), "w3": (-1, -2), "w2": (-2, -1)}
        self._w1, self._w3, self._w2 = (
            grid.put(weights[f"{layer}.{name}"][None, None], cut, config.dtypes[name]) for name, cut in dims.items()
        )

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        x = ttnn.to_memory_config(x, L1)
        gate, up = (
            self._grid.all_reduce(
                ttnn.linear(x, weight, dtype=ttnn.bfloat16, core_grid=core_grid(32), compute_kernel_config=LOFI),
                axis=1,
                is_composite=True,
            )
            for weight in (self._w1, self._w3)
        )
        product = ttnn.mul(
            gate,
            up,
            input_tensor_a_activations=[ttnn.UnaryOpType.SILU],
            dtype=ttnn.bfloat8_b,
            memory_config=gate.memory_config(),
        )
        result = ttnn.linear(
            product, self._w2, dtype=ttnn.bfloat16, core_grid=core_grid(32), compute_kernel_config=HIFI2
        )
        return self._grid.all_reduce(result, axis=0)


class GalaxyLlama:
    def __init__(self, device: ttnn.MeshDevice, config: LlamaConfig, weights: Weights, users: int) -> None:
        self.grid = grid = Grid(device)
        self.config, self._own_users = config, users // grid.shape[1]
        self._width = config.dim // grid.shape[1]
        self._embedding = grid.put(weights["embedding"][None, None], (None, 3), layout=ttnn.ROW_MAJOR_LAYOUT)
        self._tables = [
            grid.put(table[None, None], (None, None), layout=ttnn.ROW_MAJOR_LAYOUT)
            for table in angles(config, config.length)
        ]
        turn = torch.zeros(1, 1, TILE, TILE)
        turn[..., torch.arange(0, TILE, 2), torch.arange(1, TILE, 2)] = 1
        turn[..., torch.arange(1, TILE, 2), torch.arange(0, TILE, 2)] = -1
        self._cores = ttnn.num_cores_to_corerangeset(self._own_users, GRID, row_wise=True)
        self._turn = grid.put(
            turn.repeat(1, 1, self._own_users, 1), (None, None), memory=height_sharded(TILE, self._cores)
        )
        self._one_turn = grid.put(turn, (None, None))
        self._layers = [
            (
                GalaxyNorm(grid, weights[f"{layer}.attention_norm"], config.eps),
                GalaxyAttention(grid, config, weights, layer, users),
                GalaxyNorm(grid, weights[f"{layer}.ffn_norm"], config.eps),
                GalaxyMlp(grid, config, weights, layer),
            )
            for layer in range(config.layers)
        ]
        self._norm = GalaxyNorm(grid, weights["norm"], config.eps)
        self._output = grid.put(weights["output"][None, None], (3, 2), config.dtypes["output"])

    def _looked_up(self, rope_ids: ttnn.Tensor) -> Pair:
        found = []
        for table in self._tables:
            rows = ttnn.embedding(rope_ids, table, layout=ttnn.TILE_LAYOUT, memory_config=DRAM)
            rows = ttnn.transpose(ttnn.unsqueeze_to_4D(rows), 1, 2)[:, : self._own_users, :, :]
            found.append(ttnn.interleaved_to_sharded(rows, height_sharded(self.config.head_dim, self._cores)))
        return found[0], found[1]

    def prefill(self, tokens: ttnn.Tensor, user: int, page_table: ttnn.Tensor) -> ttnn.Tensor:
        """Logits [1, 1, 32, vocab / rows] of the last tokens of one user."""
        length = tokens.shape[-1]
        tables = [ttnn.to_layout(table, ttnn.TILE_LAYOUT)[:, :, :length, :] for table in self._tables]
        x = ttnn.unsqueeze_to_4D(ttnn.embedding(tokens, self._embedding, layout=ttnn.TILE_LAYOUT))
        for first, attention, second, mlp in self._layers:
            angles = (tables[0], tables[1])
            attended = attention.prefill(first.prefill(x), angles, self._one_turn, user, page_table)
            middle = ttnn.add(x, attended, memory_config=DRAM)
            x = ttnn.add(middle, mlp(second.prefill(middle)), memory_config=DRAM, dtype=ttnn.bfloat16)
        x = ttnn.slice(x, (0, 0, length - TILE, 0), (1, 1, length, x.shape[-1]))
        return self._logits(self._norm.prefill(x))

    def _logits(self, x: ttnn.Tensor) -> ttnn.Tensor:
        logits = ttnn.linear(x, self._output, dtype=ttnn.bfloat16, compute_kernel_config=HIFI2, memory_config=L1)
        return self.grid.all_reduce(logits, axis=1, is_composite=True)

    def decode(
        self, tokens: ttnn.Tensor, positions: ttnn.Tensor, rope_ids: ttnn.Tensor, page_table: ttnn.Tensor
    ) -> ttnn.Tensor:
        """Logits [1, 1, 32, vocab / rows] of all users, the same on every chip of a row."""
        angles = self._looked_up(rope_ids)
        residual = width_sharded(self._width, self._width // TILE)
        x = ttnn.unsqueeze_to_4D(ttnn.embedding(tokens, self._embedding, layout=ttnn.TILE_LAYOUT, memory_config=DRAM))
        x = ttnn.to_memory_config(x, residual)
        for first, attention, second, mlp in self._layers:
            attended = attention(first(x), angles, self._turn, positions, page_table)
            middle = ttnn.add(x, ttnn.to_memory_config(attended, residual), memory_config=residual)
            product = ttnn.to_memory_config(mlp(second(middle)), residual)
            x = ttnn.add(middle, product, memory_config=residual, dtype=ttnn.bfloat16)
        return self._logits(ttnn.to_memory_config(self._norm(x), L1))
