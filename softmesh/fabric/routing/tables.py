"""Routing tables inside a mesh: where a packet goes next, for every pair of chips at once.

Rows first: N or S to the row of the destination, then E or W. A wrapped axis is taken the shorter way;
at equal length N wins over S and E over W. In 1-D there is one axis to a packet and no turn.
Knows shapes and missing links; knows nothing of planes, machines or other meshes.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from softmesh.fabric.mesh_graph import E, LogicalMesh, N, S, W
from softmesh.fabric.settings import ONE_DIMENSIONAL
from softmesh.hardware import FabricConfig, RoutingDirection

Table = npt.NDArray[np.int8]

HERE = RoutingDirection.C.value
NOWHERE = RoutingDirection.NONE.value

# What routers on the chip call the directions.
ETH_DIRECTION = {E: 0, W: 1, N: 2, S: 3, RoutingDirection.Z: 4}

_BACK_AND_FORTH = ((N, S), (W, E))  # by axis: towards smaller and towards larger coordinates
_WINS_A_TIE = (N, E)


def axis_table(length: int, axis: int, wraps: bool) -> Table:
    """Next direction from each coordinate to each, along one axis; HERE on the diagonal."""
    ahead = np.arange(length)[None, :] - np.arange(length)[:, None]
    back, forth = _BACK_AND_FORTH[axis]
    goes_forth = ahead > 0
    if wraps:
        around = ahead % length
        goes_forth = around * 2 < length
        if _WINS_A_TIE[axis] is forth:
            goes_forth |= around * 2 == length
    table = np.where(goes_forth, forth.value, back.value).astype(np.int8)
    np.fill_diagonal(table, HERE)
    return table


def neighbour_table(mesh: LogicalMesh) -> npt.NDArray[np.int64]:
    """For each chip the neighbour in each of the directions N, E, S, W (its own number where there is none)."""
    rows, columns = np.divmod(np.arange(mesh.size), mesh.shape[1])
    table = np.empty((mesh.size, 4), np.int64)
    for direction, down, right in ((N, -1, 0), (E, 0, 1), (S, 1, 0), (W, 0, -1)):
        row, column = rows + down, columns + right
        if mesh.wraps(0):
            row = row % mesh.shape[0]
        if mesh.wraps(1):
            column = column % mesh.shape[1]
        inside = (row >= 0) & (row < mesh.shape[0]) & (column >= 0) & (column < mesh.shape[1])
        table[:, direction.value] = np.where(inside, row * mesh.shape[1] + column, np.arange(mesh.size))
    return table


def direction_table(
    mesh: LogicalMesh, config: FabricConfig, missing: Collection[tuple[int, RoutingDirection]] = ()
) -> Table:
    """`table[src, dst]`: the RoutingDirection value of the first hop, HERE, or NOWHERE.

    `missing` names chips and directions without a link: a route that needs one is NOWHERE from its source
    on, for the sender writes the whole path and nobody on the way looks for another.
    """
    rows, columns = mesh.shape
    vertical = axis_table(rows, 0, mesh.wraps(0))[:, None, :, None]
    horizontal = axis_table(columns, 1, mesh.wraps(1))[None, :, None, :]
    table = np.where(vertical != HERE, vertical, horizontal).astype(np.int8)
    if config in ONE_DIMENSIONAL:
        table[(vertical != HERE) & (horizontal != HERE)] = NOWHERE
    table = table.reshape(mesh.size, mesh.size)
    if missing:
        table[~_is_whole(mesh, missing)] = NOWHERE
    if config is FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE:
        _keep_adjacent(mesh, table)
    return table


def _keep_adjacent(mesh: LogicalMesh, table: Table) -> None:
    reached = np.zeros(table.shape, bool)
    np.put_along_axis(reached, neighbour_table(mesh), True, axis=1)
    table[~reached & (table != HERE)] = NOWHERE


def _is_whole(mesh: LogicalMesh, missing: Collection[tuple[int, RoutingDirection]]) -> npt.NDArray[np.bool_]:
    """Whether every link of the route from each chip to each is there."""
    rows, columns = mesh.shape
    linked = np.ones((mesh.size, 4), bool)
    for chip, direction in missing:
        linked[chip, direction.value] = False
    grid = linked.reshape(rows, columns, 4)
    down = _line_is_whole(grid.swapaxes(0, 1), axis_table(rows, 0, mesh.wraps(0)), 0)  # column, row, row
    across = _line_is_whole(grid, axis_table(columns, 1, mesh.wraps(1)), 1)  # row, column, column
    # (source row, source column, row, column): down the source's column, then across the row of the goal
    whole = down.transpose(1, 0, 2)[:, :, :, None] & across.transpose(1, 0, 2)[None, :, :, :]
    return whole.reshape(mesh.size, mesh.size)


def _line_is_whole(linked: npt.NDArray[np.bool_], table: Table, axis: int) -> npt.NDArray[np.bool_]:
    """The same along one axis: `linked[line, place, direction]` gives `[line, source, goal]`."""
    length = len(table)
    places, goals = np.meshgrid(np.arange(length), np.arange(length), indexing="ij")
    whole = np.ones((len(linked), length, length), bool)
    _, forth = _BACK_AND_FORTH[axis]
    for _ in range(length):
        step = table[places, goals]
        moving = step != HERE
        whole &= linked[:, places, np.where(moving, step, 0)] | ~moving
        places = np.where(moving, (places + np.where(step == forth.value, 1, -1)) % length, places)
    return whole
