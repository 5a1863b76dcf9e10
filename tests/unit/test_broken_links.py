"""Any single link taken out of a Galaxy: strict refuses by its name, relaxed goes on without it."""

from __future__ import annotations

import pytest

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.default_graphs import default_graph
from softmesh.fabric.graph_selection import effective_graph
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.routing.network import Network
from softmesh.hardware import ClusterType, FabricConfig, FabricReliabilityMode, FabricType
from softmesh.systems.machine import Link, Machine
from softmesh.systems.named_systems import load

GALAXY = load("Galaxy")
STRICT, RELAXED = FabricReliabilityMode.STRICT_INIT, FabricReliabilityMode.RELAXED_INIT


def network_on(machine: Machine, config: FabricConfig, reliability: FabricReliabilityMode) -> Network:
    torus = default_graph(ClusterType.GALAXY, FabricType.TORUS_XY)
    assert torus is not None
    found = match(effective_graph(torus, config, ClusterType.GALAXY), machine)
    return Network(found, config, reliability)


def links_in_use(network: Network) -> set[Link]:
    graph = network.graph.mesh(0)
    pairs = [
        (a, b) for a in network.graph.nodes for b in network.graph.nodes if a.chip in graph.neighbours(b.chip).values()
    ]
    return {
        hop.link for a, b in pairs for plane in network.forwarding_links(a, b) for hop in network.route(a, b, plane)
    }


@pytest.mark.parametrize("tenth", range(10))
def test_a_torus_without_any_one_of_its_links_is_refused_by_strict_and_narrowed_by_relaxed(tenth):
    for link in GALAXY.links[tenth::10]:
        broken = GALAXY.without(links=[link])
        with pytest.raises(MeshError, match="Expected 4 eth links from physical chip") as refusal:
            network_on(broken, FabricConfig.FABRIC_2D_TORUS_XY, STRICT)
        assert str(link) in str(refusal.value)
        network = network_on(broken, FabricConfig.FABRIC_2D_TORUS_XY, RELAXED)
        assert tuple(network.planes[0]) == (3, 3)
        assert any(str(link) in warning for warning in network.warnings)
        assert network.deadlock().is_free


@pytest.mark.parametrize("link", GALAXY.links[::37], ids=str)
def test_routes_never_cross_the_broken_link(link):
    network = network_on(GALAXY.without(links=[link]), FabricConfig.FABRIC_2D_TORUS_XY, RELAXED)
    used = links_in_use(network)
    assert used
    assert link not in used
    assert used <= set(network.match.machine.links)


def test_a_one_dimensional_fabric_narrows_only_the_axis_of_the_broken_link():
    along_a_row = next(link for link in GALAXY.links if {link.a.chip, link.b.chip} == {0, 16})
    network = network_on(GALAXY.without(links=[along_a_row]), FabricConfig.FABRIC_1D_RING, RELAXED)
    assert tuple(network.planes[0]) == (4, 3)


def test_a_broken_wrap_is_no_matter_to_a_fabric_that_does_not_use_it():
    wrap = next(link for link in GALAXY.links if {link.a.chip, link.b.chip} == {0, 3})
    network = network_on(GALAXY.without(links=[wrap]), FabricConfig.FABRIC_2D, STRICT)
    assert tuple(network.planes[0]) == (4, 4)
    with pytest.raises(MeshError, match="Expected 4 eth links"):
        network_on(GALAXY.without(links=[wrap]), FabricConfig.FABRIC_2D_TORUS_X, STRICT)


def test_a_chip_that_is_down_leaves_no_galaxy_but_a_smaller_mesh():
    broken = GALAXY.without(chips=[2])
    with pytest.raises(MeshError, match="target graph is larger with 32 nodes, but global graph only has 31"):
        network_on(broken, FabricConfig.FABRIC_2D, RELAXED)
