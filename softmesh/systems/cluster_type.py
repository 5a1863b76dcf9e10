"""Which product a set of chips is, by its boards, their number and, for N300 boards, their cabling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from softmesh.hardware import ClusterType
from softmesh.systems.machine import Asic, Link

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
