"""The address table of KV caches in chunks: for each layer, position and slot, the chips and the address of a chunk.

A table may have several configs, one for each kind of cache, by number or by name. Programs on different hosts find
each other's caches in it; softmesh keeps what is written in the table, and reads no memory by its addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NoReturn

import torch

from softmesh.arguments import ShowsFields, checked, checked_all, checked_int, checked_shape
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.fabric_config import FabricNodeId
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.page_bytes import from_pages
from softmesh.tensor.spec import make_spec
from softmesh.tensor.tensor import Tensor

_TABLE = "KvChunkAddressTable"
_A_CONFIG = "a ttnn.disaggregation.KvChunkAddressTableConfig, its fields set"
_A_NODE = "a ttnn.FabricNodeId, as device.get_fabric_node_id(coordinate) gives"


class KvChunkTensorType(NativeEnum):
    """What the chunks hold."""

    Kv = 0
    Snapshot = 1


class ChunkCompression(NativeEnum):
    """Whether a table has an entry for each chunk, or a rule for those of a slot."""

    UNROLLED = 0
    STRIDED_ROWS = 1


@dataclass(init=False)
class KvChunkAddressTableConfig(ShowsFields):
    """How many layers, slots and tokens there are, and how many tokens and bytes are a chunk."""

    chunk_n_tokens: int
    chunk_size_bytes: int
    max_sequence_length: int
    num_layers: int
    num_slots: int
    tensor_type: KvChunkTensorType

    def __init__(self) -> None:
        self.chunk_n_tokens = self.chunk_size_bytes = self.max_sequence_length = self.num_layers = self.num_slots = 0
        self.tensor_type = KvChunkTensorType.Kv


@dataclass(frozen=True)
class DeviceGroupIndex:
    """The number of a device group in its table."""

    value: int

    def __int__(self) -> int:
        return self.value


@dataclass
class DeviceGroup:
    """Chips that all hold the same chunks."""

    fabric_node_ids: list[FabricNodeId] = field(init=False, default_factory=list)


@dataclass
class KvCacheLocation:
    """Where a chunk lies: which chips hold it, at which address, and how long it is."""

    device_group_index: DeviceGroupIndex = field(init=False, default=DeviceGroupIndex(0))
    noc_addr: int = field(init=False, default=0)
    size_bytes: int = field(init=False, default=0)


Configs = KvChunkAddressTableConfig | Sequence[KvChunkAddressTableConfig] | Mapping[str, KvChunkAddressTableConfig]


class KvChunkAddressTable:
    """Entries by (config, layer, slot, chunk), all at address 0 until they are set."""

    def __init__(self, configs: Configs, compressions: Mapping[str, ChunkCompression] | None = None) -> None:
        if isinstance(configs, KvChunkAddressTableConfig):
            configs = [configs]
        by_name = configs if isinstance(configs, Mapping) else None
        given = list(by_name.values()) if by_name is not None else configs
        found = checked_all(_TABLE, "configs", given, (KvChunkAddressTableConfig,), _A_CONFIG)
        if not found:
            raise MeshError(f"{_TABLE}: give {_A_CONFIG}.")
        self._configs = [_checked_config(config) for config in found]
        self._names = list(by_name) if by_name is not None else [""] * len(found)
        for name, compression in (compressions or {}).items():
            self.config_id_of(name)
            if compression is not ChunkCompression.UNROLLED:
                _refuse_rows("compressions")
        self._entries: dict[tuple[int, int, int, int], KvCacheLocation] = {}
        self._groups: list[DeviceGroup] = []
        self._hosts: dict[FabricNodeId, str] = {}

    # -- the configs ---------------------------------------------------------------------------------

    def num_configs(self) -> int:
        return len(self._configs)

    def config(self, config_id: int | str = 0) -> KvChunkAddressTableConfig:
        return copy(self._configs[self._id(config_id)])

    def config_name(self, config_id: int) -> str:
        """Its name; of configs that were given without names, an empty one."""
        return self._names[self._id(config_id)]

    def config_id_of(self, name: str) -> int:
        if name not in self._names:
            raise MeshError(f"{_TABLE}: no config is called {name!r}; there are {self._names}.")
        return self._names.index(name)

    def compression(self, config_id: int | str = 0) -> ChunkCompression:
        self._id(config_id)
        return ChunkCompression.UNROLLED

    def num_position_chunks(self, config_id: int | str = 0) -> int:
        return _chunks(self._configs[self._id(config_id)])

    def total_entries(self) -> int:
        return sum(config.num_layers * config.num_slots * _chunks(config) for config in self._configs)

    # -- the chips -----------------------------------------------------------------------------------

    def add_device_group(self, fabric_node_ids: Sequence[FabricNodeId]) -> DeviceGroupIndex:
        group = DeviceGroup()
        group.fabric_node_ids = checked_all(_TABLE, "fabric_node_ids", fabric_node_ids, (FabricNodeId,), _A_NODE)
        self._groups.append(group)
        return DeviceGroupIndex(len(self._groups) - 1)

    def get_device_group(self, index: DeviceGroupIndex | int) -> DeviceGroup:
        return self._groups[_within("index", int(index), len(self._groups), "device groups")]

    def num_device_groups(self) -> int:
        return len(self._groups)

    def set_fabric_node_host(self, node_id: FabricNodeId, host_name: str) -> None:
        checked(_TABLE, "host_name", host_name, str, "the name of a host")
        self._hosts[checked(_TABLE, "node_id", node_id, FabricNodeId, _A_NODE)] = host_name

    def has_host(self, node_id: FabricNodeId) -> bool:
        return node_id in self._hosts

    def get_host(self, node_id: FabricNodeId) -> str:
        if node_id not in self._hosts:
            raise MeshError(f"{_TABLE}: nobody told the host of {node_id!r}; use set_fabric_node_host.")
        return self._hosts[node_id]

    # -- the chunks ----------------------------------------------------------------------------------

    def set(
        self, layer: int, position: int, slot: int, location: KvCacheLocation, config_id: int = 0, *, config: str = ""
    ) -> None:
        """Where the chunk lies that holds the token at `position`."""
        at = self._entry(layer, position, slot, config or config_id)
        where = checked(_TABLE, "location", location, KvCacheLocation, "a ttnn.disaggregation.KvCacheLocation")
        _within("location.device_group_index", int(where.device_group_index), len(self._groups), "device groups")
        self._entries[at] = copy(where)

    def lookup(
        self, layer: int, position: int, slot: int, config_id: int | str = 0, *, config: str = ""
    ) -> KvCacheLocation:
        """Of the chunk that holds the token at `position`."""
        return copy(self._entries.get(self._entry(layer, position, slot, config or config_id), KvCacheLocation()))

    def lookup_range(
        self, layer: int, start_pos: int, end_pos: int, slot: int, config_id: int | str = 0, *, config: str = ""
    ) -> list[KvCacheLocation]:
        """Of all chunks with tokens from `start_pos` up to, not including, `end_pos`."""
        which = config or config_id
        if start_pos >= end_pos:
            return []
        first = self._entry(layer, start_pos, slot, which)
        last = self._entry(layer, end_pos - 1, slot, which)
        every = ((*first[:3], chunk) for chunk in range(first[3], last[3] + 1))
        return [copy(self._entries.get(entry, KvCacheLocation())) for entry in every]

    def set_strided_row(self, *args: object, **kwargs: object) -> NoReturn:
        """A rule for the chunks of one layer and slot; not modelled."""
        _refuse_rows("set_strided_row")

    def read_device_chunk(self, *args: object, **kwargs: object) -> NoReturn:
        """The bytes of one chunk; not modelled."""
        raise NotModelled(
            f"{_TABLE}.read_device_chunk: softmesh reads no memory by its address; read the cache with "
            "ttnn.from_device."
        )

    def _id(self, config: int | str) -> int:
        if isinstance(config, str):
            return self.config_id_of(config)
        return _within("config_id", config, len(self._configs), "configs")

    def _entry(self, layer: int, position: int, slot: int, config: int | str) -> tuple[int, int, int, int]:
        which = self._id(config)
        known = self._configs[which]
        layer = _within("layer", layer, known.num_layers, "layers")
        slot = _within("slot", slot, known.num_slots, "slots")
        position = _within("position", position, known.max_sequence_length, "positions")
        return which, layer, slot, position // known.chunk_n_tokens


def _checked_config(config: KvChunkAddressTableConfig) -> KvChunkAddressTableConfig:
    """A copy that nobody changes."""
    for name in ("chunk_n_tokens", "chunk_size_bytes", "max_sequence_length", "num_layers", "num_slots"):
        if checked_int(_TABLE, name, getattr(config, name)) < 1:
            raise MeshError(f"{_TABLE}: config.{name}={getattr(config, name)} must be 1 or more: set it first.")
    return copy(config)


def _chunks(config: KvChunkAddressTableConfig) -> int:
    return -(-config.max_sequence_length // config.chunk_n_tokens)


def _within(name: str, value: object, count: int, what: str) -> int:
    number = checked_int(_TABLE, name, value)
    if not 0 <= number < count:
        raise MeshError(f"{_TABLE}: {name}={number} is none of the {count} {what}, which are counted from 0.")
    return number


def _refuse_rows(where: str) -> NoReturn:
    raise NotModelled(
        f"{_TABLE}: {where}: in which order the chunks of strided rows lie is not documented; leave the configs "
        "UNROLLED, and set each chunk."
    )


def tensor_from_bfp8_bytes(raw_bytes: bytes, shape: Sequence[int]) -> Tensor:
    """The bytes of tiles, row by row of tiles, as a bfloat8_b tensor on the host."""
    where = "tensor_from_bfp8_bytes"
    data = checked(where, "raw_bytes", raw_bytes, bytes, "bytes, as they lie in memory")
    spec = make_spec(tuple(checked_shape(where, shape)), DataType.BFLOAT8_B, Layout.TILE)
    size = spec.num_pages() * spec.page_size()
    if len(data) != size:
        raise MeshError(f"{where}: {list(shape)} in bfloat8_b has {size} bytes, got {len(data)}.")
    pages = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(spec.num_pages(), spec.page_size())
    return from_torch(from_pages(pages, spec), dtype=DataType.BFLOAT8_B, layout=Layout.TILE)
