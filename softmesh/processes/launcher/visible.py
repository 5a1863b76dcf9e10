"""Whether the system that ranks are told of exists, and has the devices that each of them may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from softmesh.errors import MeshError
from softmesh.processes.binding import VISIBLE_DEVICES
from softmesh.processes.launcher.refusal import LaunchError
from softmesh.systems.choice import DOWN, ELASTIC, MOCK_DESCRIPTOR, SYSTEM
from softmesh.systems.machine import Machine


def check_machines(ranks: Sequence[Mapping[str, str]]) -> None:
    """For every rank; ranks of one machine ask for it once."""
    machines: dict[tuple[str, str, str], Machine | None] = {}
    for number, rank in enumerate(ranks):
        named = rank.get(MOCK_DESCRIPTOR, ""), rank.get(SYSTEM, ""), rank.get(DOWN, "")
        try:
            if named not in machines:
                machines[named] = _machine(*named)
            machine = machines[named]
            if machine is not None and rank.get(VISIBLE_DEVICES, "").strip():
                _check_devices(machine, rank[VISIBLE_DEVICES])
        except MeshError as error:
            raise LaunchError(f"rank {number}: {error}") from None


def _machine(mock: str, system: str, down: str) -> Machine | None:
    if mock:
        from softmesh.systems.cluster_descriptor import load_cluster

        machine = load_cluster(mock)
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
