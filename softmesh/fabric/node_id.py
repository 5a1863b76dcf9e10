"""How programs name a chip in the fabric."""

from __future__ import annotations

from dataclasses import dataclass


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

    def __repr__(self) -> str:
        return f"FabricNodeId(M{int(self.mesh_id)}, D{self.chip_id})"
