"""What the programs of Whisper, ViT and DiT share: random weights, tensors on a chip, agreement with torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import softmesh as ttnn

HIFI2 = ttnn.WormholeComputeKernelConfig(
    math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=False, packer_l1_acc=True
)
HIFI4 = ttnn.WormholeComputeKernelConfig(
    math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=True, fp32_dest_acc_en=False, packer_l1_acc=False
)


class Chance:
    """Random values that bfloat16 holds exactly, so that both sides start from the same weights."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def values(self, *shape: int, scale: float = 1.0, around: float = 0.0) -> torch.Tensor:
        return (torch.randn(shape, generator=self._generator) * scale + around).bfloat16().float()

    def weight(self, inputs: int, outputs: int) -> torch.Tensor:
        """As `x @ weight` has it; results stay near the size of x."""
        return self.values(inputs, outputs, scale=inputs**-0.5)

    def tokens(self, count: int, below: int) -> torch.Tensor:
        return torch.randint(0, below, (1, count), generator=self._generator)


def put(
    values: torch.Tensor,
    device: ttnn.MeshDevice,
    dtype: ttnn.DataType = ttnn.bfloat16,
    layout: ttnn.Layout = ttnn.TILE_LAYOUT,
    memory_config: ttnn.MemoryConfig = ttnn.DRAM_MEMORY_CONFIG,
    mesh_mapper: ttnn.TensorToMesh | None = None,
) -> ttnn.Tensor:
    return ttnn.from_torch(
        values, dtype, layout=layout, device=device, memory_config=memory_config, mesh_mapper=mesh_mapper
    )


def agreement(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Pearson's correlation of two tensors of one shape."""
    assert found.shape == expected.shape, f"{tuple(found.shape)} against {tuple(expected.shape)}"
    both = torch.stack([found.flatten().double(), expected.flatten().double()])
    return float(torch.corrcoef(both)[0, 1])


def assert_agrees(found: torch.Tensor, expected: torch.Tensor, at_least: float, factor: float = 0.05) -> None:
    """Correlated, and of the same size: a correlation alone is blind to a wrong scale."""
    seen = agreement(found, expected)
    assert seen >= at_least, f"PCC {seen:.5f} is below {at_least}"
    ratio = float(found.double().norm() / expected.double().norm())
    assert abs(ratio - 1) <= factor, f"{ratio:.3f} times as large as expected"


def sharded(layout: ttnn.TensorMemoryLayout, shard: Sequence[int], x: int, y: int) -> ttnn.MemoryConfig:
    """In L1, in shards of this shape on x by y cores."""
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(x - 1, y - 1))})
    spec = ttnn.ShardSpec(cores, list(shard), ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(layout, ttnn.BufferType.L1, spec)
