"""Laws of matching: what is planted is found, what is found holds, and what is broken is noticed."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import rustworkx
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import Match, MatchError, violations
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Side
from softmesh.hardware import Arch, ClusterType
from softmesh.systems.chip import WORMHOLE
from softmesh.systems.machine import Asic, Link, Machine, Port, numbered

few = settings(max_examples=40, deadline=None)


def machine_of(chips: int, pairs: list[tuple[int, int]], links: int, hosts: list[str] | None = None) -> Machine:
    channels = [count() for _ in range(chips)]
    made = [
        Link.between(Port(one, next(channels[one])), Port(other, next(channels[other])))
        for one, other in pairs
        for _ in range(links)
    ]
    asics = numbered(
        Asic(chip, 1000 + chip, hosts[chip] if hosts else "host", 0, 0, "n300", chip) for chip in range(chips)
    )
    return Machine("planted", WORMHOLE, ClusterType.CUSTOM, asics, tuple(made))


def match_or_refusal(graph: MeshGraph, machine: Machine) -> Match | MatchError:
    try:
        return match(graph, machine)
    except MatchError as refusal:
        return refusal


@st.composite
def planted(draw: st.DrawFn) -> tuple[MeshGraph, Machine]:
    """A mesh, and a machine that holds it under other names, with chips and links to distract."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    rings = draw(st.tuples(st.booleans(), st.booleans()))
    channels = draw(st.integers(1, 2))
    mesh = LogicalMesh(0, "M", (rows, columns), rings, channels=channels, strict=draw(st.booleans()))
    chips = mesh.size + draw(st.integers(0, 4))
    names = draw(st.permutations(range(chips)))
    ends = [(names[one], names[other]) for one, other, _ in mesh.edges()]
    pairs = {(min(pair), max(pair)) for pair in ends}
    chip = st.integers(0, chips - 1)
    extra = draw(st.lists(st.tuples(chip, chip).filter(lambda pair: pair[0] < pair[1]), max_size=6))
    machine = machine_of(chips, sorted(pairs.union(extra)), channels)
    return MeshGraph("planted", Arch.WORMHOLE_B0, (mesh,)), machine


@st.composite
def planted_meshes(draw: st.DrawFn) -> tuple[MeshGraph, Machine]:
    """Strips of a relabelled grid, each one mesh on a host of its own, joined to the next."""
    height, width, strips = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 5))
    whole = LogicalMesh(0, "whole", (height * strips, width))
    names = draw(st.permutations(range(whole.size)))
    pairs = [(names[one], names[other]) for one, other, _ in whole.edges()]
    hosts = [""] * whole.size
    for place, name in enumerate(names):
        hosts[name] = f"host{place // (height * width)}"
    meshes = tuple(LogicalMesh(i, f"M{i}", (height, width)) for i in range(strips))
    chain = tuple(Connection(Side((i,)), Side((i + 1,)), width, strict=True) for i in range(strips - 1))
    by_host = draw(st.booleans())
    machine = machine_of(whole.size, pairs, 1, hosts if by_host else None)
    return MeshGraph("planted", Arch.WORMHOLE_B0, meshes, chain), machine


@given(planted())
@few
def test_a_planted_mesh_is_found_and_holds(case: tuple[MeshGraph, Machine]) -> None:
    found = match(*case)
    assert violations(found) == []
    assert found.warnings == ()


@given(planted())
@few
def test_a_preferred_graph_with_rings_changes_nothing_that_is_asked_for(
    case: tuple[MeshGraph, Machine],
) -> None:
    graph, machine = case
    opened = replace(graph, meshes=tuple(replace(mesh, rings=(False, False)) for mesh in graph.meshes))
    found = match(opened, machine, preferring=graph)
    assert (found.graph, violations(found), found.warnings) == (opened, [], ())


@given(planted_meshes())
@few
def test_planted_meshes_are_found_and_hold(case: tuple[MeshGraph, Machine]) -> None:
    assert violations(match(*case)) == []


@st.composite
def unplanted(draw: st.DrawFn) -> tuple[MeshGraph, Machine]:
    """A small mesh and a small machine that have nothing to do with each other."""
    shape = draw(st.sampled_from([(1, 3), (1, 4), (1, 5), (1, 6), (2, 2), (2, 3), (3, 1), (6, 1), (3, 3), (2, 4)]))
    mesh = LogicalMesh(0, "M", shape, draw(st.tuples(st.booleans(), st.booleans())))
    chips = mesh.size + draw(st.integers(0, 3))
    every = [(one, other) for other in range(chips) for one in range(other)]
    pairs = draw(st.lists(st.sampled_from(every), unique=True, min_size=mesh.size, max_size=3 * mesh.size))
    return MeshGraph("unplanted", Arch.WORMHOLE_B0, (mesh,)), machine_of(chips, pairs, 1)


@given(unplanted())
@few
def test_a_mesh_is_found_exactly_where_another_solver_finds_it(case: tuple[MeshGraph, Machine]) -> None:
    graph, machine = case
    (mesh,) = graph.meshes
    logical, physical = rustworkx.PyGraph(), rustworkx.PyGraph()
    logical.add_nodes_from(range(mesh.size))
    logical.add_edges_from_no_data([(one, other) for one, other, _ in mesh.edges()])
    physical.add_nodes_from(list(machine.asics))
    physical.add_edges_from_no_data([(link.a.chip, link.b.chip) for link in machine.links])
    exists = rustworkx.is_subgraph_isomorphic(physical, logical, induced=False)
    assert isinstance(match_or_refusal(graph, machine), Match) == exists


@given(planted(), st.data())
@few
def test_without_a_link_the_match_changes_or_is_refused(case: tuple[MeshGraph, Machine], data: st.DataObject) -> None:
    graph, machine = case
    before = match(graph, machine)
    (mesh,) = graph.meshes
    edges = [(one, other) for one, other, _ in mesh.edges()]
    if not edges:
        return
    one, other = data.draw(st.sampled_from(edges))
    chips = before.chips[Node(0, one)], before.chips[Node(0, other)]
    broken = machine.without(links=machine.links_between(*chips))
    assert violations(Match(graph, broken, before.chips)) != []
    after = match_or_refusal(graph, broken)
    if isinstance(after, MatchError):
        assert after.requirement in ("links", "ring", "shape")
    else:
        assert violations(after) == []
        assert after.chips != before.chips


@given(planted(), st.data())
@few
def test_a_match_with_two_chips_exchanged_is_told_from_a_good_one(
    case: tuple[MeshGraph, Machine], data: st.DataObject
) -> None:
    """Exchanging chips keeps all rules only where every neighbour pair still shares links enough."""
    graph, machine = case
    found = match(graph, machine)
    nodes = st.sampled_from(graph.nodes)
    one, other = data.draw(nodes), data.draw(nodes)
    chips = {**found.chips, one: found.chips[other], other: found.chips[one]}
    (mesh,) = graph.meshes
    wanted = mesh.channels if mesh.strict else 1
    holds = all(len(machine.links_between(chips[Node(0, a)], chips[Node(0, b)])) >= wanted for a, b, _ in mesh.edges())
    assert (violations(replace(found, chips=chips)) == []) == holds
