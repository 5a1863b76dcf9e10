"""The format of tensor files: byte for byte that of TT-NN, and read with suspicion."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import softmesh as ttnn
from softmesh import MeshShape
from softmesh.tensor.tensorbin.schema import Fields, decode, encode

FIXTURES = Path(__file__).parent.parent / "fixtures" / "tensorbin"
MESH = MeshShape(2, 4)
CORES = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 1))])


def counting(*shape: int) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()) % 251).reshape(shape).float()


def taken_apart(path: Path) -> tuple[Fields, bytes]:
    """The tables of the header, and the data section."""
    content = path.read_bytes()
    size = struct.unpack_from("<Q", content)[0]
    assert (8 + size) % 64 == 0
    return decode("Tensor", memoryview(content)[8 : 8 + size]), content[8 + size :]


def put_together(path: Path, root: Fields, data: bytes, shift: int = 0) -> Path:
    header = encode("Tensor", root)
    header += bytes(-(len(header) + 8) % 64 + shift)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def dumped(path: Path, x: ttnn.Tensor) -> tuple[Fields, bytes]:
    ttnn.dump_tensor(path, x)
    return taken_apart(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.tensorbin"


def shard_spec(*shape: int) -> ttnn.ShardSpec:
    return ttnn.ShardSpec(CORES, shape, ttnn.ShardOrientation.ROW_MAJOR)


# -- what is written ---------------------------------------------------------------------------------


def test_a_small_tensor(path: Path):
    root, data = dumped(path, ttnn.from_torch(counting(3, 5), dtype=ttnn.bfloat16))
    assert path.stat().st_size == 414
    assert root["mesh_shape"] == {"dimensions": [1, 1]}
    spec = root["tensor_spec"]
    assert (spec["shape"], spec["tensor_layout"]["data_type"], spec["tensor_layout"]["alignment"]) == (
        [3, 5],
        0,
        [1],
    )
    assert spec["tensor_layout"]["page_config"] == (1, {})
    assert root["shards"] == [{"buffer": (1, {"offset": 0, "size": 30}), "mesh_coordinate": {"values": [0, 0]}}]
    assert root["tensor_topology"] == {
        "distribution_shape": {"dimensions": [1]},
        "placements": [{"type": 0, "tensor_dim": -1}],
        "mesh_coords": [{"values": [0, 0]}],
    }
    assert torch.equal(torch.frombuffer(bytearray(data), dtype=torch.bfloat16).float(), counting(15))


def test_payloads_start_at_multiples_of_64(path: Path):
    mapper = ttnn.ShardTensorToMesh(MESH, 0)
    root, data = dumped(path, ttnn.from_torch(counting(8, 3), dtype=ttnn.uint8, mesh_mapper=mapper))
    places = [shard["buffer"][1] for shard in root["shards"]]
    assert [place["offset"] for place in places] == list(range(0, 512, 64))
    assert {place["size"] for place in places} == {3}
    assert len(data) == 451
    assert data[3:64] == bytes(61)


def test_replicas_share_a_payload(path: Path):
    mapper = ttnn.ShardTensor2dMesh(MESH, (2, 4), dims=(None, 1))
    root, _ = dumped(path, ttnn.from_torch(counting(4, 8), mesh_mapper=mapper))
    offsets = [shard["buffer"][1]["offset"] for shard in root["shards"]]
    assert offsets[:4] == offsets[4:]
    assert len(set(offsets)) == 4
    assert root["tensor_topology"]["placements"] == [
        {"type": 0, "tensor_dim": -1},
        {"type": 1, "tensor_dim": 1},
    ]


def test_shards_of_a_part_of_the_mesh(path: Path):
    config = ttnn.MeshMapperConfig(
        [ttnn.PlacementShard(0), ttnn.PlacementShard(-1)], None, MeshShape(2, 2), ttnn.MeshCoordinate(0, 2)
    )
    x = ttnn.from_torch(counting(4, 4), mesh_mapper=ttnn.create_mesh_mapper(MESH, config))
    root, _ = dumped(path, x)
    assert root["mesh_shape"] == {"dimensions": [2, 4]}
    coords = [shard["mesh_coordinate"]["values"] for shard in root["shards"]]
    assert coords == [[0, 2], [0, 3], [1, 2], [1, 3]]
    back = ttnn.load_tensor(path)
    assert back.tensor_topology() == x.tensor_topology()
    assert ttnn.placements(back) == ttnn.placements(x)
    assert torch.equal(ttnn.compose(back), counting(4, 4))


@pytest.mark.parametrize(
    ("values", "dtype", "exponent", "mantissas"),
    [([1, 2, 3], ttnn.bfloat8_b, 0x80, "204060"), ([1, 2, 3, -0.5], ttnn.bfloat4_b, 0x80, "4296")],
)
def test_block_floats(path: Path, values: list[float], dtype: ttnn.DataType, exponent: int, mantissas: str):
    _, data = dumped(path, ttnn.from_torch(torch.tensor([values]).float(), dtype=dtype))
    assert data[0] == exponent
    assert data[64 : 64 + len(mantissas) // 2].hex() == mantissas


@pytest.mark.parametrize(
    ("tile", "sizes"),
    [
        ((32, 32), (1088, 576)),
        ((16, 32), (544, 288)),
        ((32, 16), (544, 288)),
        ((8, 32), (272, 144)),
        ((4, 32), (144, 80)),
        ((1, 32), (48, 32)),
        ((1, 16), (32, 24)),
    ],
)
def test_tiles_of_block_floats_have_these_sizes(path: Path, tile: tuple[int, int], sizes: tuple[int, int]):
    for dtype, size in zip((ttnn.bfloat8_b, ttnn.bfloat4_b), sizes, strict=True):
        x = ttnn.from_torch(counting(1, 1), dtype=dtype, tile=ttnn.Tile(tile))
        assert len(dumped(path, x)[1]) == size


def test_rows_of_shards_are_filled_up(path: Path):
    config = ttnn.MemoryConfig(
        ttnn.TensorMemoryLayout.BLOCK_SHARDED,
        ttnn.BufferType.L1,
        ttnn.ShardSpec(
            ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(2, 2))]),
            (3, 16),
            ttnn.ShardOrientation.ROW_MAJOR,
        ),
    )
    x = ttnn.from_torch(counting(7, 40), memory_config=config)
    root, data = dumped(path, x)
    assert root["tensor_spec"]["tensor_layout"]["alignment"] == [16]
    stored = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(7, 48)
    assert torch.equal(stored[:, :40], counting(7, 40))
    assert not stored[:, 40:].any()
    back = ttnn.load_tensor(path)
    assert back.memory_config() == x.memory_config()
    assert torch.equal(ttnn.to_torch(back), counting(7, 40))


# -- round trips -------------------------------------------------------------------------------------

DTYPES = [dtype for dtype in ttnn.DataType if dtype not in (ttnn.DataType.INVALID, ttnn.DataType.FP8_E4M3)]
TILED = [*((ttnn.TILE_LAYOUT, tile) for tile in ((32, 32), (16, 32), (32, 16), (4, 32), (1, 16)))]
MAPPERS: list[Callable[[], Any]] = [
    lambda: None,
    lambda: ttnn.ReplicateTensorToMesh(MESH),
    lambda: ttnn.ShardTensorToMesh(MESH, -1),
    lambda: ttnn.ShardTensor2dMesh(MESH, (2, 4), dims=(0, 1)),
    lambda: ttnn.ShardTensor2dMesh(MESH, (4, 2), dims=(1, None)),
    lambda: ttnn.ShardTensor2dMesh(MESH, (1, 3), dims=(None, 0)),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("mapper", MAPPERS)
def test_every_dtype_layout_and_mesh_comes_back(path: Path, dtype: ttnn.DataType, mapper: Callable[[], Any]):
    is_block = dtype in (ttnn.bfloat8_b, ttnn.bfloat4_b)
    for layout, tile in TILED if is_block else [(ttnn.ROW_MAJOR_LAYOUT, (32, 32)), *TILED]:
        for shape in ((24, 40), (6, 8, 24, 40)) if mapper() else ((), (5,), (24, 40), (2, 3, 33, 17)):
            x = ttnn.from_torch(
                counting(*shape) - (100 if dtype is ttnn.int8 else 0),
                dtype=dtype,
                layout=layout,
                tile=ttnn.Tile(tile) if layout is ttnn.TILE_LAYOUT else None,
                mesh_mapper=mapper(),
            )
            ttnn.dump_tensor(path, x)
            back = ttnn.load_tensor(path)
            assert back.spec == x.spec
            assert back.tensor_topology() == x.tensor_topology()
            assert back.view_distribution() is x.view_distribution()
            assert torch.equal(back.view_data(), x.view_data())


def test_a_transposed_tile_comes_back(path: Path):
    x = ttnn.from_torch(counting(40, 40), layout=ttnn.TILE_LAYOUT, tile=ttnn.Tile((32, 32), transpose_tile=True))
    _, data = dumped(path, x)
    stored = torch.frombuffer(bytearray(data), dtype=torch.float32)
    assert stored[:3].tolist() == counting(40, 40)[:3, 0].tolist()
    back = ttnn.load_tensor(path)
    assert back.tile.transpose_of_faces
    assert torch.equal(ttnn.to_torch(back), counting(40, 40))


def test_what_tt_nn_has_no_word_for_comes_back_too(path: Path):
    with ttnn.lenient():
        x = ttnn.from_torch(counting(9, 4), mesh_mapper=ttnn.ShardTensor2dMesh(MESH, (2, 4), dims=(0, None)))
    ttnn.dump_tensor(path, x)
    back = ttnn.load_tensor(path)
    assert ttnn.placements(back) == ttnn.placements(x) == (ttnn.Shard(0, 9), ttnn.Replicate())
    assert torch.equal(ttnn.compose(back), counting(9, 4))


def test_partial_sums_stay_partial(path: Path):
    with ttnn.create_mesh_device(MESH, physical_device_ids=range(40, 48)) as mesh:
        a = ttnn.from_torch(counting(32, 64), device=mesh, layout=ttnn.TILE_LAYOUT,
                            mesh_mapper=ttnn.ShardTensorToMesh(mesh, 1))  # fmt: skip
        b = ttnn.from_torch(counting(64, 32), device=mesh, layout=ttnn.TILE_LAYOUT,
                            mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))  # fmt: skip
        product = ttnn.matmul(a, b)
        ttnn.dump_tensor(path, product)
        assert ttnn.placements(ttnn.load_tensor(path)) == ttnn.placements(product)
        assert all(isinstance(word, ttnn.Partial) for word in ttnn.placements(product))


def test_row_major_values_stay_in_the_file_until_they_are_written_to(path: Path):
    ttnn.dump_tensor(path, ttnn.from_torch(counting(64, 64)))
    before = path.read_bytes()
    x = ttnn.load_tensor(path)
    x.storage.writable().zero_()
    assert path.read_bytes() == before
    assert not ttnn.to_torch(x).any()


# -- what others write -------------------------------------------------------------------------------


@pytest.fixture
def root_and_data(path: Path) -> tuple[Fields, bytes]:
    mapper = ttnn.ShardTensor2dMesh(MESH, (2, 4), dims=(0, 1))
    return dumped(path, ttnn.from_torch(counting(4, 8), mesh_mapper=mapper))


def test_without_a_topology_every_device_has_values_of_its_own(path: Path, root_and_data: tuple[Fields, bytes]):
    root, data = root_and_data
    x = ttnn.load_tensor(put_together(path, root | {"tensor_topology": None}, data))
    assert all(word == ttnn.Local() for word in ttnn.placements(x))
    assert x.tensor_topology().distribution_shape() == MeshShape([8])
    assert ttnn.to_torch(ttnn.get_device_tensors(x)[-1]).tolist() == counting(4, 8)[2:, 6:].tolist()


def test_fewer_shards_than_devices_are_a_tensor_on_some_devices(path: Path, root_and_data: tuple[Fields, bytes]):
    root, data = root_and_data
    x = ttnn.load_tensor(put_together(path, root | {"shards": root["shards"][3:5]}, data))
    assert x.view_distribution().coordinates() == (ttnn.MeshCoordinate(0, 3), ttnn.MeshCoordinate(1, 0))


def test_payloads_may_lie_anywhere_and_bytes_may_follow(path: Path):
    root, data = dumped(path, ttnn.from_torch(counting(3, 5)))
    root["shards"][0]["buffer"][1]["offset"] = 1
    x = ttnn.load_tensor(put_together(path, root, b"\xff" + data + b"\xff" * 9))
    assert torch.equal(ttnn.to_torch(x), counting(3, 5))


@pytest.mark.parametrize("alignment", [[], [1], [32, 32]])
def test_an_alignment_is_rounded_up_to_the_tile(path: Path, alignment: list[int]):
    written = ttnn.from_torch(counting(40, 40), layout=ttnn.TILE_LAYOUT)
    root, data = dumped(path, written)
    root["tensor_spec"]["tensor_layout"]["alignment"] = alignment
    x = ttnn.load_tensor(put_together(path, root, data))
    assert x.spec == written.spec


def test_a_larger_alignment_leaves_more_room(path: Path):
    root, _ = dumped(path, ttnn.from_torch(counting(3, 5)))
    root["tensor_spec"]["tensor_layout"]["alignment"] = [4, 8]
    root["shards"][0]["buffer"][1]["size"] = 4 * 8 * 4
    room = torch.zeros(4, 8)
    room[:3, :5] = counting(3, 5)
    x = ttnn.load_tensor(put_together(path, root, room.numpy().tobytes()))
    assert x.padded_shape == [4, 8]
    assert torch.equal(ttnn.to_torch(x), counting(3, 5))


def test_files_in_the_fixtures_are_read_and_written_alike(path: Path):
    """Files that an earlier run of the writer made: the format must not drift."""
    mesh = ttnn.from_torch(
        counting(16, 32),
        dtype=ttnn.bfloat8_b,
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.ShardTensor2dMesh(MESH, (2, 4), dims=(None, 1)),
    )
    made = {
        "float32_row_major": ttnn.from_torch(counting(3, 5)),
        "bfloat16_small_tiles": ttnn.from_torch(
            counting(3, 5), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, tile=ttnn.Tile((4, 32))
        ),
        "bfloat8_b_on_2x4": mesh,
        "int8_height_sharded": ttnn.from_torch(
            counting(64, 32) - 99,
            dtype=ttnn.int8,
            memory_config=ttnn.MemoryConfig(
                ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shard_spec(16, 32)
            ),
        ),
    }
    for name, x in made.items():
        kept = FIXTURES / f"{name}.tensorbin"
        back = ttnn.load_tensor(kept)
        assert back.spec == x.spec
        assert back.tensor_topology() == x.tensor_topology()
        assert torch.equal(back.view_data(), x.view_data())
        assert dumped(path, x) == taken_apart(kept)


def test_a_file_goes_onto_a_mesh(path: Path, root_and_data: tuple[Fields, bytes]):
    with (
        ttnn.create_mesh_device(MeshShape(1, 2), physical_device_ids=range(60, 62)) as mesh,
        pytest.raises(RuntimeError, match=r"not found in mesh MeshShape\(\[1, 2\]\)"),
    ):
        ttnn.load_tensor(path, device=mesh)
    root, data = root_and_data
    small = {"mesh_shape": {"dimensions": [1, 2]}, "shards": root["shards"][:2], "tensor_topology": None}
    put_together(path, root | small, data)
    with ttnn.create_mesh_device(MESH, physical_device_ids=range(60, 68)) as mesh:
        x = ttnn.load_tensor(path, device=mesh)
        assert x.device_coords() == [ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1)]


def test_a_cache_with_a_copy_on_every_device_serves_a_tensor_without_a_mapper(tmp_path: Path):
    replicated = ttnn.create_mesh_mapper(MESH, ttnn.MeshMapperConfig(None, None))
    x = ttnn.from_torch(counting(4, 4), mesh_mapper=replicated)
    ttnn.dump_tensor(tmp_path / "w_dtype_FLOAT32_layout_ROW_MAJOR.tensorbin", x)
    with ttnn.create_mesh_device(MESH, physical_device_ids=range(60, 68)) as mesh:
        there = ttnn.as_tensor(
            torch.zeros(1),
            ttnn.float32,
            device=mesh,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
            cache_file_name=tmp_path / "w",
        )
        assert torch.equal(ttnn.compose(there), counting(4, 4))


# -- what is refused ---------------------------------------------------------------------------------


def refused(path: Path, text: str) -> None:
    with pytest.raises(ttnn.MeshError, match=re.escape(text)):
        ttnn.load_tensor(path)


def test_broken_framing_is_refused(path: Path):
    path.write_bytes(b"short")
    refused(path, f'Tensor file "{path}" is too small to be valid')
    path.write_bytes(b"")
    refused(path, "is too small to be valid")
    path.write_bytes(struct.pack("<Q", 376) + bytes(32))
    refused(path, f'Tensor file "{path}" is truncated or corrupt (header_size=376, file_size=40)')
    path.write_bytes(b"\xff" * 100)
    refused(path, "Tensor header size is too large; this most likely indicates data corruption.")
    for content in (bytes(8), bytes(80), struct.pack("<Q", 72) + b"\x01" * 72):
        path.write_bytes(content)
        refused(path, "Cannot validate tensor data; this most likely indicates data corruption.")


def test_a_header_of_odd_length_is_refused(path: Path, root_and_data: tuple[Fields, bytes]):
    put_together(path, *root_and_data, shift=4)
    refused(path, "Tensor data pointer must be 8-byte aligned!")


def change(root: Fields, where: str, value: Any) -> None:
    *way, last = where.split(".")
    for step in way:
        root = root[int(step) if step.isdigit() else step]
    root[int(last) if last.isdigit() else last] = value


LAYOUT = "tensor_spec.tensor_layout"


@pytest.mark.parametrize(
    ("where", "value", "text"),
    [
        (f"{LAYOUT}.data_type", 9, "Unsupported DataType from flatbuffer."),
        (f"{LAYOUT}.data_type", 3, "BFLOAT8_B"),
        (f"{LAYOUT}.page_config", (0, None), "Unsupported PageConfig type from flatbuffer."),
        (f"{LAYOUT}.memory_config.memory_layout", 1, "Unsupported TensorMemoryLayout from flatbuffer."),
        (f"{LAYOUT}.memory_config.buffer_type", 9, "Unsupported BufferType from flatbuffer."),
        (f"{LAYOUT}.memory_config", None, "Cannot validate tensor data"),
        (f"{LAYOUT}.page_config", (2, {}), "Cannot validate tensor data"),
        (f"{LAYOUT}.page_config", (2, {"tile": {"height": 7, "width": 7}}), "Tile size is not valid"),
        ("tensor_spec.shape", [2, 3], "should be same as volume indicated by physical shape (2, 3)"),
        ("tensor_spec.shape", [2**32 - 1] * 4, "Physical data size 4 should be same as volume"),
        ("tensor_spec.shape", [1] * 400, "its shape has 400 dims"),
        ("tensor_spec", None, "Cannot validate tensor data"),
        ("mesh_shape.dimensions", [], "MeshShape cannot have 0 dimension."),
        ("mesh_shape.dimensions", [2**31, 2**31], "has more devices than there are"),
        ("mesh_shape.dimensions", [1, 4], "MeshCoordinate([1, 0]) is out of bounds for shape MeshShape([1, 4])"),
        ("shards.1.mesh_coordinate.values", [1], "Cannot compare coordinates with different dimensions: 1 != 2"),
        ("shards.1.mesh_coordinate.values", [0, 0], "two shards for one device"),
        ("shards.0.buffer.1.size", 2**63, "spans bytes [0, 9223372036854775808) of a 464-byte data section"),
        ("shards", [], "it has no shards"),
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_is_refused(
    path: Path, root_and_data: tuple[Fields, bytes], where: str, value: Any, text: str
):
    root, data = root_and_data
    change(root, where, value)
    refused(put_together(path, root, data), text)


def test_other_kinds_of_buffers_are_refused(path: Path, root_and_data: tuple[Fields, bytes]):
    root, data = root_and_data
    root["shards"][0]["buffer"] = None
    refused(put_together(path, root, data), "Only InlineFileStorage is supported in flatbuffer deserialization")


def test_a_truncated_file_is_refused_wherever_it_ends(path: Path, root_and_data: tuple[Fields, bytes]):
    content = path.read_bytes()
    for length in range(0, len(content), 5):
        path.write_bytes(content[:length])
        with pytest.raises(ttnn.MeshError, match=r"too small|truncated or corrupt"):
            ttnn.load_tensor(path)
