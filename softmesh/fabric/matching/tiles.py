"""Lists the tiles of a mesh: the groups of chips that could play it, each once; a cache keeps the lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from softmesh.fabric.matching.backtracking import Search, Steps, StepsSpent
from softmesh.fabric.matching.machine_bitsets import Wiring, bits, union, union_over
from softmesh.fabric.matching.mesh_embedding import (
    Embedding,
    MeshRequest,
    fitting_domains,
    foldings,
    is_line,
    puzzle,
    regions,
)
from softmesh.fabric.mesh_graph import LogicalMesh

MOST_TILES = 400  # of one region, or four for each chip: enough to choose from, and every choice costs
STEPS_PER_CHIP = 200
MOST_STEPS = 200_000  # of one region


@dataclass(frozen=True)
class Tile:
    chips: int
    embedding: Embedding
    openness: int  # how many chips of the same hosts lie around it


@dataclass(frozen=True)
class Listing:
    """Compact tiles first. `is_complete` is False where there were too many to list."""

    tiles: list[Tile]
    is_complete: bool


class TileCache:
    """Listings for one machine, each made once: meshes that only their names tell apart share their tiles."""

    def __init__(self, wiring: Wiring, most_steps: int = MOST_STEPS) -> None:
        self.wiring = wiring
        self._most_steps = most_steps
        self._listings: dict[tuple[MeshRequest, tuple[int, ...]], Listing] = {}

    def listing(self, request: MeshRequest, named: tuple[int, ...]) -> Listing:
        """`named` logical chips matter one by one: the same group with one of them elsewhere is another tile."""
        mesh = replace(request.mesh, id=0, name="", line=None, is_switch=False, strict=False, channels=1)
        key = replace(request, mesh=mesh), named
        if key not in self._listings:
            self._listings[key] = self._made(*key)
        return self._listings[key]

    def _made(self, request: MeshRequest, named: tuple[int, ...]) -> Listing:
        tiles: list[Tile] = []
        is_complete = True
        for region in regions(self.wiring, request):
            found = _Region(self.wiring, request, region, named)
            found.search(min(self._most_steps, STEPS_PER_CHIP * region.bit_count()))
            tiles += found.tiles.values()
            is_complete &= found.is_complete
        # A tile in a corner leaves better room for others than one in the middle.
        return Listing(sorted(tiles, key=lambda tile: (tile.openness, tile.chips & -tile.chips)), is_complete)


class _Region:
    def __init__(self, wiring: Wiring, request: MeshRequest, region: int, named: tuple[int, ...]) -> None:
        self.wiring = wiring
        self.request = request
        self.region = region
        self.named = named
        self.tiles: dict[tuple[int, ...], Tile] = {}
        self.is_complete = True
        self.mirrored = _mirrored_places(request.mesh)
        self.most = max(MOST_TILES, 4 * region.bit_count())

    def search(self, most_steps: int) -> None:
        domains = fitting_domains(self.wiring, self.request, self.region)
        if domains is None:
            return
        one_is_all = self.region.bit_count() == self.request.mesh.size and not self.named
        few = Steps(most_steps)
        try:
            for embedding in self._embeddings(domains, few):
                self._keep(embedding)
                if one_is_all:
                    break
                if len(self.tiles) >= self.most:
                    self.is_complete = False
                    break
        except StepsSpent:
            self.is_complete = False

    def _keep(self, embedding: Embedding) -> None:
        chips = union(embedding)
        key = (chips, *(embedding[node] for node in self.named))
        if key not in self.tiles:
            self.tiles[key] = Tile(chips, embedding, self._openness(chips))

    def _openness(self, chips: int) -> int:
        return (self.wiring.neighbours_of(chips) & union_over(chips, self.wiring.host_of)).bit_count()

    def _embeddings(self, domains: list[int], steps: Steps) -> Iterator[Embedding]:
        if is_line(self.request.mesh):
            for pairs in foldings(self.request.mesh):
                folded = puzzle(self.wiring, self.request, self.region, domains, pairs)
                yield from islice(Search(folded, steps).solutions(), self.most)
        if not self.request.is_symmetric or self.named:
            plain = puzzle(self.wiring, self.request, self.region, domains)
            yield from Search(plain, steps).solutions()
            return
        for narrowed in self._up_to_symmetry(domains):
            steps.take(len(domains))  # a new start looks at them all
            turned = puzzle(self.wiring, self.request, self.region, narrowed)
            if turned.is_hopeless is None:
                turned.is_hopeless = self._is_mirrored
            yield from Search(turned, steps).solutions()

    def _is_mirrored(self, search: Search) -> bool:
        """Whether the same tile is found the other way round, with a lower chip in the earlier place."""
        chips = search.values
        return any(
            first in chips and second in chips and chips[first] > chips[second] for first, second in self.mirrored
        )

    def _up_to_symmetry(self, domains: list[int]) -> Iterator[list[int]]:
        """Of all ways to turn the mesh round, the one with its lowest chip in the first corner."""
        alike = _places_like_the_first(self.request.mesh)
        for chip in bits(domains[0]):
            above = ~((2 << chip) - 1)
            narrowed = [domain & above if node in alike else domain for node, domain in enumerate(domains)]
            narrowed[0] = 1 << chip
            if all(narrowed):
                yield narrowed


def _places_like_the_first(mesh: LogicalMesh) -> set[int]:
    """Where reflections, and rotations of rings, can bring logical chip 0 without breaking host blocks."""
    lines = []
    for axis in (0, 1):
        length, block = mesh.shape[axis], mesh.host_block[axis]
        starts = range(0, length, block if mesh.hosts[axis] > 1 else 1) if mesh.wraps(axis) else (0,)
        lines.append({0, length - 1, *starts, *(start - 1 for start in starts if start)})
    return {mesh.chip_at(row, column) for row in lines[0] for column in lines[1]} - {0}


def _mirrored_places(mesh: LogicalMesh) -> list[tuple[int, int]]:
    """Pairs of places that a reflection exchanges while logical chip 0 and the host blocks stay as they are."""
    pairs = []
    if mesh.wraps(1) and 1 in (mesh.hosts[1], mesh.host_block[1]):
        pairs.append((mesh.chip_at(0, 1), mesh.chip_at(0, mesh.shape[1] - 1)))
    if mesh.wraps(0) and 1 in (mesh.hosts[0], mesh.host_block[0]):
        pairs.append((mesh.chip_at(1, 0), mesh.chip_at(mesh.shape[0] - 1, 0)))
    is_square = mesh.shape[0] == mesh.shape[1] > 1 and mesh.wraps(0) == mesh.wraps(1)
    if is_square and mesh.hosts[0] == mesh.hosts[1]:
        pairs.append((mesh.chip_at(0, 1), mesh.chip_at(1, 0)))
    return pairs
