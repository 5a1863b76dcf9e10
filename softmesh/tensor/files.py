"""Tensors in files (`.tensorbin`), and `as_tensor` with its cache.

A file is in the safetensors format: values and a JSON header, nothing that runs when read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from softmesh.errors import MeshError
from softmesh.hardware import DumpTensorMode
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import HOST, Distribution, distribution
from softmesh.placement.mappers import Mapper, ReplicateTensorToMeshWrapper
from softmesh.placement.words import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.memory import MemoryConfig
from softmesh.tensor.spec import make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import Tile
from softmesh.tensor.transfer import from_device, from_torch, to_device

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

_SUFFIX = ".tensorbin"


def dump_tensor(
    file_name: str | Path, tensor: Tensor, *, mode: DumpTensorMode = DumpTensorMode.DISTRIBUTED_GATHER
) -> None:
    """Write a tensor, distributed or not. The file appears whole or not at all."""
    from safetensors.torch import save_file

    path = _checked(file_name)
    host = from_device(tensor)
    dist, spec = host.view_distribution(), host.spec
    header = {
        "dtype": spec.dtype.name,
        "layout": spec.layout.name,
        "tile": spec.tile.tile_shape,
        "memory_config": spec.memory_config.to_json(),
        "mesh": dist.mesh,
        "grid": dist.grid,
        "placements": [_word_to_json(word) for word in dist.placements],
        "coords": None if dist.coords is None else [list(coord) for coord in dist.coords],
        "label": dist.label,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({"data": host.view_data().contiguous()}, unfinished, metadata={"softmesh": json.dumps(header)})
    os.replace(unfinished, path)


def load_tensor(file_name: str | Path, *, device: MeshDevice | None = None) -> Tensor:
    """Read a tensor back as it was written; onto `device` where one is given."""
    from safetensors import SafetensorError, safe_open

    path = _checked(file_name)
    if not path.exists():
        raise MeshError(f"Unable to load the tensor from {path}.  The file does not exist.")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["softmesh"])
            data = file.get_tensor("data")
        tensor = _rebuild(header, data)
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise MeshError(f"Unable to load the tensor from {path}: it is not a tensor file of softmesh ({error}).") from error
    return tensor if device is None else to_device(tensor, device)


def _rebuild(header: dict[str, Any], data: torch.Tensor) -> Tensor:
    coords = header["coords"]
    dist: Distribution = distribution(
        tuple(header["mesh"]),
        tuple(header["grid"]),
        tuple(_word_from_json(word) for word in header["placements"]),
        None if coords is None else tuple(MeshCoordinate(coord) for coord in coords),
        tuple(header["label"]),
    )
    if dist.mesh == (1, 1):
        dist = HOST
    if tuple(data.shape[: dist.lead]) != dist.extents:
        raise ValueError(f"its data {tuple(data.shape)} does not fit its grid {dist.grid}")
    spec = make_spec(
        tuple(data.shape[dist.lead :]),
        DataType[header["dtype"]],
        Layout[header["layout"]],
        MemoryConfig.from_json(header["memory_config"]),
        Tile(header["tile"]),
    )
    return Tensor.make(Storage(data, dist, None), spec)


def _word_to_json(word: Placement) -> list[Any]:
    if isinstance(word, Shard):
        return ["shard", word.dim, word.size]
    if isinstance(word, Partial):
        return ["partial", word.op]
    return ["replicate" if word is REPLICATE else "local"]


def _word_from_json(parts: list[Any]) -> Placement:
    kind, *values = parts
    if kind == "shard":
        return Shard(*values)
    if kind == "partial":
        return Partial(*values)
    return REPLICATE if kind == "replicate" else LOCAL


def _checked(file_name: str | Path) -> Path:
    path = Path(file_name)
    if path.suffix != _SUFFIX:
        raise MeshError(f"File {path} must have .tensorbin extension")
    return path


def as_tensor(
    tensor: torch.Tensor,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = Layout.ROW_MAJOR,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    cache_file_name: str | Path | None = None,
    preprocess: Callable[[torch.Tensor], torch.Tensor] | None = None,
    mesh_mapper: Mapper | None = None,
    cache_dump_mode: DumpTensorMode = DumpTensorMode.DISTRIBUTED_GATHER,
) -> Tensor:
    """`from_torch`, remembered in a file: what is there is loaded and the torch tensor ignored.

    A replicated tensor is cached once, unsharded.
    """
    if device is not None and memory_config is None:
        raise MeshError("memory_config must be specified when device is specified")
    replicates = isinstance(mesh_mapper, ReplicateTensorToMeshWrapper)

    def build() -> Tensor:
        source = preprocess(tensor) if preprocess else tensor
        mapper = None if replicates else mesh_mapper
        return cast(Tensor, from_torch(source, dtype, layout=layout, memory_config=memory_config, mesh_mapper=mapper))

    def place(host: Tensor) -> Tensor:
        if device is not None:
            return to_device(host, device, memory_config)
        if replicates and mesh_mapper is not None:
            from softmesh.tensor.transfer import distribute_tensor

            return distribute_tensor(host, mesh_mapper)
        return host

    if cache_file_name is None:
        return place(build())
    kind = "None" if dtype is None else dtype.name
    lay = "None" if layout is None else layout.name
    path = Path(f"{cache_file_name}_dtype_{kind}_layout_{lay}{_SUFFIX}")
    if path.exists():
        return place(load_tensor(path))
    host = build()
    dump_tensor(path, host, mode=cache_dump_mode)
    return place(host)
