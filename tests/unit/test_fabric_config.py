"""set_fabric_config and what may be asked of a fabric: order, refusals, and answers."""

from __future__ import annotations

import pytest

import softmesh as ttnn
from softmesh import FabricConfig, FabricReliabilityMode, MeshShape
from softmesh.fabric import settings

pytestmark = pytest.mark.usefixtures("idle_machine")


def test_no_fabric_is_configured_at_first():
    assert ttnn.get_fabric_config() is FabricConfig.DISABLED


def test_a_fabric_is_what_was_set_until_it_is_disabled():
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    assert ttnn.get_fabric_config() is FabricConfig.FABRIC_2D
    ttnn.set_fabric_config(FabricConfig.DISABLED)
    assert ttnn.get_fabric_config() is FabricConfig.DISABLED


def test_the_same_fabric_may_be_set_twice():
    for _ in range(2):
        ttnn.set_fabric_config(FabricConfig.FABRIC_1D)


def test_another_fabric_is_refused_until_the_first_is_disabled():
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    said = "Tried to override previous value of fabric config: FabricConfig::FABRIC_1D, with: FabricConfig::FABRIC_2D"
    with pytest.raises(RuntimeError, match=said):
        ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    assert ttnn.get_fabric_config() is FabricConfig.FABRIC_1D


def test_a_fabric_is_refused_while_a_mesh_is_open():
    mesh = ttnn.open_mesh_device(MeshShape(1, 2))
    with pytest.raises(RuntimeError, match=r"SetFabricConfig\(FABRIC_1D\) is not allowed while devices are still open"):
        ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    ttnn.set_fabric_config(FabricConfig.DISABLED)
    ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)


@pytest.mark.parametrize(
    "arguments",
    [
        ("FABRIC_1D",),
        (1,),
        (FabricConfig.FABRIC_1D, "relaxed"),
        (FabricConfig.FABRIC_1D, FabricReliabilityMode.STRICT_INIT, 1.5),
        (FabricConfig.FABRIC_1D, FabricReliabilityMode.STRICT_INIT, 0),
    ],
)
def test_wrong_arguments_are_type_errors_and_change_nothing(arguments):
    with pytest.raises(TypeError, match="set_fabric_config"):
        ttnn.set_fabric_config(*arguments)
    assert ttnn.get_fabric_config() is FabricConfig.DISABLED


def test_a_misspelt_argument_is_answered_with_the_right_name():
    with pytest.raises(TypeError, match="Did you mean 'reliability_mode'"):
        ttnn.set_fabric_config(FabricConfig.FABRIC_1D, reliabilty_mode=FabricReliabilityMode.STRICT_INIT)


def test_dynamic_reconfiguration_is_refused_as_ttmetal_does():
    with pytest.raises(RuntimeError, match="DYNAMIC_RECONFIG is a placeholder"):
        ttnn.set_fabric_config(FabricConfig.FABRIC_1D, FabricReliabilityMode.DYNAMIC_RECONFIG)


def test_a_second_call_never_lowers_the_number_of_planes():
    def planes_after(*numbers):
        ttnn.set_fabric_config(FabricConfig.DISABLED)
        for number in numbers:
            ttnn.set_fabric_config(FabricConfig.FABRIC_1D, num_planes=number)
        return settings.active().num_planes

    assert planes_after(2, 1) == 2
    assert planes_after(1, 2) == 2
    assert planes_after(None, 1) is None
    assert planes_after(2, None) is None


def test_packet_sizes_follow_the_fabric_and_the_router():
    with pytest.raises(RuntimeError, match="un-initialized fabric context"):
        ttnn.get_tt_fabric_max_payload_size_bytes()
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    assert ttnn.get_tt_fabric_max_payload_size_bytes() == 4352
    assert ttnn.get_tt_fabric_packet_header_size_bytes() == 48
    ttnn.set_fabric_config(FabricConfig.DISABLED)
    router = ttnn.FabricRouterConfig()
    router.max_packet_payload_size_bytes = 7616
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D, router_config=router)
    assert ttnn.get_tt_fabric_max_payload_size_bytes() == 7616
    assert ttnn.get_tt_fabric_packet_header_size_bytes() == 96


@pytest.mark.parametrize("size", [0, -1, 1 << 20])
def test_no_mesh_opens_under_packets_that_the_chips_cannot_carry(size):
    router = ttnn.FabricRouterConfig()
    router.max_packet_payload_size_bytes = size
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D, router_config=router)
    with pytest.raises(RuntimeError, match=f"max_packet_payload_size_bytes is {size}: this chip's packets carry 1 to"):
        ttnn.open_mesh_device(ttnn.MeshShape(1, 2))


def test_the_mesh_graph_can_be_asked_before_anything_is_open():
    ttnn.use_system("T3000")
    assert ttnn.get_physical_mesh_shapes() == {0: [2, 4]}
    assert ttnn.get_all_fabric_mesh_ids() == [ttnn.MeshId(0)]
    assert ttnn.get_all_mgd_fabric_types() == [ttnn.FabricType.MESH]


def test_a_galaxy_declares_the_torus_that_a_ring_fabric_asks_for():
    ttnn.use_system("Galaxy")
    assert ttnn.get_all_mgd_fabric_types() == [ttnn.FabricType.MESH]
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D_RING)
    assert ttnn.get_all_mgd_fabric_types() == [ttnn.FabricType.TORUS_XY]


def node(chip: int, mesh: int = 0) -> ttnn.FabricNodeId:
    return ttnn.FabricNodeId(ttnn.MeshId(mesh), chip)


def test_forwarding_is_told_by_direction_and_by_link():
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    east, west, north, south = range(4)
    assert ttnn.get_eth_forwarding_direction(node(0), node(1)) == east
    assert ttnn.get_eth_forwarding_direction(node(1), node(0)) == west
    assert ttnn.get_eth_forwarding_direction(node(0), node(7)) == south, "rows come first"
    assert ttnn.get_eth_forwarding_direction(node(7), node(0)) == north
    assert ttnn.get_forwarding_link_indices(node(0), node(7)) == [0, 1]


@pytest.mark.parametrize(("system", "columns", "chips"), [("T3000", 4, 8), ("Galaxy", 4, 32)])
def test_the_tables_of_a_one_dimensional_fabric_turn_too(system: str, columns: int, chips: int):
    ttnn.use_system(system)
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    links = [0, 1] if system == "T3000" else [0, 1, 2, 3]
    for source in range(chips):
        for goal in set(range(chips)) - {source}:
            (row, column), (goal_row, goal_column) = divmod(source, columns), divmod(goal, columns)
            along = int(goal_column < column)
            expected = along if row == goal_row else 2 if goal_row < row else 3
            assert ttnn.get_eth_forwarding_direction(node(source), node(goal)) == expected
    assert ttnn.get_forwarding_link_indices(node(0), node(5)) == links


def test_a_ring_goes_the_shorter_way_and_north_where_both_are_as_long():
    ttnn.use_system("Galaxy")
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D_RING)
    goals = {3: 1, 16: 2, 17: 2, 12: 3, 28: 2, 2: 0}
    assert {goal: ttnn.get_eth_forwarding_direction(node(0), node(goal)) for goal in goals} == goals


def test_a_route_names_the_links_it_crosses():
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(MeshShape(2, 4))
    first, last = (mesh.get_fabric_node_id(ttnn.MeshCoordinate(*at)) for at in ((0, 0), (1, 3)))
    route = ttnn.fabric.route(first, last)
    assert [hop.direction.name for hop in route] == ["S", "E", "E", "E"]
    assert [hop.chip for hop in route] == [4, 5, 1, 3]
    assert route == ttnn.fabric.route(4, 7), "a device id says the same"
    assert "chip 4 ch 6 <-> chip 5 ch 6" in str(route)


def test_a_route_needs_a_machine_and_a_fabric():
    with pytest.raises(RuntimeError, match="SOFTMESH_SYSTEM=T3000"):
        ttnn.fabric.route(0, 1)
    ttnn.use_system("T3000")
    with pytest.raises(RuntimeError, match="un-initialized fabric context"):
        ttnn.fabric.route(0, 1)
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    with pytest.raises(RuntimeError, match="Device 9 does not exist on T3000: its devices are 0-7"):
        ttnn.fabric.route(0, 9)
    with pytest.raises(RuntimeError, match="M1D0 is not in the mesh graph"):
        ttnn.fabric.route(node(0), node(0, mesh=1))
    with pytest.raises(TypeError, match=r"dst must be a ttnn\.FabricNodeId"):
        ttnn.fabric.route(0, "1")
