"""TT_VISIBLE_DEVICES: a process that sees some of its host's chips, and takes them for all there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from softmesh.errors import MeshError, did_you_mean
from softmesh.hardware import Arch
from softmesh.systems.boards import CHIPS_OF_BOARD, boards_of
from softmesh.systems.cluster_type import detect
from softmesh.systems.machine import Asic, Link, Machine, Port
from softmesh.systems.positions import UBB_BOARDS, ubb_bus_id

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
