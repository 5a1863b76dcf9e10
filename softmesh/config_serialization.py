"""Memory, compute and program configurations as dictionaries that JSON can hold."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.hardware.memory_config import MemoryConfig, NdShardSpec, ShardSpec


def memory_config_to_dict(memory_config: MemoryConfig | None) -> dict[str, Any] | None:
    if memory_config is None:
        return None
    return {
        "type": "MemoryConfig",
        "memory_layout": memory_config.memory_layout.name,
        "buffer_type": memory_config.buffer_type.name,
        "shard_spec": plain(memory_config.shard_spec),
        "nd_shard_spec": plain(memory_config.nd_shard_spec),
    }


def compute_kernel_config_to_dict(compute_kernel_config: Any) -> dict[str, Any] | None:
    return _fields(compute_kernel_config)


def program_config_to_dict(program_config: Any) -> dict[str, Any] | None:
    return _fields(program_config)


def _fields(config: Any) -> dict[str, Any] | None:
    if config is None:
        return None
    values = {field.name: plain(getattr(config, field.name)) for field in fields(config)}
    return {"type": type(config).__name__, **values}


def plain(value: Any) -> Any:
    """The value in JSON's own kinds; what has none is its text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, CoreCoord):
        return {"x": value.x, "y": value.y}
    if isinstance(value, CoreRange):
        return {"start": plain(value.start), "end": plain(value.end)}
    if isinstance(value, CoreRangeSet):
        return [plain(one) for one in value.ranges()]
    if isinstance(value, ShardSpec):
        return {
            "grid": plain(value.grid),
            "shape": list(value.shape),
            "orientation": value.orientation.name,
        }
    if isinstance(value, NdShardSpec):
        return {
            "grid": plain(value.grid),
            "shard_shape": list(value.shard_shape),
            "orientation": value.orientation.name,
        }
    if isinstance(value, MemoryConfig):
        return memory_config_to_dict(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _fields(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
