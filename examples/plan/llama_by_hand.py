"""A decode step of the Llama beside it, laid out by hand: the yardstick of plans.

softmesh estimate --no-values --system Galaxy examples/plan/llama_by_hand.py 70b 8x4

The hidden dim is split over the rows of the mesh; heads, inner dim and vocabulary over its columns. Queries, keys and
values are one product, norms gather their statistics, results stay in L1, weights and caches are in bfloat8_b.
"""

from __future__ import annotations

import sys
from typing import Any

import llama
import torch
import ttnn

L1 = ttnn.L1_MEMORY_CONFIG
ROWS, COLUMNS = 0, 1  # axes of the mesh
SILU = [ttnn.UnaryWithParam(ttnn.UnaryOpType.SILU)]


class ByHand:
    def __init__(self, config: llama.Config, mesh: ttnn.MeshDevice, users: int, keys: int, dtype: Any) -> None:
        self.config, self.mesh, self.users = config, mesh, users
        self.columns = tuple(mesh.shape)[COLUMNS]
        values = llama.weights(config)
        self.layers = [self._layer(layer, dtype) for layer in values["layers"]]
        self.embedding = self._put(values["embedding"], (1, None), layout=ttnn.ROW_MAJOR_LAYOUT)
        self.norm, self.head = self._put(values["norm"], (0, None)), self._put(values["head"], (0, 1), dtype)
        self.turn = self._put(values["turn"], (None, None))
        self.cos, self.sin = (
            self._put(values[name][0, 0], (None, None), layout=ttnn.ROW_MAJOR_LAYOUT) for name in ("cos", "sin")
        )
        empty = torch.zeros(users, config.kv_heads, keys, config.head)
        self.caches = [[self._put(empty, (None, 1), dtype) for _ in "kv"] for _ in range(config.layers)]

    def _put(
        self,
        values: torch.Tensor,
        dims: tuple[int | None, int | None],
        dtype: Any = ttnn.bfloat16,
        layout: Any = ttnn.TILE_LAYOUT,
    ) -> ttnn.Tensor:
        words = [ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim) for dim in dims]
        mapper = ttnn.create_mesh_mapper(self.mesh, ttnn.MeshMapperConfig(words))
        return ttnn.from_torch(values, dtype, layout=layout, device=self.mesh, mesh_mapper=mapper)

    def _layer(self, w: dict[str, torch.Tensor], dtype: Any) -> dict[str, ttnn.Tensor]:
        parts = zip(*(w[name].chunk(self.columns, 1) for name in ("wq", "wk", "wv")), strict=True)
        joined = torch.cat([part for group in parts for part in group], 1)  # of each column its queries, keys, values
        found = {"qkv": self._put(joined, (0, 1), dtype)}
        found |= {name: self._put(w[name], (0, 1), dtype) for name in ("gate", "up")}
        found |= {name: self._put(w[name], (1, 0), dtype) for name in ("wo", "down")}
        return found | {name: self._put(w[name], (0, None)) for name in ("attention_norm", "mlp_norm")}

    def decode(self, tokens: torch.Tensor, at: torch.Tensor) -> ttnn.Tensor:
        """tokens [1, 1, 1, users], positions [users] -> logits [1, 1, users, vocabulary], split over the columns."""
        rows = ttnn.ROW_MAJOR_LAYOUT
        ids, positions = (
            self._put(given, (None, None), kind, rows) for given, kind in ((tokens, ttnn.uint32), (at, ttnn.int32))
        )
        x = ttnn.embedding(ids, self.embedding, layout=ttnn.TILE_LAYOUT, memory_config=L1)
        x = ttnn.reshape(x, (1, 1, self.users, -1))
        cos, sin = (self._table_at(table, positions) for table in (self.cos, self.sin))
        for w, cache in zip(self.layers, self.caches, strict=True):
            seen = self._attention(self._normed(x, w["attention_norm"]), w, cache, cos, sin, positions)
            x = ttnn.add(x, self._product(seen, w["wo"], COLUMNS), memory_config=L1)
            h = self._normed(x, w["mlp_norm"])
            gate, up = (self._product(h, w[name], ROWS) for name in ("gate", "up"))
            inner = ttnn.mul(gate, up, input_tensor_a_activations=SILU, memory_config=L1)
            x = ttnn.add(x, self._product(inner, w["down"], COLUMNS), memory_config=L1)
        return self._product(self._normed(x, self.norm), self.head, ROWS)

    def _product(self, x: ttnn.Tensor, weight: ttnn.Tensor, axis: int) -> ttnn.Tensor:
        """Each device has a part of the inner dim; they are summed along an axis."""
        return ttnn.all_reduce(ttnn.matmul(x, weight, memory_config=L1), cluster_axis=axis, memory_config=L1)

    def _normed(self, x: ttnn.Tensor, weight: ttnn.Tensor) -> ttnn.Tensor:
        stats = ttnn.rms_norm_pre_all_gather(x, memory_config=L1)
        stats = ttnn.all_gather(stats, 3, cluster_axis=ROWS, memory_config=L1)
        return ttnn.rms_norm_post_all_gather(x, stats, weight=weight, epsilon=llama.EPSILON, memory_config=L1)

    def _table_at(self, table: ttnn.Tensor, positions: ttnn.Tensor) -> ttnn.Tensor:
        ids = ttnn.reshape(positions, (1, self.users))
        found = ttnn.embedding(ids, table, layout=ttnn.TILE_LAYOUT, memory_config=L1)
        return ttnn.reshape(found, (1, self.users, 1, self.config.head))

    def _attention(self, x: Any, w: Any, cache: Any, cos: Any, sin: Any, positions: Any) -> ttnn.Tensor:
        c, users = self.config, self.users
        qkv, first, found = self._product(x, w["qkv"], ROWS), 0, []
        for heads in (c.heads // self.columns, c.kv_heads // self.columns, c.kv_heads // self.columns):
            end = first + heads * c.head
            part = ttnn.slice(qkv, [0, 0, 0, first], [1, 1, users, end], memory_config=L1)
            found.append(ttnn.reshape(part, (1, users, heads, c.head), memory_config=L1))
            first = end
        q, k, v = self._rotated(found[0], cos, sin), self._rotated(found[1], cos, sin), found[2]
        for kept, new in zip(cache, (k, v), strict=True):
            ttnn.experimental.paged_update_cache(kept, new, update_idxs_tensor=positions)
        seen = ttnn.transformer.scaled_dot_product_attention_decode(
            q, *cache, cur_pos_tensor=positions, memory_config=L1
        )
        return ttnn.reshape(seen, (1, 1, users, c.width // self.columns), memory_config=L1)

    def _rotated(self, x: ttnn.Tensor, cos: ttnn.Tensor, sin: ttnn.Tensor) -> ttnn.Tensor:
        turned = ttnn.multiply(ttnn.matmul(x, self.turn, memory_config=L1), sin, memory_config=L1)
        return ttnn.add(ttnn.multiply(x, cos, memory_config=L1), turned, memory_config=L1)


def logits(size: str, shape: tuple[int, int], users: int = 32, keys: int = 1024, dtype: Any = ttnn.bfloat8_b) -> Any:
    """Return the logits of the first token as one torch tensor."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING if max(shape) > 4 else ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        model = ByHand(llama.CONFIGS[size], mesh, users, keys, dtype)
        made = model.decode(torch.arange(users, dtype=torch.int32)[None, None, None], torch.zeros(users).int())
        joined = ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig([0, 3]))
        return ttnn.to_torch(made, mesh_composer=joined)[:1]


if __name__ == "__main__":
    size, shape = sys.argv[1:3] if len(sys.argv) > 2 else ("tiny", "2x2")
    rows, columns = map(int, shape.split("x"))
    print(list(logits(size, (rows, columns), keys=1024 if size != "tiny" else 64).shape))
