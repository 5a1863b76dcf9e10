"""Places several meshes on one machine: which group of chips plays which mesh.

First the groups that could play each kind of mesh are listed (tiles), then meshes are laid on tiles: tiles in
use do not overlap, and connected meshes lie on tiles with enough links between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from softmesh.fabric.matching.backtracking import Puzzle, Search, Steps, StepsSpent
from softmesh.fabric.matching.machine_bitsets import Wiring, bits, either, union_over
from softmesh.fabric.matching.mesh_embedding import Embedding, MeshRequest
from softmesh.fabric.matching.tiles import Tile, TileCache
from softmesh.fabric.mesh_graph import Connection, Side

# Links that connections demand in one round of the search, and how they are counted.


@dataclass(frozen=True)
class LinkDemand:
    """`links` between two sides.

    The fabric gives a chip one peer in each other mesh, and `each` links at most to it; None: every link counts.
    """

    a: Side
    b: Side
    links: int
    each: int | None = None

    @property
    def is_pairwise(self) -> bool:
        return len(self.a.meshes) == len(self.b.meshes) == 1 and self.a.meshes != self.b.meshes

    @property
    def swapped(self) -> LinkDemand:
        return replace(self, a=self.b, b=self.a)


def link_demands(connections: Iterable[Connection], in_full: bool, each: int | None = None) -> list[LinkDemand]:
    """A relaxed connection is content with one link, a named pair of chips and a strict one never are."""
    return [
        LinkDemand(one.a, one.b, one.count if in_full or one.strict or one.is_between_chips else 1, each)
        for one in connections
    ]


def members_of_at_least(hits: Iterable[int], times: int) -> int:
    """The members of at least so many of these sets: `reached[n]` are those of more than n so far."""
    reached = [0] * times
    for hit in hits:
        for n in range(times - 1, 0, -1):
            reached[n] |= reached[n - 1] & hit
        reached[0] |= hit
    return reached[-1]


# How tiles lie to each other: overlap, links, what they leave over. A set of tiles is an int, like a set of chips.


WORTH_COMPARING = 2_000_000  # tiles times chips: beyond that the search itself is faster


class TileSet:
    """All tiles, as bits of a set of their own, and how they lie to each other."""

    def __init__(
        self, tile_cache: TileCache, requests: Sequence[Sequence[MeshRequest]], wanted: Sequence[LinkDemand]
    ) -> None:
        self.wiring = tile_cache.wiring
        self.requests = requests
        self.wanted = wanted
        self.tiles: list[Tile] = []
        self.is_complete = True
        self.domains = self._list_all(tile_cache)
        self.sizes = [alternatives[0].mesh.size for alternatives in requests]
        self.spare = self.wiring.every.bit_count() - sum(self.sizes)
        self._partners: dict[tuple[int, int | None, int | None, int | None, int], int] = {}
        self._excluded: dict[int, int] = {}
        self._drop_tiles_that_waste_chips()

    def give_up(self) -> None:
        """Nothing found is a proof only where every tile was looked at."""
        if not self.is_complete:
            raise StepsSpent

    def _list_all(self, tile_cache: TileCache) -> list[int]:
        named = self._named_chips()
        listed: dict[int, int] = {}
        domains = []
        for mesh, alternatives in enumerate(self.requests):
            domain = 0
            for request in alternatives:
                found = tile_cache.listing(request, tuple(sorted(named.get(mesh, ()))))
                if id(found) not in listed:
                    listed[id(found)] = ((1 << len(found.tiles)) - 1) << len(self.tiles)
                    self.tiles += found.tiles
                    self.is_complete &= found.is_complete
                domain |= listed[id(found)]
            domains.append(domain)
        return domains

    def _named_chips(self) -> dict[int, set[int]]:
        named: dict[int, set[int]] = {}
        for demand in self.wanted:
            for side in (demand.a, demand.b):
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
            self._excluded[tile] = either(self.holding[chip] for chip in self.tiles[tile].embedding)
        return self._excluded[tile]

    def partners(self, rule: int, tile: int) -> int:
        """Tiles that the other mesh of a demand may lie on; odd rules read the demand from its far side."""
        demand = self.wanted[rule // 2]
        if rule % 2:
            demand = demand.swapped
        key = demand.links, demand.each, demand.a.chip, demand.b.chip, tile
        if key not in self._partners:
            self._partners[key] = self._fulfilling(demand, tile)
        return self._partners[key]

    def _fulfilling(self, demand: LinkDemand, tile: int) -> int:
        chips = self.end(demand.a, tile)
        out = [
            (chip, near, links)
            for chip in bits(chips)
            for near, links in self.wiring.links[chip].items()
            if not chips >> near & 1
        ]
        if demand.links > sum(links for _, _, links in out):
            return 0
        found = ~self.excluded(tile)
        for links in self._countings(demand, out):
            found &= members_of_at_least(links, demand.links)
        return found

    def _countings(self, demand: LinkDemand, out: list[tuple[int, int, int]]) -> Iterator[Iterator[int]]:
        """Ways to count the links out of a tile, each as the tiles that every link leads to."""
        if demand.each is None:
            yield (self._placed(demand.b, near) for _, near, links in out for _ in range(links))
            return
        for end in (0, 1):  # one peer for each chip on this side, and on the other
            by_chip: dict[int, list[tuple[int, int]]] = {}
            for pair in out:
                by_chip.setdefault(pair[end], []).append((self._placed(demand.b, pair[1]), pair[2]))
            yield (
                either(tiles for tiles, links in peers if links > n)
                for peers in by_chip.values()
                for n in range(demand.each)
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
        found: list[list[tuple[int, int]]] = [[] for _ in self.requests]
        for number, demand in enumerate(self.wanted):
            if demand.is_pairwise:
                found[demand.a.meshes[0]].append((demand.b.meshes[0], 2 * number))
                found[demand.b.meshes[0]].append((demand.a.meshes[0], 2 * number + 1))
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


CHIPS_PER_STEP = 100  # a trial here looks at all chips, where one in an embedding looks at a few


def trial_cost(wiring: Wiring) -> int:
    return 1 + len(wiring.ids) // CHIPS_PER_STEP


def first_partition(
    tile_cache: TileCache,
    requests: Sequence[Sequence[MeshRequest]],
    wanted: Sequence[LinkDemand],
    steps: Steps,
) -> list[Embedding] | None:
    """An embedding for each mesh. `requests` holds alternatives: ways of reading one mesh's requirements."""
    tile_set = TileSet(tile_cache, requests, wanted)
    if not all(tile_set.domains):
        tile_set.give_up()
        return None
    for attempt, trials in _attempts(_TilePlacement(tile_set)):
        few = steps.share(steps.left if trials is None else min(trials * attempt.cost, steps.left // 3))
        try:
            found = next(Search(attempt, few).solutions(), None)
        except StepsSpent:
            continue
        finally:
            steps.join(few)
        if found is not None:
            return [tile_set.tiles[tile].embedding for tile in found]
        tile_set.give_up()
        return None
    raise StepsSpent


def _attempts(laying: _TilePlacement) -> Iterator[tuple[Puzzle, int | None]]:
    """Ways to search, each with the trials it may take; the last takes what is left."""
    plain, meshes = laying.puzzle(), len(laying.tile_set.requests)
    yield plain, 40 * meshes
    yield replace(plain, order=laying.fewest_ways_on), 80 * meshes
    yield plain, None


class _TilePlacement:
    """The puzzle of laying meshes on a tiling, with what tells early that it cannot be finished."""

    def __init__(self, tile_set: TileSet) -> None:
        self.tile_set = tile_set
        self.joint_demands = [demand for demand in tile_set.wanted if not demand.is_pairwise]

    def puzzle(self) -> Puzzle:
        return Puzzle(
            domains=self.tile_set.domains,
            neighbours=self.tile_set.neighbours,
            partners=self.tile_set.partners,
            excludes=self.tile_set.excluded,
            is_hopeless=self._is_hopeless,
            cost=trial_cost(self.tile_set.wiring),
        )

    def fewest_ways_on(self, search: Search, variable: int, domain: int) -> list[int]:
        """The tile with the fewest free tiles beside it first: it will be hardest to reach later."""

        def ways_on(tile: int) -> int:
            around = self.tile_set.wiring.neighbours_of(self.tile_set.tiles[tile].chips)
            beside = union_over(around, self.tile_set.holding)
            return (beside & search.available & ~self.tile_set.excluded(tile)).bit_count()

        return sorted(bits(domain), key=lambda tile: (ways_on(tile), tile))

    def _is_hopeless(self, search: Search) -> bool:
        if self.tile_set.is_tight and (self._wastes_too_much(search) or self._falls_apart(search)):
            return True
        return any(not self._is_met(demand, search) for demand in self.joint_demands)

    def _is_met(self, demand: LinkDemand, search: Search) -> bool:
        if not all(mesh in search.values for mesh in (*demand.a.meshes, *demand.b.meshes)):
            return True
        ends = (
            either(self.tile_set.end(side, search.values[mesh]) for mesh in side.meshes)
            for side in (demand.a, demand.b)
        )
        return self.tile_set.wiring.links_between(*ends) >= demand.links

    def _wastes_too_much(self, search: Search) -> bool:
        left = (mesh for mesh in range(len(self.tile_set.requests)) if mesh not in search.values)
        live = either(map(search.domain, left))
        return self.tile_set.dead_chips(live, self._free(search)) > self.tile_set.spare

    def _falls_apart(self, search: Search) -> bool:
        """Meshes that hang together need chips that do: each group of them fits one island of free chips."""
        free = self._free(search)
        latest = self.tile_set.tiles[next(reversed(search.values.values()))]
        if self.tile_set.wiring.are_connected(self.tile_set.wiring.neighbours_of(latest.chips) & free, free):
            return False  # no new island
        left = [mesh for mesh in range(len(self.tile_set.requests)) if mesh not in search.values]
        islands = sorted((island.bit_count() for island in self.tile_set.wiring.components(free)), reverse=True)
        needed = sum(self.tile_set.sizes[mesh] for mesh in left)
        return sum(islands[: self.tile_set.groups_among(left)]) < needed

    def _free(self, search: Search) -> int:
        used = either(self.tile_set.tiles[tile].chips for tile in search.values.values())
        return self.tile_set.wiring.every & ~used
