"""Core assignment of moe_compute: which cores of a chip combine, tilize and mux. Results never depend on it.

TT-NN does not document its choice; programs only pass it on. Here combining takes the last cores of the grid,
tilizing the first of those that are left, each apart from the cores that carry the fabric's traffic.
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
    return free[-rows * columns :], free[: -rows * columns]


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
    lambda combining, others: others[0],
)
get_moe_worker_mcast_bounding_box = _question(
    "get_moe_worker_mcast_bounding_box",
    "The smallest rectangle around all cores that take part.",
    lambda combining, others: CoreRangeSet([CoreRange(core, core) for core in (*combining, *others)]).bounding_box(),
)
