"""`softmesh.fabric.machine()`, `network()` and `route()`: queries about the fabric of this process."""

from __future__ import annotations

from softmesh.arguments import checked_int, described, refused
from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import Node
from softmesh.fabric.routing.network import Network
from softmesh.fabric.routing.route import Route
from softmesh.fabric.system import machine_system
from softmesh.hardware.fabric_config import FabricNodeId
from softmesh.systems.machine import Machine


def machine() -> Machine:
    """The machine that was chosen, as this process sees it."""
    return machine_system("softmesh.fabric.machine").machine


def network() -> Network:
    """The fabric as `set_fabric_config` chose it, on the machine that was chosen."""
    return machine_system("softmesh.fabric.network").network


def route(src: FabricNodeId | Node | int, dst: FabricNodeId | Node | int, plane: int = 0) -> Route:
    """The links a packet crosses. A chip is a FabricNodeId, or the physical id of a device.

    >>> softmesh.fabric.route(4, 7)
    M0D0 -> M0D7: S over chip 4 ch 6 <-> chip 5 ch 6, E over chip 1 ch 8 <-> chip 5 ch 0, ...
    """
    system = machine_system("softmesh.fabric.route")

    def named(which: str, chip: object) -> Node:
        if isinstance(chip, FabricNodeId):
            node = Node(int(chip.mesh_id), chip.chip_id)
        elif isinstance(chip, Node):
            node = chip
        elif isinstance(chip, int) and not isinstance(chip, bool):
            return Node(*system.node_of(chip))
        else:
            wanted = "a ttnn.FabricNodeId or the id of a device"
            raise refused("route", f"{which} must be {wanted}, got {described(chip)}")
        if node not in system.match.chips:
            raise MeshError(f"route: {which} {node} is not in the mesh graph {system.match.graph.source}.")
        return node

    return system.network.route(named("src", src), named("dst", dst), checked_int("route", "plane", plane))
