"""Operands that the benchmarks put on a mesh, in the two dtypes they compare."""

from __future__ import annotations

import torch

import softmesh as ttnn
from softmesh.placement.mappers import Mapper

DTYPES = {"float32": (ttnn.float32, torch.float32), "bfloat16": (ttnn.bfloat16, torch.bfloat16)}


def put(values: torch.Tensor, dtype: str, mesh: ttnn.MeshDevice, mapper: Mapper) -> ttnn.Tensor:
    made = ttnn.from_torch(values, DTYPES[dtype][0], layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
    assert made is not None
    return made
