"""Which chips share a board: those that a host can only have together."""

from __future__ import annotations

from collections.abc import Iterable

from softmesh.systems.machine import Asic

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
