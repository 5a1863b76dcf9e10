"""Matching logical meshes into machines: what is found, what is refused, and what the refusal says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hand_made_machines import LINE, RING, graph, grid, joined, machine_of, mesh

from softmesh.fabric.descriptors.loader import load_mesh_graph
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import Match, MatchError, connection_links, violations
from softmesh.fabric.mesh_graph import Connection, MeshGraph, Node, Pinning, Side
from softmesh.fabric.routing.network import Network
from softmesh.hardware import Arch, FabricConfig
from softmesh.systems import named_systems
from softmesh.systems.machine import Machine
from softmesh.systems.machine_restriction import with_down

MGD = Path(__file__).parents[1] / "fixtures" / "mgd"


def layout(found: Match, mesh_id: int = 0) -> list[list[int]]:
    """Physical ids, row by row."""
    rows, columns = found.graph.mesh(mesh_id).shape
    return [[found.chips[Node(mesh_id, row * columns + c)] for c in range(columns)] for row in range(rows)]


def refusal(
    wanted: MeshGraph,
    machine: Machine,
    hosts: dict[tuple[int, int], str] | None = None,
    preferring: MeshGraph | None = None,
) -> MatchError:
    with pytest.raises(MatchError) as caught:
        match(wanted, machine, hosts=hosts, preferring=preferring)
    return caught.value


def test_t3000_is_numbered_as_its_users_know_it() -> None:
    found = match(load_mesh_graph(MGD / "t3k.textproto"), named_systems.load("T3000"))
    assert layout(found) == [[4, 0, 2, 6], [5, 1, 3, 7]]


@pytest.mark.parametrize("spec", ["mesh:6x4", "torus:6x4", "torus:4x4", "mesh:1x5", "line:7"])
def test_generated_machines_match_chip_by_chip(spec: str) -> None:
    machine = named_systems.load(spec)
    rows, columns = (1, 7) if spec == "line:7" else map(int, spec.split(":")[1].split("x"))
    wanted = graph(mesh(rows, columns, (RING, RING) if spec.startswith("torus") else (LINE, LINE)))
    assert list(match(wanted, machine).chips.values()) == list(range(rows * columns))


def test_a_galaxy_lies_with_its_corners_on_the_first_chip_of_each_tray() -> None:
    machine = named_systems.load("Galaxy")
    found = match(graph(mesh(8, 4, (RING, RING), channels=4, strict=True)), machine)
    at = [machine.asics[chip].position for chip in found.chips.values()]
    assert at[0] == (1, 1)
    assert {at[0], at[3], at[28], at[31]} == {(1, 1), (2, 1), (3, 1), (4, 1)}
    assert (at[1], at[4]) == ((1, 5), (1, 2))


@pytest.mark.parametrize(
    ("file", "system"),
    [
        ("t3k_ring", "T3000"),
        ("t3k_switch", "T3000"),
        ("t3k_two_hosts", "T3000"),
        ("t3k_two_meshes", "T3000"),
        ("t3k_named_chips", "T3000"),
        ("split_galaxy", "Galaxy"),
        ("superpod", "Closetbox"),
        ("closetbox", "Closetbox"),
        ("exabox", "Exabox"),
    ],
)
def test_descriptors_match_the_systems_they_were_written_for(file: str, system: str) -> None:
    wanted = load_mesh_graph(MGD / f"{file}.textproto", runtime=file != "closetbox")
    found = match(wanted, named_systems.load(system))
    assert violations(found) == []
    assert found.warnings == ()


def test_a_line_or_a_ring_is_folded_into_a_grid() -> None:
    for shape, rings in [((1, 32), (LINE, LINE)), ((32, 1), (RING, LINE)), ((1, 1024), (LINE, RING))]:
        machine = grid(32, 32) if shape[1] == 1024 else grid(8, 4)
        assert violations(match(graph(mesh(*shape, rings)), machine)) == []


def test_no_odd_ring_exists_where_every_cycle_is_even() -> None:
    assert refusal(graph(mesh(1, 31, (LINE, RING))), grid(8, 4)).requirement == "ring"
    triangle = machine_of(range(3), {(0, 1): 1, (1, 2): 1, (0, 2): 1})
    assert violations(match(graph(mesh(1, 3, (LINE, RING))), triangle)) == []


def test_a_mesh_is_laid_around_a_chip_that_is_down() -> None:
    found = match(graph(mesh(3, 3)), grid(4, 5).without(chips=[0, 6]))
    assert violations(found) == []
    assert 6 not in found.nodes


def test_a_torus_with_one_link_missing_is_cut_open_there() -> None:
    torus = grid(8, 8, (RING, RING))
    broken = torus.without(links=torus.links_between(27, 28))
    found = match(graph(mesh(8, 8)), broken)
    assert violations(found) == []
    columns = [found.chips[Node(0, 0)] % 8, found.chips[Node(0, 7)] % 8]
    rows_are_columns = {found.chips[Node(0, 0)] % 8, found.chips[Node(0, 56)] % 8}
    assert {3, 4} in (set(columns), rows_are_columns)


def test_the_answer_is_the_same_every_time() -> None:
    wanted = graph(*(mesh(2, 4, id=i) for i in range(3)), connections=[joined(0, 1, 2), joined(1, 2, 2)])
    machine = grid(6, 6)
    assert match(wanted, machine).chips == match(wanted, machine).chips


def test_strict_refuses_too_few_links_and_says_which() -> None:
    error = refusal(graph(mesh(2, 4, channels=4, strict=True)), named_systems.load("T3000"))
    assert (error.requirement, error.line) == ("links", 10)
    assert "Strict mode validation failed: target graph edge from node M0D0 to M0D1 requires 4 channels" in str(error)
    assert "physical edge from chip 4 to chip 0 only has 2 channels" in str(error)
    assert "With channels count 2 it fits" in error.nearest


def test_relaxed_accepts_too_few_links_with_a_warning() -> None:
    (warning,) = match(graph(mesh(2, 4, channels=4)), named_systems.load("T3000")).warnings
    assert warning.startswith("Relaxed mode: 10 of 10 neighbour pairs of mesh 0 have fewer than 4 channels")
    assert warning.endswith("Mapping will proceed but may have insufficient bandwidth.")


def test_relaxed_prefers_places_with_enough_links() -> None:
    thin = {(0, 1): 1, (1, 2): 1, (2, 3): 4, (3, 4): 4}
    found = match(graph(mesh(1, 3, channels=4)), machine_of(range(5), thin))
    assert layout(found) in ([[2, 3, 4]], [[4, 3, 2]])
    assert found.warnings == ()


def test_a_broken_link_is_named_where_strict_needs_it() -> None:
    error = refusal(graph(mesh(2, 4, channels=2, strict=True)), with_down(named_systems.load("T3000"), ["link:0/8"]))
    assert error.requirement == "links"
    assert "(link chip 0 ch 8 <-> chip 4 ch 0 is down)" in error.detail
    assert "With link chip 0 ch 8 <-> chip 4 ch 0 up it fits" in error.nearest


def test_any_single_link_that_a_strict_galaxy_lacks_is_named() -> None:
    galaxy = named_systems.load("Galaxy")
    wanted = graph(mesh(8, 4, (RING, RING), channels=4, strict=True))
    for link in galaxy.links[::40]:
        error = refusal(wanted, galaxy.without(links=[link]))
        assert (error.requirement, str(link) in error.detail) == ("links", True)


def test_too_many_chips_are_refused_with_the_largest_part_that_fits() -> None:
    error = refusal(graph(mesh(4, 4)), named_systems.load("T3000"))
    assert error.requirement == "chip count"
    assert "target graph is larger with 16 nodes, but global graph only has 8 nodes" in error.detail
    assert error.nearest == "The largest part of it that fits is 2x4."


def test_another_architecture_is_refused() -> None:
    error = refusal(graph(mesh(2, 4), arch=Arch.BLACKHOLE), named_systems.load("T3000"))
    assert error.requirement == "architecture"
    assert "BLACKHOLE" in error.detail
    assert "WORMHOLE_B0" in error.nearest


@pytest.mark.parametrize(
    ("rings", "system", "axes"),
    [
        ((LINE, RING), "T3000", "columns (E-W)"),
        ((RING, RING), "Galaxy-Mesh", "rows (N-S) and columns (E-W)"),
        ((RING, RING), "Galaxy-TorusY", "columns (E-W)"),
    ],
)
def test_a_ring_without_wrap_links_names_its_axis(rings: tuple[bool, bool], system: str, axes: str) -> None:
    shape = (2, 4) if system == "T3000" else (8, 4)
    error = refusal(graph(mesh(*shape, rings)), named_systems.load(system))
    assert (error.requirement, error.line) == ("ring", 10)
    assert f"declares RING for its {axes}" in error.detail
    assert f"Declare LINE for the {axes} and it fits" in error.nearest


def test_several_broken_requirements_are_all_named() -> None:
    error = refusal(graph(mesh(2, 4, (LINE, RING), channels=4, strict=True)), named_systems.load("T3000"))
    assert error.requirement == "links"
    assert error.nearest == "It fits only without several requirements: links, ring."


def test_a_ring_of_two_is_a_line() -> None:
    assert layout(match(graph(mesh(2, 2, (RING, RING))), grid(2, 2))) == [[0, 1], [2, 3]]


def test_a_shape_that_the_links_do_not_form_is_refused() -> None:
    error = refusal(graph(mesh(4, 10)), grid(8, 8))
    assert error.requirement == "shape"
    assert error.nearest == "The largest part of it that fits is 4x8."


TRAYS = {chip: (1 + chip // 8, 1 + chip % 8) for chip in range(16)}


def test_pinnings_hold_each_node_to_one_of_the_positions() -> None:
    machine = grid(4, 4, positions=TRAYS)
    pins = [Pinning((Node(0, 0),), ((2, 8),)), Pinning((Node(0, 1),), ((1, 4), (2, 4)))]
    found = match(graph(mesh(2, 2), pinnings=pins), machine)
    assert layout(found) == [[15, 11], [14, 10]]


def test_a_pinning_that_cannot_hold_is_named_by_its_line() -> None:
    machine = grid(4, 4, positions=TRAYS)
    pins = [Pinning((Node(0, 0),), ((1, 1),), line=40), Pinning((Node(0, 1),), ((2, 8),), line=44)]
    error = refusal(graph(mesh(2, 2), pinnings=pins), machine)
    assert error.requirement == "pinning"
    assert "With the pinning at line 40 removed it fits." in error.nearest


def test_positions_that_no_chip_has_are_refused_or_ignored() -> None:
    machine = grid(4, 4, positions=TRAYS)
    nowhere = Pinning((Node(0, 0),), ((7, 7),), line=40)
    error = refusal(graph(mesh(2, 2), pinnings=[nowhere]), machine)
    assert error.detail.startswith("Pinned ASIC positions of every pinning group for mesh 0 were not found")
    also = Pinning((Node(0, 3),), ((1, 1),))
    found = match(graph(mesh(2, 2), pinnings=[nowhere, also]), machine)
    assert found.chips[Node(0, 3)] == 0
    assert "The pinning at line 40 to tray 7 asic 7 is ignored" in found.warnings[0]


def test_pinnings_that_contradict_each_other_are_alternatives() -> None:
    machine = grid(4, 4, positions=TRAYS)
    left = Pinning((Node(0, 0), Node(1, 0)), ((1, 1),))
    right = Pinning((Node(0, 0), Node(1, 0)), ((2, 8),))
    found = match(graph(mesh(2, 2), mesh(2, 2, id=1), pinnings=[left, right]), machine)
    assert {found.chips[Node(0, 0)], found.chips[Node(1, 0)]} == {0, 15}
    assert violations(found) == []


def test_more_nodes_than_positions_cannot_be_pinned() -> None:
    pins = [Pinning((Node(0, 0), Node(0, 1)), ((1, 1),), line=40)]
    error = refusal(graph(mesh(2, 2), pinnings=pins), grid(4, 4, positions=TRAYS))
    assert (error.requirement, error.line) == ("pinning", 40)


HALVES = {chip: "west" if chip % 4 < 2 else "east" for chip in range(8)}


def test_the_chips_of_a_host_rank_lie_on_one_host() -> None:
    found = match(graph(mesh(2, 4, hosts=(1, 2))), grid(2, 4, hosts=HALVES))
    assert found.hosts_of(0) == {0: "west", 1: "east"}
    assert refusal(graph(mesh(2, 4, hosts=(2, 1))), grid(2, 4, hosts=HALVES)).requirement == "hosts"


def test_host_ranks_share_a_host_only_where_there_are_not_enough() -> None:
    strips = {chip: f"host{chip // 4}" for chip in range(16)}
    apart = match(graph(mesh(2, 2, hosts=(2, 1))), grid(4, 4, hosts=strips))
    assert len(set(apart.hosts_of(0).values())) == 2
    together = match(graph(mesh(2, 2, hosts=(2, 1))), grid(4, 4))
    assert together.hosts_of(0) == {0: "host", 1: "host"}


def test_a_bound_host_rank_is_put_on_its_host() -> None:
    wanted = graph(mesh(2, 4, hosts=(1, 2)))
    machine = grid(2, 4, hosts=HALVES)
    found = match(wanted, machine, hosts={(0, 0): "east"})
    assert found.hosts_of(0) == {0: "east", 1: "west"}
    error = refusal(wanted, machine, hosts={(0, 0): "east", (0, 1): "east"})
    assert error.requirement == "hosts"
    assert "Host consistency violated" in error.detail
    assert "It fits with" in error.nearest


def test_an_unknown_host_is_refused_with_the_near_one() -> None:
    error = refusal(graph(mesh(2, 2)), grid(2, 4, hosts=HALVES), hosts={(0, 0): "wset"})
    assert error.requirement == "hosts"
    assert "Did you mean 'west'?" in error.nearest


def test_a_host_that_is_too_small_is_told_at_once() -> None:
    error = refusal(graph(mesh(2, 4)), grid(2, 4, hosts=HALVES))
    assert error.requirement == "hosts"
    assert "the largest host of hand-made has 4" in error.detail


def test_meshes_lie_side_by_side_with_the_links_they_ask_for() -> None:
    wanted = graph(mesh(2, 2), mesh(2, 2, id=1), connections=[joined(0, 1, 4)])
    assert layout(match(wanted, named_systems.load("T3000"))) == [[0, 1], [4, 5]]
    error = refusal(graph(*wanted.meshes, connections=[joined(0, 1, 6)]), named_systems.load("T3000"))
    assert (error.requirement, error.line) == ("connection", 30)
    assert "Inter-mesh mapping failed after 1 attempt(s). Logical meshes being mapped: [0, 1]" in error.detail
    assert "Inter-mesh validation mode: STRICT" in error.detail
    assert error.nearest == "With count 4 for M0 <-> M1 it fits."


def test_a_relaxed_connection_is_content_with_one_link() -> None:
    wanted = graph(mesh(2, 2), mesh(2, 2, id=1), connections=[joined(0, 1, 6, strict=False)])
    (warning,) = match(wanted, named_systems.load("T3000")).warnings
    assert "connection M0 <-> M1 asks for 6 channels, 4 exist" in warning


def test_the_connection_that_cannot_be_is_the_one_blamed() -> None:
    meshes = [mesh(1, 4, id=i) for i in range(3)]
    around = [joined(0, 1, 2, line=31), joined(1, 2, 2, line=32), joined(2, 0, 2, line=33)]
    error = refusal(graph(*meshes, connections=around), grid(1, 12))
    assert (error.requirement, error.line) == ("connection", 33)


def test_named_chips_are_joined_to_each_other() -> None:
    pair = Connection(Side((0,), chip=0), Side((1,), chip=3), 2, strict=True)
    found = match(graph(mesh(2, 2), mesh(2, 2, id=1), connections=[pair]), grid(4, 4))
    assert len(found.links(Node(0, 0), Node(1, 3))) == 2


def test_groups_of_meshes_are_joined_as_wholes() -> None:
    meshes = [mesh(1, 2, id=i) for i in range(4)]
    groups = Connection(Side((0, 1)), Side((2, 3)), 8, strict=True)
    found = match(graph(*meshes, connections=[groups]), grid(2, 4))
    assert violations(found) == []
    assert connection_links(found, groups) >= 8
    error = refusal(graph(*meshes, connections=[replace(groups, count=17)]), grid(2, 4))
    assert (error.requirement, error.nearest) == ("connection", "With count 12 for M0+M1 <-> M2+M3 it fits.")


def test_an_exact_tiling_is_found() -> None:
    stages = [mesh(4, 2, (RING, LINE), id=i) for i in range(16)]
    ring = [joined(i, (i + 1) % 16, 4) for i in range(16)]
    found = match(graph(*stages, connections=ring), grid(32, 4, (RING, RING)))
    assert violations(found) == []
    assert len(found.nodes) == 128


def test_lines_tile_a_grid_as_a_pipeline() -> None:
    stages = [mesh(1, 8, id=i) for i in range(4)]
    found = match(graph(*stages, connections=[joined(i, i + 1, 2) for i in range(3)]), grid(4, 8))
    assert violations(found) == []


def test_a_large_grid_is_cut_into_straight_tiles() -> None:
    stages = [mesh(4, 8, id=i, channels=4) for i in range(32)]
    wanted = graph(*stages, connections=[joined(i, (i + 1) % 32, 16) for i in range(32)])
    found = match(wanted, named_systems.load("mesh:32x32"))
    assert violations(found) == []
    for stage in stages:
        corners = layout(found, stage.id)[0][0], layout(found, stage.id)[-1][-1]
        apart = [abs(one - other) for one, other in zip(*(divmod(chip, 32) for chip in corners), strict=True)]
        assert sorted(apart) == [3, 7]


def test_straight_tiles_leave_out_what_is_down() -> None:
    broken = with_down(named_systems.load("mesh:8x8"), ["chip:0", "link:6-7"])
    wanted = graph(*(mesh(4, 4, id=i) for i in range(2)), connections=[joined(0, 1, 4)])
    assert layout(match(wanted, broken), 0)[0] == [32, 33, 34, 35]


def test_meshes_lie_so_that_the_fabric_can_use_the_links_between_them() -> None:
    """Bent tiles would touch as often, but with two chips of one mesh on the same chip of the other."""
    quarters = [mesh(4, 2, id=i, channels=2) for i in range(4)]
    wide, narrow = [joined(0, 1, 16), joined(2, 3, 16)], [joined(1, 2, 4), joined(0, 3, 4)]
    found = match(graph(*quarters, connections=[*wide, *narrow]), grid(8, 4, (RING, RING)))
    assert Network(found, FabricConfig.FABRIC_2D).warnings == ()


def test_links_that_the_fabric_cannot_use_count_where_no_others_exist() -> None:
    triangle = machine_of(range(3), {(0, 1): 1, (1, 2): 1, (0, 2): 1})
    wanted = graph(mesh(1, 1), mesh(1, 2, id=1), connections=[joined(0, 1, 2)])
    assert violations(match(wanted, triangle)) == []


def test_a_graph_that_asks_for_more_is_tried_first() -> None:
    torus = grid(8, 4, (RING, RING))
    line, ring = graph(mesh(8, 1)), graph(mesh(8, 1, (RING, LINE)))
    assert violations(replace(match(line, torus), graph=ring)) != []
    found = match(line, torus, preferring=ring)
    assert (found.graph, violations(replace(found, graph=ring))) == (line, [])


def test_a_preferred_graph_that_does_not_fit_is_let_go() -> None:
    line, ring = graph(mesh(1, 5)), graph(mesh(1, 5, (LINE, RING)))
    assert match(line, grid(2, 4), preferring=ring) == match(line, grid(2, 4))
    larger = graph(mesh(1, 50))
    assert match(line, grid(2, 4), preferring=larger) == match(line, grid(2, 4))
    error = refusal(graph(mesh(3, 3)), grid(2, 5), preferring=graph(mesh(3, 3, (RING, RING))))
    assert error.detail == refusal(graph(mesh(3, 3)), grid(2, 5)).detail


def test_links_in_full_are_worth_more_than_a_preferred_ring() -> None:
    thin_square = {(0, 1): 1, (1, 2): 1, (2, 3): 1, (0, 3): 1}
    machine = machine_of(range(8), {**thin_square, (3, 4): 4, (4, 5): 4, (5, 6): 4, (6, 7): 4})
    ring = mesh(1, 4, (LINE, RING), channels=4)
    found = match(graph(replace(ring, rings=(LINE, LINE))), machine, preferring=graph(ring))
    assert found.warnings == ()


def test_too_few_chips_are_told_by_what_they_hold() -> None:
    pair = graph(mesh(2, 2), mesh(2, 2, id=1))
    assert refusal(pair, named_systems.load("N300")).nearest == "A 2x2 mesh needs 4 chips, N300 has 2."
    five = graph(*(mesh(8, 4, id=i) for i in range(5)))
    assert refusal(five, named_systems.load("Galaxy")).nearest == "32 chips hold 1 of the 5 meshes."
    mixed = graph(mesh(8, 4), mesh(2, 2, id=1), mesh(2, 2, id=2))
    assert refusal(mixed, grid(8, 4)).nearest == "32 chips hold the 2 smallest of the 3 meshes."


def test_meshes_that_only_fit_alone_are_told_so() -> None:
    error = refusal(graph(mesh(2, 2), mesh(2, 2, id=1)), grid(3, 3))
    assert error.requirement == "meshes"
    assert error.nearest == "Only one of them fits."


def test_a_search_that_is_cut_off_says_so_and_claims_nothing() -> None:
    error = refusal(graph(mesh(30, 30)), grid(32, 32).without(chips=[500]))
    assert error.detail.startswith("Failed to find mapping: no match was found within")
    assert "steps, which proves nothing" in error.detail


def test_enormous_numbers_are_refused_at_once() -> None:
    machine = grid(4, 4)
    assert refusal(graph(mesh(10**9, 10**9)), machine).requirement == "chip count"
    assert refusal(graph(mesh(2, 2, channels=10**9, strict=True)), machine).requirement == "links"
    wanted = graph(mesh(2, 2), mesh(2, 2, id=1), connections=[joined(0, 1, 10**9)])
    assert refusal(wanted, machine).requirement == "connection"


def test_a_graph_without_meshes_is_refused() -> None:
    assert refusal(graph(), grid(2, 2)).requirement == "meshes"


def test_violations_name_the_rule_that_is_broken() -> None:
    machine = grid(2, 4, hosts=HALVES, positions=TRAYS)
    pins = [Pinning((Node(0, 0),), ((1, 1),))]
    wanted = graph(mesh(2, 2, channels=2, strict=True), mesh(2, 2, id=1), connections=[joined(0, 1, 2)], pinnings=pins)
    good = match(wanted, machine)

    def broken(changes: dict[Node, int]) -> set[str]:
        return {found.requirement for found in violations(replace(good, chips={**good.chips, **changes}))}

    first, second = good.chips[Node(0, 0)], good.chips[Node(0, 1)]
    assert violations(good) == []
    assert broken({Node(0, 0): second}) == {"chips"}
    assert broken({Node(0, 0): 99}) == {"chips"}
    assert broken({Node(0, 0): second, Node(0, 1): first}) == {"links", "pinning"}
    swapped = {Node(0, chip): good.chips[Node(1, chip)] for chip in range(4)}
    assert broken({**swapped, **{Node(1, chip): good.chips[Node(0, chip)] for chip in range(4)}}) == {"pinning"}
    assert "hosts" in broken({Node(0, 0): good.chips[Node(1, 0)], Node(1, 0): first})
    assert violations(good, {(0, 0): "east"})[0].requirement == "hosts"
    no_cable = replace(
        good,
        machine=grid(2, 4, hosts=HALVES, positions=TRAYS).without(
            links=[link for link in machine.links if {link.a.chip % 4, link.b.chip % 4} == {1, 2}]
        ),
    )
    assert {found.requirement for found in violations(no_cable)} == {"connection"}
