"""Which chip of the data sheets sits on a board, with the cores that harvesting left."""

from __future__ import annotations

from collections.abc import Iterable

from softmesh.hardware import Arch
from softmesh.systems.chip import BLACKHOLE, CHIPS, WORMHOLE, Chip

_KIND_OF_BOARD = {
    "ubb": "wh_galaxy",
    "ubb_wormhole": "wh_galaxy",
    "galaxy": "wh_galaxy",
    "ubb_blackhole": "bh_galaxy",
}
_ROWS_AS_MADE = 10  # Wormhole loses rows of Tensix cores
_COLUMNS_AS_MADE = 14  # Blackhole loses columns


def chip_kind(arch: Arch, board: str, harvest_masks: Iterable[int] = ()) -> Chip:
    """The chip all of a machine's chips pass for: the one with the most rows or columns harvested.

    Masks that are all 0 say nothing (hand-made descriptors have them): then the data sheet holds.
    """
    kind = CHIPS.get(_KIND_OF_BOARD.get(board, board))
    if kind is None or kind.arch is not arch:
        kind = WORMHOLE if arch is Arch.WORMHOLE_B0 else BLACKHOLE
    lost = max((bin(mask).count("1") for mask in harvest_masks), default=0)
    return _harvested(kind, lost) if lost else kind


def harvest_mask(chip: Chip) -> int:
    """A mask that `chip_kind` reads back as this chip's grid."""
    columns, rows = chip.tensix_grid
    lost = _ROWS_AS_MADE - rows if chip.arch is Arch.WORMHOLE_B0 else _COLUMNS_AS_MADE - columns
    return (1 << lost) - 1


def _harvested(kind: Chip, lost: int) -> Chip:
    columns, rows = kind.tensix_grid
    if kind.arch is Arch.WORMHOLE_B0:
        grid = columns, max(1, _ROWS_AS_MADE - lost)
    else:
        grid = max(1, _COLUMNS_AS_MADE - lost), rows
    worker_columns, worker_rows = kind.worker_grid
    workers = worker_columns + grid[0] - columns, max(1, worker_rows + grid[1] - rows)
    return kind._replace(tensix_grid=grid, worker_grid=workers)
