"""Files that are damaged, missing or cannot be written: said as what it is, and never a wrong number."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest
import torch
from programs.files import dumped

import softmesh as ttnn
from softmesh.errors import MeshError


def test_every_flipped_bit_of_a_small_file_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "x.tensorbin"
    values = torch.arange(32.0)
    ttnn.dump_tensor(path, ttnn.from_torch(values, dtype=ttnn.bfloat16))
    content = path.read_bytes()
    for bit in range(0, len(content) * 8, 37):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            loaded = ttnn.to_torch(ttnn.load_tensor(path))
        except MeshError:
            continue
        assert torch.equal(loaded.float(), values), bit


@pytest.fixture
def small_disk():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_is_said_and_leaves_nothing_behind(tmp_path):
    with pytest.raises(MeshError, match=r'x\.tensorbin" could not be written: File too large'):
        dumped(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_threads_that_fill_one_cache_do_not_collide(tmp_path):
    values = torch.arange(1 << 16, dtype=torch.float32).reshape(256, 256)
    failures: list[Exception] = []

    def fill() -> None:
        try:
            for number in range(5):
                name = tmp_path / f"cache{number}"
                made = ttnn.as_tensor(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, cache_file_name=name)
                assert torch.equal(ttnn.to_torch(made), values.bfloat16())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=fill) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(Path(tmp_path).iterdir())) == 5
