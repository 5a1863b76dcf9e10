"""Which process works on which chips: a matched mesh graph, cut into one group for each host rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from softmesh.fabric.match import Match
from softmesh.fabric.matching.entry import match
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Pinning, Side
from softmesh.processes.binding import VISIBLE_DEVICES, RankBinding
from softmesh.systems.choice import HOST
from softmesh.systems.machine import Machine


@dataclass(frozen=True)
class Group:
    """The chips of one process. `devices` are those on the bus that serve them, by the host's own numbers."""

    job: int
    mesh_id: int
    host_rank: int
    host: str
    devices: tuple[int, ...] = ()
    names_its_host: bool = False

    def binding(self, rank: int) -> RankBinding:
        environment = {VISIBLE_DEVICES: ",".join(map(str, self.devices))} if self.devices else {}
        if self.names_its_host:
            environment[HOST] = self.host
        return RankBinding(rank, self.mesh_id, self.host_rank, environment)


def allocate(graphs: Sequence[MeshGraph], machine: Machine) -> list[Group]:
    """Groups of all jobs in the order of ranks; no chip is given twice. MatchError where they do not fit."""
    found = match(combined(graphs), machine)
    starts = [0, *accumulate(len(graph.meshes) for graph in graphs)]
    return [
        replace(group, job=job, mesh_id=group.mesh_id - starts[job])
        for job in range(len(graphs))
        for group in groups_of(found)
        if starts[job] <= group.mesh_id < starts[job + 1]
    ]


def combined(graphs: Sequence[MeshGraph]) -> MeshGraph:
    """Several jobs as one graph without connections between them: mesh ids are counted on."""
    if len(graphs) == 1:
        return graphs[0]
    meshes: list[LogicalMesh] = []
    connections: list[Connection] = []
    pinnings: list[Pinning] = []
    for graph in graphs:
        by = len(meshes)
        meshes += [replace(mesh, id=mesh.id + by) for mesh in graph.meshes]
        connections += [replace(one, a=_moved(one.a, by), b=_moved(one.b, by)) for one in graph.connections]
        for pinning in graph.pinnings:
            nodes = tuple(Node(node.mesh + by, node.chip) for node in pinning.nodes)
            pinnings.append(replace(pinning, nodes=nodes))
    source = ", ".join(graph.source for graph in graphs)
    return MeshGraph(source, graphs[0].arch, tuple(meshes), tuple(connections), tuple(pinnings))


def _moved(side: Side, by: int) -> Side:
    return replace(side, meshes=tuple(mesh + by for mesh in side.meshes))


def groups_of(found: Match) -> list[Group]:
    """Sorted by mesh, then host rank, then the name of the host."""
    machine = found.machine
    chips: dict[tuple[int, int, str], list[int]] = {}
    for node, chip in found.chips.items():
        host_rank = found.graph.mesh(node.mesh).host_rank(node.chip)
        chips.setdefault((node.mesh, host_rank, machine.asics[chip].host), []).append(chip)
    several = len(machine.hosts) > 1
    return [
        Group(0, *place, devices=_devices(machine, place[2], chips[place]), names_its_host=several)
        for place in sorted(chips)
    ]


def _devices(machine: Machine, host: str, chips: Sequence[int]) -> tuple[int, ...]:
    """A host counts its own chips; where it is the only one, its numbers are the machine's."""
    asics = [*machine.asics.values(), *machine.down_chips]
    start = 0 if len(machine.hosts) == 1 else min(asic.id for asic in asics if asic.host == host)
    return tuple(sorted({machine.pcie_chip_of(chip) - start for chip in chips}))


def sharing(groups: Sequence[Group]) -> str:
    """What two ranks would share, in words; nothing where each has devices of its own."""
    owners: dict[tuple[str, int], int] = {}
    for rank, group in enumerate(groups):
        for device in group.devices:
            other = owners.setdefault((group.host, device), rank)
            if other != rank:
                return (
                    f"ranks {other} and {rank} would share device {device} of {group.host}: a board of two chips "
                    "comes whole to every process that sees one of them"
                )
    return ""
