"""The tiles that meshes can be laid on, and how the tiles lie to each other: overlap, links, what they leave over.

A set of tiles is an int, like a set of chips.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from softmesh.fabric.matching.backtracking import StepsSpent
from softmesh.fabric.matching.embedding import Piece
from softmesh.fabric.matching.tiles import Tile, TileBook
from softmesh.fabric.matching.wiring import bits
from softmesh.fabric.mesh_graph import Connection, Side

WORTH_COMPARING = 2_000_000  # tiles times chips: beyond that the search itself is faster


@dataclass(frozen=True)
class Wish:
    """`links` between two sides; what a connection asks for in this round."""

    a: Side
    b: Side
    links: int

    @property
    def is_pairwise(self) -> bool:
        return len(self.a.meshes) == len(self.b.meshes) == 1 and self.a.meshes != self.b.meshes

    @property
    def turned(self) -> Wish:
        return Wish(self.b, self.a, self.links)


def wishes(connections: Iterable[Connection], in_full: bool) -> list[Wish]:
    """A relaxed connection is content with one link, a named pair of chips and a strict one never are."""
    return [
        Wish(one.a, one.b, one.count if in_full or one.strict or one.is_between_chips else 1)
        for one in connections
    ]


class Floor:
    """All tiles, as bits of a set of their own, and how they lie to each other."""

    def __init__(self, book: TileBook, pieces: Sequence[Sequence[Piece]], wanted: Sequence[Wish]) -> None:
        self.wiring = book.wiring
        self.pieces = pieces
        self.wanted = wanted
        self.tiles: list[Tile] = []
        self.is_complete = True
        self.domains = self._list_all(book)
        self.sizes = [alternatives[0].mesh.size for alternatives in pieces]
        self.spare = self.wiring.every.bit_count() - sum(self.sizes)
        self._partners: dict[tuple[int, int | None, int | None, int], int] = {}
        self._excluded: dict[int, int] = {}
        self._drop_tiles_that_waste_chips()

    def give_up(self) -> None:
        """Nothing found is a proof only where every tile was looked at."""
        if not self.is_complete:
            raise StepsSpent

    def _list_all(self, book: TileBook) -> list[int]:
        named = self._named_chips()
        listed: dict[int, int] = {}
        domains = []
        for mesh, alternatives in enumerate(self.pieces):
            domain = 0
            for piece in alternatives:
                found = book.listing(piece, tuple(sorted(named.get(mesh, ()))))
                if id(found) not in listed:
                    listed[id(found)] = ((1 << len(found.tiles)) - 1) << len(self.tiles)
                    self.tiles += found.tiles
                    self.is_complete &= found.is_complete
                domain |= listed[id(found)]
            domains.append(domain)
        return domains

    def _named_chips(self) -> dict[int, set[int]]:
        named: dict[int, set[int]] = {}
        for wish in self.wanted:
            for side in (wish.a, wish.b):
                if side.chip is not None:
                    named.setdefault(side.meshes[0], set()).add(side.chip)
        return named

    @cached_property
    def holding(self) -> list[int]:
        """For each chip the tiles it is part of."""
        found = [0] * len(self.wiring.ids)
        for number, tile in enumerate(self.tiles):
            for chip in tile.embedding:
                found[chip] |= 1 << number
        return found

    @cached_property
    def _placing(self) -> dict[tuple[int, int], int]:
        """(logical chip, chip) -> the tiles that put the one on the other."""
        found: dict[tuple[int, int], int] = {}
        for number, tile in enumerate(self.tiles):
            for place in enumerate(tile.embedding):
                found[place] = found.get(place, 0) | 1 << number
        return found

    def excluded(self, tile: int) -> int:
        """Tiles that share a chip with this one."""
        if tile not in self._excluded:
            found = 0
            for chip in self.tiles[tile].embedding:
                found |= self.holding[chip]
            self._excluded[tile] = found
        return self._excluded[tile]

    def partners(self, rule: int, tile: int) -> int:
        """Tiles that the other mesh of a wish may lie on; odd rules read the wish from its far side."""
        wish = self.wanted[rule // 2]
        if rule % 2:
            wish = wish.turned
        key = wish.links, wish.a.chip, wish.b.chip, tile
        if key not in self._partners:
            self._partners[key] = self._fulfilling(wish, tile)
        return self._partners[key]

    def _fulfilling(self, wish: Wish, tile: int) -> int:
        """Counts links for all tiles at once: `reached[n]` are those with more than n links so far."""
        outwards = self._links_out_of(self.end(wish.a, tile))
        if wish.links > sum(outwards.values()):
            return 0
        reached = [0] * wish.links
        for chip, links in outwards.items():
            there = self.holding[chip] if wish.b.chip is None else self._placing.get((wish.b.chip, chip), 0)
            for _ in range(links):
                for n in range(wish.links - 1, 0, -1):
                    reached[n] |= reached[n - 1] & there
                reached[0] |= there
        return reached[-1] & ~self.excluded(tile)

    def _links_out_of(self, chips: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for chip in bits(chips):
            for near, links in self.wiring.links[chip].items():
                if not chips >> near & 1:
                    found[near] = found.get(near, 0) + links
        return found

    def end(self, side: Side, tile: int) -> int:
        """The chips that a side of a connection means on this tile."""
        placed = self.tiles[tile]
        return placed.chips if side.chip is None else 1 << placed.embedding[side.chip]

    @cached_property
    def neighbours(self) -> list[list[tuple[int, int]]]:
        """For each mesh the meshes it is connected to, and the rule that partners take."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.pieces]
        for number, wish in enumerate(self.wanted):
            if wish.is_pairwise:
                found[wish.a.meshes[0]].append((wish.b.meshes[0], 2 * number))
                found[wish.b.meshes[0]].append((wish.a.meshes[0], 2 * number + 1))
        return found

    def groups_among(self, meshes: list[int]) -> int:
        """How many groups the connections between these meshes tie them into."""
        groups, left = 0, set(meshes)
        while left:
            groups += 1
            edge = [left.pop()]
            while edge:
                near = [other for other, _ in self.neighbours[edge.pop()] if other in left]
                left.difference_update(near)
                edge += dict.fromkeys(near)
        return groups

    @property
    def is_tight(self) -> bool:
        return 4 * self.spare <= sum(self.sizes)

    def dead_chips(self, live: int, free: int) -> int:
        """Free chips that no remaining tile covers."""
        if live.bit_count() > free.bit_count():
            return sum(not self.holding[chip] & live for chip in bits(free))
        for tile in bits(live):
            free &= ~self.tiles[tile].chips
        return free.bit_count()

    def _drop_tiles_that_waste_chips(self) -> None:
        """In a tight fit many tiles can be told to be wrong at once: they leave chips that nothing covers."""
        if self.spare >= min(self.sizes) or len(self.tiles) * len(self.wiring.ids) > WORTH_COMPARING:
            return
        wasteful = self._wasteful_tiles()
        while wasteful:
            self.domains = [domain & ~wasteful for domain in self.domains]
            wasteful = self._wasteful_tiles()

    def _wasteful_tiles(self) -> int:
        live = self._live()
        found = 0
        for tile in bits(live):
            free = self.wiring.every & ~self.tiles[tile].chips
            if self.dead_chips(live & ~self.excluded(tile), free) > self.spare:
                found |= 1 << tile
        return found

    def _live(self) -> int:
        live = 0
        for domain in self.domains:
            live |= domain
        return live
