"""One mesh into a set of chips: every logical chip its own chip, every neighbour pair joined by links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from softmesh.fabric.matching.backtracking import Blocks, Puzzle, Search, Steps, StepsSpent
from softmesh.fabric.matching.folding import PathPruning, foldings, is_closed, is_line
from softmesh.fabric.matching.wiring import Wiring, bits, either
from softmesh.fabric.mesh_graph import LogicalMesh

Embedding = list[int]  # for each logical chip, the index of its chip in the wiring


@dataclass(frozen=True)
class Piece:
    """A mesh with what its chips must keep to. Equal pieces have the same embeddings."""

    mesh: LogicalMesh
    links: int  # at least so many for each neighbour pair
    pins: tuple[tuple[int, int], ...]  # (logical chip, the chips it may take)
    hosts: tuple[int, ...]  # for each host rank, the chips it may use
    apart: bool  # no two host ranks on one host

    @property
    def is_symmetric(self) -> bool:
        """Turning the mesh round changes nothing that is asked for."""
        return not self.pins and len(set(self.hosts)) == 1


def first_embedding(wiring: Wiring, piece: Piece, steps: Steps) -> Embedding | None:
    for region in regions(wiring, piece):
        for part in _promising_first(wiring, piece, region, steps):
            return part
    return None


def regions(wiring: Wiring, piece: Piece) -> list[int]:
    """Connected sets of chips that are large enough; one host's chips at a time where one host is wanted."""
    if len(piece.hosts) == 1:
        places = [piece.hosts[0] & host for host in wiring.hosts.values()]
    else:
        places = [either(piece.hosts)]
    return [
        found
        for place in places
        for found in wiring.components(place, piece.links)
        if found.bit_count() >= piece.mesh.size
    ]


def _promising_first(wiring: Wiring, piece: Piece, region: int, steps: Steps) -> Iterator[Embedding]:
    domains = fitting_domains(wiring, piece, region)
    if domains is None:
        return
    if is_line(piece.mesh):
        yield from _quick_lines(wiring, piece, region, domains, steps)
    elif region.bit_count() == piece.mesh.size and not piece.pins:
        yield from _from_the_hardest_chip(wiring, piece, region, domains, steps)
        return
    yield from Search(puzzle(wiring, piece, region, domains), steps).solutions()


def _quick_lines(
    wiring: Wiring, piece: Piece, region: int, domains: list[int], steps: Steps
) -> Iterator[Embedding]:
    """A short straight attempt, then rectangles that the line fills."""
    straight = puzzle(wiring, piece, region, domains)
    folded = (puzzle(wiring, piece, region, domains, pairs) for pairs in foldings(piece.mesh))
    for attempt in (straight, *folded):
        found = attempted(attempt, steps, 20 * piece.mesh.size)
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
    wiring: Wiring, piece: Piece, region: int, domains: list[int], steps: Steps
) -> Iterator[Embedding]:
    """Every chip is needed, so start from the one with fewest links: mistakes show where links are missing."""
    joined = wiring.joined(piece.links)
    hardest = min(bits(region), key=lambda chip: ((joined[chip] & region).bit_count(), chip))
    domains = list(domains)
    for node in range(piece.mesh.size):
        if domains[node] >> hardest & 1:
            seeded = [*domains[:node], 1 << hardest, *domains[node + 1 :]]
            seed = replace(puzzle(wiring, piece, region, seeded), start=node)
            yield from Search(seed, steps).solutions()
            domains[node] &= ~(1 << hardest)


def puzzle(
    wiring: Wiring, piece: Piece, region: int, domains: list[int], pairs: list[tuple[int, int]] | None = None
) -> Puzzle:
    """`pairs` may ask for more neighbours than the mesh has: a line folded into a rectangle."""
    joined = wiring.joined(piece.links)
    mesh = piece.mesh
    made = Puzzle(
        domains=domains,
        neighbours=_neighbours(mesh, pairs),
        partners=lambda _, chip: joined[chip],
        excludes=lambda chip: 1 << chip,
        blocks=_blocks(wiring, piece),
        start=_most_pinned(piece) if piece.pins else 0,
    )
    if is_line(mesh) and pairs is None and all(node == 0 for node, _ in piece.pins):
        pruning = PathPruning(joined, region, mesh.size, is_closed(mesh))
        made.in_sequence = True
        made.order = pruning.fewest_ways_on
        made.is_hopeless = pruning.is_cut_off
    return made


def _most_pinned(piece: Piece) -> int:
    return min(piece.pins, key=lambda pin: (pin[1].bit_count(), pin[0]))[0]


def _neighbours(mesh: LogicalMesh, pairs: list[tuple[int, int]] | None) -> list[list[tuple[int, int]]]:
    near: list[set[int]] = [set() for _ in range(mesh.size)]
    for one, other in pairs if pairs is not None else ((a, b) for a, b, _ in mesh.edges()):
        near[one].add(other)
        near[other].add(one)
    return [[(other, 0) for other in sorted(others)] for others in near]


def _blocks(wiring: Wiring, piece: Piece) -> Blocks | None:
    if len(piece.hosts) == 1:
        return None
    of_chip = [piece.mesh.host_rank(chip) for chip in range(piece.mesh.size)]
    return Blocks(of_chip, piece.hosts, wiring.host_of, piece.apart)


def fitting_domains(wiring: Wiring, piece: Piece, region: int) -> list[int] | None:
    """What each logical chip may take, going by pins, hosts and numbers of neighbours; None: some have nothing."""
    if not _colours_fit(wiring, piece, region):
        return None
    mesh, joined = piece.mesh, wiring.joined(piece.links)
    needed = [len(set(mesh.neighbours(node).values())) for node in range(mesh.size)]
    by_degree: dict[int, int] = {}
    for chip in bits(region):
        degree = (joined[chip] & region).bit_count()
        by_degree[degree] = by_degree.get(degree, 0) | 1 << chip
    classes = _degree_classes(needed, by_degree, region.bit_count() - mesh.size)
    if classes is None:
        return None
    domains = [classes[degree] & piece.hosts[mesh.host_rank(node)] for node, degree in enumerate(needed)]
    for node, chips in piece.pins:
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


def _colours_fit(wiring: Wiring, piece: Piece, region: int) -> bool:
    """Whether chess-board colours allow it: on a machine without odd cycles no odd ring exists."""
    halves = wiring.two_colours(region, piece.links)
    if halves is None:
        return True
    mesh = piece.mesh
    if any(mesh.wraps(axis) and mesh.shape[axis] % 2 for axis in (0, 1)):
        return False
    dark = mesh.size // 2
    return min(halves) >= dark and max(halves) >= mesh.size - dark
