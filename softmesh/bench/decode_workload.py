"""One decode step of a Llama-like model as programs for these devices write it, for `softmesh bench decode`.

Weights are width-sharded over the DRAM banks, bfloat4_b for the gate and up projections and bfloat8_b elsewhere, with
activations in L1. Along a row of the mesh, devices share the heads, the inner dim and the residual stream; down a
column, where a mesh has several rows, the hidden dim of the weights. A step is a trace. Where the vocabulary of a
device is small enough the likeliest tokens are found on it; the host finds them elsewhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

import softmesh as ttnn
from softmesh.tensor.mappers import TensorToMesh

TILE = 32
_PAGE = 32  # positions of a block of the cache
_LARGEST_ON_DEVICE = 64 * 1024  # columns of logits of one device, for which tokens are chosen there
_MOST_CORES = 32  # that hold the residual stream
_ALONG, _DOWN = 1, 0  # mesh axes
_TABLE = 1024  # positions of the table of angles


class ModelShape(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    head_dim: int = 0  # 0: hidden / heads

    @property
    def head(self) -> int:
        return self.head_dim or self.hidden // self.heads


def mesh_shape(shape: ModelShape, chips: int) -> tuple[int, int]:
    """Return the mesh with as many columns as heads of keys allow; the other chips are rows."""
    columns = math.gcd(chips, shape.kv_heads)
    return chips // columns, columns


class DecodeStep:
    """The tensors of a model for `users`, each with `cached` tokens behind it, and one step over them."""

    def __init__(self, mesh: ttnn.MeshDevice, shape: ModelShape, users: int, cached: int) -> None:
        self.mesh, self.shape, self.users = mesh, shape, users
        self.rows, self.columns = mesh.shape
        whole = TILE * self.columns * self.rows
        self._ffn, self._vocab = (-(-size // whole) * whole for size in (shape.ffn, shape.vocab))
        self._residual = self._over_cores(shape.hidden // self.columns)
        self._whole = self._over_cores(shape.hidden)
        low, high = ttnn.MathFidelity.LoFi, ttnn.MathFidelity.HiFi2
        self._fast, self._exact = (
            ttnn.init_device_compute_kernel_config(mesh.arch(), math_fidelity=one) for one in (low, high)
        )
        self.samples_here = self._vocab // self.columns <= _LARGEST_ON_DEVICE
        self._layers = [self._layer(cached) for _ in range(shape.layers)]
        self._norm, self._head = self._norm_weight(), self._weight(shape.hidden, self._vocab)
        self._embedding = self._put((1, 1, self._vocab, shape.hidden), (None, 3), layout=ttnn.ROW_MAJOR_LAYOUT)
        self._angles = [self._put((1, 1, _TABLE, shape.head), layout=ttnn.ROW_MAJOR_LAYOUT) for _ in range(2)]
        self._turning = self._put((1, 1, TILE, TILE))
        self._tokens = self._numbers(torch.zeros(1, TILE), ttnn.uint32)
        self._positions = self._numbers(torch.full((users,), cached), ttnn.int32)
        self._rope_positions = self._numbers(torch.full((1, users), cached), ttnn.uint32)
        blocks = torch.arange(users * self._pages(cached)).reshape(users, -1)
        self._page_table = self._numbers(blocks, ttnn.int32)

    # -- what lies on the devices ------------------------------------------------------------------

    def _put(
        self,
        extents: tuple[int, ...],
        dims: tuple[int | None, int | None] = (None, None),
        dtype: ttnn.DataType = ttnn.bfloat16,
        layout: ttnn.Layout = ttnn.TILE_LAYOUT,
        memory_config: ttnn.MemoryConfig | None = None,
    ) -> ttnn.Tensor:
        mapper = ttnn.ShardTensor2dMesh(self.mesh, (self.rows, self.columns), dims)
        return ttnn.from_torch(
            torch.zeros(extents),
            dtype,
            layout=layout,
            device=self.mesh,
            mesh_mapper=mapper,
            memory_config=memory_config,
        )

    def _numbers(self, values: torch.Tensor, dtype: ttnn.DataType) -> ttnn.Tensor:
        everywhere = ttnn.ReplicateTensorToMesh(self.mesh)
        return ttnn.from_torch(values.int(), dtype, device=self.mesh, mesh_mapper=everywhere)

    def _weight(self, inner: int, outer: int, dtype: ttnn.DataType = ttnn.bfloat8_b) -> ttnn.Tensor:
        """Columns are shared along a row of the mesh, the inner dim down a column."""
        dims = (2 if self.rows > 1 else None, 3)
        mapper = ttnn.ShardTensor2dMesh(self.mesh, (self.rows, self.columns), dims)
        return self._by_bank(inner, outer, (inner // self.rows, outer // self.columns), mapper, dtype)

    def _weight_of_shares(self, inner: int, outer: int) -> ttnn.Tensor:
        """All devices share the inner dim."""
        own = inner // (self.rows * self.columns), outer
        return self._by_bank(inner, outer, own, ttnn.ShardTensorToMesh(self.mesh, dim=2), ttnn.bfloat8_b)

    def _by_bank(
        self, inner: int, outer: int, own: tuple[int, int], mapper: TensorToMesh, dtype: ttnn.DataType
    ) -> ttnn.Tensor:
        """Over the DRAM banks of each device, which holds `own`."""
        banks = self.mesh.dram_grid_size().x
        cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(banks - 1, 0))})
        wide = -(-own[1] // (TILE * banks)) * TILE
        shards = ttnn.ShardSpec(cores, [own[0], wide], ttnn.ShardOrientation.ROW_MAJOR)
        config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.DRAM, shards)
        values = torch.zeros(1, 1, inner, outer)
        tile = ttnn.TILE_LAYOUT
        return ttnn.from_torch(values, dtype, layout=tile, device=self.mesh, mesh_mapper=mapper, memory_config=config)

    def _norm_weight(self) -> ttnn.Tensor:
        return self._put((1, 1, self.shape.hidden // TILE, TILE), layout=ttnn.ROW_MAJOR_LAYOUT)

    def _layer(self, cached: int) -> dict[str, ttnn.Tensor]:
        shape = self.shape
        query, key = shape.heads * shape.head, shape.kv_heads * shape.head
        cache = self.users * self._pages(cached), shape.kv_heads, _PAGE, shape.head
        return {
            "attention_norm": self._norm_weight(),
            "qkv": self._weight(shape.hidden, query + 2 * key),
            "keys": self._put(cache, (None, 1), ttnn.bfloat8_b),
            "values": self._put(cache, (None, 1), ttnn.bfloat8_b),
            "out": self._weight(query, shape.hidden),
            "mlp_norm": self._norm_weight(),
            "gate": self._weight(shape.hidden, self._ffn, dtype=ttnn.bfloat4_b),
            "up": self._weight(shape.hidden, self._ffn, dtype=ttnn.bfloat4_b),
            "down": self._weight_of_shares(self._ffn, shape.hidden),
        }

    def _pages(self, cached: int) -> int:
        return -(-(cached + 1) // _PAGE)

    def _over_cores(self, width: int) -> ttnn.MemoryConfig:
        """In L1, a few whole tiles of each row on each core."""
        tiles = width // TILE
        cores = next(count for count in range(min(tiles, _MOST_CORES), 0, -1) if tiles % count == 0)
        grid = ttnn.num_cores_to_corerangeset(cores, ttnn.CoreCoord(8, 8), row_wise=True)
        shards = ttnn.ShardSpec(grid, [TILE, width // cores], ttnn.ShardOrientation.ROW_MAJOR)
        return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, shards)

    # -- one step ----------------------------------------------------------------------------------

    def __call__(self) -> ttnn.Tensor:
        """The next tokens, or logits that the host chooses them from."""
        x = ttnn.unsqueeze_to_4D(ttnn.embedding(self._tokens, self._embedding, layout=ttnn.TILE_LAYOUT))
        x = ttnn.to_memory_config(x, self._residual)
        angles = [self._angles_of_users(table) for table in self._angles]
        for layer in self._layers:
            x = self._added(x, self._attention(self._normed(x, layer["attention_norm"]), angles, layer))
            x = self._added(x, self._mlp(self._normed(x, layer["mlp_norm"]), layer))
        logits = ttnn.untilize(self._product(self._normed(x, self._norm), self._head))
        for positions in (self._positions, self._rope_positions):
            ttnn.plus_one(positions)
        if not self.samples_here:
            return logits
        likeliest = ttnn.argmax(self._gathered(logits), dim=3, keepdim=True)
        ttnn.copy(ttnn.reshape(likeliest, self._tokens.shape), self._tokens)
        return likeliest

    def _angles_of_users(self, table: ttnn.Tensor) -> ttnn.Tensor:
        rows = ttnn.unsqueeze_to_4D(ttnn.embedding(self._rope_positions, table, layout=ttnn.TILE_LAYOUT))
        return ttnn.to_memory_config(ttnn.transpose(rows, 1, 2), ttnn.L1_MEMORY_CONFIG)

    def _normed(self, x: ttnn.Tensor, weight: ttnn.Tensor) -> ttnn.Tensor:
        whole = ttnn.to_memory_config(self._gathered(x), self._whole)
        return ttnn.rms_norm(whole, epsilon=1e-5, weight=weight, memory_config=self._whole)

    def _added(self, x: ttnn.Tensor, more: ttnn.Tensor) -> ttnn.Tensor:
        return ttnn.add(x, ttnn.to_memory_config(more, self._residual), memory_config=self._residual)

    def _attention(self, x: ttnn.Tensor, angles: list[ttnn.Tensor], layer: dict[str, ttnn.Tensor]) -> ttnn.Tensor:
        heads, kv_heads = self.shape.heads // self.columns, self.shape.kv_heads // self.columns
        qkv = self._product(x, layer["qkv"])[:, :, : self.users, :]
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
            qkv, num_heads=heads, num_kv_heads=kv_heads, memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG
        )
        cos, sin = angles
        turned = [
            ttnn.experimental.rotary_embedding_llama(each, cos, sin, self._turning, is_decode_mode=True)
            for each in (q, k)
        ]
        for cache, new in (("keys", turned[1]), ("values", v)):
            ttnn.experimental.paged_update_cache(
                layer[cache], new, update_idxs_tensor=self._positions, page_table=self._page_table
            )
        attended = ttnn.transformer.paged_scaled_dot_product_attention_decode(
            turned[0],
            layer["keys"],
            layer["values"],
            self._page_table,
            cur_pos_tensor=self._positions,
            scale=self.shape.head**-0.5,
        )
        for used in (q, k, v, *turned):
            ttnn.deallocate(used)
        sharded = ttnn.to_memory_config(attended, ttnn.L1_MEMORY_CONFIG)
        joined = ttnn.experimental.nlp_concat_heads_decode(sharded, num_heads=heads)
        return self._product(self._gathered(joined), layer["out"])

    def _mlp(self, x: ttnn.Tensor, layer: dict[str, ttnn.Tensor]) -> ttnn.Tensor:
        gate, up = (self._product(x, layer[name], self._fast) for name in ("gate", "up"))
        silu = [ttnn.UnaryOpType.SILU]
        gated = ttnn.multiply(gate, up, input_tensor_a_activations=silu, memory_config=ttnn.L1_MEMORY_CONFIG)
        made = self._product(gated, layer["down"])
        if self.columns == 1:
            return made
        return ttnn.reduce_scatter(made, dim=3, cluster_axis=_ALONG, memory_config=ttnn.L1_MEMORY_CONFIG)

    def _product(
        self, x: ttnn.Tensor, weight: ttnn.Tensor, config: ttnn.WormholeComputeKernelConfig | None = None
    ) -> ttnn.Tensor:
        if self.rows > 1:  # a device of a column has its part of the inner dim
            x = ttnn.mesh_partition(x, dim=3, cluster_axis=_DOWN)
        made = ttnn.linear(x, weight, memory_config=ttnn.L1_MEMORY_CONFIG, compute_kernel_config=config or self._exact)
        return made if self.rows == 1 else ttnn.all_reduce(made, cluster_axis=_DOWN)

    def _gathered(self, x: ttnn.Tensor) -> ttnn.Tensor:
        if self.columns == 1:
            return x
        return ttnn.all_gather(x, dim=3, cluster_axis=_ALONG, memory_config=ttnn.L1_MEMORY_CONFIG)
