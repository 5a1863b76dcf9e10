"""The machine that auto allocation chooses from: described by mock descriptors, or a system on the hosts named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from softmesh.processes.launcher.hosts import LOCALHOST
from softmesh.processes.launcher.refusal import LaunchError
from softmesh.systems.machine import Link, Machine, Port


@dataclass(frozen=True)
class Cluster:
    """`machine` is None for the elastic one. `places` has the real host of each of the machine's hosts."""

    machine: Machine | None
    places: Mapping[str, str]

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(self.places.values()))


def mock_cluster(machine: Machine) -> Cluster:
    """Every process runs here, whatever host it believes to be on."""
    return Cluster(machine, dict.fromkeys(machine.hosts, LOCALHOST))


def elastic_cluster(hosts: Sequence[str]) -> Cluster:
    return Cluster(None, {host: host for host in sorted(hosts)})


def real_cluster(machine: Machine, hosts: Sequence[str]) -> Cluster:
    """A system of several hosts spread over as many, or played by one; a system of one host on each."""
    names = sorted(hosts)
    if len(names) == len(machine.hosts):
        return Cluster(machine, dict(zip(machine.hosts, names, strict=True)))
    if len(names) == 1:
        return Cluster(machine, dict.fromkeys(machine.hosts, names[0]))
    if len(machine.hosts) == 1:
        return Cluster(one_on_each(machine, names), {name: name for name in names})
    raise LaunchError(
        f"{machine.name} has {len(machine.hosts)} hosts, and --hosts names {len(names)}: name as many, or one "
        "that plays them all."
    )


def one_on_each(machine: Machine, hosts: Sequence[str]) -> Machine:
    """So many copies of a machine, side by side: no link joins them."""
    step = max(machine.asics) + 1
    unique_step = max(asic.unique_id for asic in machine.asics.values()) + 1
    asics, links = {}, []
    for number, host in enumerate(hosts):
        for id, asic in machine.asics.items():
            unique_id = asic.unique_id + number * unique_step
            asics[id + number * step] = replace(asic, id=id + number * step, unique_id=unique_id, host=host)
        links += [_moved(link, number * step) for link in machine.links]
    return replace(
        machine,
        name=f"{len(hosts)} x {machine.name}",
        asics=asics,
        links=tuple(links),
        outside=(),
        down_chips=(),
        down_links=(),
        grid=None,
    )


def _moved(link: Link, by: int) -> Link:
    return Link(Port(link.a.chip + by, link.a.channel), Port(link.b.chip + by, link.b.channel))
