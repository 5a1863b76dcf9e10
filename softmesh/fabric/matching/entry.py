"""Which chip of the machine plays which logical chip: found, verified, or explained why not."""

from __future__ import annotations

from collections.abc import Mapping

from softmesh.fabric.match import Match, MatchError
from softmesh.fabric.matching.backtracking import Steps, StepsSpent
from softmesh.fabric.matching.diagnosis import explain, explain_at_once
from softmesh.fabric.matching.requirements import relaxed_warnings, violations
from softmesh.fabric.matching.solving import STEPS, Task, solve
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.systems.machine import Machine


def match(graph: MeshGraph, machine: Machine, *, hosts: Mapping[tuple[int, int], str] | None = None) -> Match:
    """Embed the graph into the machine; MatchError says which requirement failed and what would work.

    `hosts` binds (mesh id, host rank) to a host by name; the search chooses where nothing is bound. Host
    ranks of a mesh go to hosts of their own where that is possible, and share hosts where it is not.
    """
    task = Task(graph, machine, dict(hosts or {}))
    refusal = explain_at_once(task)
    if refusal is not None:
        raise refusal
    steps = Steps(STEPS)
    try:
        chips = solve(task, steps)
    except StepsSpent:
        raise explain(task, spent=steps.used) from None
    if chips is None:
        raise explain(task)
    found = Match(graph, machine, chips)
    wrong = violations(found, task.hosts)
    if wrong:
        raise MatchError(wrong[0].requirement, wrong[0].detail, line=wrong[0].line)
    return Match(graph, machine, chips, tuple(relaxed_warnings(found)))
