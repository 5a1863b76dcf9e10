"""Making operands for the tests of ops: repeatable values, placed by a word for each mesh axis."""

from __future__ import annotations

from typing import Any

import torch

import softmesh as ttnn

R = ttnn.Replicate()
S = ttnn.Shard
LOCAL = ttnn.Local()
Words = tuple[ttnn.Placement, ttnn.Placement]


def put(
    values: torch.Tensor,
    device: ttnn.MeshDevice,
    words: Words = (R, R),
    dtype: ttnn.DataType = ttnn.float32,
    layout: ttnn.Layout = ttnn.TILE_LAYOUT,
    **more: Any,
) -> ttnn.Tensor:
    if isinstance(words[0], ttnn.Shard) and words[0] is words[1]:
        mapper = ttnn.ShardTensorToMesh(device, dim=words[0].dim)
    else:
        dims = tuple(word.dim if isinstance(word, ttnn.Shard) else None for word in words)
        mapper = ttnn.ShardTensor2dMesh(device, dims=dims, mesh_shape=tuple(device.shape))
    return ttnn.from_torch(values, dtype=dtype, layout=layout, device=device, mesh_mapper=mapper, **more)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
