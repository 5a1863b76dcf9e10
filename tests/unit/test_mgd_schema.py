"""The message classes are those of version 2.0 of the format: names, numbers, kinds and presence."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from softmesh.fabric.descriptors.schema import FILE, MeshGraphDescriptor, read_schema

FIELDS = {
    "MeshGraphDescriptor": "mesh_descriptors=1* graph_descriptors=2* top_level_instance=3 switch_descriptors=4* "
    "pinnings=5*",
    "MeshDescriptor": "name=1 arch=2 device_topology=3 channels=4 host_topology=5 express_connections=7*",
    "SwitchDescriptor": "name=1 arch=2 device_topology=3 channels=4 express_connections=7*",
    "GraphDescriptor": "name=1 type=2 instances=3* graph_topology=4 connections=5*",
    "NodeRef": "mesh=1 graph=2 switch=3",
    "MeshRef": "mesh_descriptor=1 mesh_id=2 device_id=3?",
    "SwitchRef": "switch_descriptor=1 switch_id=2 device_id=3?",
    "GraphRef": "graph_descriptor=1 graph_id=2 sub_ref=3?",
    "TorusTopology": "dims=3* dim_types=4*",
    "MeshTopology": "dims=1*",
    "Channels": "count=1 policy=2?",
    "ExpressConnection": "src=1 dst=2",
    "GraphTopology": "layout_type=1 channels=2 assign_z_direction=3?",
    "Connection": "nodes=1* channels=2 directional=3? routing_direction=4* assign_z_direction=5?",
    "AsicPinning": "logical_fabric_node_id=1* physical_asic_position=2*",
    "LogicalFabricNodeId": "mesh_id=1? chip_id=2? mesh_id_regex=3? chip_id_regex=4?",
    "PhysicalAsicPosition": "tray_id=1? asic_location=2? tray_id_regex=3? asic_location_regex=4?",
}


def written(message: object) -> str:
    """`name=number`, with * for repeated and ? for optional fields."""
    return " ".join(
        f"{field.name}={field.number}{'*' if field.label == field.LABEL_REPEATED else ''}"
        f"{'?' if field.proto3_optional else ''}"
        for field in message.field
    )


def test_every_message_has_the_fields_of_the_format():
    assert {message.name: written(message) for message in FILE.message_type} == FIELDS


def test_enums_have_the_values_of_the_format():
    found = {enum.name: [(value.name, value.number) for value in enum.value] for enum in FILE.enum_type}
    assert found["Architecture"] == [("INVALID_ARCHITECTURE", 0), ("WORMHOLE_B0", 1), ("BLACKHOLE", 2)]
    assert found["Policy"] == [("INVALID_POLICY", 0), ("STRICT", 1), ("RELAXED", 2)]
    assert [name for name, _ in found["RoutingDirection"]] == ["INVALID", "N", "E", "S", "W", "C", "NONE"]


def test_the_package_is_the_one_other_tools_use():
    assert MeshGraphDescriptor.DESCRIPTOR.full_name == "tt.tt_fabric.proto.MeshGraphDescriptor"


def test_both_ways_to_write_lists_and_messages_mean_the_same():
    long = "mesh_descriptors: { device_topology: { dims: 2 dims: 4 } }  # two lines of chips"
    short = "mesh_descriptors { device_topology { dims: [ 2, 4 ] } }"
    parse = text_format.Parse
    assert parse(long, MeshGraphDescriptor()) == parse(short, MeshGraphDescriptor())


def test_one_reference_names_one_kind_of_thing():
    with pytest.raises(text_format.ParseError, match="oneof"):
        text_format.Parse("top_level_instance { mesh { } graph { } }", MeshGraphDescriptor())


def test_a_schema_may_hold_comments_optional_fields_and_nested_enums():
    file = read_schema(
        """
        syntax = "proto3";  // not 2
        package a.b;
        message Box { enum Kind { EMPTY = 0; FULL = 1; } Kind kind = 1; optional bool open = 2; }
        """
    )
    assert file.package == "a.b"
    assert written(file.message_type[0]) == "kind=1 open=2?"
    assert [value.name for value in file.message_type[0].enum_type[0].value] == ["EMPTY", "FULL"]
