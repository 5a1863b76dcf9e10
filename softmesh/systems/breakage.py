"""Machines with chips and links down: what `--down` and SOFTMESH_DOWN say, taken out of a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from softmesh.errors import MeshError
from softmesh.systems.machine import Link, Machine, Port

_CHIP = re.compile(r"chip:(\d{1,9})", re.ASCII)
_PAIR = re.compile(r"link:(\d{1,9})-(\d{1,9})", re.ASCII)
_PORTS = re.compile(r"link:(\d{1,9})/(\d{1,9})(?:-(\d{1,9})/(\d{1,9}))?", re.ASCII)
FORMS = "chip:5, link:3-7 (every link of the two chips), link:3/8 (channel 8 of chip 3) or link:3/8-7/0"
_MOST_NAMED = 16


def with_down(machine: Machine, specs: Sequence[str]) -> Machine:
    """The machine without what `specs` name. They all speak of the machine as it was given.

    >>> len(with_down(load("T3000"), ["link:0-2"]).links_between(0, 2))
    0
    """
    chips: set[int] = set()
    links: set[Link] = set()
    for spec in specs:
        text = spec.strip()
        if found := _CHIP.fullmatch(text):
            chips.add(_known_chip(machine, text, int(found[1])))
        elif found := _PAIR.fullmatch(text):
            links.update(_links_of_pair(machine, text, int(found[1]), int(found[2])))
        elif found := _PORTS.fullmatch(text):
            chip, channel, far_chip, far_channel = (int(number or 0) for number in found.groups())
            far = Port(far_chip, far_channel) if found[3] else None
            links.add(_link_at(machine, text, Port(chip, channel), far))
        else:
            raise MeshError(f"{text[:60]!r} names nothing that can be down: write {FORMS}")
    if len(chips) == len(machine.asics):
        raise MeshError(
            f"{', '.join(specs)[:200]}: that is all of {machine.name}; leave at least one chip up"
        )
    return machine.without(chips, links) if chips or links else machine


def _known_chip(machine: Machine, spec: str, chip: int) -> int:
    if chip not in machine.asics:
        down = " (it is down already)" if any(asic.id == chip for asic in machine.down_chips) else ""
        raise MeshError(
            f"{spec}: {machine.name} has no chip {chip}{down}; it has {_listed(list(machine.asics))}"
        )
    return chip


def _links_of_pair(machine: Machine, spec: str, one: int, other: int) -> tuple[Link, ...]:
    for chip in (one, other):
        _known_chip(machine, spec, chip)
    links = machine.links_between(one, other)
    if not links:
        near = _listed(sorted(machine.neighbours[one])) if machine.neighbours[one] else "no other chip"
        raise MeshError(f"{spec}: no link joins chips {one} and {other}; chip {one} is joined with {near}")
    return links


def _link_at(machine: Machine, spec: str, port: Port, far: Port | None) -> Link:
    chip = _known_chip(machine, spec, port.chip)
    at_chip = {link.near_end(chip): link for links in machine.neighbours[chip].values() for link in links}
    if port not in at_chip:
        channels = _listed(sorted(near.channel for near in at_chip)) if at_chip else "none"
        raise MeshError(f"{spec}: no link at {port}; the channels of chip {chip} that have one: {channels}")
    true_far = at_chip[port].far_end(chip)
    if far is not None and far != true_far:
        right = f"link:{chip}/{port.channel}-{true_far.chip}/{true_far.channel}"
        raise MeshError(f"{spec}: the link at {port} leads to {true_far}; write {right}")
    return at_chip[port]


def _listed(numbers: list[int]) -> str:
    """`0 to 31` where they are all there, else one by one, cut where there are many."""
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]} to {numbers[-1]}"
    more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
    return ", ".join(map(str, numbers[:_MOST_NAMED])) + more
