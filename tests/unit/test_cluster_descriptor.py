"""Cluster descriptor files: what is read, what is made up where a file is silent, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from softmesh.errors import MeshError
from softmesh.hardware import Arch, ClusterType
from softmesh.input_files.yaml_files import STRICT
from softmesh.systems.chip import N300, P150
from softmesh.systems.cluster_descriptor import (
    descriptor_text,
    load_cluster,
    load_descriptor,
    load_mapping,
)
from softmesh.systems.machine import Asic, Link, Machine, OutsideLink, Port
from softmesh.systems.product_detection import detect, ubb_position

FILES = Path(__file__).parents[1] / "fixtures" / "cluster_descriptors"

TWO_CHIPS = """\
arch: {0: wormhole_b0, 1: wormhole_b0}
chip_unique_ids: {0: 7, 1: 8}
ethernet_connections:
  - [{chip: 0, chan: 0}, {chip: 1, chan: 0}]
chips_with_mmio: [{0: 0}]
chip_to_boardtype: {0: n300, 1: n300}
"""


def refused(folder: Path, text: str) -> str:
    path = folder / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(MeshError) as error:
        load_cluster(path)
    assert str(error.value).startswith(str(path))
    return str(error.value).removeprefix(str(path))


def test_chips_links_and_places_of_one_host_are_read():
    machine = load_descriptor(FILES / "n300.yaml")
    assert machine.name == "n300"
    assert machine.hosts == ("n300.yaml",)
    assert machine.asics == {
        0: Asic(0, 0x100000A1, "n300.yaml", 0, 0, "n300", 0),
        1: Asic(1, 0x1100000A1, "n300.yaml", 0, 1, "n300", None),
    }
    assert machine.links == (Link(Port(0, 8), Port(1, 0)), Link(Port(0, 9), Port(1, 1)))
    assert machine.cluster_type is ClusterType.N300
    assert machine.chip == N300


def test_a_path_may_be_text():
    assert load_cluster(str(FILES / "n300.yaml")) == load_descriptor(FILES / "n300.yaml")


def test_without_locations_the_chip_on_pcie_is_0_and_the_remote_one_1_on_tray_0():
    machine = load_descriptor(FILES / "t3k.yaml")
    assert {asic.tray for asic in machine.asics.values()} == {0}
    assert [asic.location for asic in machine.asics.values()] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert machine.cluster_type is ClusterType.T3K


def test_galaxy_trays_and_locations_come_from_bus_ids():
    machine = load_descriptor(FILES / "galaxy_trays.yaml")
    assert [asic.position for asic in machine.asics.values()] == [
        (1, 1), (1, 5), (2, 1), (2, 5), (3, 1), (3, 5), (4, 1), (4, 5),
    ]  # fmt: skip
    assert machine.cluster_type is ClusterType.GALAXY


@pytest.mark.parametrize(
    ("arch", "order"),
    [(Arch.WORMHOLE_B0, (0xC3, 0x83, 0x03, 0x43)), (Arch.BLACKHOLE, (0x03, 0x43, 0xC3, 0x83))],
)
def test_each_architecture_has_its_own_order_of_trays(arch, order):
    assert [ubb_position(arch, bus_id) for bus_id in order] == [(1, 3), (2, 3), (3, 3), (4, 3)]


def test_a_galaxy_chip_on_a_bus_no_tray_has_is_nowhere():
    assert ubb_position(Arch.WORMHOLE_B0, 0x31) == (0, 0)


def test_the_most_harvested_chip_decides_the_grid():
    left = load_descriptor(FILES / "two_hosts" / "left.yaml")
    assert left.chip == P150._replace(tensix_grid=(12, 10), worker_grid=(12, 10))
    assert load_descriptor(FILES / "two_hosts" / "right.yaml").chip == P150


def test_hosts_are_numbered_through_in_the_order_of_ranks():
    machine = load_mapping(FILES / "two_hosts" / "mapping.yaml")
    assert machine.hosts == ("right.yaml", "left.yaml")
    assert [asic.unique_id for asic in machine.asics.values()] == [2000, 2001, 1000, 1001]
    assert machine.chips_of("left.yaml") == [2, 3]
    assert machine.cluster_type is ClusterType.P150_X2


def test_a_link_between_hosts_is_there_when_both_ends_report_it():
    machine = load_mapping(FILES / "two_hosts" / "mapping.yaml")
    assert machine.links_between(0, 2) == (Link(Port(0, 9), Port(2, 8)),)
    assert machine.links_between(1, 3) == ()
    assert machine.outside == (OutsideLink(Port(3, 8), 2001, 9), OutsideLink(Port(3, 11), 9999, 11))


def test_ranks_that_name_one_file_share_its_host():
    shared = load_mapping(FILES / "one_host_two_ranks.yaml")
    assert shared.asics == load_descriptor(FILES / "n300.yaml").asics


def test_either_kind_of_file_is_told_by_its_keys():
    assert len(load_cluster(FILES / "two_hosts" / "mapping.yaml").hosts) == 2
    with pytest.raises(MeshError, match="a mapping of ranks, where the descriptor of one host"):
        load_descriptor(FILES / "two_hosts" / "mapping.yaml")
    with pytest.raises(MeshError, match="so not a mapping"):
        load_mapping(FILES / "n300.yaml")


def test_a_mapping_that_names_a_mapping_is_refused(tmp_path):
    path = tmp_path / "mapping.yaml"
    path.write_text("rank_to_cluster_mock_cluster_desc: {0: mapping.yaml}")
    with pytest.raises(MeshError, match="a mapping of ranks, where the descriptor of one host"):
        load_mapping(path)


def test_a_channel_may_be_told_twice_only_inside_and_outside(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(
        TWO_CHIPS + "ethernet_connections_to_remote_devices:\n  - [{chip: 0, chan: 0}, {remote_chip_id: 99, chan: 3}]\n"
    )
    machine = load_descriptor(path)
    assert machine.links == (Link(Port(0, 0), Port(1, 0)),)
    assert machine.outside == (OutsideLink(Port(0, 0), 99, 3),)


def test_files_without_unique_ids_get_them_from_the_name_of_the_host(tmp_path):
    machines = []
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("arch: {0: wormhole_b0, 1: wormhole_b0}")
        machines.append(load_descriptor(tmp_path / name))
    ids = {asic.unique_id for machine in machines for asic in machine.asics.values()}
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("arch: {0: wormhole_b0, 1: wormhole_b0}", "arch: {}"), ": no `arch` table, so no chips"),
        (("1: wormhole_b0", "1: blackhole"), ":1: arch: blackhole and wormhole_b0 in one cluster"),
        (("1: wormhole_b0", "1: wormhol_b0"), "Did you mean 'wormhole_b0'?"),
        (("arch: {0:", "arch: {9999999:"), ":1: arch: 9999999 is outside 0..4095"),
        (("arch: {0:", "arch: {0x1:"), "one chip is there twice"),
        (("{0: 7, 1: 8}", "{0: 7, 1: 7}"), ":2: chip_unique_ids: two chips have one unique id"),
        (("{0: 7, 1: 8}", "[7, 8]"), ":2: chip_unique_ids: expected a table with one entry per chip"),
        (("{0: 7,", "{0: true,"), ":2: chip_unique_ids of chip 0: expected a whole number, found 'true'"),
        (("{0: 7,", "{0: -7,"), "-7 is outside 0..18446744073709551615"),
        (("chip: 1, chan", "chip: 5, chan"), ":4: ethernet link: there is no chip 5; `arch` lists 0..1"),
        (("chip: 1, chan: 0", "chip: 1, chan: 16"), ":4: ethernet link: chan: 16 is outside 0..15"),
        (("chip: 1, chan: 0", "chip: 1"), ":4: ethernet link: an end without `chan`"),
        (("chip: 1, chan: 0", "chip: 0, chan: 1"), "the link joins chip 0 to itself"),
        (
            ("[{chip: 0, chan: 0}, {chip: 1, chan: 0}]", "[{chip: 0, chan: 0}]"),
            "a link is a list of two ends",
        ),
        (("chips_with_mmio: [{0: 0}]", "chips_with_mmio: [{4: 0}]"), "chips_with_mmio: there is no chip 4"),
        (("chips_with_mmio: [{0: 0}]", "chips_with_mmio: [[0]]"), "expected `chip: PCIe number`"),
        (("{0: n300, 1: n300}", "{0: n300, 1: [n300]}"), "board type: expected a name"),
        (("chips_with_mmio: [{0: 0}]", "chips_with_mmio: *a"), "the alias *a is not taken here"),
        (("arch:", "arch: {}\narch:"), "the key 'arch' is there twice"),
        (("arch:", "---\na: b\n---\narch:"), "a second document begins"),
        (("chip_unique_ids: {", "chip_unique_ids: {[1]: 2, "), "a key must be plain text, not a list"),
    ],
)
def test_what_a_file_gets_wrong_is_said_with_its_line(tmp_path, change, message):
    old, new = change
    assert old in TWO_CHIPS
    assert message in refused(tmp_path, TWO_CHIPS.replace(old, new, 1))


def test_a_channel_used_twice_names_the_line_of_the_first_use(tmp_path):
    again = TWO_CHIPS.replace("chips_with", "  - [{chip: 1, chan: 4}, {chip: 0, chan: 0}]\nchips_with")
    assert ":5: chip 0 ch 0 has a link already, at line 4" in refused(tmp_path, again)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected keys with values, found nothing"),
        ("- a", "expected keys with values, found a list of 1"),
        ("[" * 100_000, "nested deeper than 16 levels"),
        ("- " * 100_000 + "a", "nested deeper than 16 levels"),
        ("a: {b", "not valid YAML"),
        ("arch: \x07", "not valid YAML"),
        ("arch:\n" + "".join(f"  {chip}: blackhole\n" for chip in range(5000)), "5000 chips; at most 4096"),
        ("arch: " + "x" * 100_000, "expected a table with one entry per chip"),
    ],
)
def test_what_is_no_descriptor_is_refused_in_few_words(tmp_path, text, message):
    said = refused(tmp_path, text)
    assert message in said
    assert len(said) < 300


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(MeshError, match=r"nowhere\.yaml: no such file"):
        load_cluster(tmp_path / "nowhere.yaml")
    with pytest.raises(MeshError, match="is not a plain file"):
        load_cluster(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"arch: \xff")
    with pytest.raises(MeshError, match="not UTF-8 text"):
        load_cluster(tmp_path / "bytes.yaml")
    with pytest.raises(MeshError, match=r"cannot be read|no such file"):
        load_cluster("a\0b")


def test_a_file_larger_than_any_descriptor_is_not_read(tmp_path):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(MeshError, match="larger than 8 MiB"):
        load_cluster(path)


def test_a_file_of_more_values_than_any_descriptor_is_left_in_the_middle(tmp_path, monkeypatch):
    monkeypatch.setattr("softmesh.input_files.yaml_files.STRICT", replace(STRICT, most_values=20))
    assert "more than 20 values, which no descriptor has" in refused(tmp_path, TWO_CHIPS)


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ("[]", "expected `rank: path` entries"),
        ("{}", "expected `rank: path` entries"),
        ("{a: n300.yaml}", "ranks are whole numbers"),
        ("{0: n300.yaml, 00: n300.yaml}", "each once"),
        ("{0: [n300.yaml]}", "rank 0: expected a path"),
        ("{0: elsewhere/n300.yaml}", "found neither beside this file nor under any folder above"),
    ],
)
def test_a_wrong_mapping_is_refused(tmp_path, ranks, message):
    assert message in refused(tmp_path, f"rank_to_cluster_mock_cluster_desc: {ranks}")


def mapping_of(folder: Path, **descriptors: str) -> Path:
    for name, text in descriptors.items():
        (folder / name).mkdir()
        (folder / name / f"{name}.yaml").write_text(text)
    ranks = ", ".join(f"{rank}: {name}/{name}.yaml" for rank, name in enumerate(descriptors))
    path = folder / "mapping.yaml"
    path.write_text(f"rank_to_cluster_mock_cluster_desc: {{{ranks}}}")
    return path


def test_two_hosts_cannot_hold_one_chip(tmp_path):
    with pytest.raises(MeshError, match=r"unique id 7 is also in .*two hosts cannot hold one chip"):
        load_mapping(mapping_of(tmp_path, one=TWO_CHIPS, two=TWO_CHIPS))


def test_hosts_of_one_machine_have_one_architecture(tmp_path):
    with pytest.raises(MeshError, match="one machine has one architecture"):
        load_mapping(mapping_of(tmp_path, one=TWO_CHIPS, two="arch: {0: blackhole}"))


def test_hosts_need_names_of_their_own(tmp_path):
    path = mapping_of(tmp_path, one=TWO_CHIPS)
    (tmp_path / "one.yaml").write_text("arch: {0: wormhole_b0}")
    path.write_text("rank_to_cluster_mock_cluster_desc: {0: one/one.yaml, 1: one.yaml}")
    with pytest.raises(MeshError, match="have one name, and the name of its file is the name of a host"):
        load_mapping(path)


def chips(board: str, count: int, pcie: bool = True) -> list[Asic]:
    return [Asic(n, n, "host", 0, 0, board, n if pcie else None) for n in range(count)]


@pytest.mark.parametrize(
    ("board", "count", "expected"),
    [
        ("n150", 1, "N150"), ("n300", 2, "N300"), ("n300", 8, "N300"), ("p100", 1, "P100"), ("p100", 2, "CUSTOM"),
        ("p150", 1, "P150"), ("p150", 2, "P150_X2"), ("p150", 3, "CUSTOM"), ("p150", 4, "P150_X4"),
        ("p150", 8, "P150_X8"), ("p300", 2, "P300"), ("p300", 4, "P300_X2"), ("ubb", 32, "GALAXY"),
        ("ubb_blackhole", 32, "BLACKHOLE_GALAXY"), ("galaxy", 36, "TG"), ("unknown", 1, "CUSTOM"),
    ],
)  # fmt: skip
def test_boards_and_their_number_make_the_cluster_type(board, count, expected):
    assert detect(chips(board, count), []) is ClusterType[expected]


def test_n300_boards_in_a_ring_of_four_are_a_2x2():
    ring = [Link.between(Port(n, 0), Port((n + 1) % 4, 1)) for n in range(4)]
    assert detect(chips("n300", 4), ring) is ClusterType.N300_2x2
    assert load_descriptor(FILES / "two_n300.yaml").cluster_type is ClusterType.N300_2x2


def test_one_galaxy_board_makes_the_cluster_a_tg_and_other_mixtures_are_custom():
    assert detect([*chips("n150", 1), Asic(1, 1, "host", 0, 0, "galaxy", None)], []) is ClusterType.TG
    assert detect([*chips("n150", 1), Asic(1, 1, "host", 0, 0, "n300", 1)], []) is ClusterType.CUSTOM


@pytest.mark.parametrize("name", ["n300", "t3k", "two_n300", "galaxy_trays", "two_hosts/left"])
def test_a_machine_written_and_read_again_is_the_same(name, tmp_path):
    machine = load_descriptor(FILES / f"{name}.yaml")
    path = tmp_path / f"{name.split('/')[-1]}.yaml"
    path.write_text(descriptor_text(machine))
    assert load_descriptor(path) == machine


def test_the_hosts_of_a_machine_written_apart_join_again(tmp_path):
    whole = load_mapping(FILES / "two_hosts" / "mapping.yaml")
    for host in whole.hosts:
        (tmp_path / host).write_text(descriptor_text(whole, host))
    path = tmp_path / "mapping.yaml"
    path.write_text("rank_to_cluster_mock_cluster_desc: {0: right.yaml, 1: left.yaml}")
    assert load_mapping(path) == whole


def test_trays_that_no_rule_gives_are_written_out(tmp_path):
    machine = Machine("m", N300, ClusterType.N150, {0: Asic(0, 5, "m.yaml", 3, 0, "n150", 0)}, ())
    (tmp_path / "m.yaml").write_text(descriptor_text(machine))
    assert load_descriptor(tmp_path / "m.yaml").asics == machine.asics


def test_writing_a_host_that_is_not_there_names_those_that_are():
    with pytest.raises(MeshError, match=r"no host 'n300\.yml'; its hosts: n300\.yaml\. Did you mean"):
        descriptor_text(load_descriptor(FILES / "n300.yaml"), "n300.yml")


def test_a_mapping_to_a_file_with_an_endless_name_is_refused_with_its_line(tmp_path):
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(f"rank_to_cluster_mock_cluster_desc:\n  0: {'x' * 5000}.yaml\n")
    with pytest.raises(MeshError, match="was found neither beside this file"):
        load_mapping(mapping)
