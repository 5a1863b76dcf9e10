"""Solves a matching task in rounds, from the strictest to the most lenient reading of what may be relaxed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.machine_bitsets import Wiring, either, union
from softmesh.fabric.matching.match import Hosts, sufficient_links
from softmesh.fabric.matching.mesh_embedding import Embedding, MeshRequest, first_embedding
from softmesh.fabric.matching.partition import LinkDemand, first_partition, link_demands, trial_cost
from softmesh.fabric.matching.position_rules import PinChoice, choices, corner_pins, pin_groups
from softmesh.fabric.matching.tiles import Listing, Tile, TileCache
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.systems.machine import Machine

# Many equal meshes on a machine that is known to be a grid: cut the grid into straight tiles.
#
# Thousands of chips have more tiles than can be listed, and these few are what a reader would draw.


TRIALS_PER_MESH = 6


class RegularTileCache(TileCache):
    """Lists only the tiles of one regular cut, with the meshes' rows along those of the grid, or across."""

    def __init__(self, wiring: Wiring, across: bool) -> None:
        super().__init__(wiring)
        self._across = across

    def _made(self, request: MeshRequest, named: tuple[int, ...]) -> Listing:
        tiles = [Tile(union(one), one, openness=0) for one in self._cut(request) if self._holds(request, one)]
        return Listing(tiles, is_complete=False)

    def _cut(self, request: MeshRequest) -> Iterator[Embedding]:
        height, width = self.wiring.machine.grid or (0, 0)
        down, right = (width, 1) if not self._across else (1, width)
        rows, columns = request.mesh.shape
        deep, wide = (columns, rows) if self._across else (rows, columns)
        for top in range(0, height - deep + 1, deep):
            for left in range(0, width - wide + 1, wide):
                first = top * width + left
                ids = [first + row * down + column * right for row in range(rows) for column in range(columns)]
                if all(id in self.wiring.index for id in ids):
                    yield [self.wiring.index[id] for id in ids]

    def _holds(self, request: MeshRequest, embedding: Embedding) -> bool:
        """Tried like any other answer: links (of rings too), pins and hosts decide."""
        joined, mesh = self.wiring.joined(request.links), request.mesh
        homes = {(mesh.host_rank(node), self.wiring.host_of[chip]) for node, chip in enumerate(embedding)}
        return (
            all(joined[embedding[one]] >> embedding[other] & 1 for one, other, _ in mesh.edges())
            and all(chips >> embedding[node] & 1 for node, chips in request.pins)
            and all(request.hosts[mesh.host_rank(node)] >> chip & 1 for node, chip in enumerate(embedding))
            and len(homes) == mesh.host_count
            and (not request.exclusive or len({home for _, home in homes}) == mesh.host_count)
        )


def regular_tiling(
    wiring: Wiring, requests: Sequence[Sequence[MeshRequest]], wanted: Sequence[LinkDemand]
) -> list[Embedding] | None:
    """An embedding for each mesh, where a regular cut has one that is quickly found; None says nothing."""
    shapes = {one.mesh.shape for alternatives in requests for one in alternatives}
    if wiring.machine.grid is None or len(shapes) != 1:
        return None
    ((rows, columns),) = shapes
    for across in (False, True) if rows != columns else (False,):
        steps = Steps(TRIALS_PER_MESH * len(requests) * trial_cost(wiring))
        try:
            return first_partition(RegularTileCache(wiring, across), requests, wanted, steps)
        except StepsSpent:
            continue
    return None


STEPS = 60_000
STEPS_PER_CHIP_FOR_A_BETTER_ANSWER = 20


@dataclass(frozen=True)
class Task:
    """A graph, a machine, and what else is to be kept to. Diagnosis asks again with parts left out."""

    graph: MeshGraph
    machine: Machine
    hosts: Hosts = field(default_factory=dict)
    with_corners: bool = True

    def asking(self, **changes: Any) -> Task:
        """The same with other fields of the graph."""
        return replace(self, graph=replace(self.graph, **changes))


class Round(NamedTuple):
    """One reading: host ranks on hosts of their own, and every link that is asked for, or only the needed ones.

    `usable` counts for a connection only links that the fabric can take, which no descriptor asks for.
    """

    exclusive: bool
    all_mesh_links: bool
    all_connection_links: bool
    usable: bool


def solve(task: Task, steps: Steps, tile_cache: TileCache | None = None) -> dict[Node, int] | None:
    """A chip for each node; None: there is none. StepsSpent: not found, though there may be one.

    The first rounds look for better answers than are needed, so running out of steps in one of them does not
    matter; the last one asks for what is needed, and decides. `tile_cache` is one of the same machine, to be shared.
    """
    tile_cache = tile_cache or TileCache(Wiring(task.machine))
    *preferred, last = _rounds(task, tile_cache.wiring)
    for one in preferred:
        few = steps.share(STEPS_PER_CHIP_FOR_A_BETTER_ANSWER * len(task.machine.asics))
        try:
            found = _solve_round(task, tile_cache, one, few)
        except StepsSpent:
            found = None
        finally:
            steps.join(few)
        if found is not None:
            return found
    return _solve_round(task, tile_cache, last, steps)


def _rounds(task: Task, wiring: Wiring) -> list[Round]:
    graph = task.graph
    shared_hosts = any(mesh.host_count > 1 for mesh in graph.meshes)
    exclusive = [True, False] if shared_hosts and _has_hosts_enough(task, wiring) else [False]
    lax_meshes = any(not mesh.strict and mesh.channels > 1 for mesh in graph.meshes)
    lax_links = any(not one.strict and one.count > 1 for one in graph.connections)
    demands = [(True, True)]
    if lax_links:
        demands.append((True, False))
    if lax_meshes:
        demands.append((False, False))
    counted = any(one.count > 1 and (one.strict or one.is_between_chips) for one in graph.connections)
    usable = [True, False] if counted else [lax_links]
    return [
        Round(separate, *demand, only_usable) for separate, only_usable, demand in product(exclusive, usable, demands)
    ]


def _has_hosts_enough(task: Task, wiring: Wiring) -> bool:
    def large_enough(mesh: LogicalMesh) -> int:
        needed = mesh.size // mesh.host_count
        return sum(chips.bit_count() >= needed for chips in wiring.hosts.values())

    return all(large_enough(mesh) >= mesh.host_count for mesh in task.graph.meshes)


def _solve_round(task: Task, tile_cache: TileCache, demands: Round, steps: Steps) -> dict[Node, int] | None:
    wiring = tile_cache.wiring
    requests = [list(_mesh_requests(task, wiring, mesh, demands)) for mesh in task.graph.meshes]
    if len(requests) == 1 and not task.graph.connections:
        found = _only_one(wiring, requests[0], steps)
    else:
        each = task.graph.meshes[0].channels if demands.usable else None
        wanted = link_demands(task.graph.connections, demands.all_connection_links, each)
        found = regular_tiling(wiring, requests, wanted) or first_partition(tile_cache, requests, wanted, steps)
    if found is None:
        return None
    return {
        Node(mesh.id, chip): wiring.ids[index]
        for mesh, embedding in zip(task.graph.meshes, found, strict=True)
        for chip, index in enumerate(embedding)
    }


def _only_one(wiring: Wiring, alternatives: list[MeshRequest], steps: Steps) -> list[Embedding] | None:
    for request in alternatives:
        found = first_embedding(wiring, request, steps)
        if found is not None:
            return [found]
    return None


def _mesh_requests(task: Task, wiring: Wiring, mesh: LogicalMesh, demands: Round) -> Iterator[MeshRequest]:
    """One for each way in which the mesh's pinnings can hold."""
    links = mesh.channels if demands.all_mesh_links else sufficient_links(mesh.strict, mesh.channels)
    bound = [task.hosts.get((mesh.id, rank)) for rank in range(mesh.host_count)]
    exclusive = demands.exclusive and len(set(bound) - {None}) == len(bound) - bound.count(None)
    roomy = _roomy_hosts(wiring, mesh)
    for host in bound if exclusive else ():
        roomy &= ~wiring.hosts.get(host or "", 0)
    hosts = [roomy if host is None else wiring.hosts.get(host, 0) for host in bound]
    for choice in choices(pin_groups(task.graph, mesh, wiring.positions)):
        kept_off = wiring.at(position for group in choice.idle for position in group.positions)
        yield MeshRequest(
            mesh=mesh,
            links=links,
            pins=tuple(sorted(_pins(task, wiring, mesh, choice).items())),
            hosts=tuple(chips & ~kept_off for chips in hosts),
            exclusive=exclusive,
        )


def _roomy_hosts(wiring: Wiring, mesh: LogicalMesh) -> int:
    """The chips of hosts with enough of them for one host rank."""
    needed = mesh.size // mesh.host_count
    return either(host for host in wiring.hosts.values() if host.bit_count() >= needed)


def _pins(task: Task, wiring: Wiring, mesh: LogicalMesh, choice: PinChoice) -> dict[int, int]:
    """Logical chip -> the chips it may take."""
    wanted = [(chip, wiring.at(group.positions)) for group in choice.holding for chip in group.chips]
    if task.with_corners:
        corners = corner_pins(task.graph, mesh, task.machine)
        wanted += [(chip, wiring.at(positions)) for chip, positions in corners.items()]
    pins: dict[int, int] = {}
    for chip, chips in wanted:
        pins[chip] = pins.get(chip, wiring.every) & chips
    return pins
