"""Checks of a job's machine: that it exists, has the devices each rank may see, and that the mesh graph fits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.loader import load_job_graph
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import MatchError
from softmesh.fabric.mesh_binding import DESCRIPTOR, PLACES, Place, places_in
from softmesh.fabric.mesh_graph import MeshGraph
from softmesh.processes.bindings.machine_split import split_command
from softmesh.processes.bindings.rank_bindings import VISIBLE_DEVICES
from softmesh.processes.launcher.console import LaunchError
from softmesh.systems.machine import Machine
from softmesh.systems.system_choice import DOWN, ELASTIC, MOCK_DESCRIPTOR, MOCK_HOSTS, SYSTEM


def check_machines(ranks: Sequence[Mapping[str, str]]) -> None:
    """For every rank."""
    for number, rank in enumerate(ranks):
        try:
            machine = machine_of(rank)
            if machine is not None and rank.get(VISIBLE_DEVICES, "").strip():
                _check_devices(machine, rank[VISIBLE_DEVICES])
        except MeshError as error:
            raise LaunchError(f"rank {number}: {error}") from None


def machine_of(rank: Mapping[str, str]) -> Machine | None:
    """What a rank with this environment will find; None for the elastic machine."""
    return _machine(*(rank.get(name, "") for name in (MOCK_DESCRIPTOR, MOCK_HOSTS, SYSTEM, DOWN)))


@lru_cache(maxsize=64)
def _machine(mock: str, mock_hosts: str, system: str, down: str) -> Machine | None:
    if mock:
        from softmesh.systems.cluster_descriptor import load_cluster, load_hosts

        files = mock_hosts.split(os.pathsep)
        machine = load_hosts(files) if mock in files else load_cluster(mock)
    elif system.strip().lower() not in ("", ELASTIC):
        from softmesh.systems.named_systems import load

        machine = load(system)
    else:
        return None
    specs = [spec.strip() for spec in down.split(",") if spec.strip()]
    if not specs:
        return machine
    from softmesh.systems.machine_restriction import with_down

    return with_down(machine, specs)


def _check_devices(machine: Machine, listed: str) -> None:
    """On one of the hosts, whichever the rank will be on."""
    from softmesh.systems.machine_restriction import restricted

    refusals = []
    for host in machine.hosts:
        try:
            restricted(machine, listed, host)
            return
        except MeshError as error:
            refusals.append(error)
    raise refusals[0]


def check_fit(ranks: Sequence[Mapping[str, str]]) -> None:
    """`ranks` are their environments, in which they know of each other. The elastic machine fits everything."""
    jobs = {(rank[DESCRIPTOR], rank.get(PLACES, "")): rank for rank in reversed(ranks)}
    for (descriptor, places), rank in jobs.items():
        machine = machine_of(rank)
        if machine is not None:
            _check(load_job_graph(descriptor), machine, dict(places_in(places)))


def _check(graph: MeshGraph, machine: Machine, places: Mapping[Place, str]) -> None:
    """Rings count as lines: which of them are used is up to the fabric that the program sets."""
    lines = replace(graph, meshes=tuple(replace(mesh, rings=(False, False)) for mesh in graph.meshes))
    hosts = {place: host for place, host in places.items() if host in machine.hosts}
    try:
        match(lines, machine, hosts=hosts)
    except MatchError as error:
        raise LaunchError(
            f"{error} The machine is {machine.name}: --system, SOFTMESH_SYSTEM or mocks chose it. "
            f"{split_command(graph, machine)}".rstrip()
        ) from None
