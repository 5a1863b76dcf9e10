"""Dispatch cores (those that feed programs to the others), and the sub-devices a device is divided into."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.errors import MeshError
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.fabric_config import FabricTensixConfig


class DispatchCoreType(NativeEnum):
    """Worker cores dispatch at the cost of compute cores; ethernet cores leave the compute grid whole."""

    WORKER = 0
    ETH = 1


class DispatchCoreAxis(NativeEnum):
    """Whether dispatch takes a row or a column of the grid."""

    ROW = 0
    COL = 1


@dataclass(frozen=True)
class DispatchCoreConfig:
    """Where dispatch runs; a field that is None is chosen by the machine (see runtime.dispatch_choice)."""

    type: DispatchCoreType | None = None
    axis: DispatchCoreAxis | None = None
    fabric_tensix_config: FabricTensixConfig | None = None

    def __post_init__(self) -> None:
        if self.type is DispatchCoreType.ETH and self.axis is DispatchCoreAxis.COL:
            raise MeshError(
                "COL axis is not supported for ETH dispatch core type; "
                "take DispatchCoreAxis.ROW, or DispatchCoreType.WORKER"
            )

    def resolved(self, type: DispatchCoreType, axis: DispatchCoreAxis) -> DispatchCoreConfig:
        """The same, with a machine's defaults for what was left open; ethernet dispatch is always by row.

        So a column that is asked for takes worker cores, whatever the machine would have chosen.
        """
        chosen = self.type or (DispatchCoreType.WORKER if self.axis is DispatchCoreAxis.COL else type)
        fallback = DispatchCoreAxis.ROW if chosen is DispatchCoreType.ETH else axis
        return DispatchCoreConfig(chosen, self.axis or fallback, self.fabric_tensix_config)


@dataclass(frozen=True)
class SubDeviceId:
    """A part of a device's cores, by its number in the loaded sub-device manager."""

    id: int

    def __repr__(self) -> str:
        return f"SubDeviceId({self.id})"
