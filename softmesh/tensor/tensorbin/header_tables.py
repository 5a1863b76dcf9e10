"""Specs, memory configs and topologies as the tables of a tensor file's header, and back."""

from __future__ import annotations

from typing import Any, TypeVar

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.memory_config import (
    BufferType,
    MemoryConfig,
    NdShardSpec,
    ShardDistributionStrategy,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.tensor_topology import (
    PlacementReplicate,
    PlacementShard,
    TensorTopology,
    TTPlacement,
)
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.shard_rules import row_alignment
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensorbin.schema import BrokenHeader, Fields
from softmesh.tensor.tile import Tile

_Member = TypeVar("_Member", bound=NativeEnum)

# The file numbers dtypes as they were before fp8_e4m3 came, which it cannot hold.
_DTYPES = {
    DataType.BFLOAT16: 0,
    DataType.FLOAT32: 1,
    DataType.UINT32: 2,
    DataType.BFLOAT8_B: 3,
    DataType.BFLOAT4_B: 4,
    DataType.UINT8: 5,
    DataType.UINT16: 6,
    DataType.INT32: 7,
    DataType.INT8: 8,
}
_NUMBERED_DTYPES = {number: dtype for dtype, number in _DTYPES.items()}
_ROW_MAJOR_PAGES, _TILE_PAGES = 1, 2
_REPLICATE, _SHARD = 0, 1
_MOST_DIMS = 16
_MOST_CORE_RANGES = 1024


def dtype_number(dtype: DataType) -> int:
    if dtype not in _DTYPES:
        raise MeshError(
            f"{dtype.name} cannot be serialized to flatbuffer: the format has no number for it. Convert the tensor "
            "first, for example with ttnn.to_dtype(t, ttnn.float32)."
        )
    return _DTYPES[dtype]


def numbered_dtype(number: int) -> DataType:
    dtype = _NUMBERED_DTYPES.get(number)
    if dtype is None:
        raise _unsupported("DataType", number)
    return dtype


def spec_to_fields(spec: TensorSpec) -> Fields:
    is_tiled = spec.layout is Layout.TILE
    tile = {
        "height": spec.tile.height,
        "width": spec.tile.width,
        "transpose_tile": spec.tile.transpose_of_faces,
    }
    layout = {
        "data_type": dtype_number(spec.dtype),
        "page_config": (_TILE_PAGES, {"tile": tile}) if is_tiled else (_ROW_MAJOR_PAGES, {}),
        "memory_config": _config_to_fields(spec.memory_config),
        "alignment": _alignment(spec),
    }
    return {"shape": list(spec.shape), "tensor_layout": layout}


def _alignment(spec: TensorSpec) -> list[int]:
    """What the last dims are filled up to multiples of."""
    if spec.layout is Layout.TILE:
        return spec.tile.tile_shape
    return [row_alignment(spec.memory_config)]


def spec_from_fields(fields: Fields) -> TensorSpec:
    layout = _needed(fields["tensor_layout"], "tensor_layout")
    dtype = numbered_dtype(layout["data_type"])
    tag, pages = layout["page_config"]
    if tag not in (_ROW_MAJOR_PAGES, _TILE_PAGES):
        raise _unsupported("PageConfig type", tag)
    tile = None
    if tag == _TILE_PAGES:
        tile = _tile_from_fields(_needed(_needed(pages, "page_config")["tile"], "tile"))
    shape = tuple(fields["shape"] or ())
    if len(shape) > _MOST_DIMS:
        raise BrokenHeader(f"its shape has {len(shape)} dims")
    config = _config_from_fields(_needed(layout["memory_config"], "memory_config"))
    if tile is None:
        spec = make_spec(shape, dtype, Layout.ROW_MAJOR, config)
    else:
        spec = make_spec(shape, dtype, Layout.TILE, config, tile)
    spec.check()
    return _aligned(spec, layout["alignment"] or [])


def _aligned(spec: TensorSpec, alignment: list[int]) -> TensorSpec:
    """The same piece in the room that an alignment beyond that of its layout leaves around it."""
    if len(alignment) > _MOST_DIMS:
        raise BrokenHeader(f"its alignment has {len(alignment)} dims")
    natural = _alignment(spec)
    rank = max(len(alignment), len(natural))
    own, given = _to_rank(natural, rank), _to_rank(alignment, rank)
    units = [_round_up(max(g, 1), n) for g, n in zip(given, own, strict=True)]
    if units == own:
        return spec
    extents = _to_rank(list(spec.shape), max(rank, len(spec.shape)))
    units = _to_rank(units, len(extents))
    return spec.padded_to([_round_up(n, unit) for n, unit in zip(extents, units, strict=True)], 0.0)


def _to_rank(extents: list[int], rank: int) -> list[int]:
    return [1] * (rank - len(extents)) + extents


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _tile_from_fields(fields: Fields) -> Tile:
    return Tile((fields["height"], fields["width"]), bool(fields["transpose_tile"]))


def _config_to_fields(config: MemoryConfig) -> Fields:
    flat, nd = config.shard_spec, config.nd_shard_spec
    return {
        "memory_layout": config.memory_layout.value,
        "buffer_type": config.buffer_type.value,
        "shard_spec": flat and _shard_to_fields(flat),
        "nd_shard_spec": nd and _nd_to_fields(nd),
        "created_with_nd_shard_spec": config.created_with_nd_shard_spec,
        "per_core_allocation": config.per_core_allocation,
        "range_lockstep_allocation": config.range_lockstep_allocation,
    }


def _config_from_fields(fields: Fields) -> MemoryConfig:
    layout = _member(TensorMemoryLayout, fields["memory_layout"])
    buffer_type = _member(BufferType, fields["buffer_type"])
    flat, nd = fields["shard_spec"], fields["nd_shard_spec"]
    if nd is not None and (flat is None or fields["created_with_nd_shard_spec"]):
        config = MemoryConfig(buffer_type, _nd_from_fields(nd))
    else:
        config = MemoryConfig(layout, buffer_type, None if flat is None else _shard_from_fields(flat))
    config.experimental_set_per_core_allocation(bool(fields["per_core_allocation"]))
    config.experimental_set_range_lockstep_allocation(bool(fields["range_lockstep_allocation"]))
    return config


def _shard_to_fields(spec: ShardSpec) -> Fields:
    height, width = spec.shape
    return {
        "grid": grid_to_fields(spec.grid),
        "shape_h": height,
        "shape_w": width,
        "orientation": spec.orientation.value,
    }


def _shard_from_fields(fields: Fields) -> ShardSpec:
    shape = (fields["shape_h"], fields["shape_w"])
    return ShardSpec(grid_from_fields(fields["grid"]), shape, _member(ShardOrientation, fields["orientation"]))


def _nd_to_fields(spec: NdShardSpec) -> Fields:
    return {
        "shard_shape": list(spec.shard_shape),
        "grid": grid_to_fields(spec.grid),
        "orientation": spec.orientation.value,
        "shard_distribution_strategy": spec.shard_distribution_strategy.value,
    }


def _nd_from_fields(fields: Fields) -> NdShardSpec:
    return NdShardSpec(
        fields["shard_shape"] or [],
        grid_from_fields(fields["grid"]),
        _member(ShardOrientation, fields["orientation"]),
        _member(ShardDistributionStrategy, fields["shard_distribution_strategy"]),
    )


def grid_to_fields(grid: CoreRangeSet) -> Fields:
    return {
        "ranges": [
            {"start": {"x": r.start.x, "y": r.start.y}, "end": {"x": r.end.x, "y": r.end.y}} for r in grid.ranges()
        ]
    }


def grid_from_fields(fields: Fields | None) -> CoreRangeSet:
    ranges = _needed(fields, "grid")["ranges"] or []
    if len(ranges) > _MOST_CORE_RANGES:
        raise BrokenHeader(f"it has {len(ranges)} core ranges in one grid")

    def corner(point: Fields | None) -> CoreCoord:
        at = _needed(point, "corner of a core range")
        return CoreCoord(at["x"], at["y"])

    return CoreRangeSet([CoreRange(corner(r["start"]), corner(r["end"])) for r in ranges])


def topology_to_fields(topology: TensorTopology) -> Fields:
    return {
        "distribution_shape": {"dimensions": list(topology.distribution_shape())},
        "placements": [
            {"type": _SHARD, "tensor_dim": placement.dim}
            if isinstance(placement, PlacementShard)
            else {"type": _REPLICATE, "tensor_dim": -1}
            for placement in topology.placements()
        ],
        "mesh_coords": [{"values": list(coord)} for coord in topology.mesh_coords()],
    }


def topology_from_fields(fields: Fields) -> TensorTopology:
    shape = MeshShape(_needed(fields["distribution_shape"], "distribution_shape")["dimensions"] or [])
    placements: list[TTPlacement] = [
        PlacementShard(placement["tensor_dim"]) if placement["type"] == _SHARD else PlacementReplicate()
        for placement in fields["placements"] or []
    ]
    coords = [MeshCoordinate(coord["values"] or []) for coord in fields["mesh_coords"] or []]
    return TensorTopology(shape, placements, coords)


def _member(kind: type[_Member], number: int) -> _Member:
    try:
        return kind(number)
    except ValueError:
        raise _unsupported(kind.__name__, number) from None


def _unsupported(what: str, number: int) -> MeshError:
    return MeshError(
        f"Unsupported {what} from flatbuffer. The file says {number}, which softmesh does not know: it is damaged, or "
        "a later version of ttnn wrote it."
    )


def _needed(value: Any, what: str) -> Any:
    if value is None:
        raise BrokenHeader(f"it has no {what}")
    return value
