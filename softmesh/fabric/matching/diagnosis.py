"""Why a graph does not fit a machine, and the nearest thing that does.

What can be counted is told at once. For the rest one requirement after another is left out and the search asked
again: the first that makes it fit is to blame, and what was found then says where it would have been broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from softmesh.fabric.match import Match, MatchError
from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.counting import refusals
from softmesh.fabric.matching.relaxation import (
    Relaxed,
    ever_easier,
    fewer_links,
    free_hosts,
    fully_up,
    other_host_grids,
    smaller_shapes,
    without_corners,
    without_pinnings,
    without_rings,
)
from softmesh.fabric.matching.requirements import Violation, connection_links, violations
from softmesh.fabric.matching.solving import Task, solve
from softmesh.fabric.matching.tiles import TileBook
from softmesh.fabric.matching.wiring import Wiring
from softmesh.fabric.mesh_graph import Connection, MeshGraph, Node

STEPS_PER_TRIAL = 4000
STEPS_PER_CHIP = 10
MOST_STEPS = 30_000


def explain_at_once(task: Task) -> MatchError | None:
    error = next(refusals(task), None)
    if error is not None and error.requirement == "chip count" and len(task.graph.meshes) == 1:
        nearest = _Diagnosis(task).largest_that_fits(task)
        return MatchError(error.requirement, error.detail, nearest, error.line)
    return error


def explain(task: Task, spent: int | None = None) -> MatchError:
    """`spent` is the number of steps after which the search stopped; None: it proved that there is no match."""
    blame = _Diagnosis(task).blame()
    if spent is None:
        return MatchError(*(blame or _NO_SINGLE_CAUSE))
    caution = f"Failed to find mapping: no match was found within {spent} steps, which proves nothing"
    if blame is None:
        return MatchError("search", caution, "Bound hosts, pinnings or fewer meshes make the search shorter.")
    return MatchError(blame.requirement, f"{caution}; most likely: {blame.detail}", blame.nearest, blame.line)


class _Blame(NamedTuple):
    requirement: str
    detail: str
    nearest: str
    line: int | None = None


_NO_SINGLE_CAUSE = _Blame(
    "meshes",
    "Failed to find mapping: no requirement alone is to blame",
    "Relax several: fewer channels, LINE for RING, fewer pinnings or a smaller shape.",
)


class _Diagnosis:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.steps = Steps(MOST_STEPS)
        self.is_proven = True  # whether the latest trial was searched to its end
        self.book = TileBook(Wiring(task.machine))

    def blame(self) -> _Blame | None:
        for ask in (self._one_requirement, self._connections, self._several_requirements, self._shape):
            found = ask()
            if found is not None:
                return found
        return None

    def fits(self, task: Task) -> dict[Node, int] | None:
        """What a short search finds; None where it finds nothing, or does not finish."""
        few = self.steps.share(STEPS_PER_TRIAL + STEPS_PER_CHIP * len(task.machine.asics))
        self.is_proven = True
        try:
            return solve(task, few, self.book if task.machine is self.task.machine else None)
        except StepsSpent:
            self.is_proven = False
            return None
        finally:
            self.steps.join(few)

    def _one_requirement(self) -> _Blame | None:
        kinds: tuple[Callable[[Task], Iterator[Relaxed]], ...] = (
            fully_up,
            fewer_links,
            without_pinnings,
            without_corners,
            free_hosts,
            other_host_grids,
            without_rings,
        )
        for relaxed in (one for kind in kinds for one in kind(self.task)):
            chips = self.fits(relaxed.task)
            if chips is not None:
                return self._broken_by(relaxed, chips)
        return None

    def _broken_by(self, relaxed: Relaxed, chips: dict[Node, int]) -> _Blame:
        if relaxed.detail:
            return _Blame(relaxed.requirement, relaxed.detail, relaxed.nearest, relaxed.line)
        broken = self._violations(chips)
        first = broken[0] if broken else Violation(relaxed.requirement, "Failed to find mapping")
        nearest = relaxed.nearest or self._fitting_hosts(chips)
        return _Blame(relaxed.requirement, first.detail, nearest, first.line)

    def _fitting_hosts(self, chips: dict[Node, int]) -> str:
        found = Match(self.task.graph, self.task.machine, chips)
        changed = [
            f"mesh {mesh} host rank {rank} on {found.hosts_of(mesh)[rank]}"
            for (mesh, rank), host in self.task.hosts.items()
            if found.hosts_of(mesh)[rank] != host
        ]
        return f"It fits with {', '.join(changed[:4])}{' and others moved' if len(changed) > 4 else ''}."

    def _violations(self, chips: dict[Node, int]) -> list[Violation]:
        return violations(Match(self.task.graph, self.task.machine, chips), self.task.hosts)

    def _connections(self) -> _Blame | None:
        """The first connections fit, one more does not: that one is to blame."""
        graph = self.task.graph
        if not graph.connections or self.fits(self._with_first(0)) is None:
            return None
        low, high = 0, len(graph.connections)  # so many fit; so many do not
        while high - low > 1:
            middle = (low + high) // 2
            if self.fits(self._with_first(middle)) is None:
                high = middle
            else:
                low = middle
        return self._blamed_connection(high - 1)

    def _with_first(self, count: int) -> Task:
        return replace(
            self.task, graph=replace(self.task.graph, connections=self.task.graph.connections[:count])
        )

    def _blamed_connection(self, number: int) -> _Blame:
        culprit = self.task.graph.connections[number]
        meshes = sorted({*culprit.a.meshes, *culprit.b.meshes})
        chips = self.fits(self._with_first(number))
        have = connection_links(Match(self.task.graph, self.task.machine, chips), culprit) if chips else 0
        mode = "STRICT" if culprit.strict else "RELAXED"
        return _Blame(
            "connection",
            f"Inter-mesh mapping failed after 1 attempt(s). Logical meshes being mapped: {meshes}. "
            f"Inter-mesh validation mode: {mode}. Connection {culprit} asks for {culprit.count} links, {have} exist "
            "where the connections before it fit",
            self._nearest_connection(number, culprit),
            culprit.line,
        )

    def _nearest_connection(self, number: int, culprit: Connection) -> str:
        graph = self.task.graph
        is_counted = culprit.strict or culprit.is_between_chips
        most = min(culprit.count - 1, len(self.task.machine.links)) if is_counted else 0
        for count in range(most, 0, -1):
            if self._fits_with(graph, number, (replace(culprit, count=count),)):
                return f"With count {count} for {culprit} it fits."
        if self._fits_with(graph, number, ()):
            return f"Without the connection {culprit} it fits."
        return f"Without {culprit} and the connections after it, the rest fits."

    def _fits_with(self, graph: MeshGraph, number: int, instead: tuple[Connection, ...]) -> bool:
        connections = (*graph.connections[:number], *instead, *graph.connections[number + 1 :])
        return self.fits(replace(self.task, graph=replace(graph, connections=connections))) is not None

    def _several_requirements(self) -> _Blame | None:
        for relaxed in ever_easier(self.task):
            chips = self.fits(relaxed.task)
            if chips is not None:
                each = {broken.requirement: broken for broken in reversed(self._violations(chips))}
                detail = "; ".join(broken.detail for broken in reversed(each.values()))
                return _Blame(relaxed.requirement, detail, relaxed.nearest, relaxed.line)
        return None

    def _shape(self) -> _Blame | None:
        """A mesh that does not even fit alone, and the largest part of it that does."""
        for mesh in self.task.graph.meshes:
            alone = replace(self.task, graph=replace(self.task.graph, connections=(), meshes=(mesh,)))
            if self.fits(_renumbered(alone)) is not None or not self.is_proven:
                continue
            rows, columns = mesh.shape
            detail = (
                f"Failed to find mapping: the links between the {len(self.task.machine.asics)} chips of "
                f"{self.task.machine.name} form no {rows}x{columns} mesh like mesh {mesh.id}"
            )
            return _Blame("shape", detail, self.largest_that_fits(_renumbered(alone)), mesh.line)
        return self._meshes_together()

    def largest_that_fits(self, task: Task) -> str:
        fitting = (one for one in smaller_shapes(task) if self.fits(one.task) is not None)
        return next((one.nearest for one in fitting), "")

    def _meshes_together(self) -> _Blame | None:
        graph = self.task.graph
        if (
            self.fits(replace(self.task, graph=replace(graph, connections=()))) is not None
            or not self.is_proven
        ):
            return None
        for count in range(len(graph.meshes) - 1, 0, -1):
            part = replace(graph, meshes=graph.meshes[:count], connections=())
            if self.fits(replace(self.task, graph=part)) is not None:
                return _Blame(
                    "meshes",
                    "Failed to find mapping: every mesh fits alone, but not all "
                    f"{len(graph.meshes)} side by side",
                    f"The first {count} of them fit together." if count > 1 else "Only one of them fits.",
                    graph.meshes[count].line,
                )
        return None


def _renumbered(task: Task) -> Task:
    """A single mesh as mesh 0, with its pinnings and hosts."""
    mesh = task.graph.meshes[0]
    pinnings = tuple(
        replace(pinning, nodes=tuple(Node(0, node.chip) for node in pinning.nodes if node.mesh == mesh.id))
        for pinning in task.graph.pinnings
    )
    hosts = {(0, rank): host for (owner, rank), host in task.hosts.items() if owner == mesh.id}
    graph = replace(task.graph, meshes=(replace(mesh, id=0),), pinnings=pinnings)
    return replace(task, graph=graph, hosts=hosts)
