"""Splits a machine into meshes of one process or more: the mesh graph, its match to chips, the rank bindings.

`allocate` gives each process of a mesh graph its chips (a `ChipGroup`); `split_...` make the mesh graph themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from softmesh.errors import MeshError
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.matching.match import Match, MatchError
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Pinning, Side
from softmesh.hardware import Arch
from softmesh.processes.bindings.rank_bindings import VISIBLE_DEVICES, RankBinding
from softmesh.systems.machine import Machine
from softmesh.systems.named_systems import load
from softmesh.systems.product_detection import boards_of
from softmesh.systems.system_choice import ELASTIC, HOST


@dataclass(frozen=True)
class ChipGroup:
    """The chips of one process. `devices` are those on the bus that serve them, by the host's own numbers."""

    job: int
    mesh_id: int
    host_rank: int
    host: str
    devices: tuple[int, ...] = ()
    exports_host: bool = False

    def binding(self, rank: int) -> RankBinding:
        environment = {VISIBLE_DEVICES: ",".join(map(str, self.devices))} if self.devices else {}
        if self.exports_host:
            environment[HOST] = self.host
        return RankBinding(rank, self.mesh_id, self.host_rank, environment)


def allocate(graphs: Sequence[MeshGraph], machine: Machine) -> list[ChipGroup]:
    """Groups of all jobs in the order of ranks; no chip is given twice. MatchError where they do not fit."""
    found = match(combined_graph(graphs), machine)
    starts = [0, *accumulate(len(graph.meshes) for graph in graphs)]
    return [
        replace(group, job=job, mesh_id=group.mesh_id - starts[job])
        for job in range(len(graphs))
        for group in groups_of(found)
        if starts[job] <= group.mesh_id < starts[job + 1]
    ]


def combined_graph(graphs: Sequence[MeshGraph]) -> MeshGraph:
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


def groups_of(found: Match) -> list[ChipGroup]:
    """Sorted by mesh, then host rank, then the name of the host."""
    machine = found.machine
    chips: dict[tuple[int, int, str], list[int]] = {}
    for node, chip in found.chips.items():
        host_rank = found.graph.mesh(node.mesh).host_rank(node.chip)
        chips.setdefault((node.mesh, host_rank, machine.asics[chip].host), []).append(chip)
    several = len(machine.hosts) > 1
    return [
        ChipGroup(0, *place, devices=_devices(machine, place[2], chips[place]), exports_host=several)
        for place in sorted(chips)
    ]


def _devices(machine: Machine, host: str, chips: Sequence[int]) -> tuple[int, ...]:
    """A host counts its own chips; where it is the only one, its numbers are the machine's."""
    asics = [*machine.asics.values(), *machine.down_chips]
    start = 0 if len(machine.hosts) == 1 else min(asic.id for asic in asics if asic.host == host)
    return tuple(sorted({machine.pcie_chip_of(chip) - start for chip in chips}))


def shared_device_problem(groups: Sequence[ChipGroup]) -> str:
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


MOST_CHANNELS = 4  # between two meshes: what descriptors of products ask for


@dataclass(frozen=True)
class Piece:
    """A mesh to be cut out: its shape, and the grid of processes that share it."""

    shape: tuple[int, int]
    hosts: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class Split:
    graph: MeshGraph
    groups: tuple[ChipGroup, ...]

    @property
    def bindings(self) -> list[RankBinding]:
        return [group.binding(rank) for rank, group in enumerate(self.groups)]


def split_anywhere(machine: Machine, pieces: Sequence[Piece], source: str = "split") -> Split:
    """Meshes wherever they fit, neighbours in the list next to each other where that can be.

    A board of two chips comes whole to a process, so no two processes may have one chip of it each.
    """
    bare = bare_graph(machine, pieces, source)
    first: MeshError | None = None
    for candidate in (_side_by_side, _board_by_board):
        try:
            graph = candidate(bare, machine)
            split = Split(graph, tuple(groups_of(match(graph, machine))))
            if shared := shared_device_problem(split.groups):
                raise MeshError(f"{shared}. Ask for larger meshes, or fewer.")
            return split
        except MeshError as error:
            first = first or error
    raise first or MeshError(f"{machine.name} cannot be split into {source}")


def split_command(graph: MeshGraph, machine: Machine) -> str:
    """Name the command that cuts the meshes of a graph out of a machine with the connections it has; "" for none."""
    if len(graph.meshes) < 2 or graph.arch != machine.chip.arch:
        return ""
    try:
        if machine != load(machine.name):  # the command would take the whole of it
            return ""
        split_anywhere(machine, [Piece(mesh.shape, mesh.hosts) for mesh in graph.meshes])
    except MeshError:
        return ""
    shapes = ",".join("x".join(map(str, mesh.shape)) for mesh in graph.meshes)
    hosts = ",".join("x".join(map(str, mesh.hosts)) for mesh in graph.meshes)
    shared = f" --hosts-per-mesh {hosts}" if any(mesh.host_count > 1 for mesh in graph.meshes) else ""
    return (
        f"softmesh bindings --system {machine.name} --split {shapes}{shared} -o split writes a descriptor and rank "
        f"bindings of these meshes with the connections that {machine.name} has."
    )


def _side_by_side(bare: MeshGraph, machine: Machine) -> MeshGraph:
    chain = [Connection(Side((a.id,)), Side((b.id,)), 1, strict=False) for a, b in pairwise(bare.meshes)]
    try:
        found = match(replace(bare, connections=tuple(chain)), machine)
    except MatchError:
        found = match(bare, machine)
    return replace(bare, connections=_connections_of(found, machine))


def _board_by_board(bare: MeshGraph, machine: Machine) -> MeshGraph:
    """For processes of no more than a board: each on boards of its own, and pinned there."""
    host = {asic.id: f"board {n}" for n, board in enumerate(boards_of(machine.asics.values())) for asic in board}
    asics = {id: replace(asic, host=host[id]) for id, asic in machine.asics.items()}
    places = [(mesh.id, host_rank) for mesh in bare.meshes for host_rank in range(mesh.host_count)]
    boards = list(dict.fromkeys(host.values()))
    if len(places) > len(boards) or len(machine.hosts) > 1:
        raise MatchError("boards", f"{len(places)} processes need as many boards of one host")
    hosts = dict(zip(places, boards, strict=False))
    found = match(bare, replace(machine, asics=asics), hosts=hosts)
    return replace(bare, connections=_connections_of(found, machine), pinnings=corner_pins(found))


def _connections_of(found: Match, machine: Machine) -> tuple[Connection, ...]:
    return _connections(machine, {chip: node.mesh for chip, node in found.nodes.items()})


def split_elastic_machine(pieces: Sequence[Piece], source: str = "split") -> Split:
    """Meshes of the elastic machine, each joined to the next: there are chips for all, and none has a number."""
    kinds = _kinds(pieces)
    meshes = [
        LogicalMesh(id, kinds[piece], piece.shape, hosts=piece.hosts, channels=MOST_CHANNELS)
        for id, piece in enumerate(pieces)
    ]
    chain = [Connection(Side((a.id,)), Side((b.id,)), MOST_CHANNELS, strict=False) for a, b in pairwise(meshes)]
    graph = MeshGraph(source, Arch.WORMHOLE_B0, tuple(meshes), tuple(chain))
    groups = [ChipGroup(0, mesh.id, host_rank, ELASTIC) for mesh in meshes for host_rank in range(mesh.host_count)]
    return Split(graph, tuple(groups))


def split_by_chips(
    machine: Machine,
    pieces: Sequence[Piece],
    chips: Mapping[tuple[int, int], Collection[int]],
    source: str,
    in_z: bool = False,
) -> Split:
    """Meshes of given chips for each (mesh, host rank), on a machine of one host; pinned to where they are."""
    bare = bare_graph(machine, pieces, source)
    owners = {chip: mesh for (mesh, _), owned in chips.items() for chip in owned}
    connections = tuple(replace(one, z=in_z) for one in _connections(machine, owners))
    graph = replace(bare, connections=connections)
    names = {place: f"rank {rank}" for rank, place in enumerate(sorted(chips))}
    found = match(graph, _with_hosts(machine, chips, names), hosts=names)
    graph = replace(graph, pinnings=corner_pins(found))
    split = Split(graph, tuple(groups_of(match(graph, machine))))
    for group in split.groups:
        if set(group.devices) != {machine.pcie_chip_of(chip) for chip in chips[group.mesh_id, group.host_rank]}:
            raise MeshError(f"{source}: mesh {group.mesh_id} does not stay on its chips on {machine.name}")
    return split


def bare_graph(machine: Machine, pieces: Sequence[Piece], source: str) -> MeshGraph:
    """The meshes, as wide as most links of the machine, and nothing between them."""
    kinds = _kinds(pieces)
    links = Counter(len(links) for near in machine.neighbours.values() for links in near.values())
    channels = min(max(links, default=1), machine.chip.routing_planes)
    meshes = [
        LogicalMesh(id, kinds[piece], piece.shape, hosts=piece.hosts, channels=channels)
        for id, piece in enumerate(pieces)
    ]
    return MeshGraph(source, machine.chip.arch, tuple(meshes))


def _kinds(pieces: Sequence[Piece]) -> dict[Piece, str]:
    return {piece: f"M{number}" for number, piece in enumerate(dict.fromkeys(pieces))}


def _connections(machine: Machine, owners: Mapping[int, int]) -> tuple[Connection, ...]:
    """Between meshes that links join, `owners` being the mesh of each chip."""
    pairs: Counter[tuple[int, int]] = Counter()
    for link in machine.links:
        a, b = owners.get(link.a.chip), owners.get(link.b.chip)
        if a is not None and b is not None and a != b:
            pairs[min(a, b), max(a, b)] += 1
    return tuple(
        Connection(Side((a,)), Side((b,)), min(pairs[a, b], MOST_CHANNELS), strict=False) for a, b in sorted(pairs)
    )


def _with_hosts(
    machine: Machine, chips: Mapping[tuple[int, int], Collection[int]], names: Mapping[tuple[int, int], str]
) -> Machine:
    """The machine as if every process had a host to itself, so that matching keeps it to its chips."""
    host = {chip: names[place] for place, owned in chips.items() for chip in owned}
    asics = {id: replace(asic, host=host.get(id, "nobody")) for id, asic in machine.asics.items()}
    return replace(machine, asics=asics)


def corner_pins(found: Match) -> tuple[Pinning, ...]:
    """The first and the last chip of each process hold its block in place."""
    blocks: dict[tuple[int, int], list[Node]] = {}
    for node in found.graph.nodes:
        blocks.setdefault((node.mesh, found.graph.mesh(node.mesh).host_rank(node.chip)), []).append(node)
    corners = [node for nodes in blocks.values() for node in dict.fromkeys((nodes[0], nodes[-1]))]
    return tuple(Pinning((node,), (found.machine.asics[found.chips[node]].position,)) for node in corners)
