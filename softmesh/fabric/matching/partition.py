"""Several meshes into one machine: which group of chips plays which mesh.

First the groups that could play each kind of mesh are listed (tiles), then meshes are laid on tiles: tiles in
use do not overlap, and connected meshes lie on tiles with enough links between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from softmesh.fabric.matching.backtracking import Puzzle, Search, Steps, StepsSpent
from softmesh.fabric.matching.embedding import Embedding, Piece
from softmesh.fabric.matching.floor import Floor
from softmesh.fabric.matching.tiles import TileBook
from softmesh.fabric.matching.wiring import Wiring, bits
from softmesh.fabric.matching.wishes import Wish

CHIPS_PER_STEP = 100  # a trial here looks at all chips, where one in an embedding looks at a few


def trial_cost(wiring: Wiring) -> int:
    return 1 + len(wiring.ids) // CHIPS_PER_STEP


def first_partition(
    book: TileBook, pieces: Sequence[Sequence[Piece]], wanted: Sequence[Wish], steps: Steps
) -> list[Embedding] | None:
    """An embedding for each mesh. `pieces` holds alternatives: ways of reading one mesh's requirements."""
    floor = Floor(book, pieces, wanted)
    if not all(floor.domains):
        floor.give_up()
        return None
    for attempt, trials in _attempts(_Laying(floor)):
        few = steps.share(steps.left if trials is None else min(trials * attempt.cost, steps.left // 3))
        try:
            found = next(Search(attempt, few).solutions(), None)
        except StepsSpent:
            continue
        finally:
            steps.join(few)
        if found is not None:
            return [floor.tiles[tile].embedding for tile in found]
        floor.give_up()
        return None
    raise StepsSpent


def _attempts(laying: _Laying) -> Iterator[tuple[Puzzle, int | None]]:
    """Ways to search, each with the trials it may take; the last takes what is left."""
    plain, meshes = laying.puzzle(), len(laying.floor.pieces)
    yield plain, 40 * meshes
    yield replace(plain, order=laying.fewest_ways_on), 80 * meshes
    yield plain, None


class _Laying:
    """The puzzle of laying meshes on a floor, with what tells early that it cannot be finished."""

    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        self.joint_wishes = [wish for wish in floor.wanted if not wish.is_pairwise]

    def puzzle(self) -> Puzzle:
        return Puzzle(
            domains=self.floor.domains,
            neighbours=self.floor.neighbours,
            partners=self.floor.partners,
            excludes=self.floor.excluded,
            is_hopeless=self._is_hopeless,
            cost=trial_cost(self.floor.wiring),
        )

    def fewest_ways_on(self, search: Search, variable: int, domain: int) -> list[int]:
        """The tile with the fewest free tiles beside it first: it will be hardest to reach later."""

        def ways_on(tile: int) -> int:
            beside = 0
            for chip in bits(self.floor.wiring.around(self.floor.tiles[tile].chips)):
                beside |= self.floor.holding[chip]
            return (beside & search.available & ~self.floor.excluded(tile)).bit_count()

        return sorted(bits(domain), key=lambda tile: (ways_on(tile), tile))

    def _is_hopeless(self, search: Search) -> bool:
        if self.floor.is_tight and (self._wastes_too_much(search) or self._falls_apart(search)):
            return True
        return any(not self._is_granted(wish, search) for wish in self.joint_wishes)

    def _is_granted(self, wish: Wish, search: Search) -> bool:
        if not all(mesh in search.values for mesh in (*wish.a.meshes, *wish.b.meshes)):
            return True
        ends = []
        for side in (wish.a, wish.b):
            chips = 0
            for mesh in side.meshes:
                chips |= self.floor.end(side, search.values[mesh])
            ends.append(chips)
        return self.floor.wiring.links_between(*ends) >= wish.links

    def _wastes_too_much(self, search: Search) -> bool:
        live = 0
        for mesh in range(len(self.floor.pieces)):
            if mesh not in search.values:
                live |= search.domain(mesh)
        return self.floor.dead_chips(live, self._free(search)) > self.floor.spare

    def _falls_apart(self, search: Search) -> bool:
        """Meshes that hang together need chips that do: each group of them fits one island of free chips."""
        free = self._free(search)
        latest = self.floor.tiles[next(reversed(search.values.values()))]
        if self.floor.wiring.hang_together(self.floor.wiring.around(latest.chips) & free, free):
            return False  # no new island
        left = [mesh for mesh in range(len(self.floor.pieces)) if mesh not in search.values]
        islands = sorted((island.bit_count() for island in self.floor.wiring.components(free)), reverse=True)
        needed = sum(self.floor.sizes[mesh] for mesh in left)
        return sum(islands[: self.floor.groups_among(left)]) < needed

    def _free(self, search: Search) -> int:
        used = 0
        for tile in search.values.values():
            used |= self.floor.tiles[tile].chips
        return self.floor.wiring.every & ~used
