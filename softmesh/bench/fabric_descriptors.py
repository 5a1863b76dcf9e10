"""A mesh graph descriptor for each machine that the fabric benchmark brings up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from softmesh.systems.machine import Machine


@dataclass(frozen=True)
class Wanted:
    """One mesh of this shape on each host of a system, connected as the hosts are."""

    system: str
    shape: tuple[int, int]
    channels: int
    rings: tuple[bool, bool] = (False, False)


def descriptor_text(machine: Machine, wanted: Wanted) -> str:
    kinds = ", ".join("RING" if ring else "LINE" for ring in wanted.rings)
    instances = [_mesh(i) for i in range(len(machine.hosts))]
    lines = [
        f'mesh_descriptors {{ name: "M" arch: {machine.chip.arch.name}',
        f"  device_topology {{ dims: {list(wanted.shape)} dim_types: [{kinds}] }}",
        "  host_topology { dims: [1, 1] }",
        f"  channels {{ count: {wanted.channels} policy: STRICT }} }}",
        'graph_descriptors { name: "G" type: "FABRIC"',
        *(f"  instances {{ {instance} }}" for instance in instances),
        *(
            f"  connections {{ nodes {{ {instances[a]} }} nodes {{ {instances[b]} }} channels {{ count: {count} }} }}"
            for (a, b), count in sorted(links_between_hosts(machine).items())
        ),
        "}",
        'top_level_instance { graph { graph_descriptor: "G" graph_id: 0 } }',
    ]
    return "\n".join(lines)


def _mesh(number: int) -> str:
    return f'mesh {{ mesh_descriptor: "M" mesh_id: {number} }}'


def links_between_hosts(machine: Machine) -> Counter[tuple[int, int]]:
    """How many cables join each pair of hosts, by their numbers."""
    number = {host: i for i, host in enumerate(machine.hosts)}
    hosts = ([machine.asics[port.chip].host for port in link] for link in machine.links)
    pairs = (sorted((number[a], number[b])) for a, b in hosts if a != b)
    return Counter((a, b) for a, b in pairs)
