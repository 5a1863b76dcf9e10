"""Embeds one mesh into a set of chips: every logical chip its own chip, every neighbour pair joined by links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from softmesh.fabric.grid_paths import serpentine
from softmesh.fabric.matching.backtracking import Blocks, Puzzle, Search, Steps, StepsSpent
from softmesh.fabric.matching.machine_bitsets import Wiring, bits, either
from softmesh.fabric.mesh_graph import LogicalMesh

# Lines and rings of chips folded into rectangles, where a search for a long path would lose its way.
#
# A path through all chips of a grid is a hard problem (Hamiltonian path); the grid itself is an easy one. So a 1x32
# ring is first sought as an 8x4 grid, numbered along a closed tour of it.


Pair = tuple[int, int]


def is_line(mesh: LogicalMesh) -> bool:
    """One chip wide, and more than two long: where a path has to be found."""
    return min(mesh.shape) == 1 and mesh.size > 2


def is_closed(mesh: LogicalMesh) -> bool:
    return mesh.wraps(0) or mesh.wraps(1)


def foldings(mesh: LogicalMesh) -> Iterator[list[Pair]]:
    """Neighbour pairs of grids whose tour is this line or ring; the most square grid first."""
    for height, width in _rectangles(mesh.size):
        tour = _closed_tour(height, width) if is_closed(mesh) else serpentine(height, width)
        if tour is not None:
            yield _grid_pairs(tour)


def _rectangles(size: int) -> list[Pair]:
    pairs = [(size // width, width) for width in range(2, size // 2 + 1) if size % width == 0]
    return sorted(pairs, key=lambda pair: (abs(pair[0] - pair[1]), -pair[0]))


def _closed_tour(height: int, width: int) -> list[Pair] | None:
    """Along the first row, to and fro over the rest, home up the first column; an even height closes it."""
    if height % 2:
        return None
    inner = [(row, column + 1) for row, column in serpentine(height, width - 1)]
    return [(0, 0), *inner, *((row, 0) for row in range(height - 1, 0, -1))]


def _grid_pairs(tour: list[Pair]) -> list[Pair]:
    number = {place: i for i, place in enumerate(tour)}
    return [
        (i, number[near])
        for (row, column), i in number.items()
        for near in ((row, column + 1), (row + 1, column))
        if near in number
    ]


class PathPruning:
    """Tells early that the head of a path has cut itself off from the chips it still needs."""

    def __init__(self, joined: list[int], region: int, size: int, closed: bool) -> None:
        self.joined = joined
        self.region = region
        self.size = size
        self.closed = closed

    def fewest_ways_on(self, search: Search, variable: int, domain: int) -> list[int]:
        """Warnsdorff's order: the chip that will be hardest to reach later comes first."""
        open_chips = search.available & self.region
        return sorted(bits(domain), key=lambda chip: ((self.joined[chip] & open_chips).bit_count(), chip))

    def is_cut_off(self, search: Search) -> bool:
        missing = self.size - len(search.values)
        if missing < 2:
            return False
        head = search.values[len(search.values) - 1]
        reached = self._reach(head, search.available & self.region)
        home = self.joined[search.values[0]] & reached if self.closed else -1
        if not home or reached.bit_count() < missing:
            return True
        return self._dead_ends(search, head, reached) > reached.bit_count() - missing + (not self.closed)

    def _reach(self, head: int, free: int) -> int:
        reached = edge = self.joined[head] & free
        while edge:
            near = 0
            for chip in bits(edge):
                near |= self.joined[chip]
            edge = near & free & ~reached
            reached |= edge
        return reached

    def _dead_ends(self, search: Search, head: int, reached: int) -> int:
        """Free chips that a path can enter but not leave."""
        ways = reached | 1 << head | (1 << search.values[0] if self.closed else 0)
        return sum((self.joined[chip] & ways).bit_count() < 2 for chip in bits(reached))


Embedding = list[int]  # for each logical chip, the index of its chip in the wiring


@dataclass(frozen=True)
class MeshRequest:
    """A mesh with what its chips must keep to. Equal requests have the same embeddings."""

    mesh: LogicalMesh
    links: int  # at least so many for each neighbour pair
    pins: tuple[tuple[int, int], ...]  # (logical chip, the chips it may take)
    hosts: tuple[int, ...]  # for each host rank, the chips it may use
    exclusive: bool  # no two host ranks on one host

    @property
    def is_symmetric(self) -> bool:
        """Turning the mesh round changes nothing that is asked for."""
        return not self.pins and len(set(self.hosts)) == 1


def first_embedding(wiring: Wiring, request: MeshRequest, steps: Steps) -> Embedding | None:
    for region in regions(wiring, request):
        for part in _promising_first(wiring, request, region, steps):
            return part
    return None


def regions(wiring: Wiring, request: MeshRequest) -> list[int]:
    """Connected sets of chips that are large enough; one host's chips at a time where one host is wanted."""
    if len(request.hosts) == 1:
        places = [request.hosts[0] & host for host in wiring.hosts.values()]
    else:
        places = [either(request.hosts)]
    return [
        found
        for place in places
        for found in wiring.components(place, request.links)
        if found.bit_count() >= request.mesh.size
    ]


def _promising_first(wiring: Wiring, request: MeshRequest, region: int, steps: Steps) -> Iterator[Embedding]:
    domains = fitting_domains(wiring, request, region)
    if domains is None:
        return
    if is_line(request.mesh):
        yield from _quick_lines(wiring, request, region, domains, steps)
    elif region.bit_count() == request.mesh.size and not request.pins:
        yield from _from_the_hardest_chip(wiring, request, region, domains, steps)
        return
    yield from Search(puzzle(wiring, request, region, domains), steps).solutions()


def _quick_lines(
    wiring: Wiring, request: MeshRequest, region: int, domains: list[int], steps: Steps
) -> Iterator[Embedding]:
    """A short straight attempt, then rectangles that the line fills."""
    straight = puzzle(wiring, request, region, domains)
    folded = (puzzle(wiring, request, region, domains, pairs) for pairs in foldings(request.mesh))
    for attempt in (straight, *folded):
        found = attempted(attempt, steps, 20 * request.mesh.size)
        if found is not None:
            yield found


def attempted(attempt: Puzzle, steps: Steps, limit: int) -> Embedding | None:
    """The first solution, if a few steps find one."""
    few = steps.share(limit)
    try:
        return next(Search(attempt, few).solutions(), None)
    except StepsSpent:
        return None
    finally:
        steps.join(few)


def _from_the_hardest_chip(
    wiring: Wiring, request: MeshRequest, region: int, domains: list[int], steps: Steps
) -> Iterator[Embedding]:
    """Every chip is needed, so start from the one with fewest links: mistakes show where links are missing."""
    joined = wiring.joined(request.links)
    hardest = min(bits(region), key=lambda chip: ((joined[chip] & region).bit_count(), chip))
    domains = list(domains)
    for node in range(request.mesh.size):
        if domains[node] >> hardest & 1:
            seeded = [*domains[:node], 1 << hardest, *domains[node + 1 :]]
            seed = replace(puzzle(wiring, request, region, seeded), start=node)
            yield from Search(seed, steps).solutions()
            domains[node] &= ~(1 << hardest)


def puzzle(
    wiring: Wiring,
    request: MeshRequest,
    region: int,
    domains: list[int],
    pairs: list[tuple[int, int]] | None = None,
) -> Puzzle:
    """`pairs` may ask for more neighbours than the mesh has: a line folded into a rectangle."""
    joined = wiring.joined(request.links)
    mesh = request.mesh
    made = Puzzle(
        domains=domains,
        neighbours=_neighbours(mesh, pairs),
        partners=lambda _, chip: joined[chip],
        excludes=lambda chip: 1 << chip,
        blocks=_blocks(wiring, request),
        start=_most_pinned(request) if request.pins else 0,
    )
    if is_line(mesh) and pairs is None and all(node == 0 for node, _ in request.pins):
        pruning = PathPruning(joined, region, mesh.size, is_closed(mesh))
        made.in_sequence = True
        made.order = pruning.fewest_ways_on
        made.is_hopeless = pruning.is_cut_off
    return made


def _most_pinned(request: MeshRequest) -> int:
    return min(request.pins, key=lambda pin: (pin[1].bit_count(), pin[0]))[0]


def _neighbours(mesh: LogicalMesh, pairs: list[tuple[int, int]] | None) -> list[list[tuple[int, int]]]:
    near: list[set[int]] = [set() for _ in range(mesh.size)]
    for one, other in pairs if pairs is not None else ((a, b) for a, b, _ in mesh.edges()):
        near[one].add(other)
        near[other].add(one)
    return [[(other, 0) for other in sorted(others)] for others in near]


def _blocks(wiring: Wiring, request: MeshRequest) -> Blocks | None:
    if len(request.hosts) == 1:
        return None
    of_chip = [request.mesh.host_rank(chip) for chip in range(request.mesh.size)]
    return Blocks(of_chip, request.hosts, wiring.host_of, request.exclusive)


def fitting_domains(wiring: Wiring, request: MeshRequest, region: int) -> list[int] | None:
    """What each logical chip may take, going by pins, hosts and numbers of neighbours; None: some have nothing."""
    if not _colours_fit(wiring, request, region):
        return None
    mesh, joined = request.mesh, wiring.joined(request.links)
    needed = [len(set(mesh.neighbours(node).values())) for node in range(mesh.size)]
    by_degree: dict[int, int] = {}
    for chip in bits(region):
        degree = (joined[chip] & region).bit_count()
        by_degree[degree] = by_degree.get(degree, 0) | 1 << chip
    classes = _degree_classes(needed, by_degree, region.bit_count() - mesh.size)
    if classes is None:
        return None
    domains = [classes[degree] & request.hosts[mesh.host_rank(node)] for node, degree in enumerate(needed)]
    for node, chips in request.pins:
        domains[node] &= chips
    return domains if all(domains) else None


def _degree_classes(needed: list[int], by_degree: dict[int, int], spare: int) -> dict[int, int] | None:
    """For each number of neighbours that a logical chip has, the chips that can play it.

    A chip with many neighbours can play one with few, not the other way round. Where few chips are to spare,
    the poorly linked ones must be played by somebody too: in a full grid only corners fit the corners.
    """
    classes = {}
    for degree in set(needed):
        rich = either(chips for have, chips in by_degree.items() if have >= degree)
        if rich.bit_count() < sum(need >= degree for need in needed):
            return None
        classes[degree] = rich
    for degree in sorted(set(needed) | set(by_degree)):
        poor = either(chips for have, chips in by_degree.items() if have <= degree)
        takers = sum(need <= degree for need in needed)
        if poor.bit_count() - spare > takers:
            return None
        if poor.bit_count() - spare == takers:
            classes = {need: chips & poor if need <= degree else chips for need, chips in classes.items()}
    return classes


def _colours_fit(wiring: Wiring, request: MeshRequest, region: int) -> bool:
    """Whether chess-board colours allow it: on a machine without odd cycles no odd ring exists."""
    halves = wiring.two_colours(region, request.links)
    if halves is None:
        return True
    mesh = request.mesh
    if any(mesh.wraps(axis) and mesh.shape[axis] % 2 for axis in (0, 1)):
        return False
    dark = mesh.size // 2
    return min(halves) >= dark and max(halves) >= mesh.size - dark
