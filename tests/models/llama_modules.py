"""A Llama of TT-NN calls for one chip or a row of chips: decode over sharded L1, prefill over interleaved DRAM.

Along a row of chips each holds a part of the heads, of the MLP's width, of the vocabulary and of the residual
stream; norms gather the stream in decode, and their statistics in prefill.
"""

from __future__ import annotations

import torch
from chip_row import Row
from sharding import (
    ATTENTION,
    DRAM,
    GRID,
    HIFI2,
    HIFI4,
    L1,
    L1_HEIGHT,
    L1_WIDTH,
    LOFI,
    NORM,
    TILE,
    dram_matmul,
    dram_sharded,
    height_sharded,
    norm_program,
    prefill_matmul,
    sdpa_program,
    width_sharded,
)
from torch_llama import LlamaConfig, Weights, angles

import softmesh as ttnn

Pair = tuple[ttnn.Tensor, ttnn.Tensor]


class RmsNorm:
    def __init__(self, row: Row, weight: torch.Tensor, eps: float, cores: int) -> None:
        self._row, self._eps, self._width, self._cores = row, eps, weight.numel(), cores
        tiled = weight.reshape(1, 1, -1, TILE)
        self._weight = row.replicated(tiled, layout=ttnn.ROW_MAJOR_LAYOUT)
        self._own_weight = ttnn.as_tensor(
            tiled,
            dtype=ttnn.bfloat16,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            device=row.device,
            memory_config=DRAM,
            mesh_mapper=ttnn.ShardTensor2dMesh(row.device, dims=(None, 2), mesh_shape=list(row.device.shape)),
        )

    def decode(self, x: ttnn.Tensor) -> ttnn.Tensor:
        memory = width_sharded(self._width, self._cores)
        return ttnn.rms_norm(
            self._row.all_gather(x, memory),
            epsilon=self._eps,
            weight=self._weight,
            program_config=norm_program(self._width, self._cores),
            memory_config=memory,
            compute_kernel_config=NORM,
        )

    def prefill(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if self._row.chips == 1:
            x = ttnn.to_memory_config(x, DRAM)
            return ttnn.rms_norm(x, epsilon=self._eps, weight=self._weight, compute_kernel_config=NORM)
        stats = ttnn.rms_norm_pre_all_gather(x, compute_kernel_config=NORM, dtype=ttnn.bfloat16)
        stats = ttnn.reshape(stats, ttnn.Shape((1, 1, x.shape[-2], TILE)))
        stats = self._row.all_gather(stats, DRAM)
        own = ttnn.rms_norm_post_all_gather(
            x, stats, epsilon=self._eps, weight=self._own_weight, compute_kernel_config=NORM
        )
        stats.deallocate(True)
        return self._row.all_gather(own, DRAM)


class Rope:
    """Rows of cosines and sines by position: looked up for the users of a decode step, whole for a prefill."""

    def __init__(self, row: Row, config: LlamaConfig, users: int) -> None:
        self._row, self._users, self._width = row, users, config.head_dim
        tables = [table[None, None] for table in angles(config, config.length)]
        self._by_id = [row.replicated(table, layout=ttnn.ROW_MAJOR_LAYOUT) for table in tables]
        self.whole: Pair = (row.replicated(tables[0]), row.replicated(tables[1]))
        turn = torch.zeros(1, 1, TILE, TILE)
        turn[..., torch.arange(0, TILE, 2), torch.arange(1, TILE, 2)] = 1
        turn[..., torch.arange(1, TILE, 2), torch.arange(0, TILE, 2)] = -1
        self._cores = ttnn.num_cores_to_corerangeset(2 * users, GRID, row_wise=True)
        own_turns = turn.repeat(1, 1, 2 * users, 1)
        self.turn_decode = row.replicated(own_turns, memory=height_sharded(TILE, self._cores))
        self.turn = row.replicated(turn)

    def ids(self, positions: torch.Tensor, device: ttnn.MeshDevice | None) -> ttnn.Tensor:
        """Each user's position, once for its query and once for its key, and zeros up to a tile."""
        both = positions.clamp(min=0).repeat(2)
        padded = torch.nn.functional.pad(both, (0, -both.numel() % TILE))
        return ttnn.from_torch(
            padded[None],
            ttnn.uint32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            device=device,
            mesh_mapper=ttnn.ReplicateTensorToMesh(self._row.device),
        )

    def looked_up(self, ids: ttnn.Tensor) -> Pair:
        cos, sin = (self._rows(table, ids) for table in self._by_id)
        return cos, sin

    def _rows(self, table: ttnn.Tensor, ids: ttnn.Tensor) -> ttnn.Tensor:
        rows = ttnn.embedding(ids, table, layout=ttnn.TILE_LAYOUT, memory_config=DRAM)
        rows = ttnn.transpose(ttnn.unsqueeze_to_4D(rows), 1, 2)
        if rows.shape[1] != 2 * self._users:
            rows = rows[:, : 2 * self._users, :, :]
        return ttnn.interleaved_to_sharded(rows, height_sharded(self._width, self._cores))


class Attention:
    def __init__(self, row: Row, config: LlamaConfig, weights: Weights, layer: int, rope: Rope, users: int) -> None:
        self._row, self._config, self._rope, self._users = row, config, rope, users
        self._heads = {"num_heads": config.heads // row.chips, "num_kv_heads": config.kv_heads // row.chips}
        parts = [weights[f"{layer}.w{name}"].chunk(row.chips, -1) for name in "qkv"]
        fused = torch.cat([part for own in zip(*parts, strict=True) for part in own], -1)
        self._qkv_width = fused.shape[-1] // row.chips
        self._wqkv = row.weight(fused, ttnn.bfloat8_b, -1)
        wo = weights[f"{layer}.wo"]
        self._wo = row.weight(wo, ttnn.bfloat8_b, -1, is_dram_sharded=row.chips == 1)
        self._wo_prefill = row.weight(wo, ttnn.bfloat8_b, -2)
        blocks = users * config.length // config.block
        shape = (blocks, self._heads["num_kv_heads"], config.block, config.head_dim)
        self.caches = [row.replicated(torch.zeros(shape), ttnn.bfloat8_b) for _ in range(2)]
        self._q_cores = ttnn.num_cores_to_corerangeset(users, GRID, row_wise=True)
        whole = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(GRID.x - 1, GRID.y - 1))})
        first = ttnn.CoreCoord(users % GRID.x, users // GRID.x)
        self._k_cores = ttnn.num_cores_to_corerangeset_in_subcoregrids(first, users, whole, row_wise=True)

    def decode(
        self, x: ttnn.Tensor, angles: Pair, positions: ttnn.Tensor, page_table: ttnn.Tensor, cores: int
    ) -> ttnn.Tensor:
        config, width = self._config, self._qkv_width
        fused = ttnn.linear(
            x,
            self._wqkv,
            memory_config=L1_WIDTH,
            program_config=dram_matmul(config.dim, width, cores),
            compute_kernel_config=ATTENTION,
            dtype=ttnn.bfloat16,
        )
        ttnn.deallocate(x)
        fused = ttnn.sharded_to_interleaved(fused, L1, ttnn.bfloat16)
        fused = ttnn.reshape(fused, (1, 1, self._users, width), (1, 1, TILE, width))
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(fused, memory_config=L1_HEIGHT, **self._heads)
        ttnn.deallocate(fused)
        q = ttnn.to_memory_config(q, height_sharded(config.head_dim, self._q_cores))
        k = ttnn.to_memory_config(k, height_sharded(config.head_dim, self._k_cores))
        q, k = ttnn.experimental.rotary_embedding_llama_fused_qk(q, k, *angles, self._rope.turn_decode)
        ttnn.experimental.paged_fused_update_cache(
            self.caches[0], k, self.caches[1], v, update_idxs_tensor=positions, page_table=page_table
        )
        ttnn.deallocate(k)
        ttnn.deallocate(v)
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
        ttnn.deallocate(q)
        attended = ttnn.to_memory_config(attended, memory_config=height_sharded(config.head_dim, self._q_cores))
        joined = ttnn.experimental.nlp_concat_heads_decode(attended, num_heads=self._heads["num_heads"])
        return self._projected(joined)

    def _projected(self, joined: ttnn.Tensor) -> ttnn.Tensor:
        """The joined heads times a whole weight, or those of all chips times each chip's columns."""
        k = self._config.heads * self._config.head_dim
        if self._row.chips == 1:
            cores = 16
            return ttnn.linear(
                ttnn.to_memory_config(joined, width_sharded(k, cores)),
                self._wo,
                program_config=dram_matmul(k, self._config.dim, cores),
                memory_config=L1_WIDTH,
                compute_kernel_config=ATTENTION,
            )
        own = self._config.dim // self._row.chips
        cores = own // TILE
        _, result = ttnn.experimental.all_gather_matmul_async(
            joined,
            self._wo,
            persistent_output_buffer=None,
            dim=3,
            all_gather_core_grid_offset=(0, 4),
            num_links=1,
            memory_config_ag=width_sharded(k, 8),
            memory_config_mm=width_sharded(own, cores),
            program_config=ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
                compute_with_storage_grid_size=(cores, 1),
                in0_block_w=k // TILE // 8,
                out_subblock_h=1,
                out_subblock_w=1,
                per_core_M=1,
                per_core_N=1,
                fuse_batch=True,
                fused_activation=None,
                mcast_in0=True,
            ),
            compute_kernel_config=ATTENTION,
            chunks_per_sync=10,
            num_workers_per_link=2,
            num_buffers_per_channel=2,
            **self._row.semaphores.gather(),
        )
        return result

    def prefill(
        self,
        x: ttnn.Tensor,
        user: int,
        page_table: ttnn.Tensor,
        chunk_page_table: ttnn.Tensor | None = None,
        start: int = 0,
    ) -> ttnn.Tensor:
        """All tokens of one user, or a chunk of them that begins at position `start`."""
        config, length = self._config, x.shape[-2]
        fused = ttnn.linear(
            x,
            self._wqkv,
            dtype=ttnn.bfloat16,
            memory_config=DRAM,
            compute_kernel_config=ATTENTION,
            program_config=prefill_matmul(length, config.dim, self._qkv_width),
        )
        ttnn.deallocate(x)
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(
            fused, transpose_k_heads=False, memory_config=DRAM, **self._heads
        )
        ttnn.deallocate(fused)
        cos, sin = (table[:, :, start : start + length, :] for table in self._rope.whole)
        q, k = (
            ttnn.experimental.rotary_embedding_llama(y, cos, sin, self._rope.turn, is_decode_mode=False) for y in (q, k)
        )
        q, k, v = (ttnn.typecast(y, dtype=ttnn.bfloat8_b) for y in (q, k, v))
        into = page_table if chunk_page_table is None else chunk_page_table
        for cache, new in zip(self.caches, (k, v), strict=True):
            ttnn.experimental.paged_fill_cache(cache, new, into, batch_idx=user)
        pages = None if chunk_page_table is None else page_table
        attended = self._attended((q, k, v), pages, start)
        attended = ttnn.reshape(attended, [1, self._heads["num_heads"], -1, config.head_dim])
        joined = ttnn.experimental.nlp_concat_heads(attended, memory_config=DRAM)
        own = config.heads * config.head_dim // self._row.chips
        result = ttnn.linear(
            joined,
            self._wo if self._row.chips == 1 else self._wo_prefill,
            compute_kernel_config=ATTENTION,
            dtype=ttnn.bfloat8_b,
            memory_config=DRAM,
            program_config=prefill_matmul(length, own, config.dim),
        )
        return self._row.reduce_scatter(result, DRAM)

    def _attended(
        self, heads: tuple[ttnn.Tensor, ttnn.Tensor, ttnn.Tensor], pages: ttnn.Tensor | None, start: int
    ) -> ttnn.Tensor:
        """Over the keys and values of a whole prompt, or (with pages) over all that the caches hold of it by now."""
        if pages is None:
            return ttnn.transformer.scaled_dot_product_attention(
                *heads,
                is_causal=True,
                scale=self._config.head_dim**-0.5,
                compute_kernel_config=HIFI4,
                program_config=sdpa_program(64, 64),
            )
        return ttnn.transformer.chunked_scaled_dot_product_attention(
            input_tensor_q=heads[0],
            input_tensor_k=self.caches[0],
            input_tensor_v=self.caches[1],
            page_table_tensor=pages,
            chunk_start_idx=start,
            compute_kernel_config=HIFI4,
            program_config=sdpa_program(32, 32),
        )


class Mlp:
    def __init__(self, row: Row, config: LlamaConfig, weights: Weights, layer: int, cores: int) -> None:
        self._row, self._config, self._cores = row, config, cores
        self._hidden = config.hidden // row.chips
        dims = {"w1": -1, "w3": -1, "w2": -2}
        self._w1, self._w3, self._w2 = (
            row.weight(weights[f"{layer}.{name}"], config.dtypes[name], dim) for name, dim in dims.items()
        )

    def decode(self, x: ttnn.Tensor) -> ttnn.Tensor:
        dim, hidden, cores = self._config.dim, self._hidden, self._cores
        gate, up = (
            ttnn.linear(
                x,
                weight,
                dtype=ttnn.bfloat16,
                compute_kernel_config=LOFI,
                program_config=dram_matmul(dim, hidden, cores),
                memory_config=L1_WIDTH,
            )
            for weight in (self._w1, self._w3)
        )
        ttnn.deallocate(x)
        product = ttnn.mul(
            gate,
            up,
            input_tensor_a_activations=[ttnn.UnaryOpType.SILU],
            dtype=ttnn.bfloat8_b,
            memory_config=gate.memory_config(),
        )
        ttnn.deallocate(gate)
        ttnn.deallocate(up)
        inner = hidden // TILE
        product = ttnn.to_memory_config(product, width_sharded(hidden, min(inner, 16)))
        result = ttnn.linear(
            product,
            self._w2,
            compute_kernel_config=HIFI2,
            dtype=ttnn.bfloat16,
            program_config=dram_matmul(hidden, dim, min(inner, 16)),
            memory_config=L1_WIDTH,
        )
        result = self._row.reduce_scatter(result, result.memory_config())
        return ttnn.reshape(result, (1, 1, TILE, dim // self._row.chips))

    def prefill(self, x: ttnn.Tensor) -> ttnn.Tensor:
        length, dim, hidden = x.shape[-2], self._config.dim, self._hidden
        gate, up = (
            ttnn.linear(
                x,
                weight,
                dtype=ttnn.bfloat16,
                compute_kernel_config=LOFI,
                program_config=prefill_matmul(length, dim, hidden),
                memory_config=DRAM,
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
        result = ttnn.experimental.minimal_matmul(
            product,
            self._w2,
            compute_kernel_config=HIFI2,
            config=ttnn.MinimalMatmulConfig(
                M_block_size=8, K_block_size=8, N_block_size=8, compute_with_storage_grid_size=ttnn.CoreCoord(8, 8)
            ),
        )
        result = self._row.reduce_scatter(result, DRAM)
        return ttnn.reshape(result, (1, 1, length, dim // self._row.chips))


class LmHead:
    """The vocabulary in column blocks, each a product of its own."""

    def __init__(self, row: Row, config: LlamaConfig, weight: torch.Tensor, cores: int, splits: int = 2) -> None:
        self._row, self._cores, self._dim = row, cores, config.dim
        chips, width = row.chips, config.vocab // row.chips // splits
        self._width = width
        blocks = weight.reshape(config.dim, chips, splits, width)
        self._weights = [
            ttnn.as_tensor(
                blocks[:, :, i].flatten(1),
                device=row.device,
                mesh_mapper=ttnn.ShardTensorToMesh(row.device, dim=-1),
                layout=ttnn.TILE_LAYOUT,
                dtype=config.dtypes["output"],
                memory_config=dram_sharded(row.device, config.dim, width),
            )
            for i in range(splits)
        ]

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """Logits [1, 1, 32, vocab / chips] in L1."""
        parts = []
        for weight in self._weights:
            part = ttnn.linear(
                x,
                weight,
                compute_kernel_config=HIFI2,
                program_config=dram_matmul(self._dim, self._width, self._cores),
                memory_config=L1_WIDTH,
                dtype=ttnn.bfloat8_b,
            )
            parts.append(ttnn.to_memory_config(part, memory_config=L1))
        return ttnn.concat(parts, dim=-1, memory_config=L1)


class MeshLlama:
    """`users` decode at once; one is prefilled at a time."""

    def __init__(self, device: ttnn.MeshDevice, config: LlamaConfig, weights: Weights, users: int) -> None:
        self.device, self.config, self.users = device, config, users
        self.row = row = Row(device)
        self._cores = cores = config.dim // TILE
        self.rope = Rope(row, config, users)
        self._residual = width_sharded(config.dim // row.chips, max(1, cores // row.chips))
        self.embedding = ttnn.as_tensor(
            weights["embedding"][None, None],
            dtype=ttnn.bfloat16,
            device=device,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            memory_config=DRAM,
            mesh_mapper=ttnn.ShardTensor2dMesh(device, dims=(None, 3), mesh_shape=list(device.shape)),
        )
        self.layers = [self._layer(weights, layer) for layer in range(config.layers)]
        self._norm = RmsNorm(row, weights["norm"], config.eps, cores)
        self._lm_head = LmHead(row, config, weights["output"], cores)

    def _layer(self, weights: Weights, layer: int) -> tuple[RmsNorm, Attention, RmsNorm, Mlp]:
        row, config, cores = self.row, self.config, self._cores
        first, second = (
            RmsNorm(row, weights[f"{layer}.{name}"], config.eps, cores) for name in ("attention_norm", "ffn_norm")
        )
        attention = Attention(row, config, weights, layer, self.rope, self.users)
        return first, attention, second, Mlp(row, config, weights, layer, cores)

    def decode(
        self, tokens: ttnn.Tensor, positions: ttnn.Tensor, rope_ids: ttnn.Tensor, page_table: ttnn.Tensor
    ) -> ttnn.Tensor:
        """Logits [1, 1, 32, vocab / chips] of one token of each user, in rows of a tile."""
        angles = self.rope.looked_up(rope_ids)
        x = ttnn.embedding(tokens, self.embedding, layout=ttnn.TILE_LAYOUT, memory_config=DRAM)
        x = ttnn.to_memory_config(ttnn.unsqueeze_to_4D(x), self._residual)
        for first, attention, second, mlp in self.layers:
            attended = attention.decode(first.decode(x), angles, positions, page_table, self._cores)
            attended = ttnn.to_memory_config(attended, self._residual)
            middle = ttnn.add(x, attended, memory_config=self._residual)
            ttnn.deallocate(attended)
            ttnn.deallocate(x)
            product = ttnn.to_memory_config(mlp.decode(second.decode(middle)), self._residual)
            x = ttnn.add(middle, product, memory_config=self._residual, dtype=ttnn.bfloat16)
            ttnn.deallocate(middle)
        return self._lm_head(self._norm.decode(x))

    def prefill(
        self,
        tokens: ttnn.Tensor,
        user: int,
        page_table: ttnn.Tensor,
        chunk_page_table: ttnn.Tensor | None = None,
        start: int = 0,
        last: int = -1,
    ) -> ttnn.Tensor:
        """Logits [1, 1, 32, vocab / chips] of the tile of tokens that holds the last one."""
        x = ttnn.unsqueeze_to_4D(ttnn.embedding(tokens, self.embedding, layout=ttnn.TILE_LAYOUT))
        for first, attention, second, mlp in self.layers:
            attended = attention.prefill(first.prefill(x), user, page_table, chunk_page_table, start)
            middle = ttnn.add(x, ttnn.to_memory_config(attended, DRAM), memory_config=DRAM)
            product = mlp.prefill(second.prefill(middle))
            x = ttnn.add(middle, product, memory_config=DRAM, dtype=ttnn.bfloat16)
        tile = (last % x.shape[-2]) // TILE * TILE
        x = ttnn.slice(x, (0, 0, tile, 0), (1, 1, tile + TILE, x.shape[-1]))
        x = ttnn.interleaved_to_sharded(self._norm.prefill(x), width_sharded(self.config.dim, self._cores))
        return ttnn.to_memory_config(self._lm_head(x), memory_config=DRAM)
