"""Tables and routes: which way a packet goes inside a mesh and from one mesh to another."""

from __future__ import annotations

import numpy as np
import pytest
from fabrics import D, meshes, split, whole

from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import E, LogicalMesh, N, Node, S, W
from softmesh.fabric.routing.exits import Exit, nearest_exits
from softmesh.fabric.routing.network import Network
from softmesh.fabric.routing.tables import direction_table
from softmesh.hardware import FabricConfig, FabricReliabilityMode, RoutingDirection
from softmesh.systems import named_systems

LINE, RING = FabricConfig.FABRIC_1D, FabricConfig.FABRIC_1D_RING
MESH, TORUS = FabricConfig.FABRIC_2D, FabricConfig.FABRIC_2D_TORUS_XY
RELAXED = FabricReliabilityMode.RELAXED_INIT

# -- inside a mesh ---------------------------------------------------------------------------------


def test_a_2d_packet_goes_to_its_row_first_and_then_along_it() -> None:
    network = Network(whole("mesh:4x4"), MESH)
    assert network.route(D[0], D[10]).directions == (S, S, E, E)
    assert network.route(D[15], D[4]).directions == (N, N, W, W, W)


def test_a_torus_is_crossed_the_shorter_way_and_ties_go_north_and_east() -> None:
    network = Network(whole("torus:4x4"), TORUS)
    assert network.route(D[0], D[12]).directions == (N,)
    assert network.route(D[0], D[3]).directions == (W,)
    assert network.route(D[0], D[10]).directions == (N, N, E, E)


def test_wrap_links_that_the_mesh_graph_leaves_out_are_not_used() -> None:
    network = Network(whole("torus:4x4", rings=(False, False)), MESH)
    assert network.route(D[0], D[3]).directions == (E, E, E)


def test_a_1d_ring_uses_its_wrap_and_a_line_does_not() -> None:
    assert Network(whole("torus:4x4"), RING).route(D[4], D[7]).directions == (W,)
    line = Network(whole("torus:4x4", rings=(False, False)), LINE)
    assert line.route(D[4], D[7]).directions == (E, E, E)


def test_1d_reaches_a_row_and_a_column_and_says_so_about_anything_else() -> None:
    network = Network(whole("mesh:2x4"), LINE)
    assert network.route(D[0], D[4]).directions == (S,)
    assert network.next_direction(D[3], D[4]) is None
    assert network.forwarding_links(D[3], D[4]) == []
    with pytest.raises(MeshError) as refusal:
        network.route(D[3], D[4])
    text = str(refusal.value)
    assert text.startswith("Could not find any forwarding direction from src (M0, D3) to dst (M0, D4)")
    assert "Routing coordinates MeshCoordinate([0, 3]) and MeshCoordinate([1, 0]) invalid for 1D fabric" in text


def test_neighbour_exchange_reaches_neighbours_only_also_over_a_wrap() -> None:
    network = Network(whole("torus:4x4"), FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE)
    assert {chip for chip in range(16) if network.next_direction(D[0], D[chip])} == {0, 1, 3, 4, 12}
    with pytest.raises(MeshError, match="joins neighbours only"):
        network.route(D[0], D[2])


def test_the_table_holds_a_byte_for_each_pair_and_c_on_its_diagonal() -> None:
    table = direction_table(LogicalMesh(0, "M0", (8, 4)), MESH)
    assert table.dtype == np.int8
    assert table.shape == (32, 32)
    assert (np.diagonal(table) == RoutingDirection.C.value).all()
    assert (table[0, 1:4] == E.value).all()


def test_a_route_names_the_links_it_crosses() -> None:
    route = Network(whole("mesh:2x4"), MESH).route(D[0], D[5], plane=2)
    assert len(route) == 2
    assert str(route) == ("M0D0 -> M0D5: S over chip 0 ch 10 <-> chip 4 ch 6, E over chip 4 ch 14 <-> chip 5 ch 2")
    assert route.nodes == (D[0], D[4], D[5])
    assert [(hop.chip, hop.next_chip, hop.plane, hop.virtual_channel) for hop in route] == [
        (0, 4, 2, 0),
        (4, 5, 2, 0),
    ]


def test_a_chip_is_already_where_it_is() -> None:
    network = Network(whole("mesh:2x4"), MESH)
    assert str(network.route(D[1], D[1])) == "M0D1 -> M0D1: already there"
    assert network.next_direction(D[1], D[1]) is RoutingDirection.C
    assert network.forwarding_links(D[1], D[1]) == []
    assert network.eth_direction(D[1], D[1]) is None


def test_routers_number_the_directions_their_own_way() -> None:
    network = Network(whole("mesh:3x3"), MESH)
    assert [network.eth_direction(D[4], D[goal]) for goal in (5, 3, 1, 7)] == [0, 1, 2, 3]


def test_unknown_chips_and_planes_are_refused_with_what_there_is() -> None:
    network = Network(whole("mesh:2x4"), MESH)
    with pytest.raises(MeshError, match="M0D8 is not in mesh:2x4: it has M0 with D0 to D7"):
        network.route(D[0], D[8])
    with pytest.raises(MeshError, match="Take plane 0 to 3"):
        network.route(D[0], D[1], plane=4)
    with pytest.raises(MeshError, match="Plane -1"):
        network.route(D[0], D[1], plane=-1)


def test_more_chips_than_silicon_holds_work_with_a_warning() -> None:
    network = Network(whole("torus:32x32"), TORUS)
    assert len(network.route(D[0], Node(0, 16 * 32 + 16))) == 32
    assert [text for text in network.warnings if "1024 chips" in text]
    assert any("axis of 64 chips" in text for text in Network(whole("mesh:2x64"), MESH).warnings)
    assert Network(whole("torus:1x100"), RING).warnings == (), "the furthest chip is 50 hops away"
    assert any("routes of 127 hops" in text for text in Network(whole("line:128"), LINE).warnings)


def test_the_packet_header_follows_the_longest_route() -> None:
    assert Network(whole("mesh:2x4"), LINE).packet_header_bytes == 48
    assert Network(whole("line:32"), LINE).packet_header_bytes == 64
    assert Network(whole("mesh:8x4"), MESH).packet_header_bytes == 96
    assert Network(whole("mesh:32x16"), MESH).packet_header_bytes == 112
    assert Network(whole("mesh:8x4"), MESH).max_payload_bytes() == 4352


def test_configurations_that_route_nothing_are_refused() -> None:
    with pytest.raises(MeshError, match="DISABLED routes nothing"):
        Network(whole("mesh:2x4"), FabricConfig.DISABLED)
    with pytest.raises(MeshError, match="DYNAMIC_RECONFIG is unsupported"):
        Network(whole("mesh:2x4"), MESH, FabricReliabilityMode.DYNAMIC_RECONFIG)


# -- links that are gone ---------------------------------------------------------------------------


def test_routes_over_a_pair_without_links_are_unreachable_and_the_others_stay() -> None:
    machine = named_systems.load("mesh:2x4")
    machine = machine.without(links=machine.links_between(1, 2))
    network = Network(whole(machine), MESH, RELAXED)
    assert network.next_direction(D[0], D[3]) is None
    assert network.route(D[0], D[7]).directions == (S, E, E, E)
    assert network.next_direction(D[4], D[2]) is None, "north first, then east over the gap"
    with pytest.raises(MeshError, match=r"goes E from M0D1 to M0D2, and no link joins them \(down: chip 1 ch 12"):
        network.route(D[0], D[3])
    assert any("M0D1 and M0D2" in text and "no link left" in text for text in network.warnings)


def test_a_wrapped_axis_with_a_gap_is_not_taken_the_other_way_round() -> None:
    machine = named_systems.load("torus:1x6")
    machine = machine.without(links=machine.links_between(0, 1))
    network = Network(whole(machine), RING, RELAXED)
    assert network.next_direction(D[0], D[2]) is None
    assert network.next_direction(D[1], D[0]) is None
    assert network.route(D[0], D[4]).directions == (W, W)


# -- between meshes --------------------------------------------------------------------------------

HALVES = [(0, 0, 4, 4), (4, 0, 4, 4)]


def test_a_packet_leaves_through_the_nearest_exit_and_changes_its_virtual_channel_behind_it() -> None:
    network = Network(split("mesh:8x4", HALVES, [meshes(0, 1, 16)]), MESH)
    route = network.route(Node(0, 1), Node(1, 6))
    assert [hop.target for hop in route] == [
        Node(0, 5),
        Node(0, 9),
        Node(0, 13),
        Node(1, 1),
        Node(1, 5),
        Node(1, 6),
    ]
    assert [hop.virtual_channel for hop in route] == [0, 0, 0, 0, 1, 1]
    assert network.forwarding_links(Node(0, 1), Node(1, 6)) == [0, 1, 2, 3]


def test_an_exit_chip_uses_its_own_links() -> None:
    network = Network(split("mesh:8x4", HALVES, [meshes(0, 1, 16)]), MESH)
    assert network.route(Node(0, 15), Node(1, 0)).nodes[1] == Node(1, 3)


def test_between_equally_near_exits_the_second_replaces_the_first_once() -> None:
    mesh = LogicalMesh(0, "M0", (3, 3))
    exits = [Exit(D[chip], RoutingDirection.Z, Node(1, chip), ()) for chip in (1, 3, 5, 7)]
    chosen = [exits[index].node.chip for index in nearest_exits(mesh, exits)]
    assert chosen == [
        *(3, 1, 5),  # corners lie between two exits: the second of them
        *(3, 3, 5),  # the centre lies between four: still the second; exits take themselves
        *(7, 7, 7),
    ]


def test_an_exit_chip_with_links_to_two_next_meshes_takes_the_first() -> None:
    exits = [Exit(D[0], RoutingDirection.Z, Node(next, 0), ()) for next in (1, 2)]
    assert nearest_exits(LogicalMesh(0, "M0", (1, 2)), exits).tolist() == [0, 1]


def test_planes_that_an_exit_lacks_do_not_lead_across() -> None:
    network = Network(split("mesh:8x4", HALVES, [meshes(0, 1, 2)]), MESH)
    assert network.forwarding_links(Node(0, 0), Node(1, 0)) == [0, 1]
    with pytest.raises(MeshError, match="Plane 2 does not lead from M0D0 to M1D0: M0D12 has 2 links"):
        network.route(Node(0, 0), Node(1, 0), plane=2)


THIRDS = [(0, 0, 2, 2), (2, 0, 2, 2), (4, 0, 2, 2)]


def test_only_neighbouring_meshes_talk_unless_passing_through_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    match = split("mesh:6x2", THIRDS, [meshes(0, 1, 8), meshes(1, 2, 8)])
    network = Network(match, MESH)
    assert network.next_direction(Node(0, 0), Node(2, 0)) is None
    with pytest.raises(MeshError, match=r"only neighbouring meshes talk.*PASS_THROUGH"):
        network.route(Node(0, 0), Node(2, 0))
    monkeypatch.setenv("TT_METAL_ENABLE_FABRIC_MESH_PASS_THROUGH", "1")
    route = Network(match, MESH).route(Node(0, 0), Node(2, 2))
    assert [hop.virtual_channel for hop in route] == [0, 0, 1, 1, 1]
    assert [node.mesh for node in route.nodes] == [0, 0, 1, 1, 2, 2]
    apart = Network(split("mesh:6x2", THIRDS, [meshes(0, 1, 8)]), MESH)
    with pytest.raises(MeshError, match=r"no chain of connections in split\.textproto leads from M0 to M2"):
        apart.route(Node(0, 0), Node(2, 0))


def test_1d_stays_inside_a_mesh_and_warns_about_connections() -> None:
    network = Network(split("mesh:8x4", HALVES, [meshes(0, 1, 16)]), LINE)
    assert network.crossings == []
    assert any("M0 <-> M1" in text and "FABRIC_2D" in text for text in network.warnings)
    with pytest.raises(MeshError, match="FABRIC_1D stays inside a mesh"):
        network.route(Node(0, 12), Node(1, 0))
