"""Instances and connection records, and what ends their making."""

from __future__ import annotations

import pytest
from descriptors import (
    FIXTURES,
    TOP_GRAPH,
    connection,
    errors,
    graph,
    graph_ref,
    line_of,
    mesh,
    messages,
    node,
    rules,
    two_meshes,
)

from softmesh.fabric.descriptors.instances import Kind, Population, fabric_type_of
from softmesh.fabric.descriptors.loader import check, check_text
from softmesh.fabric.descriptors.population import MOST_CHIPS
from softmesh.hardware import FabricType, RoutingDirection

POD = 'type: "POD"'
CLUSTER = 'type: "CLUSTER"'
SWITCH = (
    'switch_descriptors { name: "S0" arch: WORMHOLE_B0 device_topology { dims: [ 2, 2 ] } channels { count: 2 } }\n'
)


def population(text: str) -> Population:
    checked = check_text(text, runtime=False)
    assert checked.instances is not None, checked.findings
    return checked.instances


def fixture(name: str) -> Population:
    found = check(FIXTURES / f"{name}.textproto", runtime=False).instances
    assert found is not None
    return found


BROKEN = {
    "unknown-descriptor": (
        mesh() + graph(node(0), node(1, "MO")) + TOP_GRAPH,
        "Mesh descriptor MO not found in instance",
    ),
    "empty-reference": (
        mesh() + graph(node(0), "") + TOP_GRAPH,
        "Invalid NodeRef: neither mesh, switch, nor graph set",
    ),
    "repeated-type": (
        mesh() + graph(graph_ref(0)) + TOP_GRAPH,
        "Graph descriptor type FABRIC already exists in hierarchy",
    ),
    "mixed-child-types": (
        mesh()
        + graph(node(), name="P", type=POD)
        + graph(node(), name="R", type='type: "RACK"')
        + graph(graph_ref(0, "P"), graph_ref(1, "R"), type=CLUSTER)
        + TOP_GRAPH,
        "Graph instance type RACK does not match graph descriptor child type POD",
    ),
    "duplicate-id": (
        mesh() + graph(node(0), node(0)) + TOP_GRAPH,
        "Graph instance id 0 already exists in this graph",
    ),
    "unknown-id": (
        two_meshes(connection(node(0), node(2))),
        "Mesh instance id 2 not found in parent instance",
    ),
    "wrong-descriptor": (
        mesh() + mesh("M1") + graph(node(0), node(1, "M1"), more=connection(node(0), node(1))) + TOP_GRAPH,
        "Mesh descriptor M0 does not match referenced instance M1",
    ),
    "unknown-device": (
        two_meshes(connection(node(0, device=8), node(1, device=0))),
        "Device id 8 not found in mesh instance",
    ),
    "mixed-levels": (
        two_meshes(connection(node(0), node(1, device=0))),
        "Graph descriptor G0 connections must reference instances within same type or compatible types (MESH/SWITCH)",
    ),
    "directional": (
        two_meshes(connection(node(0), node(1), more="directional: true")),
        "Graph descriptor 'G0' declares a directional inter-mesh connection (M0#0 -> M0#1). Directional "
        "inter-mesh connections are not fully supported",
    ),
    "no-layout": (
        two_meshes("graph_topology { channels { count: 1 } }\n"),
        "Invalid graph topology type: 0",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_the_first_thing_that_cannot_be_built_ends_it(rule):
    text, message = BROKEN[rule]
    checked = check_text(text, runtime=False)
    (finding,) = errors(checked)
    assert (finding.rule, finding.message) == (f"mgd/{rule}", message)
    assert finding.fix
    assert finding.line is not None
    assert checked.headline == message


def test_an_unknown_name_is_answered_with_the_nearest_one_on_its_line():
    text = BROKEN["unknown-descriptor"][0]
    (finding,) = errors(check_text(text))
    assert finding.line == line_of(text, '"MO"')
    assert "Did you mean 'M0'?" in finding.fix


def test_a_graph_within_itself_by_way_of_another_is_found():
    text = mesh() + graph(graph_ref(0, "G1"), type=POD) + graph(graph_ref(0, "G0"), name="G1", type=CLUSTER) + TOP_GRAPH
    assert messages(text) == ["Graph descriptor type POD already exists in hierarchy"]


def test_graphs_that_multiply_their_contents_are_cut_short():
    levels = [
        graph(*(graph_ref(i, f"L{level + 1}") for i in range(10)), name=f"L{level}", type=f'type: "T{level}"')
        for level in range(9)
    ]
    bottom = graph(node(), name="L9", type='type: "T9"')
    text = mesh() + "".join(levels) + bottom + f"top_level_instance {{ {graph_ref(0, 'L0')} }}"
    assert rules(text) == ["mgd/too-large"]


def test_a_tower_of_graphs_is_cut_short():
    tower = [graph(graph_ref(0, f"L{i + 1}"), name=f"L{i}", type=f'type: "T{i}"') for i in range(2000)]
    text = mesh() + "".join(tower) + f"top_level_instance {{ {graph_ref(0, 'L0')} }}"
    assert rules(text) == ["mgd/too-deep"]


@pytest.mark.parametrize("dims", ["2147483647, 2147483647", f"{MOST_CHIPS + 2}, 1"])
def test_huge_meshes_are_refused_before_they_are_built(dims):
    assert rules(mesh(dims=dims) + f"top_level_instance {{ {node()} }}") == ["mgd/too-large"]


def test_a_layout_of_very_many_children_is_refused():
    text = (
        mesh(dims="1, 1")
        + graph(*map(node, range(400)), more="graph_topology { layout_type: ALL_TO_ALL channels { count: 1 } }\n")
        + TOP_GRAPH
    )
    assert rules(text) == ["mgd/too-many-connections"]


def test_rings_of_two_and_express_pairs_are_counted_both_ways():
    found = fixture("express")
    chips = found.of_kind(Kind.DEVICE)
    assert len(found.mesh_records) == 24
    from_first = found.records_from(chips[0])
    assert [(str(record.nodes[1].name), record.direction) for record in from_first] == [
        ("D3", RoutingDirection.N),
        ("D1", RoutingDirection.E),
        ("D3", RoutingDirection.S),
        ("D5", RoutingDirection.C),
    ]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 8), (2, 4), (8, 4)])
def test_a_mesh_of_lines_has_two_records_for_each_pair_of_neighbours(rows, columns):
    found = population(mesh(dims=f"{rows}, {columns}") + f"top_level_instance {{ {node()} }}")
    assert len(found.mesh_records) == 2 * (rows * (columns - 1) + columns * (rows - 1))


@pytest.mark.parametrize(
    ("layout", "children", "records"),
    [("ALL_TO_ALL", 5, 20), ("RING", 5, 10), ("RING", 2, 4), ("ALL_TO_ALL", 2, 2), ("RING", 1, 0)],
)
def test_layouts_make_their_records(layout, children, records):
    topology = f"graph_topology {{ layout_type: {layout} channels {{ count: 1 }} }}\n"
    text = mesh() + graph(*map(node, range(children)), more=topology) + TOP_GRAPH
    assert len(population(text).records) == records


def test_a_connection_of_three_nodes_is_seen_from_each_of_them():
    text = mesh() + graph(*map(node, range(3)), more=connection(*map(node, range(3)))) + TOP_GRAPH
    found = population(text)
    ids = [[instance.local_id for instance in record.nodes] for record in found.records]
    assert ids == [[0, 1, 2], [1, 0, 2], [2, 0, 1]]


def test_layouts_and_written_connections_add_up():
    layout = "graph_topology { layout_type: RING channels { count: 1 } }\n"
    assert len(population(two_meshes(connection(node(0), node(1)) + layout)).records) == 6


def test_a_reference_can_walk_into_a_graph():
    inside = f"sub_ref {{ {node(1, device=3)} }}"
    other = f"sub_ref {{ {node(0, device=0)} }}"
    text = (
        mesh()
        + graph(node(0), node(1), name="P", type=POD)
        + graph(
            graph_ref(0, "P"),
            graph_ref(1, "P"),
            type=CLUSTER,
            more=connection(graph_ref(0, "P", inside), graph_ref(1, "P", other)),
        )
        + TOP_GRAPH
    )
    (record, _) = population(text).records
    assert [(end.name, end.parent.local_id, end.parent.parent.local_id) for end in record.nodes] == [
        ("D3", 1, 0),
        ("D0", 0, 1),
    ]


def test_a_closetbox_is_counted_level_by_level():
    found = fixture("closetbox")
    assert found.counts() == {"CLUSTER": 1, "POD": 4, "MESH": 16, "DEVICE": 128}
    assert (len(found.records_under_type("POD")), len(found.records_under_type("CLUSTER"))) == (48, 12)
    assert found.mesh_names() == ["LoudBox"]
    assert [pod.local_id for pod in found.named("Pod")] == [0, 1, 2, 3]
    assert found.root.chip_count == 128
    assert len(found.records_under(found.of_type("POD")[0])) == 12


def test_instances_are_numbered_depth_first_and_know_their_ancestors():
    found = fixture("closetbox")
    assert [instance.id for instance in found.instances] == list(range(1 + 4 + 16 + 128))
    last = found.instances[-1]
    assert [ancestor.name for ancestor in last.path] == ["Closetbox", "Pod", "LoudBox"]


def test_meshes_and_switches_are_of_one_level():
    found = fixture("t3k_switch")
    assert [[end.type for end in record.nodes] for record in found.records] == [
        ["MESH", "SWITCH"],
        ["SWITCH", "MESH"],
    ]


def test_meshes_and_switches_share_their_ids():
    switch = 'switch { switch_descriptor: "S0" switch_id: 0 }'
    assert rules(mesh() + SWITCH + graph(node(0), switch) + TOP_GRAPH) == ["mgd/duplicate-id"]


def test_templates_tell_the_fabric_they_declare():
    found = fixture("express")
    assert fabric_type_of(found.root.template) is FabricType.TORUS_Y
