"""Entry points of matching: `match` finds and verifies an embedding or explains why none exists; `discover` finds the
largest grid of a machine.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.diagnosis import explain, explain_at_once, refusals
from softmesh.fabric.matching.machine_bitsets import Wiring
from softmesh.fabric.matching.match import Match, MatchError, has_full_meshes, relaxed_warnings, violations
from softmesh.fabric.matching.solver import STEPS, Task, solve
from softmesh.fabric.matching.tiles import TileCache
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.progress import working
from softmesh.systems.machine import Machine

STEPS_PER_CHIP_FOR_THE_PREFERRED = 40
STEPS_FOR_ITS_TILES = 20_000


def match(
    graph: MeshGraph,
    machine: Machine,
    *,
    hosts: Mapping[tuple[int, int], str] | None = None,
    preferring: MeshGraph | None = None,
) -> Match:
    """Embed the graph into the machine; MatchError says which requirement failed and what would work.

    `hosts` binds (mesh id, host rank) to a host by name; the search chooses where nothing is bound. Host
    ranks of a mesh go to hosts of their own where that is possible, and share hosts where it is not.
    `preferring` is a graph that asks for more, such as rings that the fabric leaves unused: its answers serve
    too, and often are the ones that are found quickly.
    """
    task = Task(graph, machine, dict(hosts or {}))
    refusal = explain_at_once(task)
    if refusal is not None:
        raise refusal
    found = _preferred(task, preferring) if preferring is not None and preferring != graph else None
    if found is None:
        found = Match(graph, machine, _searched(task))
    wrong = violations(found, task.hosts)
    if wrong:
        raise MatchError(wrong[0].requirement, wrong[0].detail, line=wrong[0].line)
    return replace(found, warnings=tuple(relaxed_warnings(found)))


def _searched(task: Task) -> dict[Node, int]:
    steps = Steps(STEPS)
    try:
        with working(f"matching {len(task.graph.meshes)} meshes onto {task.machine.name}"):
            chips = solve(task, steps)
    except StepsSpent:
        raise explain(task, spent=steps.used) from None
    if chips is None:
        raise explain(task)
    return chips


def _preferred(task: Task, preferring: MeshGraph) -> Match | None:
    """What a short search for the larger graph finds, where it serves the graph well; None says nothing."""
    larger = replace(task, graph=preferring)
    if next(refusals(larger), None) is not None:
        return None
    tile_cache = TileCache(Wiring(task.machine), STEPS_FOR_ITS_TILES)
    try:
        chips = solve(larger, Steps(STEPS_PER_CHIP_FOR_THE_PREFERRED * len(task.machine.asics)), tile_cache)
    except StepsSpent:
        return None
    if chips is None:
        return None
    found = Match(task.graph, task.machine, {node: chips[node] for node in task.graph.nodes if node in chips})
    return found if not violations(found, task.hosts) and has_full_meshes(found) else None


# Auto discovery: the mesh that a machine offers where no descriptor is given, the largest grid that fits.


STEPS_PER_CHIP = 50


def discover(machine: Machine) -> MeshGraph:
    """One mesh over as many chips as possible: 2-D before 1-D, the most square first, its longer side down.

    Its channels are the links that every neighbour pair really has. Chips that are left over are a warning.
    """
    if len(machine.hosts) > 1:
        raise MeshError(
            "Auto discovery is only supported for single host systems, since you are running on a "
            f"{len(machine.hosts)} process, please specify a rank binding file via the tt-run argument "
            "--rank-binding argument. A mesh graph descriptor (TT_MESH_GRAPH_DESC_PATH) must say how "
            f"the hosts {', '.join(machine.hosts[:4])} share the mesh."
        )
    visible = len(machine.asics)
    for shape in _shapes(visible):
        graph = _fitting_graph(machine, shape)
        if graph is not None:
            if graph.size < visible:
                warnings.warn(_left_over(machine, graph), SoftmeshWarning, stacklevel=2)
            return graph
    raise MeshError(f"Auto discovery found no chip in {machine.name}.")


def _shapes(visible: int) -> Iterator[tuple[int, int]]:
    for chips in range(visible, 0, -1):
        flat: list[tuple[int, int]] = []
        for short in range(int(chips**0.5), 0, -1):
            long = chips // short
            if chips % short or not (_is_usable(short) and _is_usable(long)):
                continue
            both = dict.fromkeys([(long, short), (short, long)])
            if short == 1:
                flat += both
            else:
                yield from both
        yield from flat


def _is_usable(extent: int) -> bool:
    return extent == 1 or extent % 2 == 0


def _fitting_graph(machine: Machine, shape: tuple[int, int]) -> MeshGraph | None:
    mesh = LogicalMesh(0, "discovered", shape, channels=_usual_links(machine))
    source = f"auto discovery: {shape[0]}x{shape[1]} of {len(machine.asics)} visible chips"
    graph = MeshGraph(source, machine.chip.arch, (mesh,))
    try:
        chips = solve(Task(graph, machine), Steps(STEPS_PER_CHIP * mesh.size + 1000))
    except StepsSpent:
        return None
    if chips is None:
        return None
    return replace(graph, meshes=(replace(mesh, channels=_fewest_links(Match(graph, machine, chips))),))


def _usual_links(machine: Machine) -> int:
    """What most neighbours share."""
    counts = Counter(len(links) for near in machine.neighbours.values() for links in near.values())
    return max(counts, key=lambda count: (counts[count], count), default=1)


def _fewest_links(match: Match) -> int:
    mesh = match.graph.mesh(0)
    nodes = match.graph.nodes
    return min((len(match.links(nodes[one], nodes[other])) for one, other, _ in mesh.edges()), default=1)


def _left_over(machine: Machine, graph: MeshGraph) -> str:
    rows, columns = graph.mesh(0).shape
    down = f" with {machine.down_text} down" if machine.down_text else ""
    return (
        f"Auto discovery uses {graph.size} of {len(machine.asics)} visible chips of {machine.name}{down}, as a "
        f"{rows}x{columns} mesh: the links allow no larger grid. Give a mesh graph descriptor "
        "(TT_MESH_GRAPH_DESC_PATH) to choose other chips or another shape."
    )
