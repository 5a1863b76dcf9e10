"""Tensors in files, and as_tensor with its cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import MeshDevice, MeshShape, StorageType, Tensor

DTYPES = [
    ttnn.bfloat16,
    ttnn.float32,
    ttnn.uint32,
    ttnn.bfloat8_b,
    ttnn.bfloat4_b,
    ttnn.uint8,
    ttnn.uint16,
    ttnn.int32,
    ttnn.int8,
]


@pytest.fixture(scope="module")
def mesh() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(120, 128)) as mesh_device:
        yield mesh_device


def exactly(text: str) -> str:
    return re.escape(text)


def counting(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


# -- dump and load ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_a_tensor_comes_back_as_it_was_written(tmp_path: Path, dtype: ttnn.DataType):
    x = ttnn.from_torch(counting(3, 40), dtype=dtype, layout=ttnn.TILE_LAYOUT, tile=ttnn.Tile((16, 32)))
    ttnn.dump_tensor(tmp_path / "x.tensorbin", x)
    back = ttnn.load_tensor(tmp_path / "x.tensorbin")
    assert back.spec == x.spec
    assert back.to_list() == x.to_list()
    assert back.tensor_topology() == x.tensor_topology()


@pytest.mark.parametrize(
    "distributed",
    [
        lambda mesh: ttnn.ShardTensorToMesh(mesh, 0),
        lambda mesh: ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, 1)),
        lambda mesh: ttnn.ShardTensor2dMesh(mesh, (2, 4), (None, 1)),
        lambda mesh: ttnn.ShardTensor2dMesh(mesh, (2, 2), (0, 1)),
        lambda mesh: ttnn.ReplicateTensorToMesh(mesh),
    ],
)
def test_a_distributed_tensor_keeps_its_placement(
    tmp_path: Path, mesh: MeshDevice, distributed: Callable[[MeshDevice], Any]
):
    x = ttnn.from_torch(counting(8, 8), device=mesh, mesh_mapper=distributed(mesh))
    ttnn.dump_tensor(str(tmp_path / "x.tensorbin"), x, mode=ttnn.DumpTensorMode.DISTRIBUTED_GATHER)
    host = ttnn.load_tensor(str(tmp_path / "x.tensorbin"))
    assert host.storage_type() is StorageType.HOST
    assert ttnn.placements(host) == ttnn.placements(x)
    there = ttnn.load_tensor(tmp_path / "x.tensorbin", device=mesh)
    assert there.device() is mesh
    assert there.device_coords() == x.device_coords()
    assert torch.equal(ttnn.compose(there), counting(8, 8))


def test_a_memory_config_is_written_too(tmp_path: Path, mesh: MeshDevice):
    config = ttnn.create_sharded_memory_config([64, 64], ttnn.CoreGrid(x=2, y=2), ttnn.ShardStrategy.BLOCK)
    x = ttnn.from_torch(torch.ones(64, 64), layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=config)
    ttnn.dump_tensor(tmp_path / "x.tensorbin", x)
    assert ttnn.load_tensor(tmp_path / "x.tensorbin", device=mesh).memory_config() == config


def test_files_are_replaced_whole_and_keep_their_mode(tmp_path: Path):
    path = tmp_path / "x.tensorbin"
    ttnn.dump_tensor(path, ttnn.from_torch(torch.zeros(2)))
    path.chmod(0o640)
    ttnn.dump_tensor(path, ttnn.from_torch(torch.ones(2)))
    assert ttnn.load_tensor(path).to_list() == [1, 1]
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(RuntimeError, match="Unexpected empty buffer during tensor serialization"):
        ttnn.dump_tensor(path, ttnn.from_torch(torch.ones(0, 2)))
    assert ttnn.load_tensor(path).to_list() == [1, 1]
    assert [file.name for file in path.parent.iterdir()] == ["x.tensorbin"]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path):
    path = tmp_path / "missing" / "x.tensorbin"
    expected = f'Cannot create a temporary file next to "{path}": errno=2 "No such file or directory"'
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.dump_tensor(path, ttnn.zeros([2]))


def test_a_folder_is_no_file(tmp_path: Path):
    path = tmp_path / "x.tensorbin"
    path.mkdir()
    with pytest.raises(RuntimeError, match=exactly(f"from {path}.  The file is not a file.")):
        ttnn.load_tensor(path)


def test_fp8_has_no_number_in_a_file(tmp_path: Path):
    x = ttnn.from_torch(torch.ones(2), dtype=ttnn.fp8_e4m3)
    with pytest.raises(RuntimeError, match="FP8_E4M3 cannot be serialized to flatbuffer"):
        ttnn.dump_tensor(tmp_path / "x.tensorbin", x)


@pytest.mark.parametrize("name", ["x.pt", "x", "x.tensorbin.bak"])
def test_the_suffix_is_tensorbin(tmp_path: Path, name: str):
    path = tmp_path / name
    expected = exactly(f"File {path} must have .tensorbin extension")
    with pytest.raises(RuntimeError, match=expected):
        ttnn.dump_tensor(path, ttnn.zeros([2]))
    with pytest.raises(RuntimeError, match=expected):
        ttnn.load_tensor(path)


def test_a_missing_file_is_named(tmp_path: Path):
    path = tmp_path / "x.tensorbin"
    expected = f"Unable to load the tensor from {path}.  The file does not exist."
    with pytest.raises(RuntimeError, match=exactly(expected)):
        ttnn.load_tensor(path)


def test_a_loaded_tensor_does_not_change_with_its_file(tmp_path: Path):
    path = tmp_path / "x.tensorbin"
    ttnn.dump_tensor(path, ttnn.from_torch(torch.ones(2)))
    loaded = ttnn.load_tensor(path)
    ttnn.dump_tensor(path, ttnn.from_torch(torch.zeros(2)))
    assert loaded.to_list() == [1, 1]


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: ttnn.load_tensor(None), "file_name must be a path, got None"),
        (lambda: ttnn.load_tensor(3), "file_name must be a path, got 3"),
        (lambda: ttnn.dump_tensor(b"x.tensorbin", ttnn.zeros([2])), "file_name must be a path"),
        (lambda: ttnn.dump_tensor("x.tensorbin", torch.ones(2)), "tensor must be a ttnn.Tensor"),
        (lambda: ttnn.dump_tensor("x.tensorbin", ttnn.zeros([2]), mode="gather"), "mode must be a ttnn.Dump"),
        (lambda: ttnn.load_tensor("x.tensorbin", devce=None), "Did you mean 'device'?"),
    ],
)
def test_wrong_arguments_are_named(attempt: Callable[[], Any], message: str):
    with pytest.raises(ttnn.ArgumentError, match=exactly(message)):
        attempt()


# -- as_tensor -------------------------------------------------------------------------------------


def test_as_tensor_is_from_torch_without_a_cache(mesh: MeshDevice):
    x = ttnn.as_tensor(counting(2, 2))
    assert (x.dtype, x.layout, x.device()) == (ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, None)
    there = ttnn.as_tensor(
        counting(8, 2),
        ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        memory_config=ttnn.L1_MEMORY_CONFIG,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0),
    )
    assert there.device() is mesh
    assert there.memory_config() == ttnn.L1_MEMORY_CONFIG
    assert torch.equal(ttnn.compose(there).float(), counting(8, 2))


def test_a_device_needs_a_memory_config(mesh: MeshDevice):
    with pytest.raises(RuntimeError, match="memory_config must be specified when device is specified"):
        ttnn.as_tensor(torch.ones(2), device=mesh)


def test_the_cache_file_carries_dtype_and_layout_in_its_name(tmp_path: Path):
    ttnn.as_tensor(
        torch.ones(2),
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        cache_file_name=tmp_path / "weights" / "w1",
    )
    assert (tmp_path / "weights" / "w1_dtype_BFLOAT16_layout_TILE.tensorbin").exists()
    ttnn.as_tensor(torch.ones(2), cache_file_name=str(tmp_path / "w2"))
    assert (tmp_path / "w2_dtype_None_layout_ROW_MAJOR.tensorbin").exists()


def test_what_is_cached_is_loaded_and_the_torch_tensor_ignored(tmp_path: Path):
    asked: list[torch.Tensor] = []

    def preprocess(values: torch.Tensor) -> torch.Tensor:
        asked.append(values)
        return values * 2

    for values in (torch.ones(2), torch.zeros(2), None):
        x = ttnn.as_tensor(values, cache_file_name=tmp_path / "w", preprocess=preprocess)
        assert x.to_list() == [2, 2]
    assert len(asked) == 1


def test_a_sharded_tensor_is_cached_in_shards(tmp_path: Path, mesh: MeshDevice):
    def make(values: torch.Tensor) -> Tensor:
        return ttnn.as_tensor(
            values,
            device=mesh,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
            mesh_mapper=ttnn.ShardTensor2dMesh(mesh, (2, 4), (1, 0)),
            cache_file_name=tmp_path / "w",
        )

    first, second = make(counting(8, 8)), make(torch.zeros(8, 8))
    assert first.shape == second.shape == [2, 4]
    assert second.device() is mesh
    assert torch.equal(ttnn.compose(second), counting(8, 8))
    stored = ttnn.load_tensor(tmp_path / "w_dtype_None_layout_ROW_MAJOR.tensorbin")
    assert len(ttnn.get_device_tensors(stored)) == 8


def test_a_replicated_tensor_is_cached_once_and_unsharded(tmp_path: Path, mesh: MeshDevice):
    for values in (counting(2, 2), torch.zeros(2, 2)):
        host = ttnn.as_tensor(values, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh), cache_file_name=tmp_path / "w")
        assert len(ttnn.get_device_tensors(host)) == 8
        assert torch.equal(ttnn.compose(host), counting(2, 2))
        there = ttnn.as_tensor(
            values,
            device=mesh,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
            mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
            cache_file_name=tmp_path / "w",
        )
        assert torch.equal(ttnn.compose(there), counting(2, 2))
    stored = ttnn.load_tensor(tmp_path / "w_dtype_None_layout_ROW_MAJOR.tensorbin")
    assert stored.host_buffer().shape() == MeshShape(1, 1)


def test_a_failed_conversion_leaves_no_cache_file(tmp_path: Path, mesh: MeshDevice):
    with pytest.raises(RuntimeError, match="Shard shape mismatch"):
        ttnn.as_tensor(torch.ones(9, 2), mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0), cache_file_name=tmp_path / "w")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tensor": None}, "tensor must be a torch.Tensor, got None"),
        ({"tensor": [1.0]}, "tensor must be a torch.Tensor or a numpy array, got [1.0]"),
        ({"dtype": "bfloat16"}, "dtype must be a ttnn dtype such as ttnn.bfloat16"),
        ({"layout": "TILE"}, "layout must be ttnn.TILE_LAYOUT"),
        ({"device": "cuda", "memory_config": ttnn.DRAM_MEMORY_CONFIG}, "device must be a MeshDevice"),
        ({"memory_config": "L1"}, "memory_config must be a ttnn.MemoryConfig"),
        ({"cache_file_name": 3}, "cache_file_name must be a path, got 3"),
        ({"preprocess": 3}, "preprocess must be a function, got 3"),
        ({"mesh_mapper": "all"}, "mesh_mapper must be a mapper such as"),
        ({"cache_file": "x"}, "Did you mean 'cache_file_name'?"),
    ],
)
def test_wrong_arguments_of_as_tensor_are_named(wrong: dict[str, Any], message: str):
    with pytest.raises(ttnn.ArgumentError, match=exactly(message)):
        ttnn.as_tensor(**({"tensor": torch.ones(2)} | wrong))
