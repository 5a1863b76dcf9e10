"""The tiles that meshes can be laid on, and how the tiles lie to each other: overlap, links, what they leave over.

A set of tiles is an int, like a set of chips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from softmesh.fabric.matching.backtracking import StepsSpent
from softmesh.fabric.matching.embedding import Piece
from softmesh.fabric.matching.tiles import Tile, TileBook
from softmesh.fabric.matching.wiring import bits, either
from softmesh.fabric.matching.wishes import Wish, hit_often
from softmesh.fabric.mesh_graph import Side

WORTH_COMPARING = 2_000_000  # tiles times chips: beyond that the search itself is faster


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
        self._partners: dict[tuple[int, int | None, int | None, int | None, int], int] = {}
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
        key = wish.links, wish.each, wish.a.chip, wish.b.chip, tile
        if key not in self._partners:
            self._partners[key] = self._fulfilling(wish, tile)
        return self._partners[key]

    def _fulfilling(self, wish: Wish, tile: int) -> int:
        chips = self.end(wish.a, tile)
        out = [
            (chip, near, links)
            for chip in bits(chips)
            for near, links in self.wiring.links[chip].items()
            if not chips >> near & 1
        ]
        if wish.links > sum(links for _, _, links in out):
            return 0
        found = ~self.excluded(tile)
        for links in self._countings(wish, out):
            found &= hit_often(links, wish.links)
        return found

    def _countings(self, wish: Wish, out: list[tuple[int, int, int]]) -> Iterator[Iterator[int]]:
        """Ways to count the links out of a tile, each as the tiles that every link leads to."""
        if wish.each is None:
            yield (self._placed(wish.b, near) for _, near, links in out for _ in range(links))
            return
        for end in (0, 1):  # one peer for each chip on this side, and on the other
            by_chip: dict[int, list[tuple[int, int]]] = {}
            for pair in out:
                by_chip.setdefault(pair[end], []).append((self._placed(wish.b, pair[1]), pair[2]))
            yield (
                either(tiles for tiles, links in peers if links > n)
                for peers in by_chip.values()
                for n in range(wish.each)
            )

    def _placed(self, side: Side, chip: int) -> int:
        """The tiles that put this end of a connection on the chip."""
        return self.holding[chip] if side.chip is None else self._placing.get((side.chip, chip), 0)

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
        live = either(self.domains)
        found = 0
        for tile in bits(live):
            free = self.wiring.every & ~self.tiles[tile].chips
            if self.dead_chips(live & ~self.excluded(tile), free) > self.spare:
                found |= 1 << tile
        return found
