"""Overlapped tensors: several tensors inside the memory of one, and their files (`.overlappedtensorbin`)."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from softmesh.arguments import checked, checked_int, checked_ints, described, refused
from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tensorbin.header_tables import dtype_number, grid_from_fields, grid_to_fields, numbered_dtype
from softmesh.tensor.tensorbin.reading import read_file, tensor_from_fields
from softmesh.tensor.tensorbin.schema import BrokenHeader, Fields, encode
from softmesh.tensor.tensorbin.writing import tensor_to_fields, write_file
from softmesh.tensor.tile import Tile
from softmesh.tensor.transfer import from_device, to_device

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

_SUFFIX = ".overlappedtensorbin"


@dataclass
class OverlappedTensor:
    """A tensor inside another's memory: `byte_offset` bytes into each shard of `fused_tensor`."""

    fused_tensor: Tensor
    tensor_shape: tuple[int, ...]
    shard_shape: tuple[int, ...]
    core_range_set: CoreRangeSet
    dtype: DataType
    tile_shape: tuple[int, ...]
    byte_offset: int = 0
    total_size: int = 0

    def __post_init__(self) -> None:
        where = "OverlappedTensor"
        checked(where, "fused_tensor", self.fused_tensor, Tensor, "a ttnn.Tensor")
        checked(where, "core_range_set", self.core_range_set, CoreRangeSet, "a ttnn.CoreRangeSet")
        checked(where, "dtype", self.dtype, DataType, "a ttnn.DataType")
        for name in ("tensor_shape", "shard_shape", "tile_shape"):
            setattr(self, name, tuple(checked_ints(where, name, getattr(self, name))))
        for name in ("byte_offset", "total_size"):
            if checked_int(where, name, getattr(self, name)) < 0:
                raise MeshError(f"{where}: {name} cannot be negative, got {getattr(self, name)}.")

    def get_tile(self) -> Tile:
        return Tile(self.tile_shape)


def dump_overlapped_tensors(file_name: str | Path, tensors: Mapping[str, OverlappedTensor]) -> None:
    """Write views of one tensor, and the tensor, into a file, which is whole or absent."""
    path, where = _checked(file_name, "dump_overlapped_tensors"), "dump_overlapped_tensors"
    if not isinstance(tensors, Mapping):
        raise refused(where, f"tensors must be a dict of names and ttnn.OverlappedTensor, got {described(tensors)}")
    if not tensors:
        raise MeshError("Need at least one view to serialize")
    views = [checked(where, name, view, OverlappedTensor, "a ttnn.OverlappedTensor") for name, view in tensors.items()]
    fused = views[0].fused_tensor
    for number, view in enumerate(views):
        if view.fused_tensor.storage is not fused.storage:
            raise MeshError(
                f"All OverlappedTensorViews must reference the same fused tensor (view {number} differs): dump those "
                "of each fused tensor into a file of their own."
            )
    host = from_device(fused)
    dist = host.view_distribution()
    fields, pieces = tensor_to_fields(host, dist.mesh, dist.coordinates())
    views_fields = [_view_to_fields(name, view) for name, view in zip(tensors, views, strict=True)]
    header = encode("OverlappedTensors", {"fused_tensor": fields, "views": views_fields})
    write_file(path, header, pieces)


def load_overlapped_tensors(file_name: str | Path, device: MeshDevice | None = None) -> dict[str, OverlappedTensor]:
    """What `dump_overlapped_tensors` wrote: views of one tensor, which is on `device` where one is given."""
    path = _checked(file_name, "load_overlapped_tensors")
    if not os.path.isfile(path):
        cause = "is not a file" if os.path.exists(path) else "does not exist"
        raise MeshError(f"Unable to load the tensors from {path}.  The file {cause}.")
    fused, views = read_file(path, "OverlappedTensors", _parts)
    held = fused if device is None else to_device(fused, device)
    return {view["name"]: _view_from_fields(view, held) for view in views}


def _parts(root: Fields, header: bytes, content: mmap.mmap) -> tuple[Tensor, list[Fields]]:
    views = root["views"] or []
    if root["fused_tensor"] is None or not views:
        raise BrokenHeader("it has no fused_tensor or no views")
    fused = tensor_from_fields(root["fused_tensor"], header, content)
    for view in views:
        if view["name"] is None:
            raise BrokenHeader("one of its views has no name")
        _view_from_fields(view, fused)
    return fused, views


def _checked(file_name: str | Path, where: str) -> Path:
    if not isinstance(file_name, str | Path):
        raise refused(where, f"file_name must be a path, got {described(file_name)}")
    path = Path(file_name)
    if path.suffix != _SUFFIX:
        raise MeshError(f"File {path} must have .overlappedtensorbin extension")
    return path


def _view_to_fields(name: str, view: OverlappedTensor) -> Fields:
    (height, width), (shard_height, shard_width), (tile_height, tile_width) = (
        _two_dims(name, shape) for shape in (view.tensor_shape, view.shard_shape, view.tile_shape)
    )
    return {
        "name": name,
        "tensor_shape_h": height,
        "tensor_shape_w": width,
        "shard_shape_h": shard_height,
        "shard_shape_w": shard_width,
        "core_range_set": grid_to_fields(view.core_range_set),
        "dtype": dtype_number(view.dtype),
        "tile_h": tile_height,
        "tile_w": tile_width,
        "byte_offset": view.byte_offset,
        "total_size": view.total_size,
    }


def _two_dims(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise MeshError(f"dump_overlapped_tensors: the shapes of view {name!r} need two dims, got {list(shape)}.")
    return shape[0], shape[1]


def _view_from_fields(view: Fields, fused: Tensor) -> OverlappedTensor:
    return OverlappedTensor(
        fused,
        (view["tensor_shape_h"], view["tensor_shape_w"]),
        (view["shard_shape_h"], view["shard_shape_w"]),
        grid_from_fields(view["core_range_set"]),
        numbered_dtype(view["dtype"]),
        (view["tile_h"], view["tile_w"]),
        view["byte_offset"],
        view["total_size"],
    )
