"""Routes on random grids: legal, as short as the rule demands, with one turn at most, on one plane."""

from __future__ import annotations

from graphlib import TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from softmesh.errors import MeshError
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import Connection, E, LogicalMesh, MeshGraph, N, Node, S, Side, W
from softmesh.fabric.routing.deadlock import Channel, ChannelGraph, Cycle, Proof, channel_dependencies, prove
from softmesh.fabric.routing.network import Network
from softmesh.fabric.routing.packets import CompressedRoute, unicast_2d
from softmesh.fabric.routing.route import Route
from softmesh.fabric.routing.tables import direction_table
from softmesh.hardware import FabricConfig, FabricReliabilityMode, RoutingDirection
from softmesh.systems import named_systems
from softmesh.systems.machine import Machine

LAWS = settings(max_examples=40, deadline=None)
RELAXED = FabricReliabilityMode.RELAXED_INIT
ONE_AXIS = (FabricConfig.FABRIC_1D, FabricConfig.FABRIC_1D_RING)
TWO_AXES = (FabricConfig.FABRIC_2D, FabricConfig.FABRIC_2D_TORUS_XY)

extents = st.integers(1, 7)
grids = st.tuples(extents, extents)
flags = st.tuples(st.booleans(), st.booleans())


def network_on(machine: Machine, rings: tuple[bool, bool], config: FabricConfig) -> Network:
    assert machine.grid is not None
    mesh = LogicalMesh(0, "M0", machine.grid, rings, channels=4)
    graph = MeshGraph(machine.name, machine.chip.arch, (mesh,))
    return Network(Match(graph, machine, {node: node.chip for node in graph.nodes}), config, RELAXED)


def torus(shape: tuple[int, int]) -> Machine:
    return named_systems.load(f"torus:{shape[0]}x{shape[1]}")


def assert_legal(network: Network, route: Route, plane: int) -> None:
    """Each hop crosses a link of the machine between the two chips it names, all on the plane asked for."""
    links = set(network.match.machine.links)
    assert route.nodes[0] == route.src
    assert route.nodes[-1] == route.dst
    for hop in route:
        assert hop.link in links
        assert {hop.link.a.chip, hop.link.b.chip} == {hop.chip, hop.next_chip}
        assert network.match.chips[hop.source] == hop.chip
        assert network.match.chips[hop.target] == hop.next_chip
        assert hop.plane == plane
    for one, next in pairwise(route):
        assert one.target == next.source


def distance(mesh: LogicalMesh, a: int, b: int) -> int:
    hops = 0
    for axis, (x, y) in enumerate(zip(mesh.coordinate(a), mesh.coordinate(b), strict=True)):
        straight = abs(x - y)
        hops += min(straight, mesh.shape[axis] - straight) if mesh.wraps(axis) else straight
    return hops


def chips_of(data: st.DataObject, shape: tuple[int, int]) -> tuple[Node, Node]:
    chip = st.integers(0, shape[0] * shape[1] - 1)
    return Node(0, data.draw(chip)), Node(0, data.draw(chip))


@LAWS
@given(grids, flags, st.sampled_from(TWO_AXES), st.integers(0, 3), st.data())
def test_2d_routes_are_legal_shortest_and_go_to_their_row_first(
    shape: tuple[int, int], rings: tuple[bool, bool], config: FabricConfig, plane: int, data: st.DataObject
) -> None:
    network = network_on(torus(shape), rings, config)
    src, dst = chips_of(data, shape)
    route = network.route(src, dst, plane)
    assert_legal(network, route, plane)
    assert len(route) == distance(network.graph.mesh(0), src.chip, dst.chip)
    vertical = [way for way in route.directions if way in (N, S)]
    horizontal = [way for way in route.directions if way in (E, W)]
    assert route.directions == (*vertical, *horizontal)
    assert len(set(vertical)) <= 1
    assert len(set(horizontal)) <= 1
    assert network.next_direction(src, dst) is (route.directions or (RoutingDirection.C,))[0]


@LAWS
@given(grids, flags, st.sampled_from(ONE_AXIS), st.data())
def test_1d_routes_never_turn_and_exist_along_rows_and_columns_only(
    shape: tuple[int, int], rings: tuple[bool, bool], config: FabricConfig, data: st.DataObject
) -> None:
    network = network_on(torus(shape), rings, config)
    src, dst = chips_of(data, shape)
    mesh = network.graph.mesh(0)
    on_a_line = any(x == y for x, y in zip(mesh.coordinate(src.chip), mesh.coordinate(dst.chip), strict=True))
    assert (network.next_direction(src, dst) is not None) == on_a_line
    if on_a_line:
        route = network.route(src, dst)
        assert_legal(network, route, 0)
        assert len(set(route.directions)) <= 1
        assert len(route) == distance(mesh, src.chip, dst.chip)


@LAWS
@given(grids, flags, st.sampled_from((*ONE_AXIS, *TWO_AXES)), st.data())
def test_with_links_out_routes_use_what_is_left_or_say_that_there_is_none(
    shape: tuple[int, int], rings: tuple[bool, bool], config: FabricConfig, data: st.DataObject
) -> None:
    machine = torus(shape)
    lost = data.draw(st.sets(st.sampled_from(machine.links), max_size=12)) if machine.links else set()
    pairs = data.draw(st.lists(st.sampled_from(machine.links), max_size=3)) if machine.links else []
    for link in pairs:
        lost |= set(machine.links_between(link.a.chip, link.b.chip))
    network = network_on(machine.without(links=lost), rings, config)
    src, dst = chips_of(data, shape)
    planes = network.forwarding_links(src, dst)
    for plane in planes:
        route = network.route(src, dst, plane)
        assert_legal(network, route, plane)
        assert lost.isdisjoint(route.links)
    if network.next_direction(src, dst) is None:
        assert planes == []
        with pytest.raises(MeshError, match="Could not find any forwarding direction"):
            network.route(src, dst)
    elif src != dst:
        assert planes


@LAWS
@given(grids, flags, st.sampled_from((*ONE_AXIS, *TWO_AXES)))
def test_no_route_on_any_grid_can_deadlock(
    shape: tuple[int, int], rings: tuple[bool, bool], config: FabricConfig
) -> None:
    assert isinstance(network_on(torus(shape), rings, config).deadlock(), Proof)


@LAWS
@given(grids, flags, st.data())
def test_the_table_leads_to_the_goal_from_everywhere(
    shape: tuple[int, int], rings: tuple[bool, bool], data: st.DataObject
) -> None:
    mesh = LogicalMesh(0, "M0", shape, rings)
    table = direction_table(mesh, FabricConfig.FABRIC_2D)
    src, dst = chips_of(data, shape)
    chip = src.chip
    for _ in range(distance(mesh, src.chip, dst.chip)):
        chip = mesh.neighbours(chip)[RoutingDirection(int(table[chip, dst.chip]))]
    assert chip == dst.chip


@LAWS
@given(grids, st.data())
def test_encoded_routes_can_be_read_back(shape: tuple[int, int], data: st.DataObject) -> None:
    src, dst = chips_of(data, shape)
    route = network_on(torus(shape), (True, True), FabricConfig.FABRIC_2D_TORUS_XY).route(src, dst)
    compressed = CompressedRoute.from_bits(CompressedRoute.of(route.directions).bits)
    assert tuple(compressed.directions) == route.directions
    if len(route):
        assert len(unicast_2d(route.directions)) == len(route)


def cut_in_two(shape: tuple[int, int], row: int, rings: tuple[bool, bool]) -> Network:
    """A torus cut between rows: two meshes, joined along the cut and around the back."""
    machine = torus(shape)
    heights = (row, shape[0] - row)
    halves = tuple(LogicalMesh(i, f"M{i}", (heights[i], shape[1]), rings, channels=4) for i in (0, 1))
    joined = Connection(Side((0,)), Side((1,)), count=100, strict=False)
    graph = MeshGraph("two halves", machine.chip.arch, halves, (joined,))
    chips = {node: node.chip + node.mesh * row * shape[1] for node in graph.nodes}
    return Network(Match(graph, machine, chips), FabricConfig.FABRIC_2D_TORUS_XY, RELAXED)


@LAWS
@given(st.integers(2, 6), st.integers(1, 5), flags, st.data())
def test_the_waits_between_channels_are_those_of_all_routes(
    rows: int, columns: int, rings: tuple[bool, bool], data: st.DataObject
) -> None:
    row = data.draw(st.integers(1, rows - 1))
    # The cut takes the wrap of the columns away from the halves.
    network = cut_in_two((rows, columns), row, (False, rings[1]))
    waits = set()
    for src in network.graph.nodes:
        for dst in network.graph.nodes:
            route = network.route(src, dst)
            assert_legal(network, route, 0)
            channels = [Channel(hop.source, hop.direction, hop.virtual_channel) for hop in route]
            waits |= set(pairwise(channels))
    graph = channel_dependencies(network)
    assert waits == {(held, wanted) for held, channels in graph.waits.items() for wanted in channels}
    assert isinstance(network.deadlock(), Proof)


@LAWS
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.booleans(), st.booleans())
@example(3, 3, 4, True, True)  # a circle through both halves
@example(1, 2, 5, True, False)  # a ring that nothing protects
def test_a_circle_that_is_shown_is_one_and_more_than_a_protected_ring(
    above: int, below: int, columns: int, wraps: bool, bubble: bool
) -> None:
    network = cut_in_two((above + below, columns), above, (False, wraps))
    merged = channel_dependencies(network, virtual_channels=False, bubble=bubble)
    found = prove(network, virtual_channels=False, bubble=bubble)
    if isinstance(found, Cycle):
        assert len(set(found.channels)) == len(found)
        for held, wanted in pairwise((*found.channels, found.channels[0])):
            assert wanted in merged.waits[held]
        assert not any(set(found.channels) <= set(ring) for ring in merged.rings)
    else:
        order = TopologicalSorter(_without_rings(merged))
        order.prepare()  # raises CycleError where there is a circle


def _without_rings(graph: ChannelGraph) -> dict[Channel, set[Channel]]:
    """Each protected ring as one channel."""
    name = {channel: ring[0] for ring in graph.rings for channel in ring}
    drawn: dict[Channel, set[Channel]] = {}
    for held, channels in graph.waits.items():
        one = name.get(held, held)
        others = {name.get(channel, channel) for channel in channels}
        drawn.setdefault(one, set()).update(others - {one} if held in name else others)
    return drawn
