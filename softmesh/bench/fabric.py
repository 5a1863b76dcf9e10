"""Start-up time of a fabric, from the data files to a proof that its routing cannot deadlock.

    softmesh bench fabric [--quick] [--json]

For each machine: build it, read and validate a mesh graph descriptor for it, match the two, bring up
the network with all its routing tables, and prove it free of routing deadlock. One mesh for each host,
connected as the hosts are cabled. The tori show how the time grows with the number of chips.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from softmesh.bench.harness import machine, options, show, show_json, table
from softmesh.errors import MeshError
from softmesh.fabric.descriptors.loader import check_text
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Side
from softmesh.fabric.routing.network import Network
from softmesh.hardware import FabricConfig
from softmesh.processes.bindings.bindings_writer import graph_text
from softmesh.systems.machine import Machine
from softmesh.systems.named_systems import forget, load


@dataclass(frozen=True)
class MeshPerHost:
    """One mesh of this shape on each host of a system, connected as the hosts are."""

    system: str
    shape: tuple[int, int]
    channels: int
    rings: tuple[bool, bool] = (False, False)


def descriptor_text(machine: Machine, wanted: MeshPerHost) -> str:
    meshes = tuple(
        LogicalMesh(i, "M", wanted.shape, wanted.rings, channels=wanted.channels, strict=True)
        for i in range(len(machine.hosts))
    )
    connections = tuple(
        Connection(Side((a,)), Side((b,)), count, strict=True)
        for (a, b), count in sorted(links_between_hosts(machine).items())
    )
    return graph_text(MeshGraph(wanted.system, machine.chip.arch, meshes, connections))


def links_between_hosts(machine: Machine) -> Counter[tuple[int, int]]:
    """How many cables join each pair of hosts, by their numbers."""
    number = {host: i for i, host in enumerate(machine.hosts)}
    hosts = ([machine.asics[port.chip].host for port in link] for link in machine.links)
    pairs = (sorted((number[a], number[b])) for a, b in hosts if a != b)
    return Counter((a, b) for a, b in pairs)


STEPS = ("load", "validate", "match", "tables", "proof")
BOTH = (True, True)
WANTED = (
    MeshPerHost("T3000", (2, 4), channels=2),
    MeshPerHost("Galaxy", (8, 4), channels=4, rings=BOTH),
    MeshPerHost("Closetbox", (2, 4), channels=2),
    MeshPerHost("Exabox", (8, 4), channels=4),
    MeshPerHost("torus:8x8", (8, 8), channels=4, rings=BOTH),
    MeshPerHost("torus:16x16", (16, 16), channels=4, rings=BOTH),
    MeshPerHost("torus:32x32", (32, 32), channels=4, rings=BOTH),
)
QUICK = (WANTED[0], WANTED[4])

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Row:
    system: str
    chips: int
    links: int
    meshes: int
    milliseconds: dict[str, float]  # by step
    total: float
    proof: str


class _Clock:
    """Times named steps, round by round."""

    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = {step: [] for step in STEPS}

    def time(self, step: str, call: Callable[[], _Result]) -> _Result:
        start = time.perf_counter()
        result = call()
        self.seen[step].append(1000 * (time.perf_counter() - start))
        return result

    def medians(self) -> dict[str, float]:
        return {step: statistics.median(times) for step, times in self.seen.items()}


def measure(wanted: MeshPerHost, rounds: int) -> Row:
    text = descriptor_text(load(wanted.system), wanted)
    clock = _Clock()
    for _ in range(rounds):
        network, proof = _come_up(wanted, text, clock)
    medians = clock.medians()
    found = network.match.machine
    return Row(
        wanted.system,
        len(found.asics),
        len(found.links),
        len(network.graph.meshes),
        medians,
        sum(medians.values()),
        proof,
    )


def _come_up(wanted: MeshPerHost, text: str, clock: _Clock) -> tuple[Network, str]:
    config = FabricConfig.FABRIC_2D_TORUS_XY if any(wanted.rings) else FabricConfig.FABRIC_2D
    forget()
    built = clock.time("load", lambda: load(wanted.system))
    graph = clock.time("validate", lambda: _validated(text))
    matched = clock.time("match", lambda: match(graph, built))
    network = clock.time("tables", lambda: _with_tables(Network(matched, config)))
    proof = clock.time("proof", network.deadlock)
    return network, str(proof)


def _validated(text: str) -> MeshGraph:
    checked = check_text(text)
    if checked.graph is None:
        raise MeshError("\n".join(map(str, checked.findings)))
    return checked.graph


def _with_tables(network: Network) -> Network:
    for mesh in network.graph.meshes:
        network.table(mesh.id)
    return network


def rows_as_text(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            row.system,
            str(row.chips),
            str(row.links),
            str(row.meshes),
            *(f"{row.milliseconds[step]:.1f}" for step in STEPS),
            f"{row.total:.1f}",
            f"{1000 * row.total / row.chips:.0f}",
        ]
        for row in rows
    ]


def main(argv: Sequence[str] | None = None) -> int:
    given = options("fabric", __doc__, "two small machines, one round").parse_args(argv)
    rows = [measure(wanted, 1 if given.quick else 5) for wanted in (QUICK if given.quick else WANTED)]
    if given.json:
        show_json(rows=[asdict(row) for row in rows])
        return 0
    columns = ["system", "chips", "links", "meshes", *STEPS, "total", "us per chip"]
    show(
        machine(),
        table("Milliseconds until a fabric is up, medians of the rounds", columns, rows_as_text(rows)),
        *(f"{row.system}: {row.proof}" for row in rows),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
