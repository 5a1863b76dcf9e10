"""Protobuf message classes of mesh graph descriptors, made from mesh_graph.proto when this module is imported.

The reader below knows the part of the proto3 language that our own file uses, and nothing more; it spares
users a protobuf compiler. Text is parsed by the protobuf library alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_File = descriptor_pb2.FileDescriptorProto
_Message = descriptor_pb2.DescriptorProto
_Enum = descriptor_pb2.EnumDescriptorProto
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "int32": _Field.TYPE_INT32,
    "uint32": _Field.TYPE_UINT32,
    "bool": _Field.TYPE_BOOL,
}


def schema_text() -> str:
    return (resources.files("softmesh.fabric.descriptors") / "mesh_graph.proto").read_text(encoding="utf-8")


def read_schema(text: str) -> _File:
    """The descriptor that a protobuf compiler would make of the file."""
    tokens = iter(re.findall(r'"[^"]*"|[\w.]+|[{}=;]', re.sub(r"//.*", "", text)))
    file = _File(name="softmesh/fabric/descriptors/mesh_graph.proto")
    for word in tokens:
        if word == "syntax":
            file.syntax = _statement(tokens)[-1].strip('"')
        elif word == "package":
            file.package = _statement(tokens)[-1]
        elif word == "message":
            _read_message(tokens, file.message_type.add())
        else:
            _read_enum(tokens, file.enum_type.add())
    return file


def _statement(tokens: Iterator[str]) -> list[str]:
    return list(iter(tokens.__next__, ";"))


def _block(tokens: Iterator[str]) -> Iterator[str]:
    """The first word of each statement up to the closing brace."""
    return iter(tokens.__next__, "}")


def _read_message(tokens: Iterator[str], message: _Message) -> None:
    message.name = next(tokens)
    next(tokens)  # the opening brace
    for word in _block(tokens):
        if word == "enum":
            _read_enum(tokens, message.enum_type.add())
        elif word == "oneof":
            _read_oneof(tokens, message)
        else:
            _read_field([word, *_statement(tokens)], message)
    for field in message.field:
        # An optional field is, by protobuf's convention, the only member of a oneof of its own.
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _read_oneof(tokens: Iterator[str], message: _Message) -> None:
    index = len(message.oneof_decl)
    message.oneof_decl.add(name=next(tokens))
    next(tokens)
    for word in _block(tokens):
        _read_field([word, *_statement(tokens)], message).oneof_index = index


def _read_field(words: list[str], message: _Message) -> _Field:
    *labels, kind, name, _, number = words
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if labels == ["repeated"]:
        field.label = _Field.LABEL_REPEATED
    field.proto3_optional = labels == ["optional"]
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind  # message or enum: the pool finds out which
    return field


def _read_enum(tokens: Iterator[str], enum: _Enum) -> None:
    enum.name = next(tokens)
    next(tokens)
    for name in _block(tokens):
        enum.value.add(name=name, number=int(_statement(tokens)[-1]))


FILE = read_schema(schema_text())
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(FILE.SerializeToString())

MeshGraphDescriptor: Any = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName(f"{FILE.package}.MeshGraphDescriptor")
)


def enum_values(name: str) -> list[str]:
    """The names of an enum's values; `name` is the full one, as the parser's messages have it."""
    return [value.name for value in _POOL.FindEnumTypeByName(name).values]
