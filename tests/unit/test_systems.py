"""The machines: built-in ones against the published tables, generated ones by their laws, files by their mistakes."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.errors import MeshError
from softmesh.hardware import Arch, ClusterType, DispatchCoreAxis, DispatchCoreConfig, DispatchCoreType
from softmesh.systems.chip import BH_GALAXY, CHIPS, N150, N300, P100, P150, P300, WH_GALAXY
from softmesh.systems.cluster_descriptor import descriptor_text
from softmesh.systems.machine import Machine
from softmesh.systems.machine_builders import build
from softmesh.systems.named_systems import entries, load
from softmesh.systems.product_detection import detect
from softmesh.systems.system_files import read_boards, read_system_file

# chips, {links per edge: edges}, hosts, chips on PCIe, cluster type
PUBLISHED = {
    "N150": (1, {}, 1, 1, ClusterType.N150),
    "N300": (2, {2: 1}, 1, 1, ClusterType.N300),
    "2xN300": (4, {2: 4}, 1, 2, ClusterType.N300_2x2),
    "T3000": (8, {2: 10}, 1, 4, ClusterType.T3K),
    "Galaxy": (32, {4: 64}, 1, 32, ClusterType.GALAXY),
    "Galaxy-Mesh": (32, {4: 52}, 1, 32, ClusterType.GALAXY),
    "Galaxy-TorusX": (32, {4: 60}, 1, 32, ClusterType.GALAXY),
    "Galaxy-TorusY": (32, {4: 56}, 1, 32, ClusterType.GALAXY),
    "Closetbox": (128, {2: 190}, 16, 64, ClusterType.T3K),
    "Exabox": (160, {4: 270}, 5, 160, ClusterType.GALAXY),
    "P100": (1, {}, 1, 1, ClusterType.P100),
    "P150": (1, {}, 1, 1, ClusterType.P150),
    "P150x2": (2, {4: 1}, 1, 2, ClusterType.P150_X2),
    "P150x4": (4, {4: 4}, 1, 4, ClusterType.P150_X4),
    "P150x8": (8, {2: 12}, 1, 8, ClusterType.P150_X8),
    "P300": (2, {2: 1}, 1, 2, ClusterType.P300),
    "P300x2": (4, {2: 4}, 1, 4, ClusterType.P300_X2),
    "QuietBox-4x4": (16, {2: 32}, 4, 16, ClusterType.P150_X4),
    "BH-Galaxy": (32, {2: 64}, 1, 32, ClusterType.BLACKHOLE_GALAXY),
    "BH-Galaxy-Mesh": (32, {2: 52}, 1, 32, ClusterType.BLACKHOLE_GALAXY),
    "BH-Galaxy-TorusX": (32, {2: 60}, 1, 32, ClusterType.BLACKHOLE_GALAXY),
    "BH-Galaxy-TorusY": (32, {2: 56}, 1, 32, ClusterType.BLACKHOLE_GALAXY),
    "BH-Galaxy-XYZ": (32, {2: 64, 4: 8}, 1, 32, ClusterType.BLACKHOLE_GALAXY),
}
every_system = pytest.mark.parametrize("name", PUBLISHED)


def edges(machine: Machine) -> dict[tuple[int, int], int]:
    """How many links join each two neighbours."""
    return {
        (one, other): len(links)
        for one, near in machine.neighbours.items()
        for other, links in near.items()
        if one < other
    }


def is_connected(machine: Machine) -> bool:
    reached, frontier = {0}, [0]
    while frontier:
        frontier = [n for chip in frontier for n in machine.neighbours[chip] if n not in reached]
        reached.update(frontier)
    return reached == set(machine.asics)


def links_in_use(machine: Machine, chip: int) -> int:
    return sum(map(len, machine.neighbours[chip].values()))


def chip_at(machine: Machine, tray: int, location: int) -> int:
    (chip,) = [asic.id for asic in machine.asics.values() if asic.position == (tray, location)]
    return chip


def galaxy_rows(machine: Machine, layout: list[list[int]]) -> list[list[int]]:
    """The chips row by row: trays as they lie in the box, each turned so that location 1 is a corner."""
    rows = []
    for north, pair in zip((True, False), layout, strict=True):
        west, east = pair
        for row in range(1, 5) if north else range(4, 0, -1):
            places = [(west, row), (west, row + 4), (east, row + 4), (east, row)]
            rows.append([chip_at(machine, *place) for place in places])
    return rows


def grid_edges(rows: list[list[int]], wraps: tuple[bool, bool]) -> set[tuple[int, int]]:
    pairs = []
    for axis, lines in enumerate(([list(column) for column in zip(*rows, strict=True)], rows)):
        for line in lines:
            pairs += [*pairwise(line)]
            if wraps[axis]:
                pairs.append((line[-1], line[0]))
    return {(min(pair), max(pair)) for pair in pairs}


def test_the_list_has_every_system_and_says_what_each_is():
    listed = entries()
    assert {entry.name for entry in listed} == set(PUBLISHED)
    assert all(len(entry.summary) > 10 for entry in listed)


@every_system
def test_a_system_has_the_published_chips_links_and_hosts(name):
    chips, links_per_edge, hosts, on_pcie, cluster_type = PUBLISHED[name]
    machine = load(name)
    assert list(machine.asics) == list(range(chips))
    assert Counter(edges(machine).values()) == links_per_edge
    assert len(machine.hosts) == hosts
    assert sum(asic.pcie is not None for asic in machine.asics.values()) == on_pcie
    assert machine.cluster_type is cluster_type
    assert machine.name == name


@every_system
def test_every_channel_leads_to_one_place_and_is_one_the_chip_has(name):
    machine = load(name)
    ports = [port for link in machine.links for port in link]
    assert len(set(ports)) == len(ports)
    assert all(0 <= port.channel < machine.chip.ethernet_ports for port in ports)
    assert all(link.a < link.b for link in machine.links)


@every_system
def test_every_chip_is_connected_and_has_a_place_and_an_id_of_its_own(name):
    machine = load(name)
    assert is_connected(machine)
    asics = machine.asics.values()
    assert len({asic.unique_id for asic in asics}) == len(asics)
    assert len({(asic.host, *asic.position) for asic in asics}) == len(asics)
    on_bus = [(asic.host, asic.pcie) for asic in asics if asic.pcie is not None]
    assert len(set(on_bus)) == len(on_bus)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("t3k", "T3000"),
        ("LOUDBOX", "T3000"),
        ("6u", "Galaxy"),
        ("quietbox", "P150x4"),
        ("P150_X4", "P150x4"),
        ("n300_2x2", "2xN300"),
        ("bh galaxy", "BH-Galaxy"),
        ("bhgalaxymesh", "BH-Galaxy-Mesh"),
        (" Exabox ", "Exabox"),
    ],
)
def test_a_name_may_be_written_in_any_case_and_with_or_without_dashes(spelling, name):
    assert load(spelling).name == name


def test_an_unknown_name_is_answered_with_the_nearest_one_and_all_there_are():
    with pytest.raises(MeshError, match=r"No system is called 'GALXY'\. Did you mean 'Galaxy'\?") as error:
        load("GALXY")
    assert all(name in str(error.value) for name in PUBLISHED)
    assert f"There are {', '.join(entry.name for entry in entries())}; also" in str(error.value)


@pytest.mark.parametrize("spec", ["", "no/such/thing", "a\0b", "x" * 5000])
def test_nonsense_is_no_system(spec):
    with pytest.raises(MeshError, match="No system is called"):
        load(spec)


def test_a_missing_file_is_named():
    with pytest.raises(MeshError, match=r"nowhere\.yaml"):
        load("nowhere.yaml")


@pytest.mark.parametrize("name", ["N300", "T3000", "Galaxy", "BH-Galaxy-XYZ", "P150x8"])
def test_a_system_written_as_a_descriptor_file_loads_as_the_same_machine(name, tmp_path):
    machine = load(name)
    path = tmp_path / "machine.yaml"
    path.write_text(descriptor_text(machine))
    read = load(str(path))
    assert set(read.links) == set(machine.links)
    assert read.chip == machine.chip
    assert [asic.pcie for asic in read.asics.values()] == [asic.pcie for asic in machine.asics.values()]


@every_system
def test_the_cluster_type_of_the_file_is_the_one_its_boards_show(name):
    machine = load(name)
    first = machine.only(machine.chips_of(machine.hosts[0]))
    assert detect(first.asics.values(), first.links) is machine.cluster_type


class TestT3000:
    def test_its_mesh_is_4_0_2_6_over_5_1_3_7(self):
        rows = [[4, 0, 2, 6], [5, 1, 3, 7]]
        assert set(edges(load("T3000"))) == grid_edges(rows, (False, False))

    def test_four_chips_are_on_pcie_and_the_others_behind_them(self):
        machine = load("T3000")
        assert [chip for chip, asic in machine.asics.items() if asic.pcie is not None] == [0, 1, 2, 3]
        assert [machine.pcie_chip_of(chip) for chip in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]
        assert machine.asics[machine.pcie_chip_of(5)].pcie == 1

    def test_chips_on_pcie_use_six_links_and_the_others_four(self):
        machine = load("T3000")
        assert [links_in_use(machine, chip) for chip in range(8)] == [6] * 4 + [4] * 4

    def test_the_chip_on_pcie_is_location_0_of_its_card_and_channels_8_and_9_lead_to_the_other(self):
        machine = load("T3000")
        for chip in range(4):
            assert machine.asics[chip].location == 0
            assert machine.asics[chip].tray == machine.asics[chip + 4].tray
            links = machine.links_between(chip, chip + 4)
            assert [(link.a.channel, link.b.channel) for link in links] == [(8, 0), (9, 1)]


class TestGalaxies:
    @pytest.mark.parametrize(
        ("name", "wraps"),
        [
            ("Galaxy", (True, True)),
            ("Galaxy-Mesh", (False, False)),
            ("Galaxy-TorusX", (False, True)),
            ("Galaxy-TorusY", (True, False)),
        ],
    )
    def test_a_wormhole_galaxy_is_8x4_with_trays_1_and_2_at_the_north(self, name, wraps):
        machine = load(name)
        assert set(edges(machine)) == grid_edges(galaxy_rows(machine, [[1, 2], [3, 4]]), wraps)

    @pytest.mark.parametrize(
        ("name", "wraps"),
        [
            ("BH-Galaxy", (True, True)),
            ("BH-Galaxy-Mesh", (False, False)),
            ("BH-Galaxy-TorusX", (False, True)),
            ("BH-Galaxy-TorusY", (True, False)),
        ],
    )
    def test_a_blackhole_galaxy_is_8x4_with_trays_1_and_3_at_the_north(self, name, wraps):
        machine = load(name)
        assert set(edges(machine)) == grid_edges(galaxy_rows(machine, [[1, 3], [2, 4]]), wraps)

    def test_chip_0_is_tray_1_location_1_and_its_neighbours_are_locations_5_and_2(self):
        machine = load("Galaxy-Mesh")
        assert machine.asics[0].position == (1, 1)
        assert {machine.asics[chip].position for chip in machine.neighbours[0]} == {(1, 5), (1, 2)}

    @pytest.mark.parametrize(("name", "links"), [("Galaxy", 16), ("BH-Galaxy", 8), ("BH-Galaxy-XYZ", 10)])
    def test_torus_cabling_uses_all_links_of_the_plane(self, name, links):
        machine = load(name)
        assert {links_in_use(machine, chip) for chip in machine.asics} == {links}

    def test_edges_without_wraps_use_8_to_16_links(self):
        machine = load("Galaxy-Mesh")
        assert Counter(links_in_use(machine, chip) for chip in machine.asics) == {8: 4, 12: 16, 16: 12}

    def test_z_channels_join_the_same_location_of_two_trays(self):
        machine = load("BH-Galaxy-XYZ")
        z = [link for link in machine.links if link.a.channel in (8, 9)]
        assert len(z) == 32
        for link in z:
            near, far = (machine.asics[port.chip] for port in link)
            assert link.b.channel == link.a.channel
            assert near.location == far.location
            assert (near.tray, far.tray) in {(1, 2), (3, 4)}


class TestManyHosts:
    def test_every_two_boxes_of_a_closetbox_pod_share_a_cable_and_every_two_pods(self):
        machine = load("Closetbox")
        between: Counter[tuple[str, str]] = Counter()
        for link in machine.links:
            hosts = [machine.asics[port.chip].host for port in link]
            if hosts[0] != hosts[1]:
                between[hosts[0], hosts[1]] += 1
        pods = {f"box-{n}": n // 4 for n in range(16)}
        inside = [pair for pair in between if pods[pair[0]] == pods[pair[1]]]
        outside = sorted((pods[a], pods[b]) for a, b in between if pods[a] != pods[b])
        assert set(between.values()) == {2}
        assert len(inside) == 4 * 6
        assert outside == list(combinations(range(4), 2))

    def test_a_closetbox_host_is_a_t3000(self):
        machine, t3000 = load("Closetbox"), load("T3000")
        for n, host in enumerate(machine.hosts):
            assert machine.chips_of(host) == list(range(8 * n, 8 * n + 8))
            own = {pair: links for pair, links in edges(machine).items() if all(c // 8 == n for c in pair)}
            assert {(a - 8 * n, b - 8 * n): links for (a, b), links in own.items()} == edges(t3000)

    def test_every_two_galaxies_of_an_exabox_share_four_links_between_two_chips_of_row_0(self):
        machine = load("Exabox")
        crossing = [link for link in machine.links if link.a.chip // 32 != link.b.chip // 32]
        pairs = Counter((link.a.chip // 32, link.b.chip // 32) for link in crossing)
        assert pairs == dict.fromkeys(combinations(range(5), 2), 4)
        ends = Counter(port.chip for link in crossing for port in link)
        assert len(ends) == 20
        assert set(ends.values()) == {4}
        assert {machine.asics[chip].position for chip in ends} == {(1, 1), (1, 5), (2, 5), (2, 1)}

    def test_four_quietboxes_make_a_4x4_torus_with_eight_links_at_each_chip(self):
        machine = load("QuietBox-4x4")
        blocks = [[0, 4], [8, 12]]
        rows = [[block + 2 * row + column for block in pair for column in (0, 1)] for pair in blocks for row in (0, 1)]
        assert set(edges(machine)) == grid_edges(rows, (True, True))
        assert {links_in_use(machine, chip) for chip in machine.asics} == {8}


class TestChips:
    @pytest.mark.parametrize(
        ("chip", "default", "ethernet", "row", "column"),
        [
            (WH_GALAXY, (8, 9), (8, 10), (8, 9), (7, 10)),
            (N150, (8, 8), (8, 8), (8, 8), (7, 9)),
            (N300, (8, 8), (8, 8), (8, 7), (7, 8)),
            (P150, (12, 10), (13, 10), (13, 9), (12, 10)),
            (BH_GALAXY, (12, 10), (13, 10), (13, 9), (12, 10)),
            (P100, (11, 10), (12, 10), (12, 9), (11, 10)),
            (P300, (11, 10), (12, 10), (12, 9), (11, 10)),
        ],
    )
    def test_the_grid_depends_on_who_dispatches(self, chip, default, ethernet, row, column):
        worker = DispatchCoreType.WORKER
        assert chip.grid() == default
        assert chip.grid(DispatchCoreConfig(DispatchCoreType.ETH)) == ethernet
        assert chip.grid(DispatchCoreConfig(worker, DispatchCoreAxis.ROW)) == row
        assert chip.grid(DispatchCoreConfig(worker, DispatchCoreAxis.COL)) == column

    @pytest.mark.parametrize(("chip", "megabytes"), [(N150, 12_872), (P150, 34_217), (P100, 29_940)])
    def test_the_memory_programs_can_use_is_the_published_one(self, chip, megabytes):
        usable = chip.dram_banks * (chip.dram_bank_bytes - chip.dram_reserved_bytes)
        assert round(usable / 10**6) == megabytes

    def test_wormhole_has_four_routing_planes_and_blackhole_two(self):
        assert {(chip.arch, chip.routing_planes) for chip in CHIPS.values()} == {
            (Arch.WORMHOLE_B0, 4),
            (Arch.BLACKHOLE, 2),
        }


class TestGenerated:
    @given(st.integers(1, 12), st.integers(1, 12), st.booleans())
    @settings(max_examples=40, deadline=None)
    def test_a_grid_joins_exactly_the_neighbours_with_four_links(self, rows, columns, is_torus):
        machine = load(f"{'torus' if is_torus else 'mesh'}:{rows}x{columns}")
        wraps = (is_torus and rows > 2, is_torus and columns > 2)
        ids = [list(range(row * columns, (row + 1) * columns)) for row in range(rows)]
        assert (machine.grid, machine.wraps) == ((rows, columns), wraps)
        assert edges(machine) == dict.fromkeys(grid_edges(ids, wraps), 4)
        ports = [port for link in machine.links for port in link]
        assert len(set(ports)) == len(ports)

    @given(st.integers(3, 12), st.integers(3, 12))
    @settings(max_examples=20, deadline=None)
    def test_every_chip_of_a_torus_has_sixteen_links_and_four_neighbours(self, rows, columns):
        machine = load(f"torus:{rows}x{columns}")
        assert len(machine.links) == 8 * rows * columns
        assert {len(near) for near in machine.neighbours.values()} == {4}
        assert {links_in_use(machine, chip) for chip in machine.asics} == {16}

    @given(st.integers(1, 40))
    @settings(max_examples=20, deadline=None)
    def test_a_line_is_one_row(self, length):
        machine = load(f"line:{length}")
        assert list(edges(machine)) == [(chip, chip + 1) for chip in range(length - 1)]
        assert machine.grid == (1, length)

    def test_rows_are_trays_and_columns_locations(self):
        assert load("mesh:3x5").asics[7].position == (2, 3)

    def test_4096_chips_are_possible_and_more_are_refused(self):
        assert len(load("torus:64x64").asics) == 4096
        with pytest.raises(MeshError, match="would have 4160 chips; 1 to 4096"):
            load("torus:64x65")

    @pytest.mark.parametrize(
        "spec", ["mesh:", "mesh:4", "torus:4x", "line:2x2", "mesh:-1x4", "mesh:4x4x4", "mesh:" + "9" * 99]
    )
    def test_a_malformed_size_is_answered_with_the_forms_there_are(self, spec):
        with pytest.raises(MeshError, match="mesh:RxC, torus:RxC or line:N"):
            load(spec)

    def test_zero_chips_are_refused(self):
        with pytest.raises(MeshError, match="would have 0 chips"):
            load("mesh:0x4")


SYSTEM = """
systems:
  Pair: {summary: two cards, cabling: [bridge]}
cluster_type: N300_2x2
boards:
  1: {board: n300, ids: "0,2", pcie: 0}
  2: {board: n300, ids: "1,3", pcie: 1}
cabling:
  bridge:
    - 1.warp <-> 2.warp
"""
BOARD = """
card:
  chip: n300
  locations: 0,1
  pcie: 0
  links:
    - 0/8,9 <-> 1/0,1
  connectors:
    warp: 0/14,15 1/6,7
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "some.yaml"
    path.write_text(text)
    return path


def built(path: Path) -> Machine:
    plan = read_system_file(path)
    return build(plan, next(iter(plan.variants)), lambda name: (read_system_file(path), name))


def built_or_refused(path: Path) -> Machine | str:
    try:
        return built(path)
    except MeshError as error:
        return str(error)


class TestDataFiles:
    def test_a_file_of_boards_and_cables_is_a_machine(self, tmp_path):
        assert edges(built(written(tmp_path, SYSTEM))) == edges(load("2xN300"))

    @pytest.mark.parametrize(
        ("right", "wrong", "complaint"),
        [
            ("cluster_type:", "clustertype:", r"some\.yaml:4: unknown key 'clustertype'\. Did you mean"),
            ("cluster_type: N300_2x2\n", "", "the key 'cluster_type' is missing"),
            ("N300_2x2", "N300_2x3", "no cluster type. Did you mean 'N300_2x2'"),
            ("1: {board: n300", "1: {board: n3000", r":6: 'n3000' is no board\. Did you mean"),
            ('ids: "0,2"', "ids: 0", "n300 needs 2 ids, here are 1"),
            ('ids: "0,2"', 'ids: "0,1"', "must be 0 to 3, each once"),
            ('ids: "0,2"', "ids: 0-9999", "more than 4096"),
            ('ids: "0,2"', "ids: [0, 2]", "expected a word, found a list of 2"),
            ("pcie: 1", "pcie: 0", "the same PCIe number"),
            ("2: {board: n300", "x: {board: n300", "expected numbers such as"),
            ("2: {board: n300", "9-3: {board: n300", "counts down"),
            ("2: {board: n300", "1-2: {board: n300", "no tray number of its own"),
            ('n300, ids: "1,3", pcie: 1', 'p300, ids: "1,3", pcie: "1,2"', "chips of one kind"),
            ("boards:", "boards: {}\nhosts:", "a host without boards"),
            ("[bridge]", "[bridges]", "no group of cables. Did you mean 'bridge'"),
            ("2.warp\n", "2.warp2\n", r":10: 'warp2' is no connector of n300\. Did you mean 'warp'"),
            ("2.warp\n", "3.warp\n", "no tray 3, only 1, 2"),
            ("2.warp\n", "2.qsfp-1\n", "the ends have 4 and 2 channels"),
            ("2.warp\n", "2.warp/5\n", "no channel of location 5 is behind warp"),
            ("2.warp\n", "1.warp\n", r"chip 0 ch 14 is taken already, by .*the cable 1\.warp <-> 1\.warp"),
            ("2.warp\n", "2.warp\n    - 1.warp <-> 2.warp\n", "chip 0 ch 14 is taken already"),
            ("2.warp\n", "host-0:2.warp\n", "name the host at both ends"),
            (
                "1.warp <-> 2.warp",
                "host-1:1.warp <-> host-0:2.warp",
                "'host-1' is no host. Did you mean 'host-0'",
            ),
            ("1.warp <-> 2.warp", "1.warp - 2.warp", "expected two ends"),
            ("1.warp <-> 2.warp", "1.warp <-> warp", "expected an end such as"),
            ("cabling:\n  bridge", "like: T3000\ncabling:\n  bridge", "either the boards"),
            ("cabling:\n  bridge", "hosts: [a, a]\ncabling:\n  bridge", "a name of its own"),
            ("systems:", "[", "not valid YAML"),
        ],
    )
    def test_a_mistake_in_a_system_is_named_with_its_line(self, tmp_path, right, wrong, complaint):
        assert right in SYSTEM
        with pytest.raises(MeshError, match=complaint) as error:
            built(written(tmp_path, SYSTEM.replace(right, wrong, 1)))
        assert "some.yaml:" in str(error.value)

    @pytest.mark.parametrize(
        ("right", "wrong", "complaint"),
        [
            ("chip: n300", "chip: n30", r":3: 'n30' is no chip\. Did you mean 'n300'"),
            ("pcie: 0", "pcie: 2", "card has no location 2, only 0, 1"),
            ("1/0,1", "1/0", "2 channels cannot be joined with 1"),
            ("1/0,1", "1/15,16", "card has no channel 1/16: its chips have 16, from 0"),
            ("1/0,1", "1/6,7", r"channel 1/6 of card is used twice: the link .*, connector warp"),
            ("1/0,1", "0/9,10", "channel 0/9 of card is used twice"),
            ("0/14,15 1/6,7", "14,15", "expected ports such as 0/8,9"),
            ("0/14,15 1/6,7", "''", "expected ports such as 0/8,9"),
            ("connectors:", "connector:", "Did you mean 'connectors'"),
        ],
    )
    def test_a_mistake_in_a_board_is_named_with_its_line(self, tmp_path, right, wrong, complaint):
        assert right in BOARD
        with pytest.raises(MeshError, match=complaint) as error:
            read_boards(written(tmp_path, BOARD.replace(right, wrong, 1)))
        assert "some.yaml:" in str(error.value)

    def test_a_system_may_not_be_like_one_that_is_like_another(self, tmp_path):
        text = "systems: {A: {summary: turtles}}\ncluster_type: T3K\nlike: A\n"
        with pytest.raises(MeshError, match="itself like another"):
            built(written(tmp_path, text))

    @given(
        st.integers(0, len(SYSTEM)),
        st.integers(0, 12),
        st.text(alphabet='0129:,.-/<>[]{} \n"&*x', max_size=4),
    )
    @settings(max_examples=40, deadline=None)
    def test_a_damaged_file_is_a_system_or_an_error(self, tmp_path_factory, start, length, insert):
        path = written(tmp_path_factory.mktemp("damaged"), SYSTEM[:start] + insert + SYSTEM[start + length :])
        outcome = built_or_refused(path)
        assert "some.yaml" in outcome if isinstance(outcome, str) else len(outcome.asics) in (2, 4)
