"""Fabric configuration: the choices a program has for the links between chips, directions, and names of nodes."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.arguments import checked_int
from softmesh.hardware.enums import NativeEnum


class Topology(NativeEnum):
    """The paths a collective may take. Results never depend on it."""

    Ring = 2
    Linear = 1
    Mesh = 3
    Torus = 4


class FabricConfig(NativeEnum):
    """Which routes exist: none, along one axis at a time, or in both; with wrap-around links or without."""

    DISABLED = 0
    FABRIC_1D = 2
    FABRIC_1D_RING = 3
    FABRIC_1D_NEIGHBOR_EXCHANGE = 1
    FABRIC_2D = 4
    FABRIC_2D_TORUS_XY = 7
    FABRIC_2D_TORUS_X = 5
    FABRIC_2D_TORUS_Y = 6
    CUSTOM = 8


class FabricTensixConfig(NativeEnum):
    """Whether worker cores help the ethernet cores with the fabric's traffic."""

    DISABLED = 0
    MUX = 1


class FabricReliabilityMode(NativeEnum):
    """What a missing link means when the fabric comes up: an error, or fewer links."""

    STRICT_INIT = 0
    RELAXED_INIT = 1
    DYNAMIC_RECONFIG = 2


class FabricUDMMode(NativeEnum):
    """Whether kernels reach remote memory through the fabric as if it were their own."""

    DISABLED = 0
    ENABLED = 1


class FabricManagerMode(NativeEnum):
    """Which parts of the fabric's life this process takes care of."""

    ENABLED = 0
    INIT_FABRIC = 1
    TERMINATE_FABRIC = 2
    DEFAULT = 3


class FabricType(NativeEnum):
    """Which axes of a mesh wrap around: X joins the ends of a row (E-W), Y those of a column (N-S)."""

    MESH = 1
    TORUS_X = 2
    TORUS_Y = 4
    TORUS_XY = 6

    def __int__(self) -> int:
        return int(self.value)

    def __or__(self, other: FabricType) -> FabricType | int:
        return self._combined(int(self) | int(other))

    def __and__(self, other: FabricType) -> FabricType | int:
        return self._combined(int(self) & int(other))

    @classmethod
    def _combined(cls, value: int) -> FabricType | int:
        """The member of this value, or the value where there is none."""
        return cls(value) if value in {int(member) for member in cls} else value

    @classmethod
    def of(cls, wraps_y: bool, wraps_x: bool) -> FabricType:
        return cls(2 * wraps_x + 4 * wraps_y or 1)

    @property
    def wraps(self) -> tuple[bool, bool]:
        """Whether (columns, rows) wrap: index 0 is the N-S axis, as in a mesh shape."""
        return bool(self.value & 4), bool(self.value & 2)


class RoutingDirection(NativeEnum):
    """Where a packet leaves a chip: a neighbour in the mesh, the third dimension, or nowhere (C: it is there)."""

    N = 0
    E = 1
    S = 2
    W = 3
    Z = 4
    C = 5
    NONE = 6

    @property
    def opposite(self) -> RoutingDirection:
        return _OPPOSITE.get(self, self)

    @property
    def axis(self) -> int | None:
        """The mesh axis it runs along: 0 for N and S, 1 for E and W."""
        return self.value % 2 if self.value < 4 else None


_OPPOSITE = {
    RoutingDirection.N: RoutingDirection.S,
    RoutingDirection.S: RoutingDirection.N,
    RoutingDirection.E: RoutingDirection.W,
    RoutingDirection.W: RoutingDirection.E,
}


class FabricRouterConfig:
    """Limits of the routers; None leaves the default of the active fabric."""

    def __init__(self) -> None:
        self.max_packet_payload_size_bytes: int | None = None

    def __repr__(self) -> str:
        return f"FabricRouterConfig(max_packet_payload_size_bytes={self.max_packet_payload_size_bytes})"


# How programs name a chip in the fabric.


@dataclass(frozen=True)
class MeshId:
    """The number of a mesh in the fabric."""

    value: int

    def __int__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"MeshId({self.value})"


@dataclass(frozen=True)
class FabricNodeId:
    """A chip as the fabric names it: its mesh, and its row-major index in the system mesh."""

    mesh_id: MeshId
    chip_id: int

    def __post_init__(self) -> None:
        if not isinstance(self.mesh_id, MeshId):
            checked_int("FabricNodeId", "mesh_id", self.mesh_id)
        checked_int("FabricNodeId", "chip_id", self.chip_id)

    def __repr__(self) -> str:
        return f"FabricNodeId(M{int(self.mesh_id)}, D{self.chip_id})"
