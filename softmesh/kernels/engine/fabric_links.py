"""Fabric links as kernels use them: routes between the devices of a mesh, and a worker's link with its packet slots.

What a kernel sends travels while other kernels run, in order on each link. A slot is free again once its
packet has arrived: that is the credit a sender waits for.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from softmesh.callsite import user_call_site
from softmesh.errors import MeshError, NotModelled, SoftmeshError
from softmesh.fabric import settings
from softmesh.fabric.machine_from_graph import machine_from_graph
from softmesh.fabric.machine_system import MachineSystem
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.fabric.routing.network import Network
from softmesh.fabric.routing.packets import payload_bytes
from softmesh.fabric.routing.route import why_unreachable
from softmesh.hardware import Arch, RoutingDirection
from softmesh.kernels.engine.memory_order import PACKET, Access
from softmesh.kernels.engine.scheduler import KernelThread, Wait
from softmesh.kernels.engine.simulated_chip import SimulatedChip
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.device import MeshDevice

# A machine has its own network. On the elastic machine one is made up in the shape of the mesh, wired as the
# fabric's configuration lets it be.


_LINKS_PER_EDGE = 4  # of the elastic machine
_KNOWN: weakref.WeakKeyDictionary[MeshDevice, tuple[object, FabricRoutes]] = weakref.WeakKeyDictionary()


def fabric_routes(mesh: MeshDevice) -> FabricRoutes:
    """Worked out once for a mesh, its shape and the fabric."""
    key = settings.serial, tuple(mesh.shape), tuple(mesh.get_device_ids())
    known = _KNOWN.get(mesh)
    if known is None or known[0] != key:
        known = _KNOWN[mesh] = key, FabricRoutes(mesh)
    return known[1]


class FabricRoutes:
    def __init__(self, mesh: MeshDevice) -> None:
        if not settings.active().is_on:
            raise MeshError(
                "Trying to get un-initialized fabric context: kernels that speak to other chips need a fabric. Call "
                "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) or another before opening the mesh."
            )
        coordinates, ids = list(mesh.shape.coordinates()), mesh.get_device_ids()
        system = mesh.system
        if isinstance(system, MachineSystem):
            self.network = system.network
            nodes = [Node(*system.node_of(id)) for id in ids]
        else:
            self.network = _elastic_network(mesh)
            nodes = [Node(0, i) for i in range(len(ids))]
        self._nodes = dict(zip(coordinates, nodes, strict=True))
        self._devices = dict(zip(nodes, coordinates, strict=True))
        names = (mesh.get_fabric_node_id(coordinate) for coordinate in coordinates)
        named = [(int(name.mesh_id), name.chip_id) for name in names]
        self._by_name = dict(zip(named, nodes, strict=True))

    @property
    def is_two_dimensional(self) -> bool:
        return self.network.is_two_dimensional

    def node(self, coordinate: MeshCoordinate) -> Node:
        return self._nodes[coordinate]

    def named(self, mesh_id: int, chip_id: int) -> Node:
        """The device that a FabricNodeId names."""
        node = self._by_name.get((mesh_id, chip_id))
        if node is None:
            raise MeshError(f"FabricNodeId(M{mesh_id}, D{chip_id}) is no device of this mesh.")
        return node

    def device(self, node: Node) -> MeshCoordinate:
        if node not in self._devices:
            raise MeshError(f"{node} is a chip of the machine, and no device of this mesh: a packet cannot end there.")
        return self._devices[node]

    def first_hop(self, src: Node, dst: Node) -> RoutingDirection:
        direction = self.network.next_direction(src, dst)
        if direction is None or direction is RoutingDirection.C:
            raise MeshError(why_unreachable(self.network, src, dst) if src != dst else f"{src} has no way to itself.")
        return direction

    def step(self, node: Node, direction: RoutingDirection, plane: int) -> Node:
        """One hop; an error where there is no link."""
        links = self.network.links_from(node, direction)
        if plane >= len(links):
            raise MeshError(
                f"A packet cannot go {direction.name} from {node} on link {plane}: there are {len(links)} links in "
                f"that direction under {self.network.config}."
            )
        return self.network.neighbour(node, direction)

    def walk(self, node: Node, direction: RoutingDirection, hops: int, plane: int) -> list[Node]:
        """The chips on a straight way, the first one left out."""
        passed = []
        for _ in range(hops):
            node = self.step(node, direction, plane)
            passed.append(node)
        return passed

    def route(self, src: Node, dst: Node, plane: int) -> list[Node]:
        return list(self.network.route(src, dst, plane).nodes[1:])


def _elastic_network(mesh: MeshDevice) -> Network:
    shape = tuple(mesh.shape)
    if len(shape) > 2:
        raise NotModelled(
            f"A fabric for kernels has two axes, and the mesh is {mesh.shape}: open a mesh of one or two axes."
        )
    rows, columns = (1, *shape)[-2:]
    wraps = [mesh.system.are_joined([], axis) for axis in range(2)]
    logical = LogicalMesh(0, "M0", (rows, columns), rings=(wraps[0], wraps[1]), channels=_LINKS_PER_EDGE)
    graph = MeshGraph("the elastic machine", mesh.arch(), (logical,))
    chips = {Node(0, i): i for i in range(logical.size)}
    chosen = settings.active()
    return Network(Match(graph, machine_from_graph(graph), chips), chosen.config, chosen.reliability, chosen.num_planes)


# The fewest slots that the fabric has for a worker, in 1-D and in 2-D.
_SLOTS = {Arch.WORMHOLE_B0: (8, 4), Arch.BLACKHOLE: (8, 8)}


class Link:
    """Shared by all connections of one chip in one direction on one plane; one of them is open at a time."""

    def __init__(self, chip: SimulatedChip, routes: FabricRoutes, direction: RoutingDirection, plane: int) -> None:
        self.chip = chip
        self.routes = routes
        self.direction = direction
        self.plane = plane
        self.slots = _SLOTS[chip.mesh.arch()][routes.is_two_dimensional]
        self.free = self.slots
        self.holder: KernelThread | None = None
        chosen, largest = settings.active().max_payload, chip.mesh.system.chip.largest_packet_bytes
        self.max_payload = payload_bytes(chosen, largest)
        self._for_slots: list[KernelThread] = []
        self._under_way: list[Access] = []  # of packets that nothing has followed yet

    def __str__(self) -> str:
        return f"link {self.plane} {self.direction.name} of {self.chip.name}"

    def open(self, thread: KernelThread) -> None:
        if self.holder is not None and self.holder is not thread:
            raise MeshError(
                f"The {self} is in use by {self.holder.name}: one worker holds a link at a time. Give them different "
                "link indexes, or let the first close() its connection."
            )
        if self.holder is thread:
            thread.complain("open", f"The connection to the {self} is open already: call open() once.")
        self.holder = thread

    def close(self, thread: KernelThread) -> None:
        if self.holder is not thread:
            thread.complain(
                "close",
                f"The connection to the {self} is not open, and on a chip close() waits for ever for an answer: call "
                "open() before, and close() once.",
            )
            return
        self.holder = None

    def wait_for_slot(self, thread: KernelThread) -> None:
        if not self.free:
            wait = Wait(
                f"wait_for_empty_write_slot() on the {self}",
                lambda: f"{self.free} of {self.slots} slots are free",
            )
            thread.wait_for(lambda: self.free > 0, self._for_slots, wait)

    def wait_until_sent(self, thread: KernelThread) -> None:
        if self.free < self.slots:
            wait = Wait(f"a blocking send on the {self}", lambda: f"{self.free} of {self.slots} slots are free")
            thread.wait_for(lambda: self.free == self.slots, self._for_slots, wait)

    def begin(self, thread: KernelThread, *, is_signal: bool) -> Access:
        """What the next packet does: packets of one link come one after the other, those of two links in any order."""
        for access in self._under_way:
            access.arrive()
        self._under_way.clear()
        if is_signal:
            return thread.clock.now()
        self._under_way.append(Access(thread.clock, PACKET))
        return self._under_way[-1]

    def send(self, thread: KernelThread, deliver: Callable[[], None]) -> None:
        """Take a slot, and have the packet delivered as soon as others have a turn."""
        if self.holder is not thread:
            raise MeshError(f"The connection to the {self} is not open: call open() before sending.")
        if not self.free:
            raise MeshError(f"The {self} has no free slot: call wait_for_empty_write_slot() before each packet.")
        self.free -= 1
        where = f"{thread.name}, {user_call_site()}"

        def arrive() -> None:
            self.free += 1
            try:
                deliver()
            except SoftmeshError as error:
                error.args = (f"{error} [a packet of {where}]",)
                raise
            self.chip.scheduler.wake(self._for_slots)

        self.chip.scheduler.defer(arrive)
