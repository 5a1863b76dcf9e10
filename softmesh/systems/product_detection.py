"""Detects hardware from what a host reports: boards, tray positions, the kind of chip, and the product (cluster type).

The product follows from the boards, their number and, for N300 boards, their cabling.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from softmesh.hardware import Arch, ClusterType
from softmesh.systems.chip import BLACKHOLE, CHIPS, WORMHOLE, Chip
from softmesh.systems.machine import Asic, Link

# Which chips share a board: those that a host can only have together.


CHIPS_OF_BOARD = {"n300": 2, "p300": 2}  # of boards that come whole; a Galaxy's trays do not


def boards_of(asics: Iterable[Asic]) -> list[list[Asic]]:
    """The boards of one host, in the order of their first chips; a Galaxy's trays count as boards.

    Trays tell where they are known. Chips of one N300 carry its serial number in the low half of their
    unique ids; where that does not pair them, the n-th chip on PCIe goes with the n-th remote one.
    """
    boards: dict[object, list[Asic]] = {}
    for asic in asics:
        boards.setdefault(_board_key(asic), []).append(asic)
    pairs = [board for board in boards.values() if _is_whole(board)]
    rest = [asic for board in boards.values() if not _is_whole(board) for asic in board]
    return sorted([*pairs, *_paired_in_order(rest)], key=lambda board: board[0].id)


def _board_key(asic: Asic) -> object:
    if asic.tray:
        return asic.board, asic.tray
    return asic.board, asic.unique_id & 0xFFFFFFFF if asic.board in CHIPS_OF_BOARD else asic.id


def _is_whole(board: list[Asic]) -> bool:
    return len(board) == CHIPS_OF_BOARD.get(board[0].board, len(board))


def _paired_in_order(asics: list[Asic]) -> list[list[Asic]]:
    local = [asic for asic in asics if asic.pcie is not None]
    remote = [asic for asic in asics if asic.pcie is None]
    if len(local) != len(remote):
        return [[asic] for asic in asics]
    return [sorted(pair, key=lambda asic: asic.id) for pair in zip(local, remote, strict=True)]


# Tray and location of a chip, as the runtime works them out from what the host reports.
#
# Galaxy trays show in the PCIe bus id: its high nibble names the tray, its low nibble the place on it. Other boards
# have no such sign. On a real host a table of motherboards gives their trays; a descriptor file knows no motherboard,
# and the runtime then puts every chip on tray 0.


UBB_BOARDS = {"ubb": Arch.WORMHOLE_B0, "ubb_wormhole": Arch.WORMHOLE_B0, "ubb_blackhole": Arch.BLACKHOLE}

# High nibble of the bus id of trays 1, 2, 3, 4.
_TRAY_NIBBLES = {Arch.WORMHOLE_B0: (0xC, 0x8, 0x0, 0x4), Arch.BLACKHOLE: (0x0, 0x4, 0xC, 0x8)}

UNKNOWN_POSITION = (0, 0)


def ubb_position(arch: Arch, bus_id: int) -> tuple[int, int]:
    """(tray, location) of a Galaxy chip.

    >>> ubb_position(Arch.WORMHOLE_B0, 0xC5)
    (1, 5)
    """
    nibbles = _TRAY_NIBBLES[arch]
    nibble, location = divmod(bus_id, 16)
    return (nibbles.index(nibble) + 1, location) if nibble in nibbles else UNKNOWN_POSITION


def ubb_bus_id(arch: Arch, tray: int, location: int) -> int:
    """The bus id that `ubb_position` reads back."""
    return _TRAY_NIBBLES[arch][tray - 1] * 16 + location


def position(arch: Arch, board: str, bus_id: int | None, location: int | None, is_remote: bool) -> tuple[int, int]:
    """(tray, location); `location` is the descriptor's own statement, where it makes one."""
    if board in UBB_BOARDS:
        tray, place = UNKNOWN_POSITION if bus_id is None else ubb_position(arch, bus_id)
    else:
        tray, place = 0, int(is_remote)
    return tray, place if location is None else location


# Which chip of the data sheets sits on a board, with the cores that harvesting left.


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


_BY_COUNT = {
    "p100": {1: ClusterType.P100},
    "p150": {
        1: ClusterType.P150,
        2: ClusterType.P150_X2,
        4: ClusterType.P150_X4,
        8: ClusterType.P150_X8,
    },
    "p300": {2: ClusterType.P300, 4: ClusterType.P300_X2},
}
_BY_BOARD = {
    "n150": ClusterType.N150,
    "ubb": ClusterType.GALAXY,
    "ubb_wormhole": ClusterType.GALAXY,
    "ubb_blackhole": ClusterType.BLACKHOLE_GALAXY,
}


def detect(asics: Mapping[int, Asic] | Iterable[Asic], links: Iterable[Link]) -> ClusterType:
    """The type each host's runtime would find. It sees its own chips only; hosts that differ make CUSTOM."""
    chips = list(asics.values() if isinstance(asics, Mapping) else asics)
    by_host: dict[str, list[Asic]] = {}
    for chip in chips:
        by_host.setdefault(chip.host, []).append(chip)
    known = list(links)
    found = {_of_one_host(host_chips, known) for host_chips in by_host.values()}
    return found.pop() if len(found) == 1 else ClusterType.CUSTOM


def _of_one_host(chips: Collection[Asic], links: Collection[Link]) -> ClusterType:
    boards = {chip.board for chip in chips}
    if "galaxy" in boards:
        return ClusterType.TG
    if len(boards) != 1:
        return ClusterType.CUSTOM
    board = boards.pop()
    if board == "n300":
        return _of_n300s(chips, links)
    if board in _BY_BOARD:
        return _BY_BOARD[board]
    return _BY_COUNT.get(board, {}).get(len(chips), ClusterType.CUSTOM)


def _of_n300s(chips: Collection[Asic], links: Collection[Link]) -> ClusterType:
    near: dict[int, set[int]] = {chip.id: set() for chip in chips}
    for link in links:
        if link.a.chip in near and link.b.chip in near:
            near[link.a.chip].add(link.b.chip)
            near[link.b.chip].add(link.a.chip)
    if len(chips) == 8 and all(len(near[chip.id]) == (2 if chip.pcie is None else 3) for chip in chips):
        return ClusterType.T3K
    if len(chips) == 4 and all(len(near[chip.id]) == 2 for chip in chips):
        return ClusterType.N300_2x2
    return ClusterType.N300
