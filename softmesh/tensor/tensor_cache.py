"""Whether a cached tensor is the one that is asked for: of that dtype and layout, spread over that mesh in that way."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from softmesh.errors import MeshError
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import HOST, Distribution
from softmesh.placement.mappers import TensorToMesh
from softmesh.placement.words import Shard
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor


def check_cached(
    path: Path, cached: Tensor, dtype: DataType | None, layout: Layout | None, mapper: TensorToMesh | None
) -> None:
    """Refuse a cache that was written for something else, and name both. A dtype or layout of None takes any."""
    held = cached.view_distribution()
    wanted_dtype, wanted_layout = dtype or cached.dtype, layout or cached.layout
    wanted = _wanted(cached, held, mapper)
    is_same = _same(held, wanted) and (cached.dtype, cached.layout) == (wanted_dtype, wanted_layout)
    if not is_same:
        raise MeshError(
            f"as_tensor: the cache {path} holds {_described(cached.dtype, cached.layout, held)}, and "
            f"{_described(wanted_dtype, wanted_layout, wanted)} is asked for. Let cache_file_name tell them apart (the "
            "mesh and the mapper belong in it), or remove the file."
        )


def _wanted(cached: Tensor, held: Distribution, mapper: TensorToMesh | None) -> Distribution | str:
    """How the mapper spreads the whole of what is cached; its own words where it cannot."""
    if mapper is None:
        return HOST
    whole = torch.empty(_whole_shape(tuple(cached.shape), held), device="meta")
    try:
        return mapper.split(whole)[1]
    except MeshError:
        return f"{mapper.config()} over {mapper.mesh_shape}"


def _whole_shape(local: tuple[int, ...], held: Distribution) -> list[int]:
    whole = list(local)
    for dim in range(len(local)):
        along = [
            (word, n)
            for word, n in zip(held.placements, held.grid, strict=True)
            if isinstance(word, Shard) and word.dim == dim
        ]
        uneven = next((word.size for word, _ in along if word.size is not None), None)
        whole[dim] = uneven if uneven is not None else local[dim] * math.prod(n for _, n in along)
    return whole


def _same(held: Distribution, wanted: Distribution | str) -> bool:
    if isinstance(wanted, str):
        return False
    if held.spread is not None:  # one process's part, of which the file does not hold the whole
        return held.mesh == wanted.mesh
    return (held.mesh, held.grid, held.placements, held.coordinates()) == (
        wanted.mesh,
        wanted.grid,
        wanted.placements,
        wanted.coordinates(),
    )


def _described(dtype: DataType, layout: Layout, dist: Distribution | str) -> str:
    what = f"{dtype.name} {layout.name}"
    if isinstance(dist, str):
        return f"{what}, {dist}"
    if dist is HOST or dist.mesh == HOST.mesh:
        return f"{what}, not spread over a mesh"
    words = ", ".join(f"{word!r} over {n}" for word, n in zip(dist.placements, dist.grid, strict=True))
    return f"{what}, ({words}) on {MeshShape(dist.mesh)}"
