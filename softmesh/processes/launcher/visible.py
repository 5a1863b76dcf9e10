"""Whether the system that ranks are told of exists, and has the devices that each of them may see."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache

from softmesh.errors import MeshError
from softmesh.processes.binding import VISIBLE_DEVICES
from softmesh.processes.launcher.refusal import LaunchError
from softmesh.systems.choice import DOWN, ELASTIC, MOCK_DESCRIPTOR, MOCK_HOSTS, SYSTEM
from softmesh.systems.machine import Machine


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
        from softmesh.systems.catalogue import load

        machine = load(system)
    else:
        return None
    specs = [spec.strip() for spec in down.split(",") if spec.strip()]
    if not specs:
        return machine
    from softmesh.systems.breakage import with_down

    return with_down(machine, specs)


def _check_devices(machine: Machine, listed: str) -> None:
    """On one of the hosts, whichever the rank will be on."""
    from softmesh.systems.visible import restricted

    refusals = []
    for host in machine.hosts:
        try:
            restricted(machine, listed, host)
            return
        except MeshError as error:
            refusals.append(error)
    raise refusals[0]
