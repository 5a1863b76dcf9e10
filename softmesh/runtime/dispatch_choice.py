"""`ttnn.DispatchCoreConfig`: what is left open is chosen at once, by the machine there is."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.errors import MeshError
from softmesh.fabric.system import current_system
from softmesh.hardware import dispatch_cores
from softmesh.hardware.dispatch_cores import DispatchCoreAxis
from softmesh.hardware.enums import Arch
from softmesh.hardware.fabric_config import FabricTensixConfig


@dataclass(frozen=True)
class DispatchCoreConfig(dispatch_cores.DispatchCoreConfig):
    """Where dispatch runs.

    A column of worker cores on Blackhole, unless the fabric's MUX takes it; else a row, of ethernet cores where
    chips have some to spare.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        chip = current_system().chip
        has_mux = self.fabric_tensix_config is FabricTensixConfig.MUX
        if chip.arch is Arch.BLACKHOLE and self.axis is DispatchCoreAxis.ROW and not has_mux:
            raise MeshError(
                "ROW dispatch core axis is not supported for blackhole arch unless fabric tensix MUX is enabled; "
                "take DispatchCoreAxis.COL, or fabric_tensix_config=FabricTensixConfig.MUX."
            )
        axis = DispatchCoreAxis.ROW if has_mux else chip.dispatch_axis
        chosen = self.resolved(chip.default_dispatch, axis)
        object.__setattr__(self, "type", chosen.type)
        object.__setattr__(self, "axis", chosen.axis)
