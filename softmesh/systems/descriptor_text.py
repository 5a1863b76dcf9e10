"""A machine, or one host of it, written as a cluster descriptor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from softmesh.errors import MeshError, did_you_mean
from softmesh.systems.boards import boards_of
from softmesh.systems.chip_kind import harvest_mask
from softmesh.systems.machine import Asic, Machine, Port
from softmesh.systems.positions import UBB_BOARDS, position, ubb_bus_id


def descriptor_text(machine: Machine, host: str | None = None) -> str:
    """YAML that `load_descriptor` reads back to the same chips and links; `host`: the first one.

    Chips get their host's own numbers. Links to other hosts are written as links to remote devices. Where
    a tray does not follow from the board, `asic_trays` states it: a key of softmesh's, others pass over it.
    """
    return "\n".join(_Writer(machine, machine.hosts[0] if host is None else host).lines()) + "\n"


class _Writer:
    def __init__(self, machine: Machine, host: str) -> None:
        if host not in machine.hosts:
            raise MeshError(
                f"{machine.name} has no host {host!r}; its hosts: {', '.join(machine.hosts)}."
                f"{did_you_mean(host, machine.hosts)}"
            )
        self.machine = machine
        self.asics = [machine.asics[id] for id in machine.chips_of(host)]
        several = len(machine.hosts) > 1
        self.local = {asic.id: place if several else asic.id for place, asic in enumerate(self.asics)}

    def lines(self) -> Iterator[str]:
        asics = self.asics
        bus_ids = {asic.id: bus_id for asic in asics if (bus_id := _bus_id(self.machine, asic)) is not None}
        yield from self.table("arch", ((asic.id, self.machine.chip.arch_name) for asic in asics))
        yield "chips: {}"
        yield from self.table("chip_unique_ids", ((asic.id, asic.unique_id) for asic in asics))
        yield from _listed("ethernet_connections", self.links())
        yield from _listed("ethernet_connections_to_remote_devices", self.links_outside())
        yield from _listed(
            "chips_with_mmio",
            (f"{self.local[asic.id]}: {asic.pcie}" for asic in asics if asic.pcie is not None),
        )
        yield from self.harvesting()
        yield from self.table("chip_to_boardtype", ((asic.id, asic.board) for asic in asics))
        yield from self.table("chip_to_bus_id", ((id, f"0x{bus_id:02x}") for id, bus_id in bus_ids.items()))
        yield from _listed("boards", self.boards())
        yield from self.table("asic_locations", ((asic.id, asic.location) for asic in asics))
        trays = [
            (asic.id, asic.tray)
            for asic in asics
            if asic.tray != self.tray_by_rule(asic, bus_ids.get(asic.id))
        ]
        if trays:
            yield from self.table("asic_trays", trays)

    def tray_by_rule(self, asic: Asic, bus_id: int | None) -> int:
        return position(self.machine.chip.arch, asic.board, bus_id, asic.location, asic.pcie is None)[0]

    def table(self, key: str, entries: Iterable[tuple[int, object]]) -> Iterator[str]:
        written = [f"  {self.local[id]}: {value}" for id, value in entries]
        yield from [f"{key}:", *written] if written else [f"{key}: {{}}"]

    def end(self, port: Port) -> str:
        return f"{{chip: {self.local[port.chip]}, chan: {port.channel}}}"

    def links(self) -> Iterator[str]:
        for link in self.machine.links:
            if link.a.chip in self.local and link.b.chip in self.local:
                yield f"[{self.end(link.a)}, {self.end(link.b)}]"

    def links_outside(self) -> Iterator[str]:
        for near, unique_id, channel in self.machine.outside:
            if near.chip in self.local:
                yield f"[{self.end(near)}, {{remote_chip_id: {unique_id}, chan: {channel}}}]"
        for link in self.machine.links:
            for near, far in ((link.a, link.b), (link.b, link.a)):
                if near.chip in self.local and far.chip not in self.local:
                    unique_id = self.machine.asics[far.chip].unique_id
                    yield f"[{self.end(near)}, {{remote_chip_id: {unique_id}, chan: {far.channel}}}]"

    def harvesting(self) -> Iterator[str]:
        mask = harvest_mask(self.machine.chip)
        return self.table(
            "harvesting",
            ((asic.id, f"{{noc_translation: true, harvest_mask: {mask}}}") for asic in self.asics),
        )

    def boards(self) -> Iterator[str]:
        for number, board in enumerate(boards_of(self.asics), start=1):
            chips = ", ".join(str(self.local[asic.id]) for asic in board)
            yield f"[{{board_id: {number}}}, {{board_type: {board[0].board}}}, {{chips: [{chips}]}}]"


def _bus_id(machine: Machine, asic: Asic) -> int | None:
    """Only Galaxy trays show in bus ids; those of other boards are the host's affair."""
    if asic.board in UBB_BOARDS and 1 <= asic.tray <= 4 and asic.location < 16:
        return ubb_bus_id(machine.chip.arch, asic.tray, asic.location)
    return None


def _listed(key: str, rows: Iterable[str]) -> Iterator[str]:
    written = [f"  - {row}" for row in rows]
    yield from [f"{key}:", *written] if written else [f"{key}: []"]
