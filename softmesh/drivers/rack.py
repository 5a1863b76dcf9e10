"""Racks: software cards in one machine, cabled to a ring; what `open_mesh_device(drivers=...)` takes.

rack = byte_rack(4, faults={2: [Fault("run", FaultKind.HANG)]})
with open_mesh_device((2, 2), drivers=rack) as mesh: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from softmesh.drivers.byte_card import ByteCard, Fault
from softmesh.drivers.software_card import Cables, End, SoftwareCard
from softmesh.drivers.virtual_card import VirtualCard
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.runtime.torch_device import chosen_torch_device
from softmesh.systems.chip import P150, Chip

UP, DOWN = 0, 1  # the ports of a ring: to the card before, and to the one behind


class Rack:
    """`rack(index)` opens the card that the bus numbers so; one program owns a card at a time."""

    def __init__(self, serials: Mapping[int, str], make: Callable[[int, str], SoftwareCard]) -> None:
        self.serials = dict(serials)
        self._make = make
        self._opened: dict[int, SoftwareCard] = {}

    def __repr__(self) -> str:
        return f"Rack({', '.join(f'{index}: {serial}' for index, serial in self.serials.items())})"

    def __call__(self, index: int) -> SoftwareCard:
        if index not in self.serials:
            raise MeshError(f"there is no card {index} in this rack; it has {sorted(self.serials)}")
        opened = self._opened.get(index)
        if opened is not None and not opened.closed:
            raise MeshError(f"card {index} is open already: one program owns a card; close it first")
        card = self._opened[index] = self._make(index, self.serials[index])
        return card


def ring_of(serials: Sequence[str]) -> list[tuple[End, End]]:
    """Cables from each card to the next, and from the last to the first; two cards have one cable."""
    following = [*serials[1:], *serials[:1]] if len(serials) > 2 else serials[1:]
    return [(End(near, DOWN), End(far, UP)) for near, far in zip(serials, following, strict=False)]


def serial_of(number: int) -> str:
    return f"SM-{number:04d}"


def virtual_rack(cards: int | Iterable[int], *, chip: Chip = P150, device: torch.device | str | None = None) -> Rack:
    """Cards with these indexes (0, 1, ... for a number), in one ring in that order.

    Their memory is on `device`, or where SOFTMESH_DEVICE says.
    """
    where = torch.device(device) if device else chosen_torch_device()
    numbers = list(range(cards)) if isinstance(cards, int) else list(cards)
    serials = {number: serial_of(number) for number in numbers}
    cables = Cables(ring_of(list(serials.values())))
    return Rack(
        serials,
        lambda index, serial: VirtualCard(index, serial, chip=chip, cables=cables, device=where),
    )


def byte_rack(
    cards: int,
    *,
    chips: Mapping[int, Chip] | None = None,
    faults: Mapping[int, Sequence[Fault]] | None = None,
    blind_ports: Mapping[int, Sequence[int]] | None = None,
    without_cables: Sequence[int] = (),
    pcie_order: Sequence[int] | None = None,
) -> Rack:
    """Cards number 0, 1, ... in one ring; all that is planted goes by that number, which the serial tells.

    `without_cables` leaves out the cable behind each of these cards. `pcie_order` tells which card the bus calls
    0, 1, ...; by default it calls each by its number.
    """
    order = range(cards) if pcie_order is None else pcie_order
    if sorted(order) != list(range(cards)):
        raise ArgumentValueError(f"pcie_order must name each of {cards} cards once, got {list(order)}")
    ring = ring_of([serial_of(number) for number in range(cards)])
    cables = Cables([cable for number, cable in enumerate(ring) if number not in without_cables])
    numbers = {serial_of(number): number for number in range(cards)}

    def make(index: int, serial: str) -> ByteCard:
        number = numbers[serial]
        return ByteCard(
            index,
            serial,
            chip=(chips or {}).get(number, P150),
            cables=cables,
            faults=(faults or {}).get(number, ()),
            blind_ports=(blind_ports or {}).get(number, ()),
        )

    return Rack({index: serial_of(number) for index, number in enumerate(order)}, make)
