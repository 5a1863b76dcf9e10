"""A machine as bit sets: chips are bits, so that 'free neighbours of both' is one `&`.

A set of chips is an int; bit i is the i-th chip in the order of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from softmesh.systems.machine import Machine


def bits(chips: int) -> Iterator[int]:
    """The members of a set, lowest first."""
    while chips:
        lowest = chips & -chips
        yield lowest.bit_length() - 1
        chips ^= lowest


def either(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


def union(indices: Iterable[int]) -> int:
    return either(1 << index for index in indices)


def union_over(chips: int, tables: Sequence[int]) -> int:
    """What the tables of these chips hold, together; a loop, as searches ask it often."""
    found = 0
    for chip in bits(chips):
        found |= tables[chip]
    return found


class Wiring:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ids = sorted(machine.asics)
        self.index = {chip: i for i, chip in enumerate(self.ids)}
        self.every = (1 << len(self.ids)) - 1
        self.links: list[dict[int, int]] = [
            {self.index[near]: len(links) for near, links in machine.neighbours[chip].items()} for chip in self.ids
        ]
        self._joined: dict[int, list[int]] = {}

    def joined(self, at_least: int = 1) -> list[int]:
        """For each chip the set of chips that it shares so many links with."""
        if at_least not in self._joined:
            self._joined[at_least] = [
                union(near for near, count in links.items() if count >= at_least and near != chip)
                for chip, links in enumerate(self.links)
            ]
        return self._joined[at_least]

    @cached_property
    def hosts(self) -> dict[str, int]:
        found: dict[str, int] = dict.fromkeys(self.machine.hosts, 0)
        for chip, index in self.index.items():
            found[self.machine.asics[chip].host] |= 1 << index
        return found

    @cached_property
    def host_of(self) -> list[int]:
        """For each chip the set of all chips of its host."""
        return [self.hosts[self.machine.asics[chip].host] for chip in self.ids]

    @cached_property
    def positions(self) -> dict[tuple[int, int], int]:
        """(tray, location) -> the chips there, one for each host that has the position."""
        found: dict[tuple[int, int], int] = {}
        for chip, index in self.index.items():
            position = self.machine.asics[chip].position
            found[position] = found.get(position, 0) | 1 << index
        return found

    def at(self, positions: Iterable[tuple[int, int]]) -> int:
        return either(self.positions.get(position, 0) for position in positions)

    def links_between(self, ones: int, others: int) -> int:
        return sum(count for chip in bits(ones) for near, count in self.links[chip].items() if others >> near & 1)

    def neighbours_of(self, chips: int) -> int:
        """The chips next to a set, itself left out."""
        return union_over(chips, self.joined()) & ~chips

    def component(self, start: int, within: int, at_least: int = 1) -> int:
        """Every chip of `within` that can be reached from the set `start` through `within`."""
        joined = self.joined(at_least)
        reached = edge = start & within
        while edge:
            edge = union_over(edge, joined) & within & ~reached
            reached |= edge
        return reached

    def are_connected(self, chips: int, within: int) -> bool:
        """Whether these chips reach each other through `within`."""
        joined = self.joined()
        reached = edge = chips & -chips
        while edge and chips & ~reached:
            edge = union_over(edge, joined) & within & ~reached
            reached |= edge
        return not chips & ~reached

    def components(self, within: int, at_least: int = 1) -> Iterator[int]:
        while within:
            found = self.component(within & -within, within, at_least)
            yield found
            within &= ~found

    def two_colours(self, region: int, at_least: int = 1) -> tuple[int, int] | None:
        """How many chips of a connected region have either colour, if neighbours always differ."""
        joined = self.joined(at_least)
        seen = edge = region & -region
        colours = [edge, 0]
        turn = 0
        while edge:
            near = union_over(edge, joined) & region
            if near & colours[turn]:
                return None
            turn = 1 - turn
            edge = near & ~seen
            seen |= edge
            colours[turn] |= edge
        return colours[0].bit_count(), colours[1].bit_count()
