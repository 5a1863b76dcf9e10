"""Views of one tensor's memory, and their files."""

from __future__ import annotations

import struct
from pathlib import Path

import flatbuffers.table
import pytest
import torch

import softmesh as ttnn

dump = ttnn._ttnn.tensor.dump_overlapped_tensors
load = ttnn._ttnn.tensor.load_overlapped_tensors
CORES = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (1, 0)), ttnn.CoreRange((3, 0), (3, 1))])


def make_fused() -> ttnn.Tensor:
    return ttnn.from_torch(torch.rand(32, 64), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)


def views(fused: ttnn.Tensor) -> dict[str, ttnn.OverlappedTensor]:
    return {
        "gate": ttnn.OverlappedTensor(fused, (32, 64), (32, 32), CORES, ttnn.bfloat16, (32, 32)),
        "up": ttnn.OverlappedTensor(fused, [64, 16], [64, 16], CORES, ttnn.bfloat8_b, [16, 16], 2048, 1 << 40),
    }


def described(view: ttnn.OverlappedTensor) -> tuple[object, ...]:
    shapes = view.tensor_shape, view.shard_shape, view.tile_shape
    return *shapes, view.core_range_set, view.dtype, view.byte_offset, view.total_size


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.overlappedtensorbin"


def test_views_come_back_as_they_were_around_one_tensor(path: Path):
    fused = make_fused()
    dump(path, views(fused))
    found = load(path)
    assert list(found) == ["gate", "up"]
    assert {name: described(view) for name, view in found.items()} == {
        name: described(view) for name, view in views(fused).items()
    }
    assert found["gate"].fused_tensor is found["up"].fused_tensor
    assert torch.equal(ttnn.to_torch(found["up"].fused_tensor), ttnn.to_torch(fused))


def test_they_are_loaded_onto_a_device(path: Path, device: ttnn.MeshDevice):
    fused = ttnn.to_device(make_fused(), device)
    dump(path, views(fused))
    found = load(path, device)["gate"].fused_tensor
    assert found.device() is device
    assert torch.equal(ttnn.to_torch(found), ttnn.to_torch(fused))


def test_the_header_has_ttnns_slots(path: Path):
    dump(path, views(make_fused()))
    content = path.read_bytes()
    size = struct.unpack_from("<Q", content)[0]
    header = content[8 : 8 + size]
    root = flatbuffers.table.Table(bytearray(header), struct.unpack_from("<I", header)[0])
    where = root.Offset(4 + 2 * 1)
    second = root.Indirect(root.Vector(where) + 4)
    view = flatbuffers.table.Table(root.Bytes, second)
    assert view.String(view.Pos + view.Offset(4)) == b"up"
    numbers = [struct.unpack_from("<I", root.Bytes, view.Pos + view.Offset(4 + 2 * slot))[0] for slot in (1, 2, 7, 8)]
    assert numbers == [64, 16, 16, 16]
    assert struct.unpack_from("<Q", root.Bytes, view.Pos + view.Offset(4 + 2 * 10))[0] == 1 << 40
    assert (8 + size) % 64 == 0


def test_what_cannot_be_written_leaves_no_file(path: Path):
    with pytest.raises(RuntimeError, match="Need at least one view to serialize"):
        dump(path, {})
    text = r"All OverlappedTensorViews must reference the same fused tensor \(view 1 differs\)"
    with pytest.raises(RuntimeError, match=text):
        dump(path, {"gate": views(make_fused())["gate"], "up": views(make_fused())["up"]})
    assert not path.exists()


@pytest.mark.parametrize("act", [lambda path: dump(path, views(make_fused())), load])
def test_the_suffix_is_their_own(act, tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"must have \.overlappedtensorbin extension"):
        act(tmp_path / "weights.tensorbin")


def test_damaged_files_are_refused(path: Path):
    dump(path, views(make_fused()))
    whole = path.read_bytes()
    for at in range(8, 200, 4):
        path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
        try:
            found = load(path)
        except RuntimeError:
            continue
        assert all(isinstance(view, ttnn.OverlappedTensor) for view in found.values())
    with pytest.raises(RuntimeError, match="does not exist"):
        load(path.with_name("other.overlappedtensorbin"))


def test_files_keep_how_cores_share_addresses(tmp_path: Path):
    spec = ttnn.ShardSpec(
        ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (0, 0))]), [32, 64], ttnn.ShardOrientation.ROW_MAJOR
    )
    config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, spec)
    config.experimental_set_per_core_allocation(True)
    file = tmp_path / "x.tensorbin"
    ttnn.dump_tensor(file, ttnn.from_torch(torch.ones(32, 64), layout=ttnn.TILE_LAYOUT, memory_config=config))
    assert ttnn.load_tensor(file).memory_config() == config
