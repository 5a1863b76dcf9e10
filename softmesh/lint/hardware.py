"""Whether a mesh graph fits a machine, and whether the fabric then comes up on it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.restriction import effective_graph
from softmesh.fabric.finding import Finding, Severity
from softmesh.fabric.match import Match, MatchError
from softmesh.fabric.matching.entry import match
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.fabric.routing.network import Network
from softmesh.hardware import FabricConfig, FabricReliabilityMode
from softmesh.systems.machine import Machine

WITHOUT_BRING_UP = (FabricConfig.DISABLED, FabricConfig.CUSTOM)  # nothing that could be checked here
STRICT, RELAXED = FabricReliabilityMode.STRICT_INIT, FabricReliabilityMode.RELAXED_INIT


@dataclass(frozen=True)
class Fit:
    match: Match | None
    findings: list[Finding]


def check_fit(graph: MeshGraph, machine: Machine, fabric: FabricConfig | None) -> Fit:
    """The embedding that the runtime would look for: with a fabric, only the wraps that it uses."""
    declared = graph
    if fabric is not None:
        graph = effective_graph(graph, fabric, machine.cluster_type)
    try:
        found = match(graph, machine, preferring=declared)
    except MatchError as error:
        return Fit(None, [_misfit(error)])
    except MeshError as error:
        return Fit(None, [Finding("match/refused", Severity.ERROR, str(error))])
    fewer = [_warning("match/fewer-links", text, graph) for text in found.warnings]
    return Fit(found, fewer)


def _misfit(error: MatchError) -> Finding:
    message = str(error).removesuffix(f" {error.nearest}") if error.nearest else str(error)
    rule = f"match/{_slug(error.requirement)}"
    return Finding(rule, Severity.ERROR, message, error.nearest, line=error.line)


def _slug(text: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words[:5]) or "misfit"


def check_bring_up(found: Match, config: FabricConfig) -> list[Finding]:
    """Every link there, every port bound, every table filled, no cycle of waiting."""
    try:
        network = Network(found, config, STRICT)
    except MeshError as error:
        fix, line = _relaxed_instead(found, config), _line_named(str(error), found.graph)
        return [Finding("fabric/bring-up", Severity.ERROR, str(error), fix, line=line)]
    warnings = [_warning("fabric/bring-up", text, found.graph) for text in network.warnings]
    return [*warnings, _deadlock(network)]


def _warning(rule: str, text: str, graph: MeshGraph) -> Finding:
    return Finding(rule, Severity.WARNING, text, line=_line_named(text, graph))


def _line_named(text: str, graph: MeshGraph) -> int | None:
    """The line of the descriptor that a sentence speaks of: given outright, or by a connection or mesh."""
    if outright := re.search(rf"{re.escape(graph.source)}:(\d+)", text):
        return int(outright[1])
    named = next((one for one in graph.connections if re.search(rf"{re.escape(str(one))}\b", text)), None)
    if named is not None:
        return named.line
    mesh = re.search(r"\bmesh (\d{1,6})\b|\bM(\d{1,6})D\d", text, re.IGNORECASE)
    return next((one.line for one in graph.meshes if mesh and one.id == int(mesh[1] or mesh[2])), None)


def _relaxed_instead(found: Match, config: FabricConfig) -> str:
    """What the other reliability mode would make of it."""
    try:
        network = Network(found, config, RELAXED)
    except MeshError:
        return "RELAXED_INIT would not come up either: mend the machine, or ask for less in the descriptor"
    fewest = min(min(planes) for planes in network.planes.values())
    planes = f"{fewest} routing plane{'' if fewest == 1 else 's'}"
    return f"mend the links, or set_fabric_config({config}, RELAXED_INIT): it comes up with {planes}"


def _deadlock(network: Network) -> Finding:
    answer = network.deadlock()
    severity = Severity.NOTE if answer.is_free else Severity.ERROR
    return Finding("fabric/deadlock", severity, str(answer))
