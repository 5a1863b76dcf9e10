"""Files that are damaged, missing or cannot be written: said as what it is, and never a wrong number."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest
import torch
from small_programs import Mistake, cases, check_right, check_wrong, said_of

import softmesh as ttnn
from softmesh.errors import MeshError

DUMP = """
x = ttnn.from_torch(torch.arange(4096.0).reshape(64, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
path = folder / "x.tensorbin"
ttnn.dump_tensor(path, x)
"""
TRAIN = """
from softmesh.train import checkpoints
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
weight = ttnn.from_torch(torch.arange(64.0).reshape(8, 8), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT, device=mesh)
checkpoints.save(folder / "run", [weight], step=1)
part = next((folder / "run").glob("step-*/part-*"))
"""
FLIP = """
content = bytearray({path}.read_bytes())
content[{at}] ^= 4
{path}.write_bytes(content)
"""
MISTAKES = [
    Mistake(
        "a flipped bit in the values of a tensor file",
        DUMP + FLIP.format(path="path", at=-100) + "ttnn.load_tensor(path)",
        "Cannot validate tensor data; this most likely indicates data corruption",
        DUMP + "ttnn.load_tensor(path)",
    ),
    Mistake(
        "a flipped bit in the header of a tensor file",
        DUMP + FLIP.format(path="path", at=60) + "ttnn.load_tensor(path)",
        "x.tensorbin",
        DUMP + "ttnn.load_tensor(path); ttnn.load_tensor(path)",
    ),
    Mistake(
        "a tensor file that was cut short",
        DUMP + "path.write_bytes(path.read_bytes()[:1000])\nttnn.load_tensor(path)",
        "truncated or corrupt",
        DUMP + "path.write_bytes(path.read_bytes() + bytes(100))\nttnn.load_tensor(path)",
    ),
    Mistake(
        "a folder that is not there",
        DUMP + 'ttnn.dump_tensor(folder / "none" / "x.tensorbin", x)',
        "The folder must exist and be writable",
        DUMP + 'ttnn.dump_tensor(folder / "y.tensorbin", x)',
    ),
    Mistake(
        "a name with a zero in it",
        DUMP + 'ttnn.dump_tensor(folder / "a\\0.tensorbin", x)',
        "Cannot create a temporary file",
        DUMP + 'ttnn.dump_tensor(folder / "a 0.tensorbin", x)',
    ),
    Mistake(
        "a cache in a folder that is a file",
        DUMP + 'ttnn.as_tensor(torch.ones(2, 2), ttnn.bfloat16, cache_file_name=path / "cache")',
        "of the cache cannot be made",
        DUMP + 'ttnn.as_tensor(torch.ones(2, 2), ttnn.bfloat16, cache_file_name=folder / "sub" / "cache")',
    ),
    Mistake(
        "a flipped bit in a part of a checkpoint",
        TRAIN + FLIP.format(path="part", at=-5) + 'checkpoints.load(folder / "run", [weight])',
        "is damaged: its checksum is",
        TRAIN + 'checkpoints.load(folder / "run", [weight])',
    ),
    Mistake(
        "a checkpoint of before there were checksums",
        TRAIN
        + 'index = part.parent / "index.json"\n'
        + "import re\n"
        + "index.write_text(re.sub(r', \"checksum\": \"[0-9a-f]+\"', '', index.read_text()))\n"
        + 'checkpoints.load(folder / "run", [weight])',
        "has no checksums, for an older softmesh saved it",
        TRAIN + TRAIN.replace("step=1", "step=2") + 'checkpoints.load(folder / "run", [weight])',
    ),
    *(
        Mistake(
            f"a {kind} that is no such text",
            f"ttnn.{kind}.from_json({wrong!r})",
            f"{kind}.from_json(): not what to_json() wrote: ",
            f"ttnn.{kind}.from_json({right!r})",
        )
        for kind, wrong, right in [
            ("CoreCoord", '{"x": 1}', '{"x": 1, "y": 2}'),
            ("CoreRange", '{"start": [0, 0], "end": {}}', '{"start": {"x": 0, "y": 0}, "end": {"x": 1, "y": 1}}'),
            ("CoreRangeSet", '{"a": 1}', "[]"),
            ("ShardSpec", "[]", '{"grid": [], "shape": [32, 32], "orientation": 0}'),
            ("MemoryConfig", "[" * 100_000, '{"buffer_type": 0, "memory_layout": 0}'),
        ]
    ),
]


@cases(MISTAKES)
def test_what_is_said(mistake, tmp_path):
    check_wrong(mistake, tmp_path)


@cases(MISTAKES)
def test_nothing_is_said_of_the_neighbour(mistake, tmp_path):
    check_right(mistake, tmp_path)


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
    said = said_of(DUMP, tmp_path)
    assert 'x.tensorbin" could not be written: File too large' in said
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
