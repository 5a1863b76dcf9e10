"""A Falcon-7B decoder layer: 71 query heads that share one key, attention and MLP side by side over one layer norm.

The sizes of the heads are Falcon's own, since its calls know them; the stream is narrow.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from sharding import DRAM, HIFI2, L1, TILE
from torch_llama import pcc

import softmesh as ttnn

HEADS, WIDTH, DIM, LENGTH = 71, 64, 128, 128
SCALE = WIDTH**-0.5
HIDDEN_SCORE = -100000.0


@pytest.fixture
def device() -> Iterator[ttnn.MeshDevice]:
    opened = ttnn.open_device(device_id=0, l1_small_size=1 << 14)
    yield opened
    ttnn.close_device(opened)


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "query_key_value": (DIM, (HEADS + 2) * WIDTH),
        "dense": (HEADS * WIDTH, DIM),
        "dense_h_to_4h": (DIM, 4 * DIM),
        "dense_4h_to_h": (4 * DIM, DIM),
    }
    drawn = {name: torch.randn(shape, generator=generator) * shape[0] ** -0.5 for name, shape in shapes.items()}
    drawn["gamma"] = 1 + 0.1 * torch.randn(DIM, generator=generator)
    drawn["beta"] = 0.1 * torch.randn(DIM, generator=generator)
    return {name: values.bfloat16().float() for name, values in drawn.items()}


def tables() -> tuple[torch.Tensor, torch.Tensor]:
    speeds = 1.0 / 10000.0 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    turned = torch.outer(torch.arange(LENGTH), speeds).repeat(1, 2)
    return turned.cos(), turned.sin()


def turned(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = (table[positions] for table in tables())
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class TorchFalcon:
    """One layer over users' sequences [users, tokens, dim], which begin at position `start`."""

    def __init__(self, weights: dict[str, torch.Tensor], users: int) -> None:
        self._weights = weights
        self.caches = torch.zeros(2, users, 1, LENGTH, WIDTH)

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        w = self._weights
        normed = torch.nn.functional.layer_norm(x, (DIM,), w["gamma"], w["beta"], 1e-5)
        inner = torch.nn.functional.gelu(normed @ w["dense_h_to_4h"]) @ w["dense_4h_to_h"]
        heads = (normed @ w["query_key_value"]).unflatten(-1, (-1, WIDTH)).transpose(1, 2)
        where = torch.arange(start, start + x.shape[1])
        q, k, v = turned(heads[:, :HEADS], where), turned(heads[:, HEADS:-1], where), heads[:, -1:]
        for cache, new in zip(self.caches, (k, v), strict=True):
            cache[:, :, start : start + x.shape[1]] = new
        scores = q @ self.caches[0].transpose(-2, -1) * SCALE
        scores = scores.masked_fill(torch.arange(LENGTH) > where[:, None], HIDDEN_SCORE)
        attended = (scores.softmax(-1) @ self.caches[1]).transpose(1, 2).flatten(2)
        return x + attended @ w["dense"] + inner


class Falcon:
    def __init__(self, device: ttnn.MeshDevice, weights: dict[str, torch.Tensor], users: int) -> None:
        self._device = device
        self._weights = {
            name: self.put(values if values.dim() == 2 else values.reshape(1, 1, 1, -1))
            for name, values in weights.items()
        }
        self._cos, self._sin = (self.put(table[None, None]) for table in tables())
        self.caches = [self.put(torch.zeros(users, 1, LENGTH, WIDTH)) for _ in range(2)]

    def put(self, values: torch.Tensor, dtype: ttnn.DataType = ttnn.bfloat16) -> ttnn.Tensor:
        return ttnn.from_torch(values, dtype, layout=ttnn.TILE_LAYOUT, device=self._device, memory_config=DRAM)

    def _norm(self, x: ttnn.Tensor) -> ttnn.Tensor:
        normed = ttnn.layer_norm(x, epsilon=1e-5, memory_config=x.memory_config())
        normed = ttnn.multiply(normed, self._weights["gamma"], memory_config=normed.memory_config())
        return ttnn.add(normed, self._weights["beta"], memory_config=normed.memory_config())

    def _mlp(self, x: ttnn.Tensor) -> ttnn.Tensor:
        inner = ttnn.linear(
            x, self._weights["dense_h_to_4h"], activation="gelu", memory_config=L1, compute_kernel_config=HIFI2
        )
        return ttnn.linear(inner, self._weights["dense_4h_to_h"], memory_config=L1, compute_kernel_config=HIFI2)

    def _heads(self, x: ttnn.Tensor) -> list[ttnn.Tensor]:
        fused = ttnn.linear(x, self._weights["query_key_value"], memory_config=L1, dtype=ttnn.bfloat16)
        return list(ttnn.experimental.nlp_create_qkv_heads_falcon7b(fused, memory_config=L1))

    def _layer(self, x: ttnn.Tensor, attended: ttnn.Tensor, normed: ttnn.Tensor) -> ttnn.Tensor:
        joined = ttnn.experimental.nlp_concat_heads(attended, memory_config=L1)
        projected = ttnn.linear(joined, self._weights["dense"], memory_config=L1)
        result = ttnn.add(self._mlp(normed), projected, memory_config=L1)
        ttnn.deallocate(projected)
        return ttnn.add(result, x, memory_config=L1)

    def prefill(self, x: ttnn.Tensor, user: int) -> ttnn.Tensor:
        length = x.shape[-2]
        normed = self._norm(x)
        q, k, v = self._heads(normed)
        q, k = (ttnn.experimental.rotary_embedding(y, self._cos, self._sin, memory_config=L1) for y in (q, k))
        for cache, new in zip(self.caches, (k, v), strict=True):
            ttnn.fill_cache(cache, new, user)
        scores = ttnn.matmul(q, ttnn.transpose(k, -2, -1, memory_config=L1), memory_config=L1)
        mask = torch.full((length, length), HIDDEN_SCORE).triu(1)[None, None]
        scores = ttnn.add(ttnn.multiply(scores, SCALE, memory_config=L1), self.put(mask), memory_config=L1)
        attended = ttnn.matmul(ttnn.softmax_in_place(scores), v, memory_config=L1)
        return self._layer(x, attended, normed)

    def prefill_in_slices(self, x: ttnn.Tensor, slices: int) -> ttnn.Tensor:
        """Scores that are too large for L1 at once: some rows at a time, sharded over the cores."""
        length, grid = x.shape[-2], (8, 8)
        normed = self._norm(x)
        q, k, v = self._heads(normed)
        q, k = (ttnn.experimental.rotary_embedding(y, self._cos, self._sin, memory_config=DRAM) for y in (q, k))
        key = ttnn.transpose(k, -2, -1)
        rows = HEADS * length // slices
        cores = rows // TILE
        mask = torch.full((length, length), HIDDEN_SCORE).triu(1)[None, None]
        causal = self.put(mask)
        q = ttnn.reshape(q, [1, 1, HEADS * length, WIDTH])
        attended = ttnn.empty(
            [1, 1, HEADS * length, WIDTH], ttnn.bfloat16, ttnn.TILE_LAYOUT, self._device, memory_config=DRAM
        )
        for i in range(slices):
            part = ttnn.interleaved_to_sharded_partial(
                q,
                grid,
                [TILE, WIDTH],
                slices,
                i,
                ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
                ttnn.ShardOrientation.ROW_MAJOR,
            )
            scores = ttnn.matmul(
                part,
                key,
                program_config=_rows_of_a_product(cores, WIDTH, length),
                memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
                dtype=ttnn.bfloat16,
                compute_kernel_config=HIFI2,
            )
            scores = ttnn.scale_mask_softmax_in_place(
                scores,
                SCALE,
                causal,
                program_config=ttnn.SoftmaxShardedMultiCoreProgramConfig(
                    compute_with_storage_grid_size=grid, subblock_w=1, block_h=1, block_w=length // TILE
                ),
                compute_kernel_config=HIFI2,
                is_causal_mask=True,
            )
            out = ttnn.matmul(
                scores,
                v,
                program_config=_rows_of_a_product(cores, length, WIDTH),
                memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
                dtype=ttnn.bfloat16,
                compute_kernel_config=HIFI2,
            )
            ttnn.sharded_to_interleaved_partial(out, attended, slices, i, memory_config=DRAM)
            ttnn.deallocate(out)
        return self._layer(x, ttnn.reshape(attended, [1, HEADS, length, WIDTH]), normed)

    def decode(self, x: ttnn.Tensor, position: int) -> ttnn.Tensor:
        """One token of each user, [1, 1, users, dim]."""
        users, seen = x.shape[-2], -(-(position + 1) // TILE) * TILE
        grid = self._device.compute_with_storage_grid_size()
        normed = self._norm(x)
        q, k, v = self._heads(normed)
        q, k = (ttnn.experimental.rotary_embedding(y, self._cos, self._sin, position, memory_config=L1) for y in (q, k))
        for cache, new in zip(self.caches, (k, v), strict=True):
            ttnn.update_cache(cache, new, position)
        keys, values = (
            ttnn.slice(cache, [0, 0, 0, 0], [users, 1, seen, WIDTH], memory_config=L1) for cache in self.caches
        )
        scores = ttnn.experimental.attn_matmul(
            q,
            ttnn.transpose(keys, -2, -1, memory_config=L1),
            compute_with_storage_grid_size=grid,
            memory_config=L1,
            dtype=ttnn.bfloat16,
        )
        mask = torch.where(torch.arange(seen) > position, HIDDEN_SCORE, 0.0).expand(1, HEADS, users, seen)
        scores = ttnn.transformer.attention_softmax_(
            scores, head_size=WIDTH, attention_mask=self.put(mask.contiguous())
        )
        attended = ttnn.experimental.attn_matmul(
            scores, values, compute_with_storage_grid_size=grid, memory_config=L1, dtype=ttnn.bfloat16
        )
        return self._layer(x, attended, normed)


def _rows_of_a_product(cores: int, k: int, n: int) -> ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig:
    return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        in0_block_w=k // TILE,
        per_core_M=1,
        per_core_N=n // TILE,
        out_subblock_h=1,
        out_subblock_w=1,
        fuse_batch=True,
        fused_activation=None,
        mcast_in0=False,
    )


def stream(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


def test_decode_after_prefill(device, weights):
    users, length = TILE, 64
    program, torch_model = Falcon(device, weights, users), TorchFalcon(weights, users)
    prompts = stream(users, length, DIM)
    expected = torch_model.forward(prompts, 0)
    for user in (0, users - 1):
        result = program.prefill(program.put(prompts[user : user + 1, None]), user)
        assert pcc(ttnn.to_torch(result), expected[user]) > 0.999
    for cache, filled in zip(program.caches, torch_model.caches, strict=True):
        given = ttnn.to_torch(cache).float()
        torch.testing.assert_close(given[[0, -1]], filled[[0, -1]], rtol=0.02, atol=0.05)
        ttnn.copy_host_to_device_tensor(ttnn.from_torch(filled, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT), cache)
    for position in (length, length + 1):
        tokens = stream(users, 1, DIM, seed=position)
        result = program.decode(program.put(tokens.reshape(1, 1, users, DIM)), position)
        assert pcc(ttnn.to_torch(result)[0, 0], torch_model.forward(tokens, position)[:, 0]) > 0.999


def test_a_prefill_in_slices(device, weights):
    program = Falcon(device, weights, 1)
    prompt = stream(1, 64, DIM)
    result = program.prefill_in_slices(program.put(prompt[None]), slices=71)
    assert pcc(ttnn.to_torch(result), TorchFalcon(weights, 1).forward(prompt, 0)) > 0.999
