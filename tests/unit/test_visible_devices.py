"""TT_VISIBLE_DEVICES: whole small boards, single Galaxy chips, new numbers, links that lead outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from softmesh.errors import MeshError
from softmesh.hardware import ClusterType
from softmesh.systems.cluster_descriptor import load_descriptor, load_mapping
from softmesh.systems.machine import Link, Machine, OutsideLink, Port
from softmesh.systems.machine_restriction import pci_address, restricted

FILES = Path(__file__).parents[1] / "fixtures" / "cluster_descriptors"


@pytest.fixture
def t3k() -> Machine:
    return load_descriptor(FILES / "t3k.yaml")


@pytest.fixture
def galaxy() -> Machine:
    return load_descriptor(FILES / "galaxy_trays.yaml")


@pytest.fixture
def two_hosts() -> Machine:
    return load_mapping(FILES / "two_hosts" / "mapping.yaml")


def unique_ids(machine: Machine) -> list[int]:
    return [asic.unique_id for asic in machine.asics.values()]


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_list_hides_nothing(t3k, text):
    assert restricted(t3k, text) is t3k


@pytest.mark.parametrize("text", ["0", "4", "0,4", "4, 0 ,0"])
def test_an_n300_comes_whole_whichever_of_its_chips_is_listed(t3k, text):
    board = restricted(t3k, text)
    assert unique_ids(board) == [t3k.asics[0].unique_id, t3k.asics[4].unique_id]
    assert list(board.asics) == [asic.id for asic in board.asics.values()] == [0, 1]
    assert board.cluster_type is ClusterType.N300
    assert board.links == (Link(Port(0, 8), Port(1, 0)), Link(Port(0, 9), Port(1, 1)))


def test_links_to_hidden_chips_lead_outside(t3k):
    board = restricted(t3k, "0")
    assert set(board.outside) == {
        OutsideLink(Port(0, channel), t3k.asics[far].unique_id, channel)
        for channel, far in ((6, 2), (7, 2), (14, 1), (15, 1))
    } | {OutsideLink(Port(1, channel), t3k.asics[5].unique_id, channel) for channel in (14, 15)}


def test_chips_on_pcie_are_numbered_first(t3k):
    half = restricted(t3k, "3,1")
    assert unique_ids(half) == [t3k.asics[old].unique_id for old in (1, 3, 5, 7)]
    assert [asic.pcie for asic in half.asics.values()] == [1, 3, None, None]
    assert half.cluster_type is ClusterType.N300


def test_boards_are_paired_in_order_where_unique_ids_do_not_tell():
    pair = load_descriptor(FILES / "two_n300.yaml")
    assert unique_ids(restricted(pair, "2")) == [13, 14]


def test_of_a_galaxy_exactly_the_listed_chips_are_seen(galaxy):
    seen = restricted(galaxy, "1,0")
    assert unique_ids(seen) == [101, 105]
    assert seen.outside == (OutsideLink(Port(0, 4), 201, 4),)
    assert seen.cluster_type is ClusterType.GALAXY


def test_chips_can_be_listed_by_pci_address(galaxy, t3k):
    assert unique_ids(restricted(galaxy, "0000:C5:00.0, 0000:41:00.0")) == [105, 401]
    assert unique_ids(restricted(t3k, "0000:03:00.0,0")) == unique_ids(restricted(t3k, "0,2"))


def test_a_remote_chip_has_no_pci_address(t3k):
    assert pci_address(t3k.chip.arch, t3k.asics[4]) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8", r"has no chip 8; there are 0\.\.7"),
        ("99999999999999999999", "has no chip 9999"),
        ("0000:99:00.0", r"has no chip 0000:99:00\.0; there are 0000:01:00\.0, 0000:02"),
        ("0,,1", "'' is neither a chip number nor a PCI address"),
        ("-1", "'-1' is neither"),
        ("0x1", "'0x1' is neither"),
        ("all", "'all' is neither"),
        ("²", "'²' is neither"),
    ],
)
def test_what_is_not_there_is_refused(t3k, text, message):
    with pytest.raises(MeshError, match=message):
        restricted(t3k, text)


def test_a_chip_that_is_down_cannot_be_listed_but_its_board_mate_can(t3k):
    broken = t3k.without(chips=[4])
    with pytest.raises(MeshError, match="chip 4 of t3k is down"):
        restricted(broken, "4")
    assert unique_ids(restricted(broken, "0")) == [t3k.asics[0].unique_id]


def test_chips_left_over_from_two_broken_boards_are_no_board(t3k):
    broken = t3k.without(chips=[1, 4])
    assert unique_ids(restricted(broken, "0")) == [t3k.asics[0].unique_id]


def test_broken_links_keep_their_chips_under_the_new_numbers(t3k):
    broken = t3k.without(links=[Link(Port(1, 8), Port(5, 0)), Link(Port(0, 6), Port(2, 6))])
    assert restricted(broken, "1").down_links == (Link(Port(0, 8), Port(1, 0)),)


def test_numbers_are_those_of_the_host_and_other_hosts_stay(two_hosts):
    of_the_first = restricted(two_hosts, "1")
    assert unique_ids(of_the_first) == [2001, 1000, 1001]
    of_the_second = restricted(two_hosts, "0", host="left.yaml")
    assert unique_ids(of_the_second) == [2000, 2001, 1000]
    assert of_the_first.cluster_type is of_the_second.cluster_type is ClusterType.P150
    assert of_the_second.links_between(0, 2) == (Link(Port(0, 9), Port(2, 8)),)
    with pytest.raises(MeshError, match=r"has no chip 2; there are 0\.\.1"):
        restricted(two_hosts, "2", host="left.yaml")


def test_an_unknown_host_is_refused(two_hosts):
    with pytest.raises(MeshError, match=r"no host 'lefty'; its hosts: right\.yaml, left\.yaml"):
        restricted(two_hosts, "0", host="lefty")
