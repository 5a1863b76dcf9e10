"""A mixture of eight experts on eight chips, one on each: every chip routes all tokens, and weighs its own expert.

Each chip's gate has its own expert in the first column, so that a chosen index 0 means "mine".
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from chip_row import Row
from sharding import DRAM, L1, LOFI, TILE, prefill_matmul
from torch_llama import pcc

import softmesh as ttnn

EXPERTS, CHOSEN, DIM, HIDDEN = 8, 2, 256, 512
PADDED = 64  # columns of the gate
NEVER = float("-inf")


@pytest.fixture
def row() -> Iterator[Row]:
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, EXPERTS))
    yield Row(mesh)
    ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * shape[-2] ** -0.5


class Experts:
    def __init__(self, row: Row, weights: dict[str, torch.Tensor]) -> None:
        self._row = row
        mapper = ttnn.ShardTensorToMesh(row.device, dim=0)

        def one_each(values: torch.Tensor, dtype: ttnn.DataType) -> ttnn.Tensor:
            return ttnn.as_tensor(
                values,
                dtype=dtype,
                layout=ttnn.TILE_LAYOUT,
                device=row.device,
                memory_config=DRAM,
                mesh_mapper=mapper,
            )

        self._w1, self._w2, self._w3 = (one_each(weights[f"w{i}"][:, None], ttnn.bfloat8_b) for i in (1, 2, 3))
        own_first = torch.stack([weights["gate"].roll(-own, -1) for own in range(EXPERTS)])[:, None]
        self._gate = one_each(torch.nn.functional.pad(own_first, (0, PADDED - EXPERTS)), ttnn.bfloat16)
        self._only_experts = row.replicated(self._mask(PADDED, EXPERTS))
        self._only_chosen = row.replicated(self._mask(TILE, CHOSEN))

    @staticmethod
    def _mask(width: int, kept: int) -> torch.Tensor:
        return torch.where(torch.arange(width) < kept, 0.0, NEVER).reshape(1, 1, 1, width)

    def decode(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """[1, 1, 32, dim / chips] of x [1, 1, 32, dim], which every chip has."""
        share = self._share(x)
        result = ttnn.multiply(self._expert(x), share)
        return ttnn.to_memory_config(self._row.reduce_scatter(result, DRAM), memory_config=DRAM)

    def _share(self, x: ttnn.Tensor) -> ttnn.Tensor:
        """How much of each token is this chip's, [1, 1, 32, 1]."""
        scores = ttnn.matmul(
            x,
            self._gate,
            memory_config=L1,
            compute_kernel_config=LOFI,
            core_grid=ttnn.CoreGrid(y=8, x=8),
            dtype=ttnn.bfloat16,
        )
        scores = ttnn.add(scores, self._only_experts)
        best, places = ttnn.topk(scores, TILE)
        best = ttnn.add(best, self._only_chosen)
        is_mine = ttnn.typecast(ttnn.eqz(places), dtype=ttnn.bfloat16)
        return ttnn.sum(ttnn.multiply(ttnn.softmax(best, dim=-1), is_mine), dim=3, keepdim=True)

    def _expert(self, x: ttnn.Tensor) -> ttnn.Tensor:
        rows, silu = x.shape[-2], ttnn.UnaryWithParam(ttnn.UnaryOpType.SILU)
        gate, up = (
            ttnn.linear(
                x,
                weight,
                compute_kernel_config=LOFI,
                dtype=ttnn.bfloat16,
                program_config=prefill_matmul(rows, DIM, HIDDEN, fused_activation=activation),
            )
            for weight, activation in ((self._w1, silu), (self._w3, None))
        )
        product = ttnn.multiply(gate, up, dtype=ttnn.bfloat16, memory_config=DRAM)
        return ttnn.linear(
            product,
            self._w2,
            compute_kernel_config=LOFI,
            dtype=ttnn.bfloat8_b,
            program_config=prefill_matmul(rows, HIDDEN, DIM),
        )


def expected_of(x: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    scores, chosen = (x @ weights["gate"]).topk(CHOSEN)
    shares = torch.zeros(*x.shape[:-1], EXPERTS).scatter_(-1, chosen, scores.softmax(-1))
    inner = torch.nn.functional.silu(torch.einsum("td,edh->eth", x, weights["w1"])) * torch.einsum(
        "td,edh->eth", x, weights["w3"]
    )
    return torch.einsum("eth,ehd,te->td", inner, weights["w2"], shares)


@pytest.mark.parametrize("rank", [3, 4])
def test_each_token_goes_to_its_two_experts(row, rank):
    shapes = {"w1": (EXPERTS, DIM, HIDDEN), "w3": (EXPERTS, DIM, HIDDEN), "w2": (EXPERTS, HIDDEN, DIM)}
    weights = {name: drawn(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    x = torch.randn(32, DIM, generator=torch.Generator().manual_seed(7)).bfloat16().float()
    weights["gate"] = 4 * drawn(DIM, EXPERTS, seed=9).bfloat16().float()
    given = row.replicated(x.reshape(*(1,) * (rank - 2), 32, DIM))
    result = Experts(row, weights).decode(given)
    found = ttnn.to_torch(result, mesh_composer=ttnn.ConcatMeshToTensor(row.device, dim=-1)).float()
    assert found.shape == (1, 1, 32, DIM)
    assert pcc(found, expected_of(x, weights)) > 0.999
