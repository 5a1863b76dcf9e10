"""The system of a process on a chosen machine: a logical mesh, matched onto chips, from which programs open meshes."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from functools import cached_property
from itertools import pairwise

from softmesh.errors import MeshError, NotModelled, ranges_text
from softmesh.fabric import settings
from softmesh.fabric.graph_selection import bound_mesh, declared_graph, graph_in_use
from softmesh.fabric.grid_paths import line_through
from softmesh.fabric.matching.find_match import discover, match
from softmesh.fabric.matching.match import Match, MatchError
from softmesh.fabric.mesh_binding import Binding
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.fabric.routing.network import Network
from softmesh.fabric.settings import FabricSettings
from softmesh.hardware import ClusterType
from softmesh.mesh import MeshCoordinate, MeshShape, check_same_size
from softmesh.strictness import warn_or_raise
from softmesh.systems.chip import Chip
from softmesh.systems.machine import Machine


class MachineSystem:
    """What is asked first is computed first: the mesh graph, its match, the network on it."""

    def __init__(self, machine: Machine, binding: Binding, fabric: FabricSettings) -> None:
        self.machine = machine
        self.binding = binding
        self.settings = fabric
        self._is_up = False

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def chip(self) -> Chip:
        return self.machine.chip

    @property
    def cluster_type(self) -> ClusterType:
        return self.machine.cluster_type

    @cached_property
    def declared(self) -> MeshGraph:
        return declared_graph(self.machine, self.binding, self.settings.config)

    @property
    def meshes(self) -> tuple[LogicalMesh, ...]:
        return self.declared.meshes

    @property
    def own_meshes(self) -> tuple[LogicalMesh, ...]:
        bound = self.binding.mesh_id
        return self.meshes if bound is None else (self.declared.mesh(bound),)

    @cached_property
    def match(self) -> Match:
        graph = graph_in_use(self.declared, self.machine, self.binding, self.settings.config)
        try:
            found = match(graph, self.machine, hosts=self._hosts(graph), preferring=self.declared)
        except MatchError:
            found = self._discovered(graph)
        for text in found.warnings:
            warn_or_raise(text)
        return found

    def _hosts(self, graph: MeshGraph) -> dict[tuple[int, int], str]:
        """Where each part of a mesh has to lie: on the host of the process that is bound to it."""
        counts = {mesh.id: mesh.host_count for mesh in graph.meshes}
        return {
            place: host
            for place, host in self.binding.places
            if place[1] < counts.get(place[0], 0) and host in self.machine.hosts
        }

    def _discovered(self, refused: MeshGraph) -> Match:
        """The largest mesh that is left, where nobody asked for a certain one: what is down made it smaller."""
        asked_for = self.binding.descriptor is not None or any(mesh.wraps(a) for mesh in refused.meshes for a in (0, 1))
        if asked_for:
            raise
        self.declared = discover(self.machine)
        return match(self.declared, self.machine)

    @cached_property
    def mesh(self) -> LogicalMesh:
        """The mesh this process works on."""
        return bound_mesh(self.match.graph, self.binding)

    @property
    def host_grid(self) -> tuple[int, ...]:
        return self.mesh.hosts

    @property
    def host_rank(self) -> int | None:
        return self.binding.host_rank

    @cached_property
    def network(self) -> Network:
        if not self.settings.is_on:
            raise MeshError(
                "Trying to get un-initialized fabric context: no fabric is configured. Call "
                "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) or another before opening the mesh."
            )
        chosen = self.settings
        return Network(self.match, chosen.config, chosen.reliability, chosen.num_planes)

    def bring_up(self) -> None:
        if not self.settings.is_on or self._is_up:
            return
        for text in self.network.warnings:
            warn_or_raise(text)
        self._is_up = True

    def use_active_fabric(self) -> None:
        self.settings = settings.active()
        self.bring_up()

    @cached_property
    def shape(self) -> MeshShape:
        return MeshShape(*self.mesh.shape)

    @cached_property
    def _ids(self) -> list[int]:
        """Physical ids of the system mesh, row-major."""
        return [self.match.chips[Node(self.mesh.id, chip)] for chip in range(self.mesh.size)]

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        return {id: self.mesh.coordinate(chip) for chip, id in enumerate(self._ids)}

    def device_ids(self) -> list[int]:
        return list(self.machine.asics)

    def pcie_ids(self) -> list[int]:
        return [asic.id for asic in self.machine.asics.values() if asic.pcie is not None]

    def pcie_chip_of(self, device_id: int) -> int:
        self.check_devices([device_id])
        return self.machine.pcie_chip_of(device_id)

    def check_devices(self, ids: list[int]) -> None:
        unknown = [id for id in ids if id not in self.machine.asics]
        if unknown:
            down = {asic.id for asic in self.machine.down_chips}
            reason = "is down" if unknown[0] in down else "does not exist"
            raise MeshError(
                f"Device {unknown[0]} {reason} on {self.name}: its devices are {ranges_text(self.device_ids())}."
            )

    def node_of(self, device_id: int) -> tuple[int, int]:
        self.check_devices([device_id])
        node = self.match.nodes.get(device_id)
        if node is None:
            raise MeshError(
                f"Device {device_id} has no place in the mesh graph {self.match.graph.source}: "
                f"it uses {len(self.match.chips)} of {len(self.machine.asics)} chips."
            )
        return node

    def choose_devices(self, shape: MeshShape, offset: MeshCoordinate | None, in_use: Collection[int]) -> list[int]:
        ids = self._place(shape, offset)
        taken = sorted(set(ids) & set(in_use))
        if taken:
            raise MeshError(
                f"Cannot re-initialize device {taken[0]}, must first call close(): it belongs to an open mesh. "
                "Close that with ttnn.close_mesh_device(...), or ask for other chips with offset=."
            )
        return ids

    def _place(self, shape: MeshShape, offset: MeshCoordinate | None) -> list[int]:
        whole = self.shape
        if shape.mesh_size() > whole.mesh_size():
            raise MeshError(
                f"Requested mesh shape {shape} requires {shape.mesh_size()} devices, but only "
                f"{whole.mesh_size()} devices are available in the system mesh {whole}. "
                f"{self._larger(shape, offset)}"
            )
        if shape.dims() != whole.dims():
            if shape.dims() < whole.dims():
                raise MeshError(f"MeshDeviceViewImpl is not 2D! Give {shape} a second dim: the system mesh is {whole}.")
            raise MeshError(f"Requested mesh shape dimensions mismatch: {shape} != {whole}, which is the system mesh.")
        start = self._checked_offset(shape, offset)
        ids = self._mapped(shape, start)
        is_straight = self._fits(shape[0], shape[1], start) and ids == self._rectangle(shape, start)
        if self.mesh.host_count > 1 and not is_straight:
            raise NotModelled(
                f"Mesh {self.mesh.id} lies over {self.mesh.host_count} hosts, and {shape} would go around corners in "
                f"it: of such a mesh open {whole}, or a rectangle of it."
            )
        return ids

    def _mapped(self, shape: MeshShape, start: tuple[int, int]) -> list[int]:
        whole = self.shape
        if sum(n > 1 for n in shape) <= 1:
            line = line_through(*self.mesh.shape, start, shape.mesh_size())
            if line is None:
                raise MeshError(
                    f"Requested mesh shape {shape} is a line of {shape.mesh_size()} neighbouring chips, and none "
                    f"starts at offset {MeshCoordinate(list(start))} of the system mesh {whole}. "
                    f"{self._larger(shape, MeshCoordinate(list(start)))}"
                )
            return [self._id_at(*place) for place in line]
        return self._rectangle(shape, start)

    def _larger(self, shape: MeshShape, offset: MeshCoordinate | None) -> str:
        """Say why the system mesh has no such part, and which system has."""
        if shape.dims() != 2:
            return f"The system is {self.name}."
        rows, columns = (a + b for a, b in zip(shape, (0, 0) if offset is None else offset, strict=True))
        down = self.machine.down_text
        if down and self._is_on_the_whole(shape, offset):
            return (
                f"Down in {self.name}: {down}. It leaves {self.shape}: open that or a part of it, or take what is down "
                "out of --down, SOFTMESH_DOWN or use_system(down=...)."
            )
        if self.binding.descriptor is not None:
            return f"Mesh {self.mesh.id} of {self.binding.descriptor} would need dims: [ {rows}, {columns} ]."
        state, up = (f", with {down} down", ", with nothing down") if down else ("", "")
        return (
            f"The system is {self.name}{state}. mesh:{rows}x{columns} holds it: name that in SOFTMESH_SYSTEM, --system "
            f"or use_system{up}."
        )

    def _is_on_the_whole(self, shape: MeshShape, offset: MeshCoordinate | None) -> bool:
        """True if the machine had this mesh while everything was up."""
        whole = MachineSystem(self.machine.restored(), self.binding, self.settings)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                whole._place(shape, offset)
        except MeshError:
            return False
        return True

    def _checked_offset(self, shape: MeshShape, offset: MeshCoordinate | None) -> tuple[int, int]:
        if offset is None:
            return 0, 0
        if offset.dims() != 2 or not self.shape.contains(offset):
            raise MeshError(
                f"The specified offset {offset} is out of bounds for the system mesh shape {self.shape}. "
                f"{self._larger(shape, offset if offset.dims() == 2 else None)}"
            )
        row, column = offset
        return row, column

    def _id_at(self, row: int, column: int) -> int:
        return self._ids[self.mesh.chip_at(row, column)]

    def _rectangle(self, shape: MeshShape, start: tuple[int, int]) -> list[int]:
        rows, columns = shape
        if self._fits(rows, columns, start):
            return [self._id_at(start[0] + r, start[1] + c) for r in range(rows) for c in range(columns)]
        if self._fits(columns, rows, start):
            return [self._id_at(start[0] + c, start[1] + r) for r in range(rows) for c in range(columns)]
        raise MeshError(
            f"Requested mesh is too big and is not rotatable: {shape} and SystemMesh {self.shape}, "
            f"offset {MeshCoordinate(list(start))}. {self._larger(shape, MeshCoordinate(list(start)))}"
        )

    def _fits(self, rows: int, columns: int, start: tuple[int, int]) -> bool:
        return start[0] + rows <= self.mesh.shape[0] and start[1] + columns <= self.mesh.shape[1]

    def reshape_devices(self, ids: list[int], old: MeshShape, new: MeshShape) -> list[int]:
        check_same_size(old, new)
        if sum(n > 1 for n in old) <= 1 and sum(n > 1 for n in new) <= 1:
            return ids
        order = self._reshaped(ids, new) if new.dims() == 2 else None
        if order is None:
            raise MeshError(
                f"User has requested a reshape of the MeshDevice to shape: {new}, but it is not possible to form "
                f"a physically connected mesh grid with the opened devices from the original shape: {old}."
            )
        return order

    def _reshaped(self, ids: list[int], new: MeshShape) -> list[int] | None:
        """The same chips as a rectangle of the system mesh, or as a path through the rectangle they are."""
        places = [self._places[id] for id in ids if id in self._places]
        if len(places) != len(ids):
            return None
        top, left = min(r for r, _ in places), min(c for _, c in places)
        height = max(r for r, _ in places) - top + 1
        width = max(c for _, c in places) - left + 1
        if height * width != len(ids):
            return None
        if sum(n > 1 for n in new) <= 1:
            line = line_through(height, width, (0, 0), len(ids))
            return [self._id_at(top + r, left + c) for r, c in line] if line else None
        if tuple(new) in ((height, width), (width, height)):
            return self._rectangle(new, (top, left))
        return None

    def are_joined(self, line: list[int], axis: int) -> bool:
        first, last = (self.match.nodes.get(chip) for chip in (line[0], line[-1]))
        if first is None or last is None or first.mesh != last.mesh:
            return False
        mesh = self.match.graph.mesh(first.mesh)
        return first.chip in mesh.neighbours(last.chip).values() and bool(self.match.links(first, last))

    def links_along(self, lines: list[list[int]], axis: int | None) -> int:
        """Routing planes, or while no fabric is set cables. Host traffic to remote chips takes one of them."""
        counts = [self._links_of(*pair) for line in lines for pair in pairwise(line)]
        counts = counts or [self._links_of(*pair) for pair in self._pairs()]
        shared = any(asic.pcie is None for asic in self.machine.asics.values())
        return max(1, min(counts, default=1) - shared)

    def _links_of(self, one: int, other: int) -> int:
        a, b = (self.match.nodes.get(chip) for chip in (one, other))
        if a is None or b is None or a.mesh != b.mesh:
            return 0
        near = self.match.graph.mesh(a.mesh).neighbours(a.chip)
        direction = next((way for way, chip in near.items() if chip == b.chip), None)
        if direction is None or direction.axis is None:
            return 0
        if self.settings.is_on:
            return self.network.planes[a.mesh][direction.axis]
        return min(len(self.match.links(a, b)), self.chip.routing_planes)

    def _pairs(self) -> list[tuple[int, int]]:
        """All neighbours in the mesh: what an axis of one device has to go by."""
        return [(self._ids[a], self._ids[b]) for a, b, _ in self.mesh.edges()]
