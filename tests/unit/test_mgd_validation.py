"""Each rule of the staged validation: the runtime's words, the rule's name, the line, and a fix."""

from __future__ import annotations

import pytest
from descriptors import (
    TOP_GRAPH,
    TOP_MESH,
    connection,
    errors,
    graph,
    line_of,
    mesh,
    messages,
    node,
    rules,
    two_meshes,
)

from softmesh.fabric.descriptors.loader import DescriptorError, check_text, load_mesh_graph

SWITCH = """switch_descriptors {
  name: "S0"
  arch: WORMHOLE_B0
  device_topology { dims: [ 2, 2 ] }
  channels { count: 2 }
}
"""
PAIR = connection(node(0), node(1))

BROKEN = {
    # stage 1
    "no-mesh": (TOP_MESH, "There must be at least one mesh descriptor or switch descriptor"),
    "no-top-level-instance": (mesh(), "Top level instance is required"),
    # stage 2
    "no-name": (mesh(name="") + TOP_MESH, "Mesh descriptor 1 has no name"),
    "duplicate-name": (mesh() + mesh() + TOP_MESH, "Mesh descriptor name is not unique (Mesh: M0)"),
    "reserved-type": (
        mesh() + graph(node(), type='type: "MESH"') + TOP_GRAPH,
        "Graph descriptor type cannot be DEVICE, MESH, or SWITCH (Graph: G0)",
    ),
    "no-channels": (mesh(channels="") + TOP_MESH, "Channel count must be positive (Mesh: M0)"),
    "mixed-architectures": (
        mesh() + mesh("M1", arch="arch: BLACKHOLE") + TOP_MESH,
        "All mesh descriptors must have the same architecture",
    ),
    "no-architecture": (
        mesh(arch="") + TOP_MESH,
        "Mesh descriptor must have a valid architecture (Mesh: M0)",
    ),
    "too-many-dims": (
        mesh(dims="2, 2, 2") + TOP_MESH,
        "Architecture devices allow a maximum of 2 dimensions, but 3 were provided (Mesh: M0)",
    ),
    # stage 3
    "bad-dims": (mesh(dims="0, 4") + TOP_MESH, "Device topology dimensions must be positive (Mesh: M0)"),
    "too-many-dim-types": (
        mesh(dims="2, 4 ] dim_types: [ LINE, LINE, RING") + TOP_MESH,
        "Device topology dimensions and types must be the same size (Mesh: M0)",
    ),
    "host-rank": (
        mesh(hosts="") + TOP_MESH,
        "Device and host topology dimensions must be the same size (Mesh: M0)",
    ),
    "hosts-do-not-divide": (
        mesh(hosts="host_topology { dims: [ 1, 3 ] }") + TOP_MESH,
        "Device topology dimensions must be divisible by host topology dimensions (Mesh: M0)",
    ),
    "express-out-of-bounds": (
        mesh(more="express_connections { src: 0 dst: 8 }") + TOP_MESH,
        "Express connection destination is out of bounds (Mesh: M0)",
    ),
    "no-instances": (
        mesh() + graph() + TOP_GRAPH,
        "Graph descriptor must have at least one instance (Graph: G0)",
    ),
    "no-type": (
        mesh() + graph(node(), type="") + TOP_GRAPH,
        "Graph descriptor must have a type specified (Graph: G0)",
    ),
    "too-few-nodes": (
        two_meshes(connection(node(0))),
        "Connection must have at least two nodes (Graph: G0)",
    ),
    "pinning-empty": (
        mesh() + TOP_MESH + "pinnings { logical_fabric_node_id { } }",
        "Pinning entry has no physical_asic_position",
    ),
}
NOT_FOR_THE_RUNTIME = {
    "not-two-dimensional": (
        mesh(dims="4", hosts="host_topology { dims: 1 }") + TOP_MESH,
        "There can only be 2 dimensions in the device topology (Mesh: M0)",
    ),
    "express-connections": (
        mesh(more="express_connections { src: 0 dst: 5 }") + TOP_MESH,
        "Express connections are not supported (Mesh: M0)",
    ),
    "several-graphs": (
        two_meshes() + graph(node(), name="G1"),
        "There can only be one FABRIC level graph or less",
    ),
    "not-a-fabric": (
        mesh() + graph(node(), type='type: "POD"') + TOP_GRAPH,
        "There can only be one FABRIC level graph (Graph: G0)",
    ),
    "not-a-pair": (
        mesh() + graph(*map(node, range(3)), more=connection(*map(node, range(3)))) + TOP_GRAPH,
        "Connections must have exactly 2 nodes (Graph: G0)",
    ),
    "mixed-policies": (
        two_meshes(PAIR + connection(node(0), node(1), channels="channels { count: 1 policy: RELAXED }")),
        "Cannot mix STRICT and RELAXED policies in the same graph. All connections in a graph must use the same "
        "policy (Graph: G0)",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_named_in_the_runtimes_words(rule):
    text, message = BROKEN[rule]
    found = errors(check_text(text, runtime=False))
    assert (f"mgd/{rule}", message) in [(finding.rule, finding.message) for finding in found]
    assert all(finding.fix and finding.line and finding.file == "<text>" for finding in found)


@pytest.mark.parametrize("rule", NOT_FOR_THE_RUNTIME)
def test_the_runtime_asks_for_more_than_a_description_needs(rule):
    text, message = NOT_FOR_THE_RUNTIME[rule]
    assert f"mgd/{rule}" in rules(text, runtime=True)
    assert f"MGD 1.0 Compatibility requirement: {message}" in messages(text, runtime=True)


@pytest.mark.parametrize("rule", sorted(set(NOT_FOR_THE_RUNTIME) - {"not-two-dimensional"}))
def test_what_only_the_runtime_refuses_can_be_inspected(rule):
    assert check_text(NOT_FOR_THE_RUNTIME[rule][0], runtime=False).graph is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SWITCH.replace("2, 2", "0, 2"), "Device topology dimensions must be positive (Switch: S0)"),
        (SWITCH.replace('"S0"', '""'), "Switch descriptor 1 has no name"),
        (SWITCH + SWITCH, "Switch descriptor name is not unique (Switch: S0)"),
        (SWITCH.replace("count: 2", "count: -1"), "Channel count must be positive (Switch: S0)"),
        (
            SWITCH.replace("WORMHOLE_B0", "BLACKHOLE"),
            "All switch descriptors must have the same architecture as meshes",
        ),
        (
            SWITCH.replace("channels", "express_connections { src: 4 dst: 9 } channels"),
            "Express connection destination is out of bounds (Switch: S0)",
        ),
    ],
)
def test_switches_are_checked_as_meshes_are(text, message):
    assert messages(mesh() + text + TOP_MESH) == [message]


def test_switches_without_any_mesh_need_an_architecture_too():
    text = SWITCH.replace("  arch: WORMHOLE_B0\n", "")
    top = 'top_level_instance { switch { switch_descriptor: "S0" switch_id: 0 } }'
    assert messages(text + top) == ["Switch descriptor must have a valid architecture (Switch: S0)"]


def test_channels_of_layouts_and_connections_are_counted():
    no_links = "channels { count: 0 }"
    layout = f"graph_topology {{ layout_type: RING {no_links} }}\n"
    assert messages(two_meshes(layout + connection(node(0), node(1), channels=no_links))) == [
        "Graph topology channel count must be positive (Graph: G0)",
        "Connection channel count must be positive (Graph: G0)",
    ]


def test_both_ends_of_an_express_pair_are_checked():
    text = mesh(more="express_connections { src: -1 dst: 8 }") + TOP_MESH
    assert messages(text) == [
        "Express connection source is out of bounds (Mesh: M0)",
        "Express connection destination is out of bounds (Mesh: M0)",
    ]


def test_a_host_dim_of_zero_is_an_error_like_one_that_does_not_divide():
    text = mesh(hosts="host_topology { dims: [ 0, 1 ] }") + TOP_MESH
    assert rules(text) == ["mgd/hosts-do-not-divide"]


def test_every_bad_dim_is_reported():
    assert rules(mesh(dims="0, -3") + TOP_MESH) == ["mgd/bad-dims", "mgd/bad-dims"]


def test_a_later_stage_is_silent_until_the_earlier_ones_are_content():
    text = mesh(dims="0, 4") + mesh(dims="0, 4") + TOP_MESH
    assert rules(text) == ["mgd/duplicate-name"]


def test_different_architectures_end_the_questions_about_them():
    text = mesh(arch="") + mesh("M1", arch="arch: BLACKHOLE") + TOP_MESH
    assert rules(text) == ["mgd/mixed-architectures"]


def test_blackhole_may_describe_three_dims_but_nothing_is_built_of_them():
    hosts = "host_topology { dims: [ 1, 1, 1 ] }"
    text = mesh(dims="2, 2, 2", hosts=hosts, arch="arch: BLACKHOLE") + TOP_MESH
    assert messages(text) == ["MGD currently only supports 2D meshes/switches"]


def test_findings_stand_on_the_line_of_the_field():
    text = mesh() + mesh("M1", hosts="host_topology { dims: [ 1, 3 ] }") + TOP_MESH
    (finding,) = errors(check_text(text))
    assert finding.line == line_of(text, "[ 1, 3 ]")
    assert "1, 2, 4 can" in finding.fix


def test_the_error_begins_with_the_runtimes_report(tmp_path):
    path = tmp_path / "twice.textproto"
    path.write_text(mesh() + mesh())
    with pytest.raises(DescriptorError) as refused:
        load_mesh_graph(path)
    text = str(refused.value)
    assert text.startswith(
        "Failed to validate MeshGraphDescriptor textproto: \n"
        "=== MeshGraphDescriptor Validation Report ===\n"
        "Errors:\n"
        "  - Top level instance is required\n"
    )
    assert f"{path}:1: error: Top level instance is required [mgd/no-top-level-instance]\n    fix: add" in text
    assert [finding.rule for finding in refused.value.findings] == ["mgd/no-top-level-instance"]


def test_levels_of_graphs_have_one_remedy():
    levels = graph(node(), type='type: "POD"') + graph(node(), name="G1", type='type: "CLUSTER"')
    fixes = [one.fix for one in errors(check_text(mesh() + levels + TOP_GRAPH)) if one.rule == "mgd/not-a-fabric"]
    assert len(fixes) == 2
    assert all("softmesh flatten" in fix for fix in fixes)
