"""Which chip of the machine plays which logical chip: found, verified, or explained why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from softmesh.fabric.match import Match, MatchError
from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.counting import refusals
from softmesh.fabric.matching.diagnosis import explain, explain_at_once
from softmesh.fabric.matching.requirements import has_full_meshes, relaxed_warnings, violations
from softmesh.fabric.matching.solving import STEPS, Task, solve
from softmesh.fabric.matching.tiles import TileBook
from softmesh.fabric.matching.wiring import Wiring
from softmesh.fabric.mesh_graph import MeshGraph, Node
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
    book = TileBook(Wiring(task.machine), STEPS_FOR_ITS_TILES)
    try:
        chips = solve(larger, Steps(STEPS_PER_CHIP_FOR_THE_PREFERRED * len(task.machine.asics)), book)
    except StepsSpent:
        return None
    if chips is None:
        return None
    found = Match(task.graph, task.machine, {node: chips[node] for node in task.graph.nodes if node in chips})
    return found if not violations(found, task.hosts) and has_full_meshes(found) else None
