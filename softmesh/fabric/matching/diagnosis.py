"""Explains why a graph does not fit a machine, and names the nearest thing that does.

What can be counted is reported at once, without a search. For the rest one requirement after another is left out and
the search asked again: the first that makes it fit is to blame, and what was found then says where it would have been
broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from softmesh.errors import did_you_mean
from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.machine_bitsets import Wiring
from softmesh.fabric.matching.match import (
    Match,
    MatchError,
    Violation,
    connection_links,
    unpinned_text,
    violations,
)
from softmesh.fabric.matching.position_rules import pin_groups
from softmesh.fabric.matching.relaxation import (
    Relaxed,
    fewer_links,
    free_hosts,
    fully_up,
    other_host_grids,
    smaller_shapes,
    without_corners,
    without_pinnings,
    without_rings,
    without_several,
)
from softmesh.fabric.matching.solver import Task, solve
from softmesh.fabric.matching.tiles import TileCache
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, policy_name

# Refusals that need no search: what the machine does not have at all.


def refusals(task: Task) -> Iterator[MatchError]:
    if not task.graph.meshes:
        yield MatchError("meshes", "The graph has no mesh")
    yield from _architecture(task)
    yield from _chip_count(task)
    yield from _hosts(task)
    for mesh in task.graph.meshes:
        yield from _host_size(task, mesh)
        yield from _pinnings(task, mesh)


def _architecture(task: Task) -> Iterator[MatchError]:
    wanted, have = task.graph.arch, task.machine.chip.arch
    if wanted != have:
        yield MatchError(
            "architecture",
            f"The descriptor is for {wanted.name}, {task.machine.name} has {have.name} chips",
            f"Declare arch: {have.name}, or use a machine with {wanted.name} chips.",
            task.graph.meshes[0].line,
        )


def _chip_count(task: Task) -> Iterator[MatchError]:
    wanted, have = task.graph.size, len(task.machine.asics)
    if wanted > have:
        down = [asic.id for asic in task.machine.down_chips]
        yield MatchError(
            "chip count",
            "Cannot map target graph to global graph: target graph is larger with "
            f"{wanted} nodes, but global graph only has {have} nodes"
            + (f" (down: chips {', '.join(map(str, down))})" if down else ""),
            _meshes_within(task, have),
        )


def _meshes_within(task: Task, chips: int) -> str:
    meshes = sorted(task.graph.meshes, key=lambda mesh: mesh.size)
    count = sum(total <= chips for total in accumulate(mesh.size for mesh in meshes))
    if not count:
        rows, columns = meshes[0].shape
        return f"A {rows}x{columns} mesh needs {meshes[0].size} chips, {task.machine.name} has {chips}."
    held = count if meshes[0].size == meshes[-1].size else f"the {count} smallest"
    return f"{chips} chips hold {held} of the {len(meshes)} meshes."


def _hosts(task: Task) -> Iterator[MatchError]:
    for (mesh, rank), host in task.hosts.items():
        if host not in task.machine.hosts:
            yield MatchError(
                "hosts",
                f"Host consistency violated: mesh {mesh} host rank {rank} is bound to {host!r}, which is no host "
                f"of {task.machine.name} ({', '.join(task.machine.hosts[:8])})",
                did_you_mean(host, task.machine.hosts).strip(),
            )


def _host_size(task: Task, mesh: LogicalMesh) -> Iterator[MatchError]:
    rows, columns = mesh.host_block
    largest = max(len(task.machine.chips_of(host)) for host in task.machine.hosts)
    if rows * columns > largest:
        yield MatchError(
            "hosts",
            f"Failed to set same-rank groups constraint for mesh {mesh.id}: each of its {mesh.host_count} host "
            f"rank(s) owns {rows}x{columns} chips, the largest host of {task.machine.name} has {largest}",
            f"Declare host_topology so that a host owns at most {largest} chips.",
            mesh.line,
        )


def _pinnings(task: Task, mesh: LogicalMesh) -> Iterator[MatchError]:
    mine = [pin for pin in task.graph.pinnings if any(node.mesh == mesh.id for node in pin.nodes)]
    existing = {asic.position for asic in task.machine.asics.values()}
    groups = pin_groups(task.graph, mesh, existing)
    if mine and not groups:
        positions = sorted(existing)
        yield MatchError(
            "pinning",
            unpinned_text(mesh.id),
            f"Positions of {task.machine.name} go from tray {positions[0][0]} asic {positions[0][1]} to tray "
            f"{positions[-1][0]} asic {positions[-1][1]}.",
            mine[0].line,
        )
    for group in groups:
        places = sum(asic.position in group.positions for asic in task.machine.asics.values())
        if len(set(group.chips)) > places:
            yield MatchError(
                "pinning",
                f"{len(set(group.chips))} chips of mesh {mesh.id} are pinned to {places} positions",
                "List as many positions as chips.",
                group.line,
            )


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
        self.tile_cache = TileCache(Wiring(task.machine))

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
            return solve(task, few, self.tile_cache if task.machine is self.task.machine else None)
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
        return self.task.asking(connections=self.task.graph.connections[:count])

    def _blamed_connection(self, number: int) -> _Blame:
        culprit = self.task.graph.connections[number]
        meshes = sorted({*culprit.a.meshes, *culprit.b.meshes})
        chips = self.fits(self._with_first(number))
        have = connection_links(Match(self.task.graph, self.task.machine, chips), culprit) if chips else 0
        mode = policy_name(culprit.strict)
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
        return self.fits(self.task.asking(connections=connections)) is not None

    def _several_requirements(self) -> _Blame | None:
        for relaxed in without_several(self.task):
            chips = self.fits(relaxed.task)
            if chips is not None:
                each = {broken.requirement: broken for broken in reversed(self._violations(chips))}
                detail = "; ".join(broken.detail for broken in reversed(each.values()))
                return _Blame(relaxed.requirement, detail, relaxed.nearest, relaxed.line)
        return None

    def _shape(self) -> _Blame | None:
        """A mesh that does not even fit alone, and the largest part of it that does."""
        for mesh in self.task.graph.meshes:
            alone = self.task.asking(connections=(), meshes=(mesh,))
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
        if self.fits(self.task.asking(connections=())) is not None or not self.is_proven:
            return None
        for count in range(len(graph.meshes) - 1, 0, -1):
            if self.fits(self.task.asking(meshes=graph.meshes[:count], connections=())) is not None:
                return _Blame(
                    "meshes",
                    f"Failed to find mapping: every mesh fits alone, but not all {len(graph.meshes)} side by side",
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
    return replace(task.asking(meshes=(replace(mesh, id=0),), pinnings=pinnings), hosts=hosts)
