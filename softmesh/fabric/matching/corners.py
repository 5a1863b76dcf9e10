"""Galaxy's corner rule: whole Galaxies are laid with their corners on the first chip of each tray."""

from __future__ import annotations

from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.hardware import ClusterType
from softmesh.systems.machine import Machine

Position = tuple[int, int]
GALAXIES = (ClusterType.GALAXY, ClusterType.BLACKHOLE_GALAXY)
CHIPS_OF_A_GALAXY = 32
FIRST_OF_EACH_TRAY: tuple[Position, ...] = ((1, 1), (2, 1), (3, 1), (4, 1))


def corner_pins(graph: MeshGraph, mesh: LogicalMesh, machine: Machine) -> dict[int, tuple[Position, ...]]:
    """Logical chip -> positions it is held to. Empty where the rule does not apply."""
    if not follows_corner_rule(mesh, machine):
        return {}
    last_row, last_column = mesh.shape[0] - 1, mesh.shape[1] - 1
    corners = [mesh.chip_at(row, column) for row in (0, last_row) for column in (0, last_column)]
    pins = dict.fromkeys(corners, FIRST_OF_EACH_TRAY)
    if len(graph.meshes) == 1 and mesh.host_count == 1:  # one process
        pins[0] = FIRST_OF_EACH_TRAY[:1]
    return pins


def follows_corner_rule(mesh: LogicalMesh, machine: Machine) -> bool:
    positions = {asic.position for asic in machine.asics.values()}
    return (
        machine.cluster_type in GALAXIES
        and min(mesh.shape) > 1
        and mesh.size % CHIPS_OF_A_GALAXY == 0
        and positions.issuperset(FIRST_OF_EACH_TRAY)
    )
