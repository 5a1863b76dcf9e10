"""DeepSeek's layers on a grid of chips: attention over a latent cache, and experts that tokens travel to.

Rows of the grid hold different users. Along a row heads and the stream are cut; each column keeps the latent cache of
some of the row's users, for which it attends with all heads.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from galaxy_modules import Grid
from sharding import DRAM, GRID, HIFI2, L1, TILE, height_sharded, sdpa_program
from torch_llama import normed, pcc

import softmesh as ttnn

ROWS, COLUMNS, USERS = 2, 4, 32  # users of each row
DIM, HEADS, NOPE, ROPE, VALUE, QUERY_RANK, RANK = 256, 64, 32, 32, 32, 128, 128
LENGTH, BLOCK = 64, 32
SCALE = (NOPE + ROPE) ** -0.5
ROW_MAJOR = ttnn.ROW_MAJOR_LAYOUT
Weights = dict[str, torch.Tensor]


@pytest.fixture
def grid() -> Iterator[Grid]:
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(ROWS, COLUMNS))
    yield Grid(mesh)
    ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)


def drawn(*shape: int, seed: int) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * shape[-2] ** -0.5
    return values.bfloat16().float()


def latent_weights() -> Weights:
    shapes = {
        "q_a": (DIM, QUERY_RANK),
        "q_b": (QUERY_RANK, HEADS * (NOPE + ROPE)),
        "kv_a": (DIM, RANK + ROPE),
        "k_b": (HEADS, NOPE, RANK),
        "v_b": (HEADS, RANK, VALUE),
        "o": (HEADS * VALUE, DIM),
    }
    weights = {name: drawn(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    return weights | {name: 1 + drawn(1, width, seed=width)[0] * 0.1 for name, width in NORMS.items()}


NORMS = {"q_norm": QUERY_RANK, "kv_norm": RANK}


def angles() -> tuple[torch.Tensor, torch.Tensor]:
    speeds = 1.0 / 10000.0 ** (torch.arange(0, ROPE, 2) / ROPE)
    turned = torch.outer(torch.arange(LENGTH), speeds).repeat_interleave(2, -1)
    return turned.cos(), turned.sin()


class TorchLatentAttention:
    def __init__(self, weights: Weights, users: int) -> None:
        self._weights = weights
        self.cache = torch.zeros(users, LENGTH, RANK + ROPE)

    def decode(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        w, users = self._weights, torch.arange(x.shape[0])
        q = (normed(x @ w["q_a"], w["q_norm"], 1e-6) @ w["q_b"]).unflatten(-1, (HEADS, NOPE + ROPE))
        q_nope, q_rope = q.split((NOPE, ROPE), -1)
        latent, k_rope = (x @ w["kv_a"]).split((RANK, ROPE), -1)
        latent = normed(latent, w["kv_norm"], 1e-6)
        self.cache[users, positions] = torch.cat([latent, self._turned(k_rope, positions)], -1)
        q_rope = self._turned(q_rope.transpose(0, 1), positions).transpose(0, 1)
        query = torch.cat([torch.einsum("uhn,hnr->uhr", q_nope, w["k_b"]), q_rope], -1)
        scores = torch.einsum("uhr,ulr->uhl", query, self.cache) * SCALE
        scores = scores.masked_fill(torch.arange(LENGTH) > positions[:, None, None], float("-inf"))
        attended = torch.einsum("uhl,ulr->uhr", scores.softmax(-1), self.cache[..., :RANK])
        return torch.einsum("uhr,hrv->uhv", attended, w["v_b"]).flatten(1) @ w["o"]

    @staticmethod
    def _turned(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cos, sin = (table[positions] for table in angles())
        return x * cos + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * sin


class LatentAttention:
    def __init__(self, grid: Grid, weights: Weights) -> None:
        self._grid = grid
        heads = HEADS // COLUMNS
        self._heads = heads
        cut = {"q_a": (None, 2), "kv_a": (None, 2), "q_b": (None, 3), "o": (None, 3)}
        self._weights = {name: grid.put(weights[name][None, None], dims) for name, dims in cut.items()}
        for name in ("k_b", "v_b"):
            self._weights[name] = grid.put(weights[name][None], (None, 1))
        for name in NORMS:
            self._weights[name] = grid.put(weights[name].reshape(1, 1, -1, TILE), (None, None), layout=ROW_MAJOR)
        blocks = USERS // COLUMNS * LENGTH // BLOCK
        self.cache = grid.put(torch.zeros(blocks, 1, BLOCK, RANK + ROPE), (None, None), ttnn.bfloat8_b)
        turn = torch.zeros(1, 1, TILE, TILE)
        turn[..., torch.arange(0, TILE, 2), torch.arange(1, TILE, 2)] = 1
        turn[..., torch.arange(1, TILE, 2), torch.arange(0, TILE, 2)] = -1
        self._cores = ttnn.num_cores_to_corerangeset(USERS, GRID, row_wise=True)
        self._turn = grid.put(turn.repeat(1, 1, USERS, 1), (None, None), memory=height_sharded(TILE, self._cores))
        self._tables = [grid.put(table[None, None], (None, None), layout=ROW_MAJOR) for table in angles()]

    def _summed(self, x: ttnn.Tensor) -> ttnn.Tensor:
        gathered = self._grid.all_gather(x, 1, 1, DRAM)
        return ttnn.experimental.fast_reduce_nc(
            gathered, dims=[1], output=None, compute_kernel_config=None, memory_config=L1
        )

    def _normed(self, x: ttnn.Tensor, name: str) -> ttnn.Tensor:
        return ttnn.rms_norm(x, weight=self._weights[name], epsilon=1e-6, compute_kernel_config=HIFI2)

    def _turned(self, x: ttnn.Tensor, tables: list[ttnn.Tensor]) -> ttnn.Tensor:
        """x [1, users, heads, rope]."""
        x = ttnn.to_memory_config(x, height_sharded(ROPE, self._cores))
        turned = ttnn.experimental.rotary_embedding_llama(x, *tables, self._turn, is_decode_mode=True)
        return ttnn.to_memory_config(turned, L1)

    def decode(
        self,
        x: ttnn.Tensor,
        rope_ids: ttnn.Tensor,
        positions: ttnn.Tensor,
        page_table: ttnn.Tensor,
    ) -> ttnn.Tensor:
        """x [1, 1, users, dim / columns]; positions and pages are those of each chip's own users."""
        grid, heads, w = self._grid, self._heads, self._weights
        tables = [
            ttnn.interleaved_to_sharded(
                ttnn.transpose(ttnn.unsqueeze_to_4D(ttnn.embedding(rope_ids, table, layout=ttnn.TILE_LAYOUT)), 1, 2),
                height_sharded(ROPE, self._cores),
            )
            for table in self._tables
        ]
        q = self._normed(self._summed(ttnn.linear(x, w["q_a"], memory_config=L1)), "q_norm")
        q = ttnn.reshape(ttnn.linear(q, w["q_b"], memory_config=L1), (USERS, 1, heads, NOPE + ROPE))
        q_nope = ttnn.slice(q, [0, 0, 0, 0], [USERS, 1, heads, NOPE])
        q_rope = ttnn.slice(q, [0, 0, 0, NOPE], [USERS, 1, heads, NOPE + ROPE])
        q_nope = ttnn.linear(ttnn.permute(q_nope, (1, 2, 0, 3)), w["k_b"])
        q_nope = ttnn.permute(q_nope, (0, 2, 1, 3))
        q_rope = self._turned(ttnn.permute(q_rope, (1, 0, 2, 3)), tables)
        query = ttnn.concat([q_nope, q_rope], dim=-1)

        latent = self._summed(ttnn.linear(x, w["kv_a"], memory_config=L1))
        k_rope = ttnn.slice(latent, [0, 0, 0, RANK], [1, 1, USERS, RANK + ROPE])
        latent = self._normed(ttnn.slice(latent, [0, 0, 0, 0], [1, 1, USERS, RANK]), "kv_norm")
        k_rope = self._turned(ttnn.permute(k_rope, (0, 2, 1, 3)), tables)
        new = ttnn.concat([ttnn.permute(latent, (0, 2, 1, 3)), k_rope], dim=-1)
        new = ttnn.mesh_partition(new, dim=1, cluster_axis=1)
        own = ttnn.num_cores_to_corerangeset(USERS // COLUMNS, GRID, row_wise=True)
        new = ttnn.to_memory_config(new, height_sharded(RANK + ROPE, own))
        ttnn.experimental.paged_update_cache(self.cache, new, update_idxs_tensor=positions, page_table=page_table)

        query = ttnn.experimental.all_to_all_async_generic(
            query, in_dim=2, out_dim=1, cluster_axis=1, num_links=1, topology=ttnn.Topology.Linear, memory_config=DRAM
        )
        attended = ttnn.transformer.paged_flash_multi_latent_attention_decode(
            query,
            self.cache,
            head_dim_v=RANK,
            page_table_tensor=page_table,
            cur_pos_tensor=positions,
            scale=SCALE,
            program_config=sdpa_program(0, 32),
            compute_kernel_config=HIFI2,
            memory_config=DRAM,
        )
        attended = ttnn.experimental.all_to_all_async_generic(
            attended, in_dim=1, out_dim=2, cluster_axis=1, num_links=1, topology=ttnn.Topology.Linear
        )
        value = ttnn.linear(ttnn.permute(attended, (0, 2, 1, 3)), w["v_b"])
        value = ttnn.reshape(ttnn.permute(value, (0, 2, 1, 3)), (1, 1, USERS, heads * VALUE))
        return ttnn.linear(grid.all_gather(value, 3, 1, DRAM), w["o"], memory_config=L1)


def test_latent_attention_of_a_decode_step(grid):
    weights = latent_weights()
    program, torch_layer = LatentAttention(grid, weights), TorchLatentAttention(weights, ROWS * USERS)
    own, pages = USERS // COLUMNS, LENGTH // BLOCK
    table = torch.stack([torch.randperm(own * pages).reshape(own, pages) for _ in range(COLUMNS)])
    positions = torch.zeros(ROWS * USERS).long()
    for step in range(3):
        x = torch.randn(ROWS * USERS, DIM, generator=torch.Generator().manual_seed(step)).bfloat16().float()
        result = program.decode(
            grid.put(x.reshape(1, 1, -1, DIM), (2, 3)),
            grid.put(positions.reshape(ROWS, USERS), (0, None), ttnn.uint32, ROW_MAJOR),
            _by_chip(grid, positions),
            grid.put(table.flatten(0, 1), (None, 0), ttnn.int32, ROW_MAJOR),
        )
        composer = ttnn.ConcatMesh2dToTensor(grid.device, dims=(2, 3), mesh_shape=(ROWS, COLUMNS))
        found = ttnn.to_torch(result, mesh_composer=composer).float()[0, 0]
        assert pcc(found, torch_layer.decode(x, positions)) > 0.999
        positions += 1 + torch.arange(ROWS * USERS) % 2


def _by_chip(grid: Grid, positions: torch.Tensor) -> ttnn.Tensor:
    """Positions of each chip's users: rows hold blocks of users, columns parts of a block."""
    return ttnn.from_torch(
        positions,
        ttnn.int32,
        layout=ROW_MAJOR,
        device=grid.device,
        mesh_mapper=ttnn.ShardTensorToMesh(grid.device, dim=0),
    )


# -- experts ---------------------------------------------------------------------------------------------

EXPERTS, CHOSEN, GROUPS, KEPT_GROUPS, HIDDEN, TOKENS = 64, 8, 8, 4, 64, 32
ROUTED_SCALE = 2.5


class Experts:
    """Eight experts on each chip, tokens of a row's users on all of its chips."""

    def __init__(self, grid: Grid, weights: Weights) -> None:
        self._grid = grid
        every = ttnn.ShardTensorToMesh(grid.device, dim=0)
        self._own = EXPERTS // (ROWS * COLUMNS)

        def cut(name: str) -> ttnn.Tensor:
            by_chip = weights[name].unflatten(0, (ROWS * COLUMNS, self._own))
            return ttnn.from_torch(
                by_chip, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=grid.device, mesh_mapper=every
            )

        self._w1, self._w2, self._w3 = (cut(name) for name in ("w1", "w2", "w3"))
        self._gate = grid.put(weights["gate"][None, None], (None, None))
        self._bias = grid.put(weights["bias"].reshape(1, 1, 1, -1), (None, None), ttnn.float32)
        homes = torch.zeros(1, 1, EXPERTS, ROWS * COLUMNS)
        homes[0, 0, torch.arange(EXPERTS), torch.arange(EXPERTS) // self._own] = 1
        self._homes = grid.put(homes.int(), (None, None), ttnn.uint16, ROW_MAJOR)
        zeros, ones = torch.zeros(1, 1, 1, GROUPS), torch.ones(1, 1, 1, KEPT_GROUPS)
        self._no_groups, self._ones = grid.put(zeros, (None, None)), grid.put(ones, (None, None))

    def route(self, x: ttnn.Tensor) -> tuple[ttnn.Tensor, ttnn.Tensor]:
        """Shares and ids of the experts of each token, [1, 1, tokens, 8]."""
        tokens = x.shape[2]
        scores = ttnn.sigmoid(ttnn.linear(x, self._gate, dtype=ttnn.float32, compute_kernel_config=HIFI2))
        biased = ttnn.add(scores, ttnn.repeat(self._bias, (1, 1, tokens, 1)))
        grouped = ttnn.reshape(biased, (1, tokens, GROUPS, EXPERTS // GROUPS))
        grouped = ttnn.pad(grouped, [(0, 0), (0, 0), (0, 0), (0, 64 - EXPERTS // GROUPS)], value=-float("inf"))
        best_two, _ = ttnn.topk(ttnn.typecast(grouped, ttnn.bfloat16), k=2, dim=-1)
        of_groups = ttnn.unsqueeze(ttnn.sum(best_two, dim=3), 0)
        of_groups = ttnn.pad(of_groups, [(0, 0), (0, 0), (0, 0), (0, 64 - GROUPS)], value=-float("inf"))
        _, kept = ttnn.topk(of_groups, k=KEPT_GROUPS, dim=-1)
        mask = ttnn.scatter(
            input=ttnn.repeat(self._no_groups, (1, 1, tokens, 1)),
            index=kept,
            src=ttnn.repeat(self._ones, (1, 1, tokens, 1)),
            dim=3,
        )
        mask = ttnn.repeat(ttnn.reshape(mask, (1, tokens, GROUPS, 1)), (1, 1, 1, EXPERTS // GROUPS))
        allowed = ttnn.mul(biased, ttnn.typecast(ttnn.reshape(mask, (1, 1, tokens, EXPERTS)), ttnn.float32))
        _, ids = ttnn.topk(ttnn.typecast(allowed, ttnn.bfloat16), k=CHOSEN, dim=-1)
        chosen = ttnn.gather(ttnn.typecast(scores, ttnn.bfloat16), dim=3, index=ids)
        total = ttnn.sum(chosen, dim=3, keepdim=True)
        return ttnn.mul(ttnn.div(chosen, ttnn.add(total, 1e-20)), ROUTED_SCALE), ids

    def __call__(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """x [1, 1, tokens, dim], the same on all chips of a row; the result is cut along dim 3."""
        shares, ids = self.route(x)
        tokens = x.shape[2]
        rows = ttnn.reshape(ttnn.to_layout(x, ROW_MAJOR), (tokens, 1, 1, DIM))
        places = ttnn.reshape(ttnn.to_layout(ids, ROW_MAJOR), (tokens, 1, 1, CHOSEN))
        options = {"cluster_axis": 0, "num_links": 1, "topology": ttnn.Topology.Linear, "memory_config": DRAM}
        sent, metadata = ttnn.all_to_all_dispatch(rows, places, self._homes, **options)
        everyone = ROWS * tokens
        sent = ttnn.repeat(ttnn.reshape(sent, (1, 1, everyone, DIM)), ttnn.Shape((1, self._own, 1, 1)))
        sent = ttnn.to_layout(sent, ttnn.TILE_LAYOUT)
        inner = ttnn.mul(
            ttnn.linear(sent, self._w1),
            ttnn.linear(sent, self._w3),
            input_tensor_a_activations=[ttnn.UnaryOpType.SILU],
        )
        made = ttnn.to_layout(ttnn.linear(inner, self._w2), ROW_MAJOR)
        made = ttnn.reshape(made, (self._own, everyone, 1, DIM))
        back = ttnn.all_to_all_combine(made, metadata, self._homes, **options)
        back = ttnn.to_layout(ttnn.reshape(back, (CHOSEN, 1, tokens, DIM)), ttnn.TILE_LAYOUT)
        weights = ttnn.to_layout(ttnn.permute(shares, (3, 1, 2, 0)), ttnn.TILE_LAYOUT)
        total = ttnn.sum(ttnn.mul(back, weights), dim=0, keepdim=True)
        return ttnn.experimental.reduce_scatter_minimal_async(
            total,
            dim=3,
            cluster_axis=1,
            num_links=1,
            topology=ttnn.Topology.Linear,
            memory_config=DRAM,
            **self._grid.semaphores.scatter(),
        )


def best_experts(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    biased = (x @ weights["gate"]).sigmoid() + weights["bias"]
    of_groups = biased.unflatten(-1, (GROUPS, -1)).topk(2).values.sum(-1)
    mask = torch.zeros_like(of_groups).scatter_(-1, of_groups.topk(KEPT_GROUPS).indices, 1)
    return (biased * mask.repeat_interleave(EXPERTS // GROUPS, -1)).topk(CHOSEN).indices


def expected_of(x: torch.Tensor, weights: Weights, ids: torch.Tensor) -> torch.Tensor:
    scores = (x @ weights["gate"]).sigmoid()
    chosen = scores.gather(-1, ids)
    shares = torch.zeros_like(scores).scatter_(-1, ids, ROUTED_SCALE * chosen / chosen.sum(-1, keepdim=True))
    gate, up = (torch.einsum("td,edh->eth", x, weights[name]) for name in ("w1", "w3"))
    return torch.einsum("eth,ehd,te->td", torch.nn.functional.silu(gate) * up, weights["w2"], shares)


def test_tokens_travel_to_their_experts_and_back(grid):
    shapes = {"w1": (EXPERTS, DIM, HIDDEN), "w3": (EXPERTS, DIM, HIDDEN), "w2": (EXPERTS, HIDDEN, DIM)}
    weights = {name: drawn(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    weights["gate"] = drawn(DIM, EXPERTS, seed=7)
    weights["bias"] = torch.linspace(0, 0.1, EXPERTS)
    x = torch.randn(ROWS * TOKENS, DIM, generator=torch.Generator().manual_seed(5)).bfloat16().float()
    experts, given = Experts(grid, weights), grid.put(x.reshape(1, 1, -1, DIM), (2, None))
    _, routed = experts.route(given)
    by_row = ttnn.ConcatMesh2dToTensor(grid.device, dims=(2, 0), mesh_shape=(ROWS, COLUMNS))
    ids = ttnn.to_torch(routed, mesh_composer=by_row)[0, 0].long()
    alike = ids.sort(-1).values == best_experts(x, weights).sort(-1).values
    assert float(alike.all(-1).float().mean()) > 0.8  # scores of eight bits are equal now and then
    composer = ttnn.ConcatMesh2dToTensor(grid.device, dims=(2, 3), mesh_shape=(ROWS, COLUMNS))
    found = ttnn.to_torch(experts(given), mesh_composer=composer).float()[0, 0]
    assert pcc(found, expected_of(x, weights, ids)) > 0.999
