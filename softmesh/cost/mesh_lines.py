"""Lines and rings along each axis of a mesh: how its devices are joined under the fabric that is set now."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from softmesh.cost.link_costs import Line
from softmesh.fabric import settings
from softmesh.hardware import FabricConfig, Topology
from softmesh.runtime.device import MeshDevice

_LINES: WeakKeyDictionary[MeshDevice, dict[tuple[int, tuple[int, ...]], tuple[Line, ...]]] = WeakKeyDictionary()
_TWO_DIMENSIONAL = (
    FabricConfig.FABRIC_2D,
    FabricConfig.FABRIC_2D_TORUS_X,
    FabricConfig.FABRIC_2D_TORUS_Y,
    FabricConfig.FABRIC_2D_TORUS_XY,
)
_CLOSED = (
    FabricConfig.FABRIC_1D_RING,
    FabricConfig.FABRIC_2D_TORUS_X,
    FabricConfig.FABRIC_2D_TORUS_Y,
    FabricConfig.FABRIC_2D_TORUS_XY,
)


def lines_of(device: MeshDevice) -> tuple[Line, ...]:
    """For each axis: how many devices, how many links between two, and whether the ends are joined."""
    known = _LINES.setdefault(device, {})
    key = settings.serial, tuple(device.shape)
    if key not in known:
        known[key] = tuple(_line(device, axis, n) for axis, n in enumerate(device.shape))
    return known[key]


def routed_lines(device: MeshDevice) -> tuple[Line, ...]:
    """The same, closed to rings only where a collective that does not say how it travels goes around."""
    return tuple(line._replace(is_ring=takes_ring(line, None)) for line in lines_of(device))


def takes_ring(line: Line, topology: object) -> bool:
    """Whether a collective goes around: the ends are joined, and the call says so, or where it does not the fabric."""
    if topology is None:
        return line.is_ring and settings.active().config in _CLOSED
    return line.is_ring and topology in (Topology.Ring, Topology.Torus)


def is_two_dimensional() -> bool:
    """Whether packets are routed by a fabric of two dimensions."""
    return settings.active().config in _TWO_DIMENSIONAL


def _line(device: MeshDevice, axis: int, devices: int) -> Line:
    if devices == 1:
        return Line(device.system.chip, 1, 1, False)
    lines = device.lines_along(axis)
    closes = devices > 2 and all(device.system.are_joined(line, axis) for line in lines)
    return Line(device.system.chip, devices, max(1, device.system.links_along(lines, axis)), closes)
