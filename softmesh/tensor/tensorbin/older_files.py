"""Reading of the `.tensorbin` files that softmesh wrote before it wrote TT-NN's: safetensors with a JSON header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from softmesh.errors import MeshError, SoftmeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tensorbin.distribution_note import distribution_from_json
from softmesh.tensor.tile import Tile

_BROKEN = (SoftmeshError, LookupError, ValueError, TypeError, AttributeError)
_SIZE_OF_SIZE = 8


def is_older_file(path: Path) -> bool:
    """Whether JSON stands where TT-NN's files have the first offset of a FlatBuffer, which is a multiple of 4."""
    with path.open("rb") as file:
        return file.read(_SIZE_OF_SIZE + 2)[_SIZE_OF_SIZE:] == b'{"'


def read_older_file(path: Path) -> Tensor:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["softmesh"])
            data = file.get_tensor("data")
        return _rebuild(header, data)
    except (SafetensorError, *_BROKEN) as error:
        cause = f"it is not a tensor file of softmesh ({error})"
        raise MeshError(f"Unable to load the tensor from {path}: {cause}.") from error


def _rebuild(header: dict[str, Any], data: torch.Tensor) -> Tensor:
    dist = distribution_from_json(header)
    dtype = DataType[header["dtype"]]
    if facts(dtype).is_block and data.dtype is torch.float32:  # in which they were held then
        data = data.to(facts(dtype).storage)
    if tuple(data.shape[: dist.lead]) != dist.extents or data.dtype is not facts(dtype).storage:
        raise ValueError(f"its data {tuple(data.shape)} {data.dtype} does not fit its header")
    spec = make_spec(
        tuple(data.shape[dist.lead :]),
        dtype,
        Layout[header["layout"]],
        MemoryConfig.from_json(header["memory_config"]),
        Tile(header["tile"]),
    )
    return Tensor.make(Storage(data, dist, None), spec)
