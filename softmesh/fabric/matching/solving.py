"""The search for a match, from the most to the least demanding reading of what may be relaxed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.corners import corner_pins
from softmesh.fabric.matching.embedding import Embedding, Piece, first_embedding
from softmesh.fabric.matching.partition import first_partition
from softmesh.fabric.matching.pin_groups import PinChoice, choices, pin_groups
from softmesh.fabric.matching.requirements import Hosts, sufficient_links
from softmesh.fabric.matching.straight import laid_straight
from softmesh.fabric.matching.tiles import TileBook
from softmesh.fabric.matching.wiring import Wiring
from softmesh.fabric.matching.wishes import wishes
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.systems.machine import Machine

STEPS = 60_000
STEPS_PER_CHIP_FOR_A_BETTER_ANSWER = 20


@dataclass(frozen=True)
class Task:
    """A graph, a machine, and what else is to be kept to. Diagnosis asks again with parts left out."""

    graph: MeshGraph
    machine: Machine
    hosts: Hosts = field(default_factory=dict)
    with_corners: bool = True


class Round(NamedTuple):
    """One reading: host ranks on hosts of their own, and every link that is asked for, or only the needed ones.

    `usable` counts for a connection only links that the fabric can take, which no descriptor asks for.
    """

    apart: bool
    all_mesh_links: bool
    all_connection_links: bool
    usable: bool


def solve(task: Task, steps: Steps, book: TileBook | None = None) -> dict[Node, int] | None:
    """A chip for each node; None: there is none. StepsSpent: not found, though there may be one.

    The first rounds look for better answers than are needed, so running out of steps in one of them does not
    matter; the last one asks for what is needed, and decides. `book` is one of the same machine, to be shared.
    """
    book = book or TileBook(Wiring(task.machine))
    *preferred, last = _rounds(task, book.wiring)
    for one in preferred:
        few = steps.share(STEPS_PER_CHIP_FOR_A_BETTER_ANSWER * len(task.machine.asics))
        try:
            found = _solve_round(task, book, one, few)
        except StepsSpent:
            found = None
        finally:
            steps.join(few)
        if found is not None:
            return found
    return _solve_round(task, book, last, steps)


def _rounds(task: Task, wiring: Wiring) -> list[Round]:
    graph = task.graph
    shared_hosts = any(mesh.host_count > 1 for mesh in graph.meshes)
    apart = [True, False] if shared_hosts and _has_hosts_enough(task, wiring) else [False]
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
        Round(separate, *demand, only_usable)
        for separate, only_usable, demand in product(apart, usable, demands)
    ]


def _has_hosts_enough(task: Task, wiring: Wiring) -> bool:
    def large_enough(mesh: LogicalMesh) -> int:
        needed = mesh.size // mesh.host_count
        return sum(chips.bit_count() >= needed for chips in wiring.hosts.values())

    return all(large_enough(mesh) >= mesh.host_count for mesh in task.graph.meshes)


def _solve_round(task: Task, book: TileBook, demands: Round, steps: Steps) -> dict[Node, int] | None:
    wiring = book.wiring
    pieces = [list(_pieces(task, wiring, mesh, demands)) for mesh in task.graph.meshes]
    if len(pieces) == 1 and not task.graph.connections:
        found = _only_one(wiring, pieces[0], steps)
    else:
        each = task.graph.meshes[0].channels if demands.usable else None
        wanted = wishes(task.graph.connections, demands.all_connection_links, each)
        found = laid_straight(wiring, pieces, wanted) or first_partition(book, pieces, wanted, steps)
    if found is None:
        return None
    return {
        Node(mesh.id, chip): wiring.ids[index]
        for mesh, embedding in zip(task.graph.meshes, found, strict=True)
        for chip, index in enumerate(embedding)
    }


def _only_one(wiring: Wiring, alternatives: list[Piece], steps: Steps) -> list[Embedding] | None:
    for piece in alternatives:
        found = first_embedding(wiring, piece, steps)
        if found is not None:
            return [found]
    return None


def _pieces(task: Task, wiring: Wiring, mesh: LogicalMesh, demands: Round) -> Iterator[Piece]:
    """One for each way in which the mesh's pinnings can hold."""
    links = mesh.channels if demands.all_mesh_links else sufficient_links(mesh.strict, mesh.channels)
    bound = [task.hosts.get((mesh.id, rank)) for rank in range(mesh.host_count)]
    apart = demands.apart and len(set(bound) - {None}) == len(bound) - bound.count(None)
    roomy = _roomy_hosts(wiring, mesh)
    for host in bound if apart else ():
        roomy &= ~wiring.hosts.get(host or "", 0)
    hosts = [roomy if host is None else wiring.hosts.get(host, 0) for host in bound]
    for choice in choices(pin_groups(task.graph, mesh, wiring.positions)):
        kept_off = wiring.at(position for group in choice.idle for position in group.positions)
        yield Piece(
            mesh=mesh,
            links=links,
            pins=tuple(sorted(_pins(task, wiring, mesh, choice).items())),
            hosts=tuple(chips & ~kept_off for chips in hosts),
            apart=apart,
        )


def _roomy_hosts(wiring: Wiring, mesh: LogicalMesh) -> int:
    """The chips of hosts with enough of them for one host rank."""
    chips = 0
    for host in wiring.hosts.values():
        chips |= host if host.bit_count() >= mesh.size // mesh.host_count else 0
    return chips


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
