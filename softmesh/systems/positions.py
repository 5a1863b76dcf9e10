"""Tray and location of a chip, as the runtime works them out from what the host reports.

Galaxy trays show in the PCIe bus id: its high nibble names the tray, its low nibble the place on it.
Other boards have no such sign. On a real host a table of motherboards gives their trays; a descriptor
file knows no motherboard, and the runtime then puts every chip on tray 0.
"""

from __future__ import annotations

from softmesh.hardware import Arch

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


def position(
    arch: Arch, board: str, bus_id: int | None, location: int | None, is_remote: bool
) -> tuple[int, int]:
    """(tray, location); `location` is the descriptor's own statement, where it makes one."""
    if board in UBB_BOARDS:
        tray, place = UNKNOWN_POSITION if bus_id is None else ubb_position(arch, bus_id)
    else:
        tray, place = 0, int(is_remote)
    return tray, place if location is None else location
