"""What the host API asks a mesh about its chips, which are all alike, and about its rows and columns."""

from __future__ import annotations

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.mesh import MeshShape
from softmesh.systems.chip import Chip


class ChipQueries:
    def _chip(self) -> Chip:
        raise NotImplementedError

    def _grid(self) -> MeshShape:
        raise NotImplementedError

    def _worker_grid(self) -> tuple[int, int]:
        raise NotImplementedError

    def num_devices(self) -> int:
        return self._grid().mesh_size()

    def num_rows(self) -> int:
        return self._side("num_rows", 0)

    def num_cols(self) -> int:
        return self._side("num_cols", 1)

    def _side(self, method: str, axis: int) -> int:
        if self._grid().dims() != 2:
            raise MeshError(
                f"{method}: {self._grid()} has {self._grid().dims()} axes: ask mesh.shape for them."
            )
        return int(self._grid()[axis])

    def num_dram_channels(self) -> int:
        return self._chip().dram_banks

    def dram_size_per_channel(self) -> int:
        return self._chip().dram_bank_bytes

    def l1_size_per_core(self) -> int:
        return self._chip().l1_bytes

    def get_clock_rate_mhz(self) -> int:
        return round(self._chip().clock_ghz * 1000)

    def grid_size(self) -> CoreCoord:
        """Of all cores: Tensix, DRAM, Ethernet and PCIe."""
        return CoreCoord(*self._chip().noc_grid)

    def logical_grid_size(self) -> CoreCoord:
        """Of the Tensix cores, those that dispatch among them."""
        return CoreCoord(*self._chip().tensix_grid)

    def worker_cores(self) -> CoreRangeSet:
        x, y = self._worker_grid()
        return CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(x - 1, y - 1))])

    def num_worker_cores(self) -> int:
        x, y = self._worker_grid()
        return x * y
