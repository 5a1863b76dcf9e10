"""Small machines built link by link, and graphs of one or more meshes for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Pinning, Side
from softmesh.hardware import Arch, ClusterType
from softmesh.systems.chip import WORMHOLE
from softmesh.systems.machine import Asic, Link, Machine, Port, numbered

LINE, RING = False, True
Pair = tuple[int, int]


def machine_of(
    chips: Iterable[int],
    pairs: Mapping[Pair, int],
    hosts: Mapping[int, str] | None = None,
    positions: Mapping[int, tuple[int, int]] | None = None,
    cluster_type: ClusterType = ClusterType.CUSTOM,
) -> Machine:
    """`pairs` says how many links join two chips."""
    channels = {chip: count() for chip in chips}
    links = [
        Link.between(Port(one, next(channels[one])), Port(other, next(channels[other])))
        for (one, other), number in pairs.items()
        for _ in range(number)
    ]
    asics = numbered(
        Asic(
            chip,
            1000 + chip,
            (hosts or {}).get(chip, "host"),
            *(positions or {}).get(chip, (0, 0)),
            "n300",
            chip,
        )
        for chip in channels
    )
    return Machine("hand-made", WORMHOLE, cluster_type, asics, tuple(links))


def grid(
    rows: int,
    columns: int,
    rings: tuple[bool, bool] = (LINE, LINE),
    links: int = 2,
    hosts: Mapping[int, str] | None = None,
    positions: Mapping[int, tuple[int, int]] | None = None,
) -> Machine:
    """Chips numbered row by row."""
    mesh = LogicalMesh(0, "grid", (rows, columns), rings)
    pairs = {(one, other): links for one, other, _ in mesh.edges()}
    return machine_of(range(mesh.size), pairs, hosts, positions)


def mesh(
    rows: int,
    columns: int,
    rings: tuple[bool, bool] = (LINE, LINE),
    hosts: tuple[int, int] = (1, 1),
    channels: int = 1,
    strict: bool = False,
    id: int = 0,
) -> LogicalMesh:
    return LogicalMesh(id, f"M{id}", (rows, columns), rings, hosts, channels, strict, line=10 + id)


def graph(
    *meshes: LogicalMesh,
    connections: Iterable[Connection] = (),
    pinnings: Iterable[Pinning] = (),
    arch: Arch = Arch.WORMHOLE_B0,
) -> MeshGraph:
    return MeshGraph("hand-made", arch, meshes, tuple(connections), tuple(pinnings))


def joined(one: int, other: int, links: int, strict: bool = True, line: int = 30) -> Connection:
    return Connection(Side((one,)), Side((other,)), links, strict, line=line)
