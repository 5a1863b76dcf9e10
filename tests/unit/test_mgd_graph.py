"""The flat graph of meshes that a descriptor means."""

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
    node,
    rules,
    two_meshes,
)

from softmesh.fabric.descriptors.loader import check_text, load_mesh_graph
from softmesh.fabric.mesh_graph import Connection, MeshGraph, Node, Side
from softmesh.hardware import Arch

RUNTIME = [path.stem for path in sorted(FIXTURES.glob("*.textproto")) if path.stem not in ("closetbox", "express")]


def fixture(name: str, runtime: bool = True) -> MeshGraph:
    return load_mesh_graph(FIXTURES / f"{name}.textproto", runtime)


def built(text: str, runtime: bool = True) -> MeshGraph:
    checked = check_text(text, runtime)
    assert checked.graph is not None, checked.findings
    return checked.graph


def pairs(found: MeshGraph) -> list[tuple[str, int, bool]]:
    return [(str(connection), connection.count, connection.strict) for connection in found.connections]


@pytest.mark.parametrize("name", RUNTIME)
def test_ids_count_from_zero(name):
    found = fixture(name)
    assert [mesh.id for mesh in found.meshes] == list(range(len(found.meshes)))


def test_a_t3000_is_one_strict_mesh():
    found = fixture("t3k")
    (whole,) = found.meshes
    assert (found.arch, whole.shape, whole.channels, whole.strict) == (Arch.WORMHOLE_B0, (2, 4), 2, True)
    assert (whole.name, whole.hosts, whole.rings, whole.line) == ("T3K", (1, 1), (False, False), 10)


def test_policies_left_out_are_relaxed_inside_meshes_and_strict_between_them():
    found = fixture("t3k_two_meshes")
    assert [mesh.strict for mesh in found.meshes] == [False, False]
    assert pairs(found) == [("M0 <-> M1", 2, True)]


def test_a_switch_is_a_mesh_of_one_host_and_strict_by_default():
    compute, forward = fixture("t3k_switch").meshes
    assert (compute.is_switch, forward.is_switch) == (False, True)
    assert (forward.hosts, forward.strict) == ((1, 1), True)


def test_dim_types_left_out_are_lines():
    (ring,) = fixture("t3k_ring").meshes
    assert ring.rings == (False, True)
    assert built(mesh(dims="4, 4 ] dim_types: [ RING") + f"top_level_instance {{ {node()} }}").meshes[0].rings == (
        True,
        False,
    )


def test_named_chips_accumulate_links():
    assert pairs(fixture("t3k_named_chips")) == [("M0D1 <-> M1D0", 2, True), ("M0D3 <-> M1D2", 2, True)]
    twice = connection(node(0, device=1), node(1, device=0))
    assert len(built(two_meshes(twice + twice)).connections) == 2


def test_the_last_request_between_two_meshes_replaces_the_others_with_a_warning():
    more = connection(node(0), node(1)) + connection(node(1), node(0), channels="channels { count: 4 }")
    text = two_meshes(more)
    assert pairs(built(text)) == [("M1 <-> M0", 4, True)]
    (finding,) = check_text(text).findings
    assert (finding.rule, finding.severity.value) == ("mgd/pair-twice", "warning")
    assert finding.line == line_of(text, "count: 4")


def test_a_pair_in_both_layout_and_connections_is_a_warning_at_the_connection():
    layout = "graph_topology { layout_type: RING channels { count: 3 } }\n"
    text = two_meshes(connection(node(0), node(1)) + layout)
    assert pairs(built(text)) == [("M1 <-> M0", 3, True)]
    (finding,) = [finding for finding in check_text(text).findings if finding.rule == "mgd/pair-twice"]
    assert finding.line == line_of(text, "connections")


def test_the_first_connection_of_a_fabric_decides_the_policy_of_all():
    layout = "graph_topology { layout_type: RING channels { count: 1 policy: STRICT } }\n"
    relaxed = connection(node(0), node(1), channels="channels { count: 1 policy: RELAXED }")
    text = mesh() + graph(node(0), node(1), node(2), more=relaxed + layout) + TOP_GRAPH
    assert {connection.strict for connection in built(text).connections} == {False}


def test_an_exabox_joins_every_galaxy_with_every_other():
    found = fixture("exabox")
    assert (len(found.meshes), found.size, len(found.connections)) == (5, 160, 10)
    assert {(connection.count, connection.strict) for connection in found.connections} == {(4, True)}


def test_a_closetbox_is_numbered_through_its_pods():
    found = fixture("closetbox", runtime=False)
    assert (len(found.meshes), found.size) == (16, 128)
    assert [mesh.id for mesh in found.meshes] == list(range(16))
    inside = [c for c in found.connections if len(c.a.meshes) == 1]
    between = [c for c in found.connections if len(c.a.meshes) == 4]
    assert (len(inside), len(between)) == (24, 6)
    assert str(inside[6]) == "M4 <-> M5"
    assert between[0] == Connection(Side((0, 1, 2, 3)), Side((4, 5, 6, 7)), 2, strict=True, line=between[0].line)


def test_ids_that_are_dense_over_all_pods_are_kept():
    text = (
        mesh()
        + graph(node(2), node(3), name="P", type='type: "POD"')
        + graph(node(1), node(0), name="Q", type='type: "POD"')
        + graph(graph_ref(0, "P"), graph_ref(1, "Q"), type='type: "CLUSTER"')
        + TOP_GRAPH
    )
    lines = [mesh.line for mesh in built(text, runtime=False).meshes]
    assert lines == [line_of(text, node(id)) for id in range(4)]


def test_z_ports_are_reserved_where_asked_for():
    found = fixture("pinned_pipeline")
    assert [(str(connection), connection.z) for connection in found.connections] == [
        ("M0 <-> M1", True),
        ("M1 <-> M2", True),
        ("M2 <-> M3", True),
        ("M3 <-> M0", True),
    ]


def test_hosts_own_blocks():
    (shared,) = fixture("t3k_two_hosts").meshes
    assert [shared.host_rank(chip) for chip in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_ids_with_gaps_are_refused_by_the_runtime_and_renumbered_for_inspection():
    text = mesh() + graph(node(1), node(7)) + TOP_GRAPH
    (finding,) = errors(check_text(text))
    assert (finding.rule, finding.message) == (
        "mgd/mesh-ids-not-dense",
        "Mesh ids must be exactly 0..1, got 1, 7",
    )
    assert finding.line == line_of(text, "mesh_id: 7")
    assert [mesh.id for mesh in built(text, runtime=False).meshes] == [0, 1]
    assert rules(text, runtime=False) == ["mgd/mesh-ids-not-dense"]


@pytest.mark.parametrize(("dims", "fits"), [("3, 5", False), ("1, 3", False), ("1, 1", True), ("2, 3", True)])
def test_wormhole_takes_two_odd_dims_only_as_a_single_chip(dims, fits):
    text = mesh(dims=dims) + f"top_level_instance {{ {node()} }}"
    odd = "MeshGraph: For WORMHOLE_B0 architecture, if both mesh dimensions are odd, they must both be 1, got "
    found = [finding.message for finding in errors(check_text(text))]
    assert found == ([] if fits else [odd + dims.replace(", ", "x")])
    assert built(text.replace("WORMHOLE_B0", "BLACKHOLE")).size


def test_a_mesh_is_not_joined_with_itself():
    for ends in ([node(0), node(0)], [node(0, device=1), node(0, device=2)]):
        assert rules(two_meshes(connection(*ends))) == ["mgd/self-connection"]


def test_connections_of_chips_and_of_meshes_do_not_mix_at_run_time():
    both = connection(node(0), node(1)) + connection(node(0, device=1), node(1, device=0))
    assert rules(two_meshes(both), runtime=True) == ["mgd/mixed-connections"]
    assert rules(two_meshes(both), runtime=False) == []


def test_what_is_likely_a_slip_is_said_without_refusing():
    unused = two_meshes() + mesh("Spare")
    assert rules(unused) == ["mgd/unused-descriptor"]
    lonely = "graph_topology { layout_type: RING channels { count: 1 } }\n"
    assert rules(mesh() + graph(node(), more=lonely) + TOP_GRAPH) == ["mgd/lonely-layout"]
    short = mesh(dims="2, 4 ] dim_types: [ RING, RING") + f"top_level_instance {{ {node()} }}"
    assert rules(short) == ["mgd/short-ring"]
    assert all(check_text(text, runtime=False).graph for text in (unused, short))


def test_a_field_the_format_does_not_have_is_skipped_with_a_warning():
    text = two_meshes().replace("channels", "chanels { count: 4 }\n  channels")
    (finding,) = check_text(text).findings
    assert (finding.rule, finding.line) == ("mgd/unknown-field", line_of(text, "chanels"))
    assert "Did you mean 'channels'?" in finding.fix
    assert built(text).meshes[0].channels == 2


def test_a_mesh_may_stand_at_the_top():
    assert fixture("t3k").nodes[-1] == Node(0, 7)
