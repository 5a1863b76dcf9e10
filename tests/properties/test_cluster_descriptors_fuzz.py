"""Machines survive being written down; and no document, however odd, does more than raise a MeshError."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.errors import MeshError
from softmesh.systems.chip import CHIPS, Chip
from softmesh.systems.cluster_descriptor import descriptor_text, load_cluster, load_descriptor
from softmesh.systems.machine import Asic, Link, Machine, OutsideLink, Port
from softmesh.systems.machine_restriction import restricted
from softmesh.systems.product_detection import detect

BOARDS = {"n150": "n150", "n300": "n300", "ubb": "wh_galaxy", "p150": "p150", "ubb_blackhole": "bh_galaxy"}
FILES = Path(__file__).parents[1] / "fixtures" / "cluster_descriptors"
KEYS = sorted(yaml.safe_load((FILES / "n300.yaml").read_text()))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    board = draw(st.sampled_from(sorted(BOARDS)))
    chip: Chip = CHIPS[BOARDS[board]]
    ids = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=12)))
    asics = {id: draw(asics_of(board, id)) for id in ids}
    ports = [Port(id, channel) for id in ids for channel in range(4)]
    random.Random(draw(st.integers(0, 2**16))).shuffle(ports)
    pairs = zip(ports[::2], ports[1::2], strict=False)
    joined = [Link.between(a, b) for a, b in pairs if a.chip != b.chip]
    links = tuple(sorted(joined[: draw(st.integers(0, len(joined)))]))
    outside = tuple(
        OutsideLink(Port(id, channel), draw(st.integers(2**40, 2**64 - 1)), draw(st.integers(0, 13)))
        for id in ids
        for channel in sorted(draw(st.sets(st.integers(8, 11))))
    )
    return Machine("host", chip, detect(asics, links), asics, links, outside)


@st.composite
def asics_of(draw: st.DrawFn, board: str, id: int) -> Asic:
    tray, location = draw(st.integers(0, 9)), draw(st.integers(0, 255))
    return Asic(id, 10_000 + id, "host.yaml", tray, location, board, draw(st.none() | st.integers(0, 99)))


@given(machines())
@settings(max_examples=40, deadline=None)
def test_a_machine_written_and_read_again_is_the_same(machine: Machine):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "host.yaml"
        path.write_text(descriptor_text(machine))
        assert load_descriptor(path) == machine


@given(machines(), st.data())
@settings(max_examples=40, deadline=None)
def test_hiding_chips_keeps_every_channel_of_those_in_sight(machine: Machine, data: st.DataObject):
    listed = data.draw(st.lists(st.sampled_from(sorted(machine.asics)), min_size=1))
    seen = restricted(machine, ",".join(map(str, listed)))
    assert list(seen.asics) == list(range(len(seen.asics)))
    old_ids = {asic.unique_id: asic.id for asic in machine.asics.values()}
    old = {id: old_ids[asic.unique_id] for id, asic in seen.asics.items()}
    assert set(listed) <= set(old.values())

    def channels(machine: Machine, chip: int) -> set[int]:
        inside = {link.near_end(chip).channel for links in machine.neighbours[chip].values() for link in links}
        return inside | {link.near.channel for link in machine.outside if link.near.chip == chip}

    for chip in seen.asics:
        assert channels(seen, chip) == channels(machine, old[chip])


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.just([[[[{}]]]]),
    st.sampled_from(["wormhole_b0", "blackhole", "0x", "0000:01:00.0", "~", "n300"]),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    keys = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in keys for place in ((value, key), *places(part))]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_descriptor_with_anything_in_a_wrong_place_is_a_machine_or_an_error(data: st.DataObject):
    name = data.draw(st.sampled_from(["n300", "two_n300", "galaxy_trays", "two_hosts/left"]))
    document = yaml.safe_load((FILES / f"{name}.yaml").read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(document)))
        if key in container if isinstance(container, dict) else key < len(container):
            container[key] = data.draw(ODD)
    machine_or_error(yaml.safe_dump(document))


@given(st.dictionaries(st.sampled_from(KEYS), st.recursive(ODD, lambda inner: st.lists(inner, max_size=3))))
@settings(max_examples=40, deadline=None)
def test_known_keys_with_odd_values_are_a_machine_or_an_error(document: dict[str, Any]):
    machine_or_error(yaml.safe_dump({"arch": {0: "blackhole"}} | document))


@given(st.text(alphabet="arch: {}[]&*!|>-0123456789\n\t'\"#%@,?~\0é", max_size=80))
@settings(max_examples=40, deadline=None)
def test_noise_is_an_error(text: str):
    machine_or_error(text)


def machine_or_error(text: str) -> None:
    outcome = outcome_of(text)
    if isinstance(outcome, Machine):
        assert outcome.asics
    else:
        assert "host.yaml" in str(outcome)
        assert len(str(outcome)) < 600


def outcome_of(text: str) -> Machine | MeshError:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "host.yaml"
        path.write_text(text)
        try:
            return load_cluster(path)
        except MeshError as error:
            return error
