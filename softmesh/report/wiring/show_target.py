"""Resolves the target of `softmesh show NAME_OR_FILE`: a machine, a mesh graph descriptor or rank bindings."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.hardware import FabricConfig
from softmesh.report.wiring.graph_wiring import Ranks, graph_wiring
from softmesh.report.wiring.machine_wiring import machine_wiring, match_wiring
from softmesh.report.wiring.wiring_model import MOST_CHIPS, Wiring
from softmesh.systems.machine import Machine

if TYPE_CHECKING:
    from softmesh.processes.bindings.rank_bindings import RankBindings

_PEEK = 2**20
_DESCRIPTOR = re.compile(r"^\s*(mesh_descriptors|graph_descriptors|switch_descriptors|top_level_instance)\b", re.M)
_BINDINGS = re.compile(r"^[\"']?rank_bindings[\"']?\s*:", re.M)
_OVERLAY = re.compile(r"^[\"']?subcontext_id_to_\w+[\"']?\s*:", re.M)


class UnknownTarget(MeshError):
    """There is no such system or file: the command was typed wrong."""


class UnusableTarget(MeshError):
    """The target is there, and what is in it cannot be drawn."""


class Kind(Enum):
    MACHINE = "system"
    DESCRIPTOR = "mesh graph descriptor"
    BINDINGS = "rank bindings"


@dataclass(frozen=True)
class Request:
    """`system` and `down` choose the machine that a descriptor is drawn onto; `fabric` what it uses of it."""

    target: str
    system: str | None = None
    down: Sequence[str] = ()
    fabric: FabricConfig | None = None


def wiring_of(request: Request) -> Wiring:
    """Warnings on the way become remarks of the picture."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", SoftmeshWarning)
        wiring = _wiring_of(request)
    said = [str(warning.message) for warning in given if issubclass(warning.category, SoftmeshWarning)]
    return replace(wiring, remarks=tuple(dict.fromkeys((*wiring.remarks, *said))))


def _wiring_of(request: Request) -> Wiring:
    kind = kind_of(request.target)
    if kind is Kind.MACHINE:
        if request.system is not None:
            raise UnknownTarget("--system goes with a descriptor or rank bindings; give the system alone.")
        return _drawn_machine(_machine(request.target, request.down), request.fabric)
    if request.down and request.system is None:
        raise UnknownTarget("--down takes chips and links out of a system; say which with --system.")
    if kind is Kind.DESCRIPTOR:
        return _drawn_graph(_graph(request.target), None, request)
    return _drawn_bindings(request)


def kind_of(target: str) -> Kind:
    """By what is in the file; a name that is no file is a system's."""
    if not _is_file(target):
        if target.lower().endswith((".textproto", ".yaml", ".yml")) or "/" in target:
            raise UnknownTarget(f"There is no file {target!r}.")
        return Kind.MACHINE
    head = _head(target)
    if _BINDINGS.search(head):
        return Kind.BINDINGS
    if _OVERLAY.search(head):
        raise UnusableTarget(f"{target} names a file for each sub-context; draw these one by one.")
    is_descriptor = target.lower().endswith(".textproto") or _DESCRIPTOR.search(head)
    return Kind.DESCRIPTOR if is_descriptor else Kind.MACHINE


def _is_file(target: str) -> bool:
    try:
        return os.path.isfile(target)
    except ValueError:  # a NUL inside
        return False


def _head(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_PEEK)
    except OSError as error:
        raise UnusableTarget(f"cannot read {path}: {error.strerror}.") from None


def _machine(spec: str, down: Sequence[str]) -> Machine:
    from softmesh.systems.machine_restriction import with_down
    from softmesh.systems.named_systems import load

    try:
        machine = load(spec)
    except MeshError as error:
        wrong = UnusableTarget if _is_file(spec) else UnknownTarget
        raise wrong(str(error)) from None
    _refuse_many(len(machine.asics), spec)
    try:
        return with_down(machine, down)
    except MeshError as error:
        raise UnknownTarget(f"--down {error}") from None


def _refuse_many(chips: int, what: str) -> None:
    if chips > MOST_CHIPS:
        raise UnknownTarget(f"{what} has {chips} chips; at most {MOST_CHIPS} can be drawn.")


def _drawn_machine(machine: Machine, fabric: FabricConfig | None) -> Wiring:
    """With a fabric: the mesh that programs see, and the links that this fabric would use."""
    if fabric is None:
        return machine_wiring(machine)
    from softmesh.fabric.graph_selection import declared_graph
    from softmesh.fabric.mesh_binding import Binding

    try:
        graph = declared_graph(machine, Binding(), fabric)
    except MeshError as error:
        raise UnusableTarget(str(error)) from None
    wiring = _matched(graph, machine, fabric, f"`softmesh show {machine.name}` draws what there is.")
    return replace(wiring, title=f"{machine.name} as {fabric.name} uses it")


def _graph(path: str) -> MeshGraph:
    from softmesh.fabric.descriptors.loader import check

    checked = check(path, runtime=False)
    if checked.graph is None:
        headline = checked.headline.partition("\n")[0].rstrip(": ")
        raise UnusableTarget("\n".join([headline, *map(str, checked.findings)]))
    _refuse_many(checked.graph.size, path)
    return checked.graph


def _drawn_graph(graph: MeshGraph, ranks: Ranks | None, request: Request) -> Wiring:
    if request.system is not None:
        advice = "Without --system the descriptor is drawn by itself."
        return _matched(graph, _machine(request.system, request.down), request.fabric, advice)
    if request.fabric is None:
        return graph_wiring(graph, ranks)
    wiring = graph_wiring(_restricted(graph, request.fabric, None), ranks)
    return replace(wiring, summary=f"{wiring.summary}, as {request.fabric.name} uses it")


def _restricted(graph: MeshGraph, fabric: FabricConfig, machine: Machine | None) -> MeshGraph:
    from softmesh.fabric.graph_selection import effective_graph
    from softmesh.hardware import ClusterType

    cluster_type = ClusterType.CUSTOM if machine is None else machine.cluster_type
    try:
        return effective_graph(graph, fabric, cluster_type)
    except MeshError as error:
        raise UnusableTarget(str(error)) from None


def _matched(graph: MeshGraph, machine: Machine, fabric: FabricConfig | None, advice: str) -> Wiring:
    from softmesh.fabric.matching.find_match import match

    wanted = graph if fabric is None else _restricted(graph, fabric, machine)
    try:
        return match_wiring(match(wanted, machine))
    except MeshError as error:
        raise UnusableTarget(f"{error}\nNothing is drawn. {advice}") from None


def _drawn_bindings(request: Request) -> Wiring:
    from softmesh.processes.bindings.rank_bindings import read

    found = read(request.target, beside=True)
    bindings = found.bindings
    if bindings is None or bindings.descriptor is None:
        raise UnusableTarget("\n".join(map(str, found.findings)))
    graph = _graph(str(bindings.descriptor))
    ranks, remarks = _ranks(bindings, graph)
    wiring = _drawn_graph(graph, ranks, request)
    count = f"{bindings.size} rank{'s' * (bindings.size != 1)}"
    return replace(
        wiring,
        title=os.path.basename(request.target) + (f" on {request.system}" if request.system else ""),
        summary=f"{count} on {os.path.basename(graph.source)}: {wiring.summary}",
        meshes=tuple(_with_ranks(name, number, ranks) for number, name in enumerate(wiring.meshes)),
        remarks=(*wiring.remarks, *remarks),
    )


def _ranks(bindings: RankBindings, graph: MeshGraph) -> tuple[dict[tuple[int, int], str], list[str]]:
    """What runs on each host block, and the ranks for which there is none."""
    ranks: dict[tuple[int, int], str] = {}
    remarks = []
    for binding in bindings.bindings:
        hosts = graph.mesh(binding.mesh_id).host_count if binding.mesh_id < len(graph.meshes) else 0
        host = binding.mesh_host_rank
        if host is None:  # the launcher leaves the choice open; drawn on the next that is free
            host = next((free for free in range(hosts) if (binding.mesh_id, free) not in ranks), 0)
        place = binding.mesh_id, host
        if host >= hosts:
            remarks.append(f"rank {binding.rank}: the descriptor has no mesh {place[0]} with host rank {host}")
        else:
            before = f"{ranks[place]}, " if place in ranks else "rank "
            ranks[place] = f"{before}{binding.rank}"
    return ranks, remarks


def _with_ranks(name: str, number: int, ranks: Ranks) -> str:
    here = [text for (mesh, _), text in sorted(ranks.items()) if mesh == number]
    return f"{name} ({', '.join(here)})" if here else name
