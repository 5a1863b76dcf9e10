"""Checks mesh graph descriptors: the format, the fabric asked for, the machine they should fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.loader import check
from softmesh.fabric.descriptors.validation import is_about_levels
from softmesh.fabric.graph_selection import TORUSES, effective_graph
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import Match, MatchError
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.fabric.routing.network import Network
from softmesh.fabric.routing.packets import MOST_MESHES, hardware_limit_warnings
from softmesh.fabric.settings import ONE_DIMENSIONAL
from softmesh.hardware import ClusterType, FabricConfig, FabricReliabilityMode, FabricType
from softmesh.input_files.text_files import Finding, Severity, errors_of
from softmesh.lint.file_report import FileReport, LintContext, file_report
from softmesh.processes.bindings.machine_split import split_command
from softmesh.strictness import is_strict
from softmesh.systems.machine import Machine

# Whether a fabric configuration can drive a mesh graph, before any machine is looked at.


_AXES = ("rows (N-S)", "columns (E-W)")


def check_fabric_choice(graph: MeshGraph, config: FabricConfig, cluster_type: ClusterType) -> list[Finding]:
    if config is FabricConfig.DISABLED:
        return []
    return [
        *_between_meshes(graph, config),
        *_more_than_declared(graph, config, cluster_type),
        *_rings_without_wrap(graph, config),
        *_beyond_silicon(graph, config),
    ]


def _between_meshes(graph: MeshGraph, config: FabricConfig) -> Iterator[Finding]:
    if config not in ONE_DIMENSIONAL or not graph.connections:
        return
    first, *others = graph.connections
    more = f" and {len(others)} other connections" if others else ""
    message = f"1-D fabric is single-mesh: {config.name} carries nothing over {first}{more}"
    fix = f"choose {_listed(_two_dimensional(graph))}, or give each mesh a job of its own"
    yield Finding("fabric/1d-is-single-mesh", Severity.ERROR, message, fix, line=first.line)


def _two_dimensional(graph: MeshGraph) -> list[str]:
    """The configurations that route between meshes and that these meshes have the wraps for."""

    def provided(wanted: FabricType) -> bool:
        return all(not wanted.wraps[axis] or mesh.rings[axis] for mesh in graph.meshes for axis in (0, 1))

    return ["FABRIC_2D", *(config.name for config, wanted in TORUSES.items() if provided(wanted))]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _more_than_declared(graph: MeshGraph, config: FabricConfig, cluster_type: ClusterType) -> Iterator[Finding]:
    """A configuration may leave wraps out; it cannot add any. Each mesh is asked alone, to name its line."""
    for mesh, _ in _templates(graph):
        try:
            effective_graph(replace(graph, meshes=(mesh,), connections=()), config, cluster_type)
        except MeshError as error:
            yield Finding("fabric/more-than-declared", Severity.ERROR, str(error), line=mesh.line)


def _rings_without_wrap(graph: MeshGraph, config: FabricConfig) -> Iterator[Finding]:
    for mesh, names in _templates(graph):
        if config is FabricConfig.FABRIC_1D_RING and mesh.size > 1 and not (mesh.wraps(0) or mesh.wraps(1)):
            short = [axis for axis in (0, 1) if mesh.rings[axis]]
            why = "its rings are of one or two chips" if short else "no axis is declared RING"
            message = f"{names} of {_shape(mesh)}: {config.name} finds no wrap ({why}) and works as FABRIC_1D"
            fix = "declare RING on an axis of more than 2 chips, or choose FABRIC_1D"
            yield Finding("fabric/ring-without-wrap", Severity.WARNING, message, fix, line=mesh.line)
        if config in TORUSES:
            yield from _short_torus_axes(mesh, names, config)


def _short_torus_axes(mesh: LogicalMesh, names: str, config: FabricConfig) -> Iterator[Finding]:
    for axis, asked in enumerate(TORUSES[config].wraps):
        if asked and mesh.shape[axis] <= 2:
            message = (
                f"{names} of {_shape(mesh)}: {mesh.shape[axis]} chips along its {_AXES[axis]} cannot wrap, "
                f"so {config.name} leaves a line there"
            )
            yield Finding("fabric/short-ring", Severity.WARNING, message, line=mesh.line)


def _beyond_silicon(graph: MeshGraph, config: FabricConfig) -> Iterator[Finding]:
    alone = replace(graph, connections=(), pinnings=())
    if len(graph.meshes) > MOST_MESHES:
        message = f"{len(graph.meshes)} meshes: routing tables on silicon hold {MOST_MESHES}"
        yield Finding("fabric/limits", Severity.ERROR, message)
    for mesh, _ in _templates(graph):
        for message in hardware_limit_warnings(replace(alone, meshes=(mesh,)), config):
            yield Finding("fabric/limits", Severity.ERROR, message, line=mesh.line)


def _templates(graph: MeshGraph) -> Iterator[tuple[LogicalMesh, str]]:
    """Meshes of one template are spoken of once, at the first: `meshes 0, 1, 2 (M0)`."""
    groups: dict[tuple[object, ...], list[LogicalMesh]] = {}
    for mesh in graph.meshes:
        groups.setdefault((mesh.name, mesh.shape, mesh.rings), []).append(mesh)
    for meshes in groups.values():
        ids = ", ".join(str(mesh.id) for mesh in meshes[:8]) + (", ..." if len(meshes) > 8 else "")
        yield meshes[0], f"mesh{'es' if len(meshes) > 1 else ''} {ids} ({meshes[0].name})"


def _shape(mesh: LogicalMesh) -> str:
    return f"{mesh.shape[0]}x{mesh.shape[1]}"


# Whether a mesh graph fits a machine, and whether the fabric then comes up on it.


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
        return Fit(None, [_misfit(error, split_command(graph, machine))])
    except MeshError as error:
        return Fit(None, [Finding("match/refused", Severity.ERROR, str(error))])
    fewer = [_warning("match/fewer-links", text, graph) for text in found.warnings]
    return Fit(found, fewer)


def _misfit(error: MatchError, instead: str) -> Finding:
    message = str(error).removesuffix(f" {error.nearest}") if error.nearest else str(error)
    rule = f"match/{_slug(error.requirement)}"
    fix = " ".join(filter(None, [error.nearest, instead]))
    return Finding(rule, Severity.ERROR, message, fix, line=error.line)


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


KIND = "mesh graph descriptor"
PARSES_ONLY = "parses; runtime rejects"
AS_ONE_GRAPH = "runs as one graph; silicon rejects"
_REFUSED_LATER = {"mgd/mixed-connections"}


@dataclass(frozen=True)
class DescriptorLint:
    """The report, and the graph as far as the file describes one (also where the runtime refuses it)."""

    report: FileReport
    graph: MeshGraph | None


def lint_descriptor(path: Path, context: LintContext) -> DescriptorLint:
    checked = check(path, runtime=context.runtime)
    findings = _as_the_runtime_sees(checked.findings) if context.runtime else list(checked.findings)
    refusals, graph = errors_of(findings), checked.graph
    verdict = told = PARSES_ONLY if refusals else "valid"
    if is_about_levels(refusals):
        described = check(path, runtime=False)
        findings, graph = (findings, described.graph) if described.graph else (described.findings, None)
        if graph is not None and not is_strict():  # a job runs it too, with this warning
            verdict = told = AS_ONE_GRAPH
            findings = [replace(one, severity=Severity.WARNING) if one in refusals else one for one in findings]
    elif refusals:
        graph = None
    if graph is None:
        return _refused(path, context, findings)
    for question in _questions(graph.without_levels(), context):
        findings += question.findings
        answer = question.if_not if errors_of(question.findings) else question.if_so
        if answer:
            verdict = f"{told}; {answer}"
        if answer is question.if_not:
            break
    return DescriptorLint(file_report(str(path), KIND, verdict, findings), graph)


def _as_the_runtime_sees(findings: Iterable[Finding]) -> list[Finding]:
    """The control plane refuses what the format only frowns upon."""
    return [
        replace(finding, severity=Severity.ERROR) if finding.rule in _REFUSED_LATER else finding for finding in findings
    ]


def _refused(path: Path, context: LintContext, findings: Iterable[Finding]) -> DescriptorLint:
    """Tell a file that is wrong from one that only the runtime does not take."""
    parsed = check(path, runtime=False)
    only_parses = context.runtime and not errors_of(parsed.findings)
    verdict = PARSES_ONLY if only_parses else "invalid"
    return DescriptorLint(file_report(str(path), KIND, verdict, findings), parsed.graph)


class _Question(NamedTuple):
    """A question with what the verdict says for either answer; after a no the next ones make no sense."""

    if_so: str
    if_not: str
    findings: list[Finding]


def _questions(graph: MeshGraph, context: LintContext) -> Iterator[_Question]:
    """From the file outwards."""
    machine, fabric = context.machine, context.fabric
    if fabric is not None:
        cluster_type = machine.cluster_type if machine else ClusterType.CUSTOM
        choice = check_fabric_choice(graph, fabric, cluster_type)
        yield _Question("", f"not for {fabric.name}", choice)
    if machine is not None:
        name = machine.name
        fit = check_fit(graph, machine, fabric)
        yield _Question(f"fits {name}", f"does not fit {name}", fit.findings)
        if fit.match is not None and fabric not in (None, *WITHOUT_BRING_UP):
            yield _Question(
                f"comes up as {fabric.name} on {name}",
                f"{fabric.name} does not come up on {name}",
                check_bring_up(fit.match, fabric),
            )
