"""Whatever stands in a tensor file: it is read, or refused with a MeshError; never anything else, never for long."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import softmesh as ttnn

MESH = ttnn.MeshShape(2, 4)


def _files() -> list[bytearray]:
    made = []
    values = torch.arange(8.0 * 32).reshape(8, 32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tensorbin"
        for dtype, mapper in (
            (ttnn.float32, None),
            (ttnn.bfloat8_b, ttnn.ShardTensor2dMesh(MESH, (2, 4), dims=(0, None))),
            (ttnn.uint16, ttnn.ShardTensorToMesh(MESH, 1)),
        ):
            ttnn.dump_tensor(path, ttnn.from_torch(values, dtype=dtype, mesh_mapper=mapper))
            made.append(bytearray(path.read_bytes()))
    return made


FILES = _files()
NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31, 2**32 - 1])


def load(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with contextlib.suppress(ttnn.MeshError):
        loaded = ttnn.load_tensor(path)
        [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(loaded)]
        repr(loaded.memory_config())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "x.tensorbin"


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.integers(0, len(FILES) - 1),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.sampled_from([1, 2, 4]), NUMBERS), min_size=1, max_size=4),
)
def test_changed_headers(path: Path, which: int, changes: list[tuple[int, int, int]]):
    content = bytearray(FILES[which])
    end = 8 + struct.unpack_from("<Q", content)[0]
    for place, size, number in changes:
        at = place % (end - size)
        content[at : at + size] = (number % 256**size).to_bytes(size, "little")
    load(path, bytes(content))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.binary(max_size=200), data=st.binary(max_size=64))
def test_headers_of_noise(path: Path, header: bytes, data: bytes):
    load(path, struct.pack("<Q", len(header)) + header + data)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, len(FILES) - 1), length=st.integers(0, 5000))
def test_cut_files(path: Path, which: int, length: int):
    load(path, bytes(FILES[which][:length]))
