"""The network: the fabric as it came up on a match, with its planes, links between meshes, tables and routes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from softmesh.errors import MeshError
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.fabric.routing.deadlock import Cycle, Proof, prove
from softmesh.fabric.routing.exits import Exits
from softmesh.fabric.routing.intermesh_links import assign_ports, intermesh_text
from softmesh.fabric.routing.packets import (
    hardware_limit_warnings,
    header_bytes,
    longest_route,
    payload_bytes,
)
from softmesh.fabric.routing.planes import (
    PlaneCount,
    check_every_link,
    neighbour_links,
    plane_counts,
    plane_warnings,
)
from softmesh.fabric.routing.route import PASS_THROUGH, Hop, Route, why_no_exit, why_unreachable
from softmesh.fabric.routing.tables import (
    ETH_DIRECTION,
    HERE,
    NOWHERE,
    Table,
    direction_table,
    neighbour_table,
)
from softmesh.fabric.settings import ONE_DIMENSIONAL, is_two_dimensional
from softmesh.hardware import FabricConfig, FabricReliabilityMode, RoutingDirection
from softmesh.systems.machine import Link


class Step(NamedTuple):
    """A hop before a plane is chosen: the links that could carry it, in the order of planes."""

    source: Node
    direction: RoutingDirection
    target: Node
    links: tuple[Link, ...]


class Network:
    """Comes up or raises. `warnings` says what it does without; `planes` counts them by mesh and axis."""

    def __init__(
        self,
        match: Match,
        config: FabricConfig,
        reliability: FabricReliabilityMode = FabricReliabilityMode.STRICT_INIT,
        num_planes: int | None = None,
    ) -> None:
        _check_choices(config, reliability, num_planes)
        self.match = match
        self.config = config
        self.reliability = reliability
        self.links = neighbour_links(match)  # of each chip, by direction; also those beyond the planes
        if reliability is FabricReliabilityMode.STRICT_INIT:
            check_every_link(match, self.links)
        self.planes: Mapping[int, PlaneCount] = plane_counts(
            match, self.links, per_axis=config in ONE_DIMENSIONAL, num_planes=num_planes
        )
        self.crossings, shortfalls = assign_ports(match) if self.is_two_dimensional else ([], [])
        pass_through = os.environ.get(PASS_THROUGH, "0") not in ("", "0")
        self.exits = Exits(match.graph, self.crossings, pass_through=pass_through)
        self.warnings = (
            *plane_warnings(match, self.links, self.planes, num_planes),
            *shortfalls,
            *self._connections_left_out(),
            *hardware_limit_warnings(match.graph, config),
        )
        self._tables: dict[int, Table] = {}
        self._neighbours: dict[int, npt.NDArray[np.int64]] = {}

    @property
    def graph(self) -> MeshGraph:
        return self.match.graph

    @property
    def is_two_dimensional(self) -> bool:
        return is_two_dimensional(self.config)

    @property
    def intermesh_text(self) -> dict[str, list[str]]:
        return intermesh_text(self.match, self.crossings)

    @cached_property
    def packet_header_bytes(self) -> int:
        hops = max(longest_route(mesh, self.config) for mesh in self.graph.meshes)
        return header_bytes(hops, two_dimensional=self.is_two_dimensional)

    def max_payload_bytes(self, wanted: int | None = None) -> int:
        return payload_bytes(wanted, self.match.machine.chip.largest_packet_bytes)

    def table(self, mesh: int) -> Table:
        """`table[src chip, dst chip]`: RoutingDirection values, routes over missing links left out."""
        if mesh not in self._tables:
            logical = self.graph.mesh(mesh)
            self._tables[mesh] = direction_table(logical, self.config, self._missing(logical))
        return self._tables[mesh]

    def neighbours(self, mesh: int) -> npt.NDArray[np.int64]:
        """For each chip of a mesh its neighbour N, E, S and W."""
        if mesh not in self._neighbours:
            self._neighbours[mesh] = neighbour_table(self.graph.mesh(mesh))
        return self._neighbours[mesh]

    def neighbour(self, node: Node, direction: RoutingDirection) -> Node:
        return Node(node.mesh, int(self.neighbours(node.mesh)[node.chip, direction.value]))

    def _missing(self, mesh: LogicalMesh) -> set[tuple[int, RoutingDirection]]:
        return {
            (chip, direction)
            for chip in range(mesh.size)
            for direction in mesh.neighbours(chip)
            if (Node(mesh.id, chip), direction) not in self.links
        }

    def links_from(self, node: Node, direction: RoutingDirection) -> tuple[Link, ...]:
        """The links a chip has towards one of its neighbours in the mesh, as many as there are planes."""
        axis = direction.axis
        planes = self.planes[node.mesh][axis] if axis is not None else 0
        return self.links.get((node, direction), ())[:planes]

    def next_direction(self, src: Node, dst: Node) -> RoutingDirection | None:
        """The first hop of the route; C where it is no way at all, None where there is none."""
        self._check(src, dst)
        if src.mesh == dst.mesh:
            value = int(self.table(src.mesh)[src.chip, dst.chip])
            return None if value == NOWHERE else RoutingDirection(value)
        exit = self.exits.exit_for(src, dst.mesh)
        if exit is None or self.next_direction(exit.entry, dst) is None:
            return None
        return exit.direction if exit.node == src else self.next_direction(src, exit.node)

    def eth_direction(self, src: Node, dst: Node) -> int | None:
        """The same as routers on the chip number it: E 0, W 1, N 2, S 3, Z 4; None: unreachable, or here."""
        direction = self.next_direction(src, dst)
        return None if direction is None else ETH_DIRECTION.get(direction)

    def reported_direction(self, src: Node, dst: Node) -> RoutingDirection | None:
        """The first hop as TT-NN tells it: in 1-D too its tables turn, though no packet does."""
        direction = self.next_direction(src, dst)
        if direction is not None or src.mesh != dst.mesh or self.is_two_dimensional:
            return direction
        logical = self.graph.mesh(src.mesh)
        value = int(direction_table(logical, FabricConfig.FABRIC_2D, self._missing(logical))[src.chip, dst.chip])
        return None if value == NOWHERE else RoutingDirection(value)

    def reported_links(self, src: Node, dst: Node) -> list[int]:
        """The links TT-NN names for that hop: those of the route, or in 1-D where it would turn all that lead there."""
        direction = self.reported_direction(src, dst)
        if direction is None or self.next_direction(src, dst) is not None:
            return self.forwarding_links(src, dst)
        return list(range(len(self.links_from(src, direction))))

    def forwarding_links(self, src: Node, dst: Node) -> list[int]:
        """The planes that lead all the way from src to dst; none where they are the same chip."""
        if self.next_direction(src, dst) in (None, RoutingDirection.C):
            return []
        return list(range(min(len(step.links) for step in self._steps(src, dst))))

    def route(self, src: Node, dst: Node, plane: int = 0) -> Route:
        self._check(src, dst)
        hops = tuple(self._hop(src, dst, step, plane) for step in self._steps(src, dst))
        return Route(src, dst, hops)

    def deadlock(self, *, virtual_channels: bool = True, bubble: bool = True) -> Proof | Cycle:
        """A proof that packets keep moving, or a circle of waits. Without a safeguard: what it guards against."""
        return prove(self, virtual_channels=virtual_channels, bubble=bubble)

    def _hop(self, src: Node, dst: Node, step: Step, plane: int) -> Hop:
        if not 0 <= plane < len(step.links):
            raise MeshError(
                f"Plane {plane} does not lead from {src} to {dst}: {step.source} has {len(step.links)} links "
                f"{step.direction.name} to {step.target} in use. Take plane 0 to {len(step.links) - 1}."
            )
        return Hop(
            step.source,
            step.target,
            step.direction,
            step.links[plane],
            self.match.chips[step.source],
            self.match.chips[step.target],
            plane,
            virtual_channel=int(step.source.mesh != src.mesh),
        )

    def _steps(self, src: Node, dst: Node) -> Iterator[Step]:
        at = src
        while at.mesh != dst.mesh:
            exit = self.exits.exit_for(at, dst.mesh)
            if exit is None:
                raise MeshError(why_no_exit(self, src, dst, at.mesh))
            yield from self._steps_inside(at, exit.node)
            yield Step(exit.node, exit.direction, exit.entry, exit.links)
            at = exit.entry
        yield from self._steps_inside(at, dst)

    def _steps_inside(self, src: Node, dst: Node) -> Iterator[Step]:
        column = self.table(src.mesh)[:, dst.chip]
        at = src
        while (value := int(column[at.chip])) != HERE:
            if value == NOWHERE:
                raise MeshError(why_unreachable(self, src, dst))
            direction = RoutingDirection(value)
            near = self.neighbour(at, direction)
            yield Step(at, direction, near, self.links_from(at, direction))
            at = near

    def _check(self, *nodes: Node) -> None:
        for node in nodes:
            if node not in self.match.chips:
                raise MeshError(
                    f"{node} is not in {self.graph.source}: it has "
                    + ", ".join(f"M{mesh.id} with D0 to D{mesh.size - 1}" for mesh in self.graph.meshes[:8])
                    + (" and more." if len(self.graph.meshes) > 8 else ".")
                )

    def _connections_left_out(self) -> list[str]:
        connections = self.graph.connections
        if self.is_two_dimensional or not connections:
            return []
        return [
            f"{self.config.name} stays inside a mesh: {len(connections)} connections between meshes "
            f"({connections[0]}{', ...' if len(connections) > 1 else ''}) are not used. Set FABRIC_2D for them."
        ]


def _check_choices(config: FabricConfig, reliability: FabricReliabilityMode, num_planes: int | None) -> None:
    if config in (FabricConfig.DISABLED, FabricConfig.CUSTOM):
        raise MeshError(f"{config} routes nothing: choose one of the FABRIC_1D or FABRIC_2D configurations.")
    if reliability is FabricReliabilityMode.DYNAMIC_RECONFIG:
        raise MeshError(f"{reliability} is unsupported: use STRICT_INIT or RELAXED_INIT.")
    if num_planes is not None and num_planes < 1:
        raise MeshError(f"num_planes is {num_planes}: a fabric needs at least 1 routing plane; None takes all.")
