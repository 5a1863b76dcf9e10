"""Routing planes: how many there are, which links are in them, and what a missing link does to them."""

from __future__ import annotations

import dataclasses

import pytest
from fabrics import D, whole

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.default_graphs import default_graph
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import Match
from softmesh.fabric.routing.network import Network
from softmesh.hardware import FabricConfig, FabricReliabilityMode, FabricType
from softmesh.systems import named_systems
from softmesh.systems.chip import BLACKHOLE
from softmesh.systems.machine import Asic, Link, Machine, Port

LINE, MESH = FabricConfig.FABRIC_1D, FabricConfig.FABRIC_2D
RELAXED = FabricReliabilityMode.RELAXED_INIT


def without(machine: Machine, *pairs: tuple[int, int]) -> Machine:
    """The machine with the first link of each of these pairs down."""
    return machine.without(links=[machine.links_between(a, b)[0] for a, b in pairs])


def test_a_healthy_mesh_has_a_plane_for_each_link_and_no_warning() -> None:
    network = Network(whole("mesh:4x4"), MESH)
    assert network.planes == {0: (4, 4)}
    assert network.warnings == ()
    assert network.forwarding_links(D[0], D[15]) == [0, 1, 2, 3]


def test_strict_names_the_missing_link_the_chips_and_the_remedy() -> None:
    machine = named_systems.load("mesh:2x4")
    broken = machine.links_between(1, 2)[1]
    with pytest.raises(MeshError) as refusal:
        Network(whole(machine.without(links=[broken])), MESH)
    text = str(refusal.value)
    assert text.startswith("Expected 4 eth links from physical chip 1 to physical chip 2")
    assert "M0D1 and M0D2" in text
    assert f"down: {broken}" in text
    assert "RELAXED_INIT" in text
    assert "count: 3" in text


def test_strict_speaks_of_connections_where_a_pair_has_none_left() -> None:
    machine = named_systems.load("mesh:2x4")
    with pytest.raises(MeshError, match="Expected connections to exist for M0D1 to D2"):
        Network(whole(machine.without(links=machine.links_between(1, 2))), MESH)


def test_strict_counts_the_other_pairs_that_are_short() -> None:
    with pytest.raises(MeshError, match="2 more pairs are short"):
        Network(whole(without(named_systems.load("mesh:2x4"), (0, 1), (1, 2), (4, 5))), MESH)


def test_every_single_link_of_a_torus_is_missed_in_strict_mode_and_survived_in_relaxed_mode() -> None:
    machine = named_systems.load("torus:3x4")
    for link in machine.links:
        found = whole(machine.without(links=[link]))
        with pytest.raises(MeshError) as refusal:
            Network(found, FabricConfig.FABRIC_2D_TORUS_XY)
        assert str(link) in str(refusal.value)
        network = Network(found, FabricConfig.FABRIC_2D_TORUS_XY, RELAXED)
        assert network.planes == {0: (3, 3)}
        assert str(link) in network.warnings[0]
        assert all(link not in network.route(D[0], D[goal], 2).links for goal in range(12))


def test_in_2d_one_narrow_pair_narrows_the_whole_mesh() -> None:
    network = Network(whole(without(named_systems.load("mesh:4x4"), (0, 1))), MESH, RELAXED)
    assert network.planes == {0: (3, 3)}
    (warning,) = network.warnings
    assert warning.startswith("M0 runs on 3 of 4 routing planes: M0D0 and M0D1")
    assert "23 links of other pairs stay unused" in warning


def test_in_1d_rows_and_columns_have_planes_of_their_own() -> None:
    network = Network(whole(without(named_systems.load("mesh:4x4"), (0, 1))), LINE, RELAXED)
    assert network.planes == {0: (4, 3)}
    assert network.forwarding_links(D[0], D[12]) == [0, 1, 2, 3]
    assert network.forwarding_links(D[12], D[15]) == [0, 1, 2]
    assert "11 links of other pairs stay unused" in network.warnings[0]


def test_a_pair_without_links_does_not_take_the_planes_of_the_others() -> None:
    machine = named_systems.load("mesh:4x4")
    machine = machine.without(links=machine.links_between(0, 1))
    assert Network(whole(machine), MESH, RELAXED).planes == {0: (4, 4)}


def test_an_axis_of_one_chip_has_no_planes_in_1d() -> None:
    assert Network(whole("line:4"), LINE).planes == {0: (0, 4)}


def test_the_number_of_planes_can_be_asked_for_within_what_there_is() -> None:
    assert Network(whole("mesh:2x4"), MESH, num_planes=2).planes == {0: (2, 2)}
    assert Network(whole("mesh:2x4"), MESH, num_planes=2).warnings == ()
    assert Network(whole("mesh:2x4"), MESH, num_planes=9).planes == {0: (4, 4)}
    with pytest.raises(MeshError, match="num_planes is 0"):
        Network(whole("mesh:2x4"), MESH, num_planes=0)


def test_a_descriptor_that_asks_for_fewer_links_gets_fewer_planes() -> None:
    assert Network(whole("mesh:2x4", channels=1), MESH).planes == {0: (1, 1)}


def test_a_blackhole_chip_has_two_planes() -> None:
    machine = dataclasses.replace(named_systems.load("mesh:2x4"), chip=BLACKHOLE)
    assert Network(whole(machine), MESH).planes == {0: (2, 2)}


def test_links_are_numbered_by_channel_on_the_chip_with_the_larger_unique_id() -> None:
    crossed = [Link(Port(0, 0), Port(1, 9)), Link(Port(0, 1), Port(1, 8))]
    by_second = _pair(crossed, unique_ids=(5, 6))
    assert by_second.route(D[0], D[1], 0).links == (crossed[1],)
    assert by_second.route(D[1], D[0], 0).links == (crossed[1],)
    assert _pair(crossed, unique_ids=(6, 5)).route(D[0], D[1], 0).links == (crossed[0],)


def _pair(links: list[Link], unique_ids: tuple[int, int]) -> Network:
    machine = named_systems.load("line:2")
    asics: dict[int, Asic] = {
        chip: dataclasses.replace(machine.asics[chip], unique_id=unique_ids[chip]) for chip in (0, 1)
    }
    made: Match = whole(dataclasses.replace(machine, asics=asics, links=tuple(links)), channels=2)
    return Network(made, MESH)


def test_a_galaxy_without_any_one_of_its_links_is_refused_by_name_or_runs_on_three_planes() -> None:
    galaxy = named_systems.load("Galaxy")
    config = FabricConfig.FABRIC_2D_TORUS_XY
    graph = default_graph(galaxy.cluster_type, FabricType.TORUS_XY)
    assert graph is not None
    for link in galaxy.links[::5]:
        found = match(graph, galaxy.without(links=[link]))
        with pytest.raises(MeshError) as refusal:
            Network(found, config)
        assert str(link) in str(refusal.value)
        network = Network(found, config, RELAXED)
        assert network.planes == {0: (3, 3)}
        assert any(str(link) in text for text in network.warnings)
        ends = [found.nodes[port.chip] for port in link]
        assert link not in {network.route(*ends, plane).links[0] for plane in range(3)}
