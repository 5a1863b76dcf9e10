"""Arguments of calls as JSON, and back: numbers, enums, configurations, shapes, mappers; values of tensors apart.

What has no form here is refused by name: nothing is left out of a recorded call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import torch

from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware import UnaryWithParam
from softmesh.hardware.config_base import HardwareConfig
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.memory_config import MemoryConfig, NdShardSpec, ShardSpec
from softmesh.hardware.shape import Shape
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.tensor_topology import PlacementReplicate, PlacementShard
from softmesh.tensor.composers import MeshComposerConfig, MeshToTensor
from softmesh.tensor.mappers import MeshMapperConfig, TensorToMesh
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tile import Tile

# For each class: what makes an equal one, and the arguments for it.
_Recipe = tuple[Callable[..., Any], Callable[[Any], Iterable[Any]]]


def _memory_config(layout: Any, buffer: Any, shards: Any, nd_shards: Any) -> MemoryConfig:
    if nd_shards is not None and shards is None:
        return MemoryConfig(buffer_type=buffer, nd_shard_spec=nd_shards)
    return MemoryConfig(layout, buffer, shards)


def _spec(shape: Any, dtype: Any, layout: Any, config: Any, tile: Any) -> TensorSpec:
    return TensorSpec(shape, dtype, layout, tile=tile).with_memory_config(config)


_RECIPES: dict[type, _Recipe] = {
    CoreCoord: (CoreCoord, lambda v: (v.x, v.y)),
    CoreGrid: (lambda y, x: CoreGrid(y=y, x=x), lambda v: (v.y, v.x)),
    CoreRange: (CoreRange, lambda v: (v.start, v.end)),
    CoreRangeSet: (lambda *ranges: CoreRangeSet(list(ranges)), lambda v: v.ranges()),
    MeshShape: (lambda *sides: MeshShape(list(sides)), tuple),
    MeshCoordinate: (lambda *places: MeshCoordinate(list(places)), tuple),
    Shape: (lambda *extents: Shape(list(extents)), tuple),
    ShardSpec: (ShardSpec, lambda v: (v.grid, list(v.shape), v.orientation)),
    NdShardSpec: (NdShardSpec, lambda v: (Shape(v.shard_shape), v.grid, v.orientation)),
    MemoryConfig: (
        _memory_config,
        lambda v: (v.memory_layout, v.buffer_type, v.shard_spec, v.nd_shard_spec),
    ),
    UnaryWithParam: (UnaryWithParam, lambda v: (v.op_type, *v.params)),
    Tile: (Tile, lambda v: (v.tile_shape,)),
    TensorSpec: (_spec, lambda v: (v.shape, v.dtype, v.layout, v.memory_config, v.tile)),
    PlacementReplicate: (PlacementReplicate, lambda v: ()),
    PlacementShard: (PlacementShard, lambda v: (v.dim,)),
    MeshMapperConfig: (
        MeshMapperConfig,
        lambda v: (list(v.placements), None, v.mesh_shape_override, v.mesh_offset_override),
    ),
    MeshComposerConfig: (
        MeshComposerConfig,
        lambda v: (list(v.dims), None, v.mesh_shape_override, v.mesh_offset_override),
    ),
    MeshToTensor: (MeshToTensor, lambda v: (v.mesh_shape, v.config)),
    TensorToMesh: (TensorToMesh, lambda v: (v.mesh_shape, v.config())),
}


def _all_below(base: type[Any]) -> dict[str, type[Any]]:
    found: dict[str, type[Any]] = {}
    below: list[type[Any]] = base.__subclasses__()
    for one in below:
        found |= {one.__name__: one, **_all_below(one)}
    return found


def encoded(value: Any, other: Callable[[Any], Any], where: str) -> Any:
    """`value` in JSON's kinds; `other` answers for tensors and devices, None for what it does not know."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, NativeEnum):
        return {"enum": [type(value).__name__, value.name]}
    if isinstance(value, torch.dtype):
        return {"torch": str(value).removeprefix("torch.")}
    known = other(value)
    if known is None:
        known = _encoded_parts(value, lambda parts: [encoded(part, other, where) for part in parts])
    if known is None:
        name = type(value).__name__
        raise MeshError(f"light_metal_begin_capture: {where} takes a {name}, which cannot be recorded.")
    return known


def _encoded_parts(value: Any, each: Callable[[Iterable[Any]], list[Any]]) -> dict[str, Any] | None:
    """What is made of other values, which `each` encodes; None for what has no form here."""
    if hasattr(value, "unwrap") and isinstance(value.unwrap(), TensorToMesh):
        value = value.unwrap()
    if isinstance(value, HardwareConfig):
        names = [field.name for field in fields(value)]  # type: ignore[arg-type]
        values = each(getattr(value, name) for name in names)
        return {"config": type(value).__name__, "fields": dict(zip(names, values, strict=True))}
    kind = type(value)
    if kind in _RECIPES:
        return {"value": kind.__name__, "of": each(_RECIPES[kind][1](value))}
    if isinstance(value, list):
        return {"list": each(value)}
    if isinstance(value, tuple | set | frozenset):
        return {"tuple": each(value)}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": dict(zip(value, each(value.values()), strict=True))}
    return None


def decoded(data: Any, other: Callable[[str, Any], Any]) -> Any:
    """What was encoded; `other(kind, value)` answers for tensors and devices."""
    if not isinstance(data, dict):
        return data

    def each(values: Iterable[Any]) -> list[Any]:
        return [decoded(item, other) for item in values]

    kind, of = next(iter(data.items()))
    if kind == "float":
        return float(of)
    if kind == "enum":
        return _all_below(NativeEnum)[of[0]][of[1]]
    if kind == "torch":
        return torch_dtype(of)
    if kind == "config":
        given = data["fields"]
        return _all_below(HardwareConfig)[of](**dict(zip(given, each(given.values()), strict=True)))
    if kind == "value":
        make = next(made for one, (made, _) in _RECIPES.items() if one.__name__ == of)
        return make(*each(data["of"]))
    if kind in ("list", "tuple"):
        return each(of) if kind == "list" else tuple(each(of))
    if kind == "dict":
        return dict(zip(of, each(of.values()), strict=True))
    return other(kind, of)


def torch_dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise MeshError(f"torch.{name} is no dtype.")
    return found
