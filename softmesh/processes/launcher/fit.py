"""Whether the mesh graph of a job fits the machine of its ranks: what each of them would find out, said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from softmesh.fabric.binding import DESCRIPTOR, PLACES, Place, places_in
from softmesh.fabric.descriptors.reading import load_mesh_graph
from softmesh.fabric.match import MatchError
from softmesh.fabric.matching.entry import match
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.processes.launcher.refusal import LaunchError
from softmesh.processes.launcher.visible import machine_of
from softmesh.systems.machine import Machine


def check_fit(ranks: Sequence[Mapping[str, str]]) -> None:
    """`ranks` are their environments, in which they know of each other. The elastic machine fits everything."""
    jobs = {(rank[DESCRIPTOR], rank.get(PLACES, "")): rank for rank in reversed(ranks)}
    for (descriptor, places), rank in jobs.items():
        machine = machine_of(rank)
        if machine is not None:
            _check(load_mesh_graph(descriptor, runtime=True), machine, dict(places_in(places)))


def _check(graph: MeshGraph, machine: Machine, places: Mapping[Place, str]) -> None:
    """Rings count as lines: which of them are used is up to the fabric that the program sets."""
    lines = replace(graph, meshes=tuple(replace(mesh, rings=(False, False)) for mesh in graph.meshes))
    hosts = {place: host for place, host in places.items() if host in machine.hosts}
    try:
        match(lines, machine, hosts=hosts)
    except MatchError as error:
        raise LaunchError(
            f"{error} The machine is {machine.name}: --system, SOFTMESH_SYSTEM or mocks chose it."
        ) from None
