"""Checks rank bindings: the file, its mesh graph descriptor, TT_VISIBLE_DEVICES, and mappings of sub-contexts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.input_files.text_files import Finding, Severity, errors_of
from softmesh.lint.descriptor_checks import lint_descriptor
from softmesh.lint.file_report import FileReport, LintContext, file_report, refusal_of, relative_to_cwd
from softmesh.processes.bindings.mapping_files import (
    DESCRIPTORS,
    RANK_BINDINGS,
    MappingFile,
    environment_conflicts,
    merged,
    read_mapping,
)
from softmesh.processes.bindings.mesh_graph_check import listed, mesh_graph_findings
from softmesh.processes.bindings.rank_bindings import VISIBLE_DEVICES, RankBinding, RankBindings, read
from softmesh.systems.machine import Machine
from softmesh.systems.machine_restriction import restricted

# TT_VISIBLE_DEVICES of the ranks: enough chips for each one's block, and no chip for two of them.
#
# A binding does not say which host its rank runs on, so a chip number may be listed once for each host.


_MOST_CHIPS_OF_A_LISTED_ONE = 2  # boards of two come whole
_KEY = f"env_overrides.{VISIBLE_DEVICES}"


def check_visible_devices(
    bindings: Sequence[RankBinding], meshes: Mapping[int, LogicalMesh], machine: Machine | None
) -> list[Finding]:
    restricting = [binding for binding in bindings if devices_of(binding)]
    found: list[Finding] = []
    for binding in restricting:
        found += _check_rank(binding, meshes[binding.mesh_id], machine)
    if machine is not None and not found:
        found += [*_all_visible(bindings, machine), *check_shared_devices(restricting, machine)]
    return found


def _all_visible(bindings: Sequence[RankBinding], machine: Machine) -> Iterator[Finding]:
    """Ranks that must share a host, of which one sees every chip there."""
    greedy = [binding for binding in bindings if not devices_of(binding)]
    if greedy and len(bindings) > len(machine.hosts):
        hosts = "one host" if len(machine.hosts) == 1 else f"{len(machine.hosts)} hosts"
        message = (
            f"{len(bindings)} ranks on the {hosts} of {machine.name}, and rank {greedy[0].rank} sees every chip "
            "of its host: it and its neighbour would open the same ones"
        )
        fix = "list the chips of each rank in env_overrides: TT_VISIBLE_DEVICES"
        yield Finding("bindings/all-visible", Severity.WARNING, message, fix, line=greedy[0].line_of())


def devices_of(binding: RankBinding) -> list[str]:
    """What the rank lists; nothing where it sees every chip."""
    text = binding.visible_devices or ""
    return [token.strip() for token in text.split(",")] if text.strip() else []


def _check_rank(binding: RankBinding, mesh: LogicalMesh, machine: Machine | None) -> Iterator[Finding]:
    listed = devices_of(binding)
    if odd := [token for token in listed if not _is_device(token)]:
        message = f"rank {binding.rank}: TT_VISIBLE_DEVICES: {odd[0][:40]!r} is neither a chip number nor a PCI address"
        yield _finding("visible-devices", message, binding, 'list them as in "0,1,2" or "0000:01:00.0"')
        return
    needed = math.prod(mesh.host_block)
    if machine is None:
        most = _MOST_CHIPS_OF_A_LISTED_ONE * len(set(listed))
        if most < needed:
            of = f"at most {most} chips, on boards of two"
            yield _too_few(binding, mesh, of, needed)
        return
    yield from _check_on(machine, binding, mesh, needed)


def _check_on(machine: Machine, binding: RankBinding, mesh: LogicalMesh, needed: int) -> Iterator[Finding]:
    """Any host will do; the complaint is that of the last one where none does."""
    most = 0
    complaint = ""
    for host in machine.hosts:
        try:
            most = max(most, len(_seen(machine, binding, host)))
        except MeshError as error:
            complaint = str(error)
    if most == 0:
        yield _finding("visible-devices", f"rank {binding.rank}: {complaint}", binding, "list chips that are there")
    elif most < needed:
        yield _too_few(binding, mesh, f"{most} chips of {machine.name}", needed)


def check_shared_devices(bindings: Sequence[RankBinding], machine: Machine) -> list[Finding]:
    """Chips that more ranks list than there are hosts to tell them apart."""
    findings = []
    users: dict[str, list[int]] = {}
    for binding in bindings:
        shared = []
        for device in _claims(machine, binding):
            ranks = users.setdefault(device, [])
            if len(ranks) >= len(machine.hosts):
                shared.append((device, ranks[-1]))
            ranks.append(binding.rank)
        if shared:
            findings.append(_shared_device_finding(binding, shared, machine))
    return findings


def _shared_device_finding(binding: RankBinding, shared: list[tuple[str, int]], machine: Machine) -> Finding:
    hosts = "its one host" if len(machine.hosts) == 1 else f"its {len(machine.hosts)} hosts"
    chips = ", ".join(device for device, _ in shared[:8])
    message = (
        f"rank {binding.rank} lists chip {chips} in TT_VISIBLE_DEVICES, as rank {shared[0][1]} does: "
        f"{machine.name} has no more of them on {hosts}"
    )
    return _finding("shared-devices", message, binding, "give each rank chips of its own")


def _claims(machine: Machine, binding: RankBinding) -> list[str]:
    """What a rank takes: on one host the chips themselves (a board comes whole), else the numbers listed."""
    if len(machine.hosts) > 1:
        return sorted(set(devices_of(binding)))
    ids = {asic.unique_id: id for id, asic in machine.asics.items()}
    return [str(ids[unique_id]) for unique_id in sorted(_seen(machine, binding), key=ids.__getitem__)]


def _seen(machine: Machine, binding: RankBinding, host: str | None = None) -> set[int]:
    """Unique ids of the chips of one host that the rank sees."""
    host = host or machine.hosts[0]
    visible = restricted(machine, binding.visible_devices or "", host)
    return {asic.unique_id for asic in visible.asics.values() if asic.host == host}


def _is_device(token: str) -> bool:
    return token.isascii() and (token.isdigit() or token.count(":") == 2)


def _too_few(binding: RankBinding, mesh: LogicalMesh, seen: str, needed: int) -> Finding:
    rows, columns = mesh.host_block
    message = (
        f"rank {binding.rank} sees {seen}, too few for its {rows}x{columns} block of mesh {mesh.id}, which has {needed}"
    )
    return _finding("too-few-devices", message, binding, "list more chips in TT_VISIBLE_DEVICES")


def _finding(rule: str, message: str, binding: RankBinding, fix: str) -> Finding:
    return Finding(f"bindings/{rule}", Severity.ERROR, message, fix, line=binding.line_of(_KEY))


KIND = "rank bindings"


def lint_bindings(path: Path, context: LintContext) -> FileReport:
    result = read(path, beside=True)
    findings = list(result.findings)
    if result.bindings is None or result.bindings.descriptor is None:
        return file_report(str(path), KIND, "invalid", findings)
    bindings = result.bindings
    descriptor = lint_descriptor(relative_to_cwd(result.bindings.descriptor), context)
    verdict = "valid; host ranks left unset" if _without_host_rank(bindings) else "valid"
    if descriptor.report.is_refused:
        findings.append(_refused_descriptor(bindings, descriptor.report))
        verdict = f"its mesh graph descriptor: {descriptor.report.verdict}"
    findings += _host_ranks_left_open(bindings)
    if descriptor.graph is not None:
        differing = check_against_graph(bindings, descriptor.graph, context)
        findings += differing
        if errors_of(differing):
            verdict = "disagrees with its mesh graph descriptor"
    return file_report(str(path), KIND, verdict, findings)


def _refused_descriptor(bindings: RankBindings, report: FileReport) -> Finding:
    message = f"its mesh graph descriptor is refused ({report.verdict}): {refusal_of(report)}"
    line = bindings.line_of("mesh_graph_desc_path")
    return Finding("bindings/descriptor", Severity.ERROR, message, f"softmesh lint {report.file}", line=line)


def _without_host_rank(bindings: RankBindings) -> list[RankBinding]:
    return [binding for binding in bindings.bindings if binding.mesh_host_rank is None]


def _host_ranks_left_open(bindings: RankBindings) -> list[Finding]:
    left_open = _without_host_rank(bindings)
    if not left_open:
        return []
    ranks = listed([binding.rank for binding in left_open])
    message = f"host ranks left unset (rank {ranks}): the solver assigns them"
    return [Finding("bindings/host-rank-unset", Severity.NOTE, message, line=left_open[0].line_of())]


def check_against_graph(bindings: RankBindings, graph: MeshGraph, context: LintContext) -> list[Finding]:
    """Every process has its place in the graph, every place its process, and sees enough chips for it."""
    meshes = {mesh.id: mesh for mesh in graph.meshes}
    placed = [
        replace(binding, env_overrides={**bindings.global_env, **binding.env_overrides})
        for binding in bindings.bindings
        if binding.mesh_id in meshes
    ]
    return [
        *mesh_graph_findings(bindings.bindings, graph, bindings.line_of("rank_bindings")),
        *check_visible_devices(placed, meshes, context.machine),
        *_meshes_apart(placed, graph),
    ]


def _meshes_apart(placed: list[RankBinding], graph: MeshGraph) -> list[Finding]:
    """Ranks of one job whose meshes nothing joins: they run side by side, and sockets between them are refused."""
    bound = sorted({binding.mesh_id for binding in placed})
    apart = [mesh for mesh in bound if mesh not in graph.reachable_from(bound[0])]
    if not apart:
        return []
    line = next(binding.line_of(_KEY) for binding in placed if binding.mesh_id == apart[0])
    message = (
        f"mesh {bound[0]} and mesh {apart[0]} cannot talk: the descriptor has no connections between them, and a "
        "MeshSocket between their ranks is refused"
    )
    block = graph.connection_to_write(bound[0], apart[0])
    fix = f"where they shall talk, write into the graph of the descriptor:\n{block}"
    return [Finding("bindings/meshes-apart", Severity.WARNING, message, fix, line=line)]


# Mapping files: each file they name, and whether the sub-contexts get along.


_KINDS = {RANK_BINDINGS: "rank bindings mapping", DESCRIPTORS: "mesh graph descriptor mapping"}


def lint_bindings_mapping(path: Path, context: LintContext) -> FileReport:
    mapped = read_mapping(path, RANK_BINDINGS, beside=True)
    reports = {id: lint_bindings(relative_to_cwd(file), context) for id, file in mapped.files.items()}
    apart = errors_of(mapped.findings) or any(report.is_refused for report in reports.values())
    together = [] if apart else _together(mapped, context.machine)
    return _report(mapped, RANK_BINDINGS, reports, together)


def lint_descriptor_mapping(path: Path, context: LintContext) -> FileReport:
    mapped = read_mapping(path, DESCRIPTORS, beside=True)
    reports = {id: lint_descriptor(relative_to_cwd(file), context).report for id, file in mapped.files.items()}
    return _report(mapped, DESCRIPTORS, reports, [])


def _report(mapped: MappingFile, key: str, reports: Mapping[int, FileReport], together: list[Finding]) -> FileReport:
    refused = [_refused(id, report, mapped.lines.get(id)) for id, report in reports.items() if report.is_refused]
    verdict = "valid"
    if errors_of(mapped.findings):
        verdict = "invalid"
    elif refused or together:
        verdict = "valid; not so the files it names" if refused else "its sub-contexts disagree"
    return file_report(mapped.file, _KINDS[key], verdict, [*mapped.findings, *refused, *together])


def _refused(id: int, report: FileReport, line: int | None) -> Finding:
    message = f"sub-context {id} is refused ({report.verdict}): {refusal_of(report)}"
    return Finding("bindings/sub-context", Severity.ERROR, message, f"softmesh lint {report.file}", line=line)


def _together(mapped: MappingFile, machine: Machine | None) -> list[Finding]:
    overlays = [bindings for file in mapped.files.values() if (bindings := read(file, beside=True).bindings)]
    return [*environment_conflicts(mapped, overlays), *_shared_by_overlays(mapped, overlays, machine)]


def _shared_by_overlays(mapped: MappingFile, overlays: list[RankBindings], machine: Machine | None) -> list[Finding]:
    if machine is None:
        return []
    bindings = [binding for binding in merged(mapped.file, overlays).bindings if devices_of(binding)]
    here = [replace(one, lines={"": mapped.lines.get(one.subcontext_id or 0, 1)}) for one in bindings]
    return check_shared_devices(here, machine)
