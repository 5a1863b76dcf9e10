"""Core assignment of moe_compute: which cores of a chip combine, tilize and mux. Results never depend on it.

TT-NN does not document its choice; programs only pass it on. As there, combining takes a rectangle as far to the right
as there is room, and tilizing happens in the last rows, each apart from the cores that carry the fabric's traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from softmesh.arguments import checked, checked_int, reject_unknown_keywords
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.runtime.device import MeshDevice, checked_open

_Answer = TypeVar("_Answer")
_NO_CORES = CoreRangeSet([])


def _chosen(
    where: str, mesh: object, token_cores: object, data_cores: object, hidden: object, mux: object
) -> tuple[list[CoreCoord], list[CoreCoord]]:
    """The cores that combine, and all others that are free."""
    device = checked_open(where, "mesh_device", mesh)
    rows = checked_int(where, "combine_token_parallel_cores", token_cores)
    columns = checked_int(where, "combine_data_parallel_cores", data_cores)
    width = checked_int(where, "hidden_size", hidden)
    taken = checked(where, "mux_core_range_set", mux, CoreRangeSet, "a ttnn.CoreRangeSet")
    if rows < 1 or columns < 1 or width < 1 or width % columns:
        raise MeshError(
            f"{where}: {columns} cores must be able to share hidden_size={width} equally, for each of "
            f"combine_token_parallel_cores={rows}; all 1 or more."
        )
    grid = device.compute_with_storage_grid_size()
    free = [
        core
        for core in CoreRange((0, 0), (grid.x - 1, grid.y - 1)).cores(row_wise=True)  # type: ignore[arg-type]
        if not taken.contains(core)
    ]
    if len(free) <= rows * columns:
        raise MeshError(
            f"{where}: {rows} x {columns} cores for combining and one for tilizing are more than the {len(free)} of "
            f"the {grid.x} x {grid.y} grid that mux_core_range_set leaves."
        )
    combining = _rectangle(set(free), rows, columns, grid) or free[-rows * columns :]
    return combining, [core for core in free if core not in combining]


def _rectangle(free: set[CoreCoord], rows: int, columns: int, grid: CoreCoord) -> list[CoreCoord] | None:
    """So many free cores, side by side: as far to the right as they fit, then as far up."""
    for x in range(grid.x - columns, -1, -1):
        for y in range(grid.y - rows + 1):
            cores = [CoreCoord(x + right, y + down) for down in range(rows) for right in range(columns)]
            if free.issuperset(cores):
                return cores
    return None


def _question(
    name: str, doc: str, answer: Callable[[list[CoreCoord], list[CoreCoord]], _Answer]
) -> Callable[..., _Answer]:
    def call(
        mesh_device: MeshDevice,
        combine_token_parallel_cores: int,
        combine_data_parallel_cores: int,
        hidden_size: int,
        mux_core_range_set: CoreRangeSet = _NO_CORES,
    ) -> _Answer:
        shares = (combine_token_parallel_cores, combine_data_parallel_cores, hidden_size)
        return answer(*_chosen(name, mesh_device, *shares, mux_core_range_set))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return reject_unknown_keywords(call)


get_moe_combine_cores = _question(
    "get_moe_combine_cores",
    "The cores that send answers back, `combine_token_parallel_cores * combine_data_parallel_cores` of them.",
    lambda combining, others: combining,
)
get_moe_tilize_drain_core = _question(
    "get_moe_tilize_drain_core",
    "The core on which the metadata of dispatched tokens is collected.",
    lambda combining, others: others[-1],
)
get_moe_worker_mcast_bounding_box = _question(
    "get_moe_worker_mcast_bounding_box",
    "The smallest rectangle around all cores that take part.",
    lambda combining, others: CoreRangeSet([CoreRange(core, core) for core in (*combining, *others)]).bounding_box(),
)
