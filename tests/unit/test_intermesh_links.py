"""Links between meshes: which cables are taken, on which ports, and what happens when they do not suffice."""

from __future__ import annotations

import pytest
from fabrics import chips, meshes, split

from softmesh.errors import MeshError
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import E, LogicalMesh, N, Node, S, W
from softmesh.fabric.routing.intermesh_links import Crossing, Z, assign_ports, edge_port, intermesh_text
from softmesh.systems import named_systems

HALVES = [(0, 0, 4, 4), (4, 0, 4, 4)]
SIDES = [(0, 0, 2, 2), (0, 2, 2, 2)]


def crossings(match: Match) -> list[Crossing]:
    found, warnings = assign_ports(match)
    assert warnings == []
    return found


def pairs(found: list[Crossing]) -> list[tuple[int, int, int]]:
    return [(crossing.one.chip, crossing.other.chip, len(crossing.links)) for crossing in found]


def directions(found: list[Crossing]) -> list[str]:
    return [crossing.one_direction.name + crossing.other_direction.name for crossing in found]


def test_a_boundary_gets_as_many_links_as_it_asks_for_from_its_first_chips_on() -> None:
    assert pairs(crossings(split("mesh:8x4", HALVES, [meshes(0, 1, 16)]))) == [
        (12, 0, 4),
        (13, 1, 4),
        (14, 2, 4),
        (15, 3, 4),
    ]
    assert pairs(crossings(split("mesh:8x4", HALVES, [meshes(0, 1, 6)]))) == [(12, 0, 4), (13, 1, 2)]


def test_ports_are_tried_in_the_order_n_e_s_w() -> None:
    assert directions(crossings(split("mesh:8x4", HALVES, [meshes(0, 1, 16)]))) == ["SN", "SN", "SN", "EN"]
    assert directions(crossings(split("mesh:2x4", SIDES, [meshes(0, 1, 8)]))) == ["NN", "ES"]


def test_a_marked_boundary_uses_z_ports_only() -> None:
    match = split("mesh:8x4", HALVES, [meshes(0, 1, 16, z=True)])
    assert directions(crossings(match)) == ["ZZ"] * 4


def test_a_boundary_without_edges_overflows_to_z() -> None:
    match = split("mesh:8x4", HALVES, [meshes(0, 1, 16)], rings=(True, True))
    assert directions(crossings(match)) == ["ZZ"] * 4


def test_a_chip_has_one_z_lane_so_that_two_marked_boundaries_cannot_share_it() -> None:
    thirds = [(0, 0, 1, 1), (0, 1, 1, 1), (0, 2, 1, 1)]
    both = [meshes(0, 1, 4, z=True), meshes(1, 2, 4, z=True)]
    with pytest.raises(MeshError, match="M1D0 and M2D0 have no free Z port"):
        assign_ports(split("mesh:1x3", thirds, both))
    one = [meshes(0, 1, 4, z=True), meshes(1, 2, 4)]
    assert directions(crossings(split("mesh:1x3", thirds, one))) == ["ZZ", "NN"]


BESIDE = [(1, 0, 1, 4), (0, 0, 1, 4), (2, 0, 1, 4)]  # M0 is the middle row


def test_the_second_boundary_of_a_chip_takes_the_next_direction() -> None:
    found = crossings(split("mesh:3x4", BESIDE, [meshes(0, 1, 16), meshes(0, 2, 16)]))
    assert [crossing.other.mesh for crossing in found] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert [crossing.one_direction for crossing in found] == [N, N, N, N, S, S, S, E]


def test_strict_graphs_fill_one_boundary_after_the_other() -> None:
    wanted = [meshes(0, 1, 16, z=True), meshes(0, 2, 16, z=True)]
    with pytest.raises(MeshError, match="Requested 16 channels between M0 and M2, but only 0 were resolved"):
        assign_ports(split("mesh:3x4", BESIDE, wanted))


def test_relaxed_graphs_fill_their_boundaries_in_turn() -> None:
    wanted = [meshes(0, other, 16, strict=False, z=True) for other in (1, 2)]
    found, warnings = assign_ports(split("mesh:3x4", BESIDE, wanted))
    assert [(c.one.chip, c.other.mesh) for c in found] == [(0, 1), (2, 1), (1, 2), (3, 2)]
    assert len(warnings) == 2


def test_fewer_links_than_asked_for_is_an_error_in_strict_and_a_warning_in_relaxed_mode() -> None:
    with pytest.raises(MeshError) as refusal:
        assign_ports(split("mesh:8x4", HALVES, [meshes(0, 1, 20)]))
    text = str(refusal.value)
    assert text.startswith("Requested 20 channels between M0 and M1, but only 16 were resolved")
    assert "split.textproto:7" in text
    found, warnings = assign_ports(split("mesh:8x4", HALVES, [meshes(0, 1, 20, strict=False)]))
    assert sum(len(crossing.links) for crossing in found) == 16
    assert warnings[0].startswith("Requested 20 channels between M0 and M1, but only 16")


def test_links_that_are_down_are_named() -> None:
    machine = named_systems.load("mesh:8x4")
    broken = machine.links_between(12, 16)[0]
    with pytest.raises(MeshError, match=f"down: {broken}"):
        assign_ports(split(machine.without(links=[broken]), HALVES, [meshes(0, 1, 16)]))


def test_a_boundary_without_any_link_is_an_error_even_in_relaxed_mode() -> None:
    apart = [(0, 0, 2, 4), (4, 0, 4, 4)]
    with pytest.raises(MeshError, match="but only 0 were resolved"):
        assign_ports(split("mesh:8x4", apart, [meshes(0, 1, 4, strict=False)]))


def test_connections_between_chips_take_exactly_their_links() -> None:
    wanted = [chips(Node(0, 12), Node(1, 0), 2), chips(Node(1, 3), Node(0, 15), 4)]
    assert pairs(crossings(split("mesh:8x4", HALVES, wanted))) == [(12, 0, 2), (15, 3, 4)]


def test_connections_of_the_same_chips_add_up() -> None:
    wanted = [chips(Node(0, 12), Node(1, 0), 2), chips(Node(0, 12), Node(1, 0), 2)]
    assert pairs(crossings(split("mesh:8x4", HALVES, wanted))) == [(12, 0, 4)]


def test_chips_without_enough_cables_are_named() -> None:
    with pytest.raises(MeshError) as refusal:
        assign_ports(split("mesh:8x4", HALVES, [chips(Node(0, 12), Node(1, 0), 5)]))
    assert (
        "Requested 5 channels between M0 and M1 on src FabricNodeId (M0, D12), but only have 4 physical channels"
        in str(refusal.value)
    )


def test_connections_between_chips_that_exceed_the_ports_fail_validation() -> None:
    match = split("mesh:8x4", HALVES, [chips(Node(0, 12), Node(1, 0), 4)], channels=2)
    with pytest.raises(MeshError) as refusal:
        assign_ports(match)
    text = str(refusal.value)
    assert text.startswith("Inter-mesh routing validation failed (strict): ")
    assert "Found 2 intermesh connections, but 4 were requested" in text


def test_both_kinds_of_connection_in_one_graph_are_refused() -> None:
    wanted = [meshes(0, 1, 4), chips(Node(0, 12), Node(1, 0), 2)]
    with pytest.raises(MeshError, match="either RelaxedGraph or Graph connections, not both"):
        assign_ports(split("mesh:8x4", HALVES, wanted))


def test_a_chip_reaches_one_chip_of_a_neighbouring_mesh() -> None:
    # M1 surrounds the corner M0 from two sides: M0D0 has cables to M1D0 and to M1D1.
    machine = named_systems.load("mesh:2x2")
    match = split(machine, [(0, 0, 1, 1), (0, 1, 1, 1)], [meshes(0, 1, 8)])
    bent = LogicalMesh(1, "M1", (1, 2), channels=4)
    graph = match.graph.__class__("bent", match.graph.arch, (match.graph.meshes[0], bent), match.graph.connections)
    around = Match(graph, machine, {Node(0, 0): 0, Node(1, 0): 1, Node(1, 1): 2})
    with pytest.raises(MeshError, match="one src to multiple dst chips on the same neighbor mesh is not supported"):
        assign_ports(around)


def test_edge_ports_count_along_their_edge_and_a_wrapped_axis_has_none() -> None:
    mesh = LogicalMesh(0, "M0", (3, 4))
    assert [edge_port(mesh, chip, N, 1, each=2) for chip in (0, 1, 3, 4)] == [1, 3, 7, None]
    assert [edge_port(mesh, chip, E, 0, each=2) for chip in (3, 7, 11, 0)] == [0, 2, 4, None]
    assert [edge_port(mesh, chip, W, 0, each=2) for chip in (0, 4, 8)] == [0, 2, 4]
    assert edge_port(mesh, 9, S, 0, each=2) == 2
    assert edge_port(mesh, 5, Z, 1, each=2) == 11
    wrapped = LogicalMesh(0, "M0", (3, 4), rings=(False, True))
    assert edge_port(wrapped, 3, E, 0, each=2) is None
    assert edge_port(wrapped, 3, N, 0, each=2) == 6


def test_the_port_file_names_both_ends_of_each_link() -> None:
    match = split("mesh:2x4", SIDES, [meshes(0, 1, 5)])
    text = intermesh_text(match, crossings(match))
    assert text["M0->M1"] == [
        *("D1ch12(N)>M1D0ch0", "D1ch13(N)>M1D0ch1", "D1ch14(N)>M1D0ch2", "D1ch15(N)>M1D0ch3"),
        "D3ch12(E)>M1D2ch0",
    ]
    assert text["M1->M0"][-1] == "D2ch0(S)>M0D3ch12"
