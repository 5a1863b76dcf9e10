"""A cache that was written for another dtype, layout, mesh or mapper is refused, and both are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn

VALUES = torch.arange(8 * 64.0).reshape(8, 64)


def cached(folder: Path, mapper: Any = None, values: torch.Tensor | None = VALUES, **changes: Any) -> ttnn.Tensor:
    options = {"dtype": ttnn.float32, "layout": ttnn.TILE_LAYOUT, **changes}
    return ttnn.as_tensor(values, cache_file_name=folder / "weight", mesh_mapper=mapper, **options)


def both(mesh: ttnn.MeshDevice) -> ttnn.TensorToMesh:
    return ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(0, 1))


@pytest.mark.parametrize(
    ("mapper", "described"),
    [
        (lambda mesh: ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(1, 0)), r"\(Shard\(1\) over 2, Shard\(0\) over 4\)"),
        (lambda mesh: ttnn.ShardTensorToMesh(mesh, 0), r"\(Shard\(0\) over 2, Shard\(0\) over 4\)"),
        (lambda mesh: ttnn.ShardTensorToMesh(ttnn.MeshShape(1, 8), 1), r"Shard\(1\) over 8\) on MeshShape\(\[1, 8\]\)"),
        (lambda mesh: ttnn.ShardTensorToMesh(ttnn.MeshShape(1, 3), 1), r"PlacementShard\(1\).* over MeshShape\(\[1, 3"),
        (lambda mesh: ttnn.ReplicateTensorToMesh(mesh), "not spread over a mesh"),
        (lambda mesh: None, "not spread over a mesh"),
    ],
)  # fmt: skip
def test_a_cache_of_other_shards_is_refused(
    mapper: Callable[[Any], Any], described: str, mesh: ttnn.MeshDevice, tmp_path: Path
):
    cached(tmp_path, both(mesh))
    held = r"holds FLOAT32 TILE, \(Shard\(0\) over 2, Shard\(1\) over 4\) on MeshShape\(\[2, 4\]\), and FLOAT32 .*"
    with pytest.raises(ttnn.MeshError, match=held + described):
        cached(tmp_path, mapper(mesh))


def test_a_whole_tensor_in_the_cache_is_refused_to_a_mapper_that_splits(mesh: ttnn.MeshDevice, tmp_path: Path):
    cached(tmp_path)
    with pytest.raises(ttnn.MeshError, match=r"holds FLOAT32 TILE, not spread over a mesh, and .* remove the file"):
        cached(tmp_path, both(mesh))


def test_a_file_under_the_name_of_another_layout_or_dtype_is_refused(tmp_path: Path):
    cached(tmp_path)
    written = tmp_path / "weight_dtype_FLOAT32_layout_TILE.tensorbin"
    written.rename(tmp_path / "weight_dtype_FLOAT32_layout_ROW_MAJOR.tensorbin")
    with pytest.raises(ttnn.MeshError, match=r"holds FLOAT32 TILE, .* and FLOAT32 ROW_MAJOR, .* is asked for"):
        cached(tmp_path, layout=ttnn.ROW_MAJOR_LAYOUT)
    cached(tmp_path)
    written.rename(tmp_path / "weight_dtype_BFLOAT16_layout_TILE.tensorbin")
    with pytest.raises(ttnn.MeshError, match=r"holds FLOAT32 TILE, .* and BFLOAT16 TILE"):
        cached(tmp_path, dtype=ttnn.bfloat16)


def test_ways_to_say_the_same_share_a_cache(mesh: ttnn.MeshDevice, tmp_path: Path):
    written = cached(tmp_path, both(mesh))
    again = cached(tmp_path, ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(-2, -1)), values=torch.zeros(1))
    assert ttnn.placements(again) == ttnn.placements(written)
    assert torch.equal(ttnn.compose(again), VALUES)


def test_a_replicated_tensor_shares_the_cache_of_the_whole_one(mesh: ttnn.MeshDevice, tmp_path: Path):
    cached(tmp_path)
    spread = cached(tmp_path, ttnn.ReplicateTensorToMesh(mesh), values=None)
    assert all(isinstance(word, ttnn.Replicate) for word in ttnn.placements(spread))


def test_fewer_chunks_than_devices_are_found_again(mesh: ttnn.MeshDevice, tmp_path: Path):
    mapper = ttnn.ShardTensorToMesh(mesh, 0)
    short = VALUES[:5]
    cached(tmp_path, mapper, values=short)
    assert len(ttnn.get_device_tensors(cached(tmp_path, mapper, values=short))) == 5
