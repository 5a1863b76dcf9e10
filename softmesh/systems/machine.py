"""A machine: a graph of chips and the Ethernet links between their channels.

Where it comes from (a data file, a generator, a cluster descriptor) makes no difference after that. A broken link
is an edge that is not there; the machine remembers it, so that messages can name it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from softmesh.hardware import ClusterType
from softmesh.systems.chip import Chip


class Port(NamedTuple):
    """One Ethernet channel of one chip."""

    chip: int
    channel: int

    def __str__(self) -> str:
        return f"chip {self.chip} ch {self.channel}"


class Link(NamedTuple):
    """A cable or a trace between two channels; `a` is the smaller port."""

    a: Port
    b: Port

    @classmethod
    def between(cls, one: Port, other: Port) -> Link:
        return cls(min(one, other), max(one, other))

    def far_end(self, chip: int) -> Port:
        return self.b if self.a.chip == chip else self.a

    def near_end(self, chip: int) -> Port:
        return self.a if self.a.chip == chip else self.b

    def __str__(self) -> str:
        return f"{self.a} <-> {self.b}"


class OutsideLink(NamedTuple):
    """A link whose far end belongs to no chip of this machine: another host's, or one that is hidden."""

    near: Port
    far_unique_id: int
    far_channel: int


@dataclass(frozen=True)
class Asic:
    """A chip in its place. `pcie` is its number on the host's bus; None: it is reached through another chip."""

    id: int
    unique_id: int
    host: str
    tray: int
    location: int
    board: str
    pcie: int | None

    @property
    def position(self) -> tuple[int, int]:
        """(tray, location): what pinnings speak of."""
        return self.tray, self.location


_MOST_NAMED = 6  # of what is down


@dataclass(frozen=True)
class Machine:
    """Chips (each under its id; ids stay when others are down), links, and what is known to be down."""

    name: str
    chip: Chip
    cluster_type: ClusterType
    asics: dict[int, Asic]
    links: tuple[Link, ...]
    outside: tuple[OutsideLink, ...] = ()
    down_chips: tuple[Asic, ...] = ()
    down_links: tuple[Link, ...] = ()
    summary: str = ""  # one line for lists
    grid: tuple[int, int] | None = None  # rows, columns, where the ids run row by row through a grid
    wraps: tuple[bool, bool] = (False, False)  # of that grid: N-S, E-W

    def __repr__(self) -> str:
        down = len(self.down_chips) + len(self.down_links)
        told = [f"{len(self.asics)} {self.chip.arch_name} chips", f"{len(self.links)} links"]
        told += [f"{down} chips and links down"] * bool(down)
        return f"Machine({self.name!r}, {', '.join(told)})"

    @cached_property
    def neighbours(self) -> dict[int, dict[int, tuple[Link, ...]]]:
        """For each chip its neighbours, and the links to each, by channel of the lower-numbered chip."""
        found: dict[int, dict[int, list[Link]]] = {chip: {} for chip in self.asics}
        for link in sorted(self.links):
            found[link.a.chip].setdefault(link.b.chip, []).append(link)
            found[link.b.chip].setdefault(link.a.chip, []).append(link)
        return {chip: {b: tuple(links) for b, links in near.items()} for chip, near in found.items()}

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """In the order of their first chips."""
        return tuple(dict.fromkeys(asic.host for asic in self.asics.values()))

    def chips_of(self, host: str) -> list[int]:
        return [asic.id for asic in self.asics.values() if asic.host == host]

    def links_between(self, one: int, other: int) -> tuple[Link, ...]:
        return self.neighbours[one].get(other, ())

    def without(self, chips: Collection[int] = (), links: Collection[Link] = ()) -> Machine:
        """The same machine with these chips and links down. A chip takes its links with it."""

        def is_lost(link: Link) -> bool:
            return link in links or link.a.chip in chips or link.b.chip in chips

        return replace(
            self,
            asics={id: asic for id, asic in self.asics.items() if id not in chips},
            links=tuple(link for link in self.links if not is_lost(link)),
            down_chips=(*self.down_chips, *(asic for id, asic in self.asics.items() if id in chips)),
            down_links=(*self.down_links, *filter(is_lost, self.links)),
            outside=tuple(link for link in self.outside if link.near.chip not in chips),
        )

    def restored(self) -> Machine:
        """With everything up again that is down."""
        return replace(
            self,
            asics=numbered((*self.asics.values(), *self.down_chips)),
            links=(*self.links, *self.down_links),
            down_chips=(),
            down_links=(),
        )

    def only(self, chips: Collection[int]) -> Machine:
        """What is left when nothing but these chips can be seen: links to others lead outside."""

        def outside(link: Link) -> OutsideLink:
            near, far = link if link.a.chip in chips else (link.b, link.a)
            return OutsideLink(near, self.asics[far.chip].unique_id, far.channel)

        ends = [(link, (link.a.chip in chips) + (link.b.chip in chips)) for link in self.links]
        hosts = {self.asics[chip].host for chip in chips}
        lost = tuple(asic for asic in self.down_chips if asic.host in hosts)
        near = {*chips, *(asic.id for asic in lost)}
        return replace(
            self,
            asics={id: asic for id, asic in self.asics.items() if id in chips},
            links=tuple(link for link, inside in ends if inside == 2),
            outside=(
                *(link for link in self.outside if link.near.chip in chips),
                *(outside(link) for link, inside in ends if inside == 1),
            ),
            down_chips=lost,
            down_links=tuple(link for link in self.down_links if near.issuperset((link.a.chip, link.b.chip))),
            grid=None,
        )

    def pcie_chip_of(self, chip: int) -> int:
        """The chip through which the host reaches this one: itself, or the nearest on its bus."""
        reached, frontier = {chip}, [chip]
        while frontier:
            on_bus = [c for c in frontier if self.asics[c].pcie is not None]
            if on_bus:
                return min(on_bus)
            frontier = [n for c in frontier for n in self.neighbours[c] if n not in reached]
            reached.update(frontier)
        return chip

    def down_between(self, one: int, other: int) -> list[Link]:
        """Links of this pair that are known to be broken."""
        pair = {one, other}
        return [link for link in self.down_links if {link.a.chip, link.b.chip} == pair]

    @property
    def down_text(self) -> str:
        """`chip 5, link chip 0 ch 8 <-> chip 4 ch 0`; links that went with a chip are not named."""
        chips = {asic.id for asic in self.down_chips}
        links = [link for link in self.down_links if not chips & {link.a.chip, link.b.chip}]
        named = [*(f"chip {chip}" for chip in sorted(chips)), *(f"link {link}" for link in links)]
        return ", ".join(
            [*named[:_MOST_NAMED], f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else named
        )


def numbered(asics: Iterable[Asic]) -> dict[int, Asic]:
    return {asic.id: asic for asic in sorted(asics, key=lambda asic: asic.id)}
