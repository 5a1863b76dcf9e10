"""What the host API asks a mesh about its chips, which are all alike, and about its rows and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.fabric.system import System
from softmesh.mesh import MeshShape


class ChipQueries:
    """Of a MeshDevice, which has the shape and the system."""

    _shape: MeshShape
    _system: System

    if TYPE_CHECKING:

        def _worker_grid(self) -> tuple[int, int]: ...

    def num_devices(self) -> int:
        return self._shape.mesh_size()

    def num_rows(self) -> int:
        return self._side("num_rows", 0)

    def num_cols(self) -> int:
        return self._side("num_cols", 1)

    def _side(self, method: str, axis: int) -> int:
        if self._shape.dims() != 2:
            raise MeshError(
                f"{method}: {self._shape} has {self._shape.dims()} axes: ask mesh.shape for them."
            )
        return int(self._shape[axis])

    def num_dram_channels(self) -> int:
        return self._system.chip.dram_banks

    def dram_size_per_channel(self) -> int:
        return self._system.chip.dram_bank_bytes

    def l1_size_per_core(self) -> int:
        return self._system.chip.l1_bytes

    def get_clock_rate_mhz(self) -> int:
        return round(self._system.chip.clock_ghz * 1000)

    def grid_size(self) -> CoreCoord:
        """Of all cores: Tensix, DRAM, Ethernet and PCIe."""
        return CoreCoord(*self._system.chip.noc_grid)

    def logical_grid_size(self) -> CoreCoord:
        """Of the Tensix cores, those that dispatch among them."""
        return CoreCoord(*self._system.chip.tensix_grid)

    def worker_cores(self) -> CoreRangeSet:
        x, y = self._worker_grid()
        return CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(x - 1, y - 1))])

    def num_worker_cores(self) -> int:
        x, y = self._worker_grid()
        return x * y
