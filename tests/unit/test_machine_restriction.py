"""Machines with chips and links down."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.errors import MeshError
from softmesh.systems.machine import Link, Port
from softmesh.systems.machine_restriction import with_down
from softmesh.systems.named_systems import load


def test_a_chip_takes_its_links_with_it_and_the_others_keep_their_ids():
    machine = with_down(load("T3000"), ["chip:5"])
    assert list(machine.asics) == [0, 1, 2, 3, 4, 6, 7]
    assert not any(5 in (link.a.chip, link.b.chip) for link in machine.links)
    assert [asic.id for asic in machine.down_chips] == [5]
    assert len(machine.links) == 20 - 4
    assert len(machine.down_links) == 4


def test_a_pair_loses_every_link():
    machine = with_down(load("Galaxy"), ["link:0-4"])
    assert machine.links_between(0, 4) == ()
    assert len(machine.down_between(4, 0)) == 4
    assert len(machine.links) == 252


@pytest.mark.parametrize("spec", ["link:0/8", "link:4/0", "link:0/8-4/0", "link:4/0-0/8", " link:0/8 "])
def test_one_link_can_be_named_from_either_end(spec):
    machine = with_down(load("T3000"), [spec])
    assert machine.down_links == (Link(Port(0, 8), Port(4, 0)),)
    assert machine.links_between(0, 4) == (Link(Port(0, 9), Port(4, 1)),)


def test_several_things_are_down_at_once_and_may_overlap():
    machine = with_down(load("T3000"), ["chip:4", "link:0-4", "link:0/8", "link:1-3"])
    assert len(machine.down_links) == 4 + 2
    assert len(machine.links) == 14


def test_nothing_down_is_the_same_machine():
    machine = load("T3000")
    assert with_down(machine, []) is machine


def test_what_is_down_adds_up_over_calls():
    machine = with_down(with_down(load("T3000"), ["chip:0"]), ["chip:1"])
    assert [asic.id for asic in machine.down_chips] == [0, 1]
    with pytest.raises(MeshError, match=r"no chip 0 \(it is down already\); it has 2 to 7"):
        with_down(machine, ["chip:0"])


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("chip:8", "chip:8: T3000 has no chip 8; it has 0 to 7"),
        ("link:9-0", "has no chip 9"),
        ("link:0-9", "has no chip 9"),
        ("link:0-7", "no link joins chips 0 and 7; chip 0 is joined with 1, 2, 4"),
        ("link:0-0", "no link joins chips 0 and 0"),
        ("link:5/2", "no link at chip 5 ch 2; the channels of chip 5 that have one: 0, 1, 6, 7"),
        ("link:0/8-4/1", "the link at chip 0 ch 8 leads to chip 4 ch 0; write link:0/8-4/0"),
        ("chip:", "names nothing that can be down: write chip:5"),
        ("link:3", "names nothing that can be down"),
        ("", "names nothing that can be down"),
        ("chip:-1", "names nothing that can be down"),
        ("chip:" + "9" * 5000, "names nothing that can be down"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(spec, complaint):
    with pytest.raises(MeshError) as error:
        with_down(load("T3000"), [spec])
    assert complaint in str(error.value)
    assert len(str(error.value)) < 300


def test_a_chip_without_links_says_so():
    with pytest.raises(MeshError, match="that have one: none"):
        with_down(load("N150"), ["link:0/3"])


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_links_up_and_down_together_are_the_whole_machine(data):
    whole = load("torus:4x5")
    chips = data.draw(st.sets(st.sampled_from(list(whole.asics)), max_size=5))
    links = data.draw(st.sets(st.sampled_from(whole.links), max_size=9))
    specs = [f"chip:{chip}" for chip in chips] + [f"link:{link.a.chip}/{link.a.channel}" for link in links]
    machine = with_down(whole, specs)
    assert sorted((*machine.links, *machine.down_links)) == sorted(whole.links)
    assert machine.asics.keys() | {asic.id for asic in machine.down_chips} == whole.asics.keys()
    assert links <= set(machine.down_links)
    assert all(link.a.chip in machine.asics and link.b.chip in machine.asics for link in machine.links)
