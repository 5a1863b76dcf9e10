"""Fabric packet headers: the route of a packet, and the NoC command at its target. The same fields as in C++.

A header is filled in by `to_chip_...` (the route) and `to_noc_...` (the command), and may be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import Node
from softmesh.hardware import RoutingDirection
from softmesh.kernels.engine.fabric_links import Link
from softmesh.kernels.engine.noc_address import decode
from softmesh.kernels.engine.simulated_chip import SimulatedChip
from softmesh.kernels.engine.worker_core import Core


@dataclass(frozen=True)
class NocUnicastCommandHeader:
    """Write the payload at a NoC address."""

    noc_address: int

    def carry_out(self, chip: SimulatedChip, payload: torch.Tensor | None) -> None:
        write(chip, self.noc_address, payload)


@dataclass(frozen=True)
class NocUnicastInlineWriteCommandHeader:
    """Write one word, which travels in the header."""

    noc_address: int
    value: int

    def carry_out(self, chip: SimulatedChip, payload: torch.Tensor | None) -> None:
        place, address = decode(self.noc_address)
        _worker(chip.at(place)).store(address, self.value)


@dataclass(frozen=True)
class NocUnicastAtomicIncCommandHeader:
    """Raise a semaphore. Packets on one link keep their order, so what was sent before is there."""

    noc_address: int
    val: int
    flush: bool = True

    def carry_out(self, chip: SimulatedChip, payload: torch.Tensor | None) -> None:
        increment(chip, self.noc_address, self.val)


@dataclass(frozen=True)
class NocUnicastAtomicIncFusedCommandHeader:
    """Write the payload, then raise a semaphore, in one packet."""

    noc_address: int
    semaphore_noc_address: int
    val: int
    flush: bool = True

    def carry_out(self, chip: SimulatedChip, payload: torch.Tensor | None) -> None:
        write(chip, self.noc_address, payload)
        increment(chip, self.semaphore_noc_address, self.val)


@dataclass(frozen=True)
class NocUnicastScatterCommandHeader:
    """Write pieces of the payload at several NoC addresses; the last piece is what is left."""

    noc_address: Sequence[int]
    chunk_size: Sequence[int]

    def carry_out(self, chip: SimulatedChip, payload: torch.Tensor | None) -> None:
        if payload is None:
            raise MeshError("A scatter write needs a payload.")
        sizes = [*self.chunk_size, payload.shape[-1] - sum(self.chunk_size)][: len(self.noc_address)]
        for address, part in zip(self.noc_address, payload.split(sizes, dim=-1), strict=True):
            write(chip, address, part)


Command = (
    NocUnicastCommandHeader
    | NocUnicastInlineWriteCommandHeader
    | NocUnicastAtomicIncCommandHeader
    | NocUnicastAtomicIncFusedCommandHeader
    | NocUnicastScatterCommandHeader
)


@dataclass(frozen=True)
class MulticastRoutingCommandHeader:
    """On a straight way: the first chip that is written, and how many from there on."""

    start_distance_in_hops: int
    range_hops: int


@dataclass(frozen=True)
class Straight:
    """Chips on a straight way, counted in hops from 1."""

    first: int
    count: int

    def targets(self, link: Link, src: Node) -> list[Node]:
        if self.first < 1 or self.count < 1:
            raise MeshError(f"A packet goes at least 1 hop and to at least 1 chip: got {self.first} and {self.count}.")
        passed = link.routes.walk(src, link.direction, self.first + self.count - 1, link.plane)
        return passed[self.first - 1 :]


@dataclass(frozen=True)
class ToDevice:
    """One chip, over the route of the fabric's tables."""

    mesh_id: int
    chip_id: int

    def targets(self, link: Link, src: Node) -> list[Node]:
        dst = link.routes.named(self.mesh_id, self.chip_id)
        if link.routes.first_hop(src, dst) is not link.direction:
            raise MeshError(
                f"The route from {src} to {dst} begins {link.routes.first_hop(src, dst).name}, and the packet is sent "
                f"over the {link}: open the connection towards that chip."
            )
        return [link.routes.route(src, dst, link.plane)[-1]]


@dataclass(frozen=True)
class Tree:
    """A trunk N or S with branches E and W at each of its chips; without a trunk a row to both sides."""

    e: int
    w: int
    n: int
    s: int

    def targets(self, link: Link, src: Node) -> list[Node]:
        way, plane = link.direction, link.plane
        lengths = {
            RoutingDirection.E: self.e,
            RoutingDirection.W: self.w,
            RoutingDirection.N: self.n,
            RoutingDirection.S: self.s,
        }
        if not lengths.get(way):
            raise MeshError(f"The multicast goes nowhere {way.name}, and is sent over the {link}.")
        trunk = link.routes.walk(src, way, lengths[way], plane)
        if way.axis == 1:
            return trunk
        found = []
        for node in trunk:
            found.append(node)
            for side in (RoutingDirection.E, RoutingDirection.W):
                found += link.routes.walk(node, side, lengths[side], plane)
        return found


Route = Straight | ToDevice | Tree


class PacketHeader:
    def __init__(self) -> None:
        self.route: Route | None = None
        self.command: Command | None = None
        self.payload_size = 0

    def __repr__(self) -> str:
        return f"PacketHeader({self.route}, {self.command}, {self.payload_size} bytes)"

    def to_chip_unicast(self, distance_in_hops: int) -> PacketHeader:
        self.route = Straight(distance_in_hops, 1)
        return self

    def to_chip_multicast(self, chip_multicast_command_header: MulticastRoutingCommandHeader) -> PacketHeader:
        given = chip_multicast_command_header
        self.route = Straight(given.start_distance_in_hops, given.range_hops)
        return self

    def to_noc(self, command: Command, payload_size: int = 0) -> PacketHeader:
        self.command, self.payload_size = command, payload_size
        return self

    def to_noc_unicast_write(self, command: NocUnicastCommandHeader, payload_size_bytes: int) -> PacketHeader:
        return self.to_noc(command, payload_size_bytes)

    def to_noc_unicast_inline_write(self, command: NocUnicastInlineWriteCommandHeader) -> PacketHeader:
        return self.to_noc(command)

    def to_noc_unicast_atomic_inc(self, command: NocUnicastAtomicIncCommandHeader) -> PacketHeader:
        return self.to_noc(command)

    def to_noc_fused_unicast_write_atomic_inc(
        self, command: NocUnicastAtomicIncFusedCommandHeader, payload_size_bytes: int
    ) -> PacketHeader:
        return self.to_noc(command, payload_size_bytes)

    def to_noc_unicast_scatter_write(
        self, command: NocUnicastScatterCommandHeader, payload_size_bytes: int
    ) -> PacketHeader:
        return self.to_noc(command, payload_size_bytes)


class PacketHeaderPool:
    """Headers for the packets of a kernel; here there are as many as one likes."""

    @staticmethod
    def allocate_header(num_headers: int = 1) -> PacketHeader:
        return PacketHeader()


def write(chip: SimulatedChip, noc_address: int, payload: torch.Tensor | None) -> None:
    if payload is None:
        raise MeshError("A packet that writes needs a payload.")
    place, address = decode(noc_address)
    chip.at(place).write(address, payload)


def increment(chip: SimulatedChip, noc_address: int, by: int) -> None:
    place, address = decode(noc_address)
    core = _worker(chip.at(place))
    if address in core.semaphores.values():
        message = (
            f"The program's semaphore {core.name_of(address)} on {chip.name} is raised from another chip. Programs "
            "do not start at one moment on all chips, and the start sets it back: use "
            "ttnn.create_global_semaphore(...)."
        )
        if chip.is_strict:
            raise MeshError(message)
        chip.launch_state.findings.add(("semaphore of a program", address), message, is_strict=False)
    core.store(address, core.word(address) + by & 0xFFFFFFFF, adds=True)


def _worker(target: object) -> Core:
    if not isinstance(target, Core):
        raise MeshError(f"Words and semaphores are in the L1 of cores; the address is in {target}.")
    return target
