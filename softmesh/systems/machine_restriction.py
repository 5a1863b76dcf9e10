"""Restricts a machine to what works and is visible: chips and links down, and TT_VISIBLE_DEVICES.

A process with TT_VISIBLE_DEVICES sees some of its host's chips, and takes them for all there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from softmesh.errors import MeshError, did_you_mean
from softmesh.hardware import Arch
from softmesh.systems.machine import Asic, Link, Machine, Port
from softmesh.systems.product_detection import CHIPS_OF_BOARD, UBB_BOARDS, boards_of, detect, ubb_bus_id

# `--down` and SOFTMESH_DOWN: chips and links that are broken.


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
        raise MeshError(f"{', '.join(specs)[:200]}: that is all of {machine.name}; leave at least one chip up")
    return machine.without(chips, links) if chips or links else machine


def _known_chip(machine: Machine, spec: str, chip: int) -> int:
    if chip not in machine.asics:
        down = " (it is down already)" if any(asic.id == chip for asic in machine.down_chips) else ""
        raise MeshError(f"{spec}: {machine.name} has no chip {chip}{down}; it has {_listed(list(machine.asics))}")
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


_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)


def restricted(machine: Machine, text: str, host: str | None = None) -> Machine:
    """The machine with only the listed chips of one host (by default the first) in sight.

    `text` lists, with commas, chip numbers of that host or PCI addresses; empty text hides nothing. A board
    of one or two chips comes whole. The host's visible chips are numbered anew, those on PCIe first; links
    to hidden chips lead outside. Other hosts keep all chips, numbered on; the cluster type is that of the
    restricted host, which is what its processes find.

    >>> restricted(load("T3000"), "0").asics.keys()      # an N300 brings its remote chip
    dict_keys([0, 1])
    """
    tokens = [token.strip() for token in text.split(",")]
    if tokens == [""]:
        return machine
    own = _host_of(machine, host)
    chips = _by_local_number(machine, own)
    listed = {_listed_chip(machine, chips, token) for token in tokens}
    boards = boards_of(chips[number] for number in sorted(chips))
    seen = [asic for board in boards for asic in _seen_of(board, listed) if asic.id in machine.asics]
    seen.sort(key=lambda asic: (asic.pcie is None, asic.id))
    order = [asic.id for name in machine.hosts for asic in (seen if name == own else _chips(machine, name))]
    visible = _renumbered(machine.only(order), {old: new for new, old in enumerate(order)})
    return replace(visible, cluster_type=detect(_chips(visible, own), visible.links))


def pci_address(arch: Arch, asic: Asic) -> str | None:
    """Where a chip answers on its host's bus. Galaxy trays fix it; on other hosts bus n + 1 holds device n."""
    if asic.pcie is None:
        return None
    on_tray = asic.board in UBB_BOARDS and 1 <= asic.tray <= 4
    bus = ubb_bus_id(arch, asic.tray, asic.location) if on_tray else asic.pcie + 1
    return f"0000:{bus:02x}:00.0"


def _host_of(machine: Machine, host: str | None) -> str:
    if host is None:
        return machine.hosts[0]
    if host not in machine.hosts:
        raise MeshError(
            f"{machine.name} has no host {host!r}; its hosts: {', '.join(machine.hosts)}."
            f"{did_you_mean(host, machine.hosts)}"
        )
    return host


def _chips(machine: Machine, host: str) -> list[Asic]:
    return [machine.asics[id] for id in machine.chips_of(host)]


def _by_local_number(machine: Machine, host: str) -> dict[int, Asic]:
    """A host counts its own chips, broken ones too; where it is the only one, its numbers are the machine's."""
    asics = [*_chips(machine, host), *(asic for asic in machine.down_chips if asic.host == host)]
    start = 0 if len(machine.hosts) == 1 else min(asic.id for asic in asics)
    return {asic.id - start: asic for asic in asics}


def _listed_chip(machine: Machine, chips: Mapping[int, Asic], token: str) -> int:
    if token.isascii() and token.isdigit():
        asic = chips.get(int(token)) if len(token) < 10 else None
        known = f"{min(chips)}..{max(chips)}"
    elif _PCI_ADDRESS.fullmatch(token.lower()):
        addresses = {pci_address(machine.chip.arch, asic): asic for asic in chips.values()}
        asic = addresses.get(token.lower())
        known = _some(address for address in addresses if address)
    else:
        raise MeshError(
            f"TT_VISIBLE_DEVICES: {token[:40]!r} is neither a chip number nor a PCI address like 0000:01:00.0"
        )
    if asic is None:
        raise MeshError(f"TT_VISIBLE_DEVICES: {machine.name} has no chip {token[:40]}; there are {known}")
    if asic.id not in machine.asics:
        raise MeshError(f"TT_VISIBLE_DEVICES: chip {token} of {machine.name} is down; list another one")
    return asic.id


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")


def _seen_of(board: Sequence[Asic], listed: set[int]) -> list[Asic]:
    chosen = [asic for asic in board if asic.id in listed]
    return list(board) if chosen and board[0].board in CHIPS_OF_BOARD else chosen


def _renumbered(machine: Machine, ids: Mapping[int, int]) -> Machine:
    def moved(port: Port) -> Port:
        return Port(ids[port.chip], port.channel)

    def all_moved(links: Iterable[Link]) -> tuple[Link, ...]:
        return tuple(
            sorted(
                Link.between(moved(link.a), moved(link.b))
                for link in links
                if link.a.chip in ids and link.b.chip in ids
            )
        )

    asics = {new: replace(machine.asics[old], id=new) for old, new in ids.items()}
    return replace(
        machine,
        asics=asics,
        links=all_moved(machine.links),
        outside=tuple(sorted(link._replace(near=moved(link.near)) for link in machine.outside)),
        down_chips=(),
        down_links=all_moved(machine.down_links),
    )
