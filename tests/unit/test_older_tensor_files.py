"""The `.tensorbin` files of earlier versions of softmesh: safetensors with a JSON header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import softmesh as ttnn

HEADER: dict[str, Any] = {
    "dtype": "FLOAT32",
    "layout": "ROW_MAJOR",
    "tile": [32, 32],
    "memory_config": ttnn.DRAM_MEMORY_CONFIG.to_json(),
    "mesh": [1, 4],
    "grid": [1, 4],
    "placements": [["replicate"], ["shard", 0, None]],
    "coords": None,
    "label": [1, 4],
    "spread": None,
}
VALUES = torch.arange(8.0).reshape(1, 4, 1, 2)


def older_file(folder: Path, **changes: Any) -> Path:
    path = folder / "x.tensorbin"
    save_file({"data": VALUES}, path, metadata={"softmesh": json.dumps(HEADER | changes)})
    return path


def test_an_older_file_is_still_read(tmp_path: Path):
    x = ttnn.load_tensor(older_file(tmp_path))
    assert ttnn.placements(x) == (ttnn.Replicate(), ttnn.Shard(0))
    assert torch.equal(ttnn.compose(x), VALUES.reshape(4, 2))


@pytest.mark.parametrize(
    "damage",
    [
        {"dtype": "FLOAT99"},
        {"layout": None},
        {"grid": [3, 3]},
        {"mesh": "2x4"},
        {"mesh": [2**30, 2**30], "grid": [2**30, 2**30]},
        {"placements": [["shard"]]},
        {"placements": [["replicate"]]},
        {"memory_config": "{}"},
        {"memory_config": 3},
        {"tile": [7, 7]},
        {"coords": [[0, 0]]},
        {"label": 3},
    ],
    ids=str,
)
def test_a_damaged_header_is_refused(tmp_path: Path, damage: dict[str, Any]):
    with pytest.raises(ttnn.MeshError, match="it is not a tensor file of softmesh"):
        ttnn.load_tensor(older_file(tmp_path, **damage))


def test_safetensors_of_others_are_refused(tmp_path: Path):
    path = tmp_path / "x.tensorbin"
    save_file({"data": torch.ones(2)}, path)
    with pytest.raises(ttnn.MeshError, match="it is not a tensor file of softmesh"):
        ttnn.load_tensor(path)
