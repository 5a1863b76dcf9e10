"""The tables of a tensor file's header, and the FlatBuffers format they are written in.

A table is a dict here: None where a vector, a table, a text or a union is absent, 0 where a number is. A union is a
pair of its tag and its value. Reading trusts nothing: whatever points outside the header, or asks for more work than a
header of a real machine needs, is a `BrokenHeader`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any

Fields = dict[str, Any]

_SCHEMA = """
table Tensor { tensor_spec:TensorSpec; mesh_shape:MeshShape; shards:[TensorShard]; tensor_topology:TensorTopology; }
table TensorSpec { shape:[uint32]; tensor_layout:TensorLayout; }
table TensorLayout { data_type:uint8; page_config:PageConfig; memory_config:MemoryConfig; alignment:[uint32]; }
union PageConfig { RowMajorPageConfig TilePageConfig }
table RowMajorPageConfig { }
table TilePageConfig { tile:Tile; }
table Tile { height:uint32; width:uint32; transpose_tile:bool; }
table MemoryConfig { memory_layout:uint16; buffer_type:uint16; shard_spec:ShardSpec; nd_shard_spec:NdShardSpec;
                     created_with_nd_shard_spec:bool; per_core_allocation:bool; range_lockstep_allocation:bool; }
table ShardSpec { grid:CoreRangeSet; shape_h:uint32; shape_w:uint32; orientation:uint8; }
table NdShardSpec { shard_shape:[uint32]; grid:CoreRangeSet; orientation:uint8; shard_distribution_strategy:uint8; }
table CoreRangeSet { ranges:[CoreRange]; }
table CoreRange { start:CoreCoord; end:CoreCoord; }
table CoreCoord { x:int32; y:int32; }
table MeshShape { dimensions:[uint32]; }
table MeshCoordinate { values:[uint32]; }
table TensorShard { buffer:TensorBuffer; mesh_coordinate:MeshCoordinate; }
union TensorBuffer { InlineFileStorage }
struct InlineFileStorage { offset:uint64; size:uint64; }
table TensorTopology { distribution_shape:MeshShape; placements:[MeshMapperPlacement]; mesh_coords:[MeshCoordinate]; }
table MeshMapperPlacement { type:uint8; tensor_dim:int32; }
table OverlappedTensors { fused_tensor:Tensor; views:[OverlappedView]; }
table OverlappedView { name:string; tensor_shape_h:uint32; tensor_shape_w:uint32; shard_shape_h:uint32;
                       shard_shape_w:uint32; core_range_set:CoreRangeSet; dtype:uint8; tile_h:uint32; tile_w:uint32;
                       byte_offset:uint64; total_size:uint64; }
"""

_FORMATS = {"bool": "<B", "uint8": "<B", "uint16": "<H", "uint32": "<I", "int32": "<i", "uint64": "<Q"}
_STRING = "string"
_MOST_PARTS = 1_000_000
NO_VALUE = (0, None)  # a union without a value


class BrokenHeader(ValueError):
    """What is no header of a tensor file."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str  # of a number, a text, a table, a struct or a union
    is_vector: bool


_KINDS: dict[str, str] = {}  # "table", "struct" or "union" by name
_FIELDS: dict[str, list[_Field]] = {}  # of tables and structs
_MEMBERS: dict[str, list[str]] = {}  # of unions
for _kind, _name, _body in re.findall(r"(table|union|struct)\s+(\w+)\s*\{([^}]*)\}", _SCHEMA):
    _KINDS[_name] = _kind
    if _kind == "union":
        _MEMBERS[_name] = _body.split()
    else:
        _FIELDS[_name] = [
            _Field(field, kind, bool(vector)) for field, vector, kind in re.findall(r"(\w+):(\[?)(\w+)\]?;", _body)
        ]


def encode(table: str, fields: Fields) -> bytes:
    """One FlatBuffer whose root is this table."""
    from flatbuffers import Builder

    builder = Builder(1024)
    builder.Finish(_write_table(builder, table, fields))
    return bytes(builder.Output())


def _write_table(builder: Any, table: str, fields: Fields) -> int:
    """Its place; what a table refers to is written before it."""
    kinds = _FIELDS[table]
    unknown = fields.keys() - {field.name for field in kinds}
    assert not unknown, f"{table} has no {unknown}"
    places = {
        field.name: _write_value(builder, field, fields[field.name])
        for field in kinds
        if field.kind not in _FORMATS or field.is_vector
        if fields.get(field.name) not in (None, NO_VALUE)
    }
    builder.StartObject(sum(2 if _KINDS.get(field.kind) == "union" else 1 for field in kinds))
    slot = 0
    for field in kinds:
        value = fields.get(field.name)
        if _KINDS.get(field.kind) == "union":
            builder.PrependUint8Slot(slot, 0 if value is None else value[0], 0)
            slot += 1
        if field.name in places:
            builder.PrependUOffsetTRelativeSlot(slot, places[field.name], 0)
        elif field.kind in _FORMATS and not field.is_vector:
            _NUMBER_SLOTS[field.kind](builder, slot, value or 0)
        slot += 1
    return builder.EndObject()


_NUMBER_SLOTS: dict[str, Any] = {
    "bool": lambda builder, slot, value: builder.PrependBoolSlot(slot, bool(value), False),
    "uint8": lambda builder, slot, value: builder.PrependUint8Slot(slot, value, 0),
    "uint16": lambda builder, slot, value: builder.PrependUint16Slot(slot, value, 0),
    "uint32": lambda builder, slot, value: builder.PrependUint32Slot(slot, value, 0),
    "int32": lambda builder, slot, value: builder.PrependInt32Slot(slot, value, 0),
    "uint64": lambda builder, slot, value: builder.PrependUint64Slot(slot, value, 0),
}


def _write_value(builder: Any, field: _Field, value: Any) -> int:
    if field.kind == _STRING:
        return builder.CreateString(value)
    if field.is_vector:
        is_number = field.kind in _FORMATS
        items = value if is_number else [_write_table(builder, field.kind, item) for item in value]
        builder.StartVector(4, len(items), 4)
        prepend = builder.PrependUint32 if is_number else builder.PrependUOffsetTRelative
        for item in reversed(items):
            prepend(item)
        return builder.EndVector()
    if _KINDS[field.kind] == "union":
        tag, inner = value
        member = _MEMBERS[field.kind][tag - 1]
        return (_write_struct if _KINDS[member] == "struct" else _write_table)(builder, member, inner)
    return _write_table(builder, field.kind, value)


def _write_struct(builder: Any, name: str, fields: Fields) -> int:
    builder.Prep(8, 8 * len(_FIELDS[name]))
    for field in reversed(_FIELDS[name]):
        builder.PrependUint64(fields[field.name])
    return builder.Offset()


def decode(table: str, data: memoryview) -> Fields:
    """The root table of a FlatBuffer that may be anything."""
    reader = _Reader(data)
    return reader.table(table, reader.target(0))


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._parts_left = _MOST_PARTS

    def number(self, kind: str, at: int) -> int:
        if at < 0:
            raise BrokenHeader(f"it points {-at} bytes before its start")
        try:
            return struct.unpack_from(_FORMATS[kind], self._data, at)[0]
        except struct.error:
            raise BrokenHeader(f"it points to byte {at} of {len(self._data)}") from None

    def target(self, at: int) -> int:
        """Where the offset at a place leads."""
        offset = self.number("uint32", at)
        if not offset:
            raise BrokenHeader(f"the offset at byte {at} leads nowhere")
        return at + offset

    def table(self, name: str, at: int) -> Fields:
        self._count(1)
        table_of_slots = at - self.number("int32", at)
        slots_end = self.number("uint16", table_of_slots)
        length = self.number("uint16", table_of_slots + 2)
        if slots_end < 4 or slots_end % 2 or length < 4 or at + length > len(self._data):
            raise BrokenHeader(f"the {name} at byte {at} has no proper list of fields")

        def place(slot: int) -> int | None:
            """Of a field; None where it is absent."""
            where = 4 + 2 * slot
            offset = self.number("uint16", table_of_slots + where) if where < slots_end else 0
            if offset >= length:
                raise BrokenHeader(f"field {slot} of the {name} at byte {at} lies outside of it")
            return at + offset if offset else None

        made: Fields = {}
        slot = 0
        for field in _FIELDS[name]:
            if _KINDS.get(field.kind) == "union":
                made[field.name] = self._union(field.kind, place(slot), place(slot + 1))
                slot += 2
            else:
                made[field.name] = self._value(field, place(slot))
                slot += 1
        return made

    def _value(self, field: _Field, at: int | None) -> Any:
        if field.is_vector:
            return None if at is None else self._vector(field.kind, self.target(at))
        if field.kind in _FORMATS:
            return 0 if at is None else self.number(field.kind, at)
        if field.kind == _STRING:
            return None if at is None else self._text(self.target(at))
        return None if at is None else self.table(field.kind, self.target(at))

    def _union(self, name: str, tag_at: int | None, value_at: int | None) -> tuple[int, Fields | None]:
        tag = 0 if tag_at is None else self.number("uint8", tag_at)
        members = _MEMBERS[name]
        if value_at is None or not 1 <= tag <= len(members):
            return tag, None
        member, at = members[tag - 1], self.target(value_at)
        if _KINDS[member] == "table":
            return tag, self.table(member, at)
        return tag, {field.name: self.number(field.kind, at + 8 * i) for i, field in enumerate(_FIELDS[member])}

    def _vector(self, kind: str, at: int) -> list[Any]:
        count = self.number("uint32", at)
        if at + 4 + 4 * count > len(self._data):
            raise BrokenHeader(f"the list of {count} at byte {at} does not fit")
        self._count(count)
        places = range(at + 4, at + 4 + 4 * count, 4)
        if kind in _FORMATS:
            return [self.number(kind, place) for place in places]
        return [self.table(kind, self.target(place)) for place in places]

    def _text(self, at: int) -> str:
        start = at + 4
        end = start + self.number("uint32", at)
        if end > len(self._data):
            raise BrokenHeader(f"the text at byte {at} does not fit")
        return bytes(self._data[start:end]).decode()

    def _count(self, parts: int) -> None:
        self._parts_left -= parts
        if self._parts_left < 0:
            raise BrokenHeader(f"it has more than {_MOST_PARTS} parts")
