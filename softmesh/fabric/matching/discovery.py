"""The mesh that a machine offers where no descriptor is given: the largest grid that fits."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.fabric.match import Match
from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.solving import Task, solve
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.systems.machine import Machine

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
    return (
        f"Auto discovery uses {graph.size} of {len(machine.asics)} visible chips of {machine.name}, as a "
        f"{rows}x{columns} mesh: the links allow no larger grid. Give a mesh graph descriptor "
        "(TT_MESH_GRAPH_DESC_PATH) to choose other chips or another shape."
    )
