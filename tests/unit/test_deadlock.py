"""Routing deadlock: the fabrics there are cannot, and without their safeguards they can, in a circle that is shown."""

from __future__ import annotations

import pytest
from fabrics import meshes, split, whole

from softmesh.fabric.descriptors.default_graphs import default_graph
from softmesh.fabric.graph_selection import effective_graph
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import E, LogicalMesh, MeshGraph, N, Node, S, W
from softmesh.fabric.routing.deadlock import (
    Channel,
    ChannelGraph,
    Cycle,
    Proof,
    channel_dependencies,
    find_cycle,
    prove,
)
from softmesh.fabric.routing.network import Network
from softmesh.hardware import FabricConfig, FabricReliabilityMode, FabricType
from softmesh.systems import named_systems

MESH, TORUS = FabricConfig.FABRIC_2D, FabricConfig.FABRIC_2D_TORUS_XY
RING = FabricConfig.FABRIC_1D_RING
CONFIGURATIONS = [
    FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE,
    FabricConfig.FABRIC_1D,
    FabricConfig.FABRIC_1D_RING,
    FabricConfig.FABRIC_2D,
    FabricConfig.FABRIC_2D_TORUS_X,
    FabricConfig.FABRIC_2D_TORUS_Y,
    FabricConfig.FABRIC_2D_TORUS_XY,
]


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=lambda config: config.name)
@pytest.mark.parametrize("system", ["Galaxy", "BH-Galaxy"])
def test_every_configuration_of_a_galaxy_is_free_of_deadlock(system: str, config: FabricConfig) -> None:
    machine = named_systems.load(system)
    declared = default_graph(machine.cluster_type, FabricType.TORUS_XY)
    assert declared is not None
    graph = effective_graph(declared, config, machine.cluster_type)
    assert isinstance(Network(match(graph, machine), config).deadlock(), Proof)


@pytest.mark.parametrize("config", CONFIGURATIONS[:4], ids=lambda config: config.name)
@pytest.mark.parametrize("system", ["N300", "T3000", "P150x4", "P150x8"])
def test_every_configuration_of_a_small_system_is_free_of_deadlock(system: str, config: FabricConfig) -> None:
    machine = named_systems.load(system)
    declared = default_graph(machine.cluster_type)
    assert declared is not None
    graph = effective_graph(declared, config, machine.cluster_type)
    assert isinstance(Network(match(graph, machine), config).deadlock(), Proof)


def all_to_all(system: str, hosts: int, shape: tuple[int, int], channels: int, count: int) -> Match:
    """Every host's chips as a mesh, every mesh connected with every other."""
    machine = named_systems.load(system)
    grids = tuple(LogicalMesh(i, f"M{i}", shape, channels=channels, strict=True) for i in range(hosts))
    pairs = [(a, b) for a in range(hosts) for b in range(a + 1, hosts)]
    wanted = tuple(meshes(a, b, count) for a, b in pairs)
    return match(MeshGraph("all to all", machine.chip.arch, grids, wanted), machine)


def test_the_exabox_is_free_of_deadlock_because_of_its_virtual_channels() -> None:
    network = Network(all_to_all("Exabox", 5, (8, 4), channels=4, count=4), MESH)
    assert isinstance(network.deadlock(), Proof)
    assert isinstance(prove(network, virtual_channels=False), Cycle)


def test_a_pod_of_the_closetbox_is_free_of_deadlock_because_of_its_virtual_channels() -> None:
    network = Network(all_to_all("Closetbox", 4, (2, 4), channels=2, count=2), MESH)
    assert isinstance(network.deadlock(), Proof)
    assert isinstance(prove(network, virtual_channels=False), Cycle)


def test_a_split_galaxy_is_free_of_deadlock() -> None:
    machine = named_systems.load("Galaxy")
    grids = tuple(LogicalMesh(i, f"M{i}", (4, 4), channels=4) for i in (0, 1))
    graph = MeshGraph("split", machine.chip.arch, grids, (meshes(0, 1, 16),))
    assert isinstance(Network(match(graph, machine), MESH).deadlock(), Proof)


def test_a_ring_without_the_bubble_rule_shows_its_circle_with_chips_links_and_channels() -> None:
    network = Network(whole("torus:1x4"), RING)
    found = prove(network, bubble=False)
    assert isinstance(found, Cycle)
    assert str(found).splitlines() == [
        "routing deadlock: packets on 4 channels can wait for each other in a circle",
        "  M0D0 -E-> M0D1       VC0  chip 0 ch 12 <-> chip 1 ch 0  waits for",
        "  M0D1 -E-> M0D2       VC0  chip 1 ch 12 <-> chip 2 ch 0  waits for",
        "  M0D2 -E-> M0D3       VC0  chip 2 ch 12 <-> chip 3 ch 0  waits for",
        "  M0D3 -E-> M0D0       VC0  chip 0 ch 0 <-> chip 3 ch 12  waits for",
        "  M0D0 -E-> M0D1       VC0  chip 0 ch 12 <-> chip 1 ch 0, where the circle closes",
    ]
    assert str(network.deadlock()) == (
        "free of routing deadlock: 4 waits among 8 channels, no circle; 1 ring kept moving by the bubble rule"
    )


def test_a_ring_of_three_needs_no_bubble_for_nobody_goes_two_hops() -> None:
    assert isinstance(prove(Network(whole("torus:3x3"), TORUS), bubble=False), Proof)


ENDS = [(0, 0, 1, 4), (1, 0, 1, 4)]


def two_lines_joined_at_their_ends() -> Match:
    machine = named_systems.load("mesh:2x4")
    inner = [link for column in (1, 2) for link in machine.links_between(column, column + 4)]
    return split(machine.without(links=inner), ENDS, [meshes(0, 1, 8)])


def test_merging_the_virtual_channels_of_two_meshes_closes_a_circle_through_both() -> None:
    network = Network(two_lines_joined_at_their_ends(), MESH)
    assert isinstance(network.deadlock(), Proof)
    found = prove(network, virtual_channels=False)
    assert isinstance(found, Cycle)
    assert [channel.node for channel in found.channels] in (
        [Node(0, 0), Node(0, 1), Node(0, 2), Node(0, 3), Node(1, 3), Node(1, 2), Node(1, 1), Node(1, 0)],
        [Node(0, 0), Node(1, 0), Node(1, 1), Node(1, 2), Node(1, 3), Node(0, 3), Node(0, 2), Node(0, 1)],
    )
    assert {channel.virtual_channel for channel in found.channels} == {0}
    assert all(link in network.match.machine.links for link in found.links)
    targets = [channel.node for channel in found.channels[1:] + found.channels[:1]]
    assert list(found.targets) == targets


def test_packets_that_pass_through_a_ring_of_meshes_can_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TT_METAL_ENABLE_FABRIC_MESH_PASS_THROUGH", "1")
    around = [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0)]
    blocks = [(row, column, 1, 1) for row, column in around]
    wanted = [meshes(i, (i + 1) % 8, 4) for i in range(8)]
    found = Network(split("mesh:3x3", blocks, wanted), MESH).deadlock()
    assert isinstance(found, Cycle)
    assert {channel.virtual_channel for channel in found.channels} == {1}
    assert len(found) == 8


def test_a_circle_that_enters_a_protected_ring_and_leaves_it_again_is_shown_channel_by_channel() -> None:
    ring = tuple(Channel(Node(0, chip), E, 0) for chip in range(4))
    outside = Channel(Node(0, 2), S, 0)
    waits = {ring[i]: {ring[(i + 1) % 4]} for i in range(4)}
    protected = ChannelGraph(frozenset(ring), waits, (ring,))
    assert find_cycle(protected) is None
    waits[ring[1]].add(outside)
    assert find_cycle(ChannelGraph(frozenset((*ring, outside)), waits, (ring,))) is None
    waits[outside] = {ring[3]}
    found = find_cycle(ChannelGraph(frozenset((*ring, outside)), waits, (ring,)))
    assert found is not None
    assert set(found) == {ring[3], ring[0], ring[1], outside}


def test_waits_follow_the_turns_that_rows_first_allows() -> None:
    graph = channel_dependencies(Network(whole("mesh:4x4"), MESH))
    turns = {
        (held.direction, wanted.direction)
        for held, channels in graph.waits.items()
        for wanted in channels
        if held.direction is not wanted.direction
    }
    assert turns == {(N, E), (N, W), (S, E), (S, W)}
    assert {(E, N), (W, S)}.isdisjoint(turns)


def test_a_thousand_chips_are_proven_free() -> None:
    found = Network(whole("torus:32x32"), TORUS).deadlock()
    assert isinstance(found, Proof)
    assert (found.channels, found.rings) == (4096, 128)


def test_a_torus_with_a_gap_stays_free_and_its_broken_rings_need_no_bubble() -> None:
    machine = named_systems.load("torus:4x4")
    machine = machine.without(links=machine.links_between(0, 1))
    found = Network(whole(machine), TORUS, FabricReliabilityMode.RELAXED_INIT).deadlock()
    whole_torus = Network(whole("torus:4x4"), TORUS).deadlock()
    assert isinstance(found, Proof)
    assert isinstance(whole_torus, Proof)
    assert found.rings == whole_torus.rings - 1
