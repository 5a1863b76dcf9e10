"""Parses the cluster descriptor of one host: chips under the host's own numbers, and their links.

Strict about what it uses and deaf to the rest: newer files bring keys that nothing here needs, older ones lack bus
ids, locations or board types.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from softmesh.errors import did_you_mean
from softmesh.hardware import Arch
from softmesh.input_files.text_files import FileError
from softmesh.input_files.yaml_files import Rows, Table, Text, Value, YamlFields, is_nothing, shown
from softmesh.systems.machine import Asic, Link, OutsideLink, Port
from softmesh.systems.product_detection import position

MAX_CHIPS = 4096
MAX_UNIQUE_ID = (1 << 64) - 1
CHANNELS = {Arch.WORMHOLE_B0: 16, Arch.BLACKHOLE: 14}

_ARCHES = {"wormhole_b0": Arch.WORMHOLE_B0, "wormhole": Arch.WORMHOLE_B0, "blackhole": Arch.BLACKHOLE}
_BOARDS = ("n150", "n300", "p100", "p150", "p300", "ubb_blackhole", "ubb_wormhole", "ubb", "galaxy")


@dataclass(frozen=True)
class HostDescription:
    path: Path
    arch: Arch
    harvest_masks: tuple[int, ...]
    asics: dict[int, Asic]
    links: tuple[Link, ...]
    outside: tuple[OutsideLink, ...]


def described(path: Path, document: Table) -> HostDescription:
    return _Reader(path, document).description()


class _Reader(YamlFields):
    def __init__(self, path: Path, document: Table) -> None:
        super().__init__(path)
        self.document = document
        self.arch, self.chips = self.read_arch()
        self.known = frozenset(self.chips)

    def description(self) -> HostDescription:
        return HostDescription(
            self.path,
            self.arch,
            tuple(self.read_harvest_masks()),
            self.read_asics(),
            tuple(self.read_links()),
            tuple(self.read_outside()),
        )

    def chip_table(self, key: str) -> Table:
        value = self.document.get(key)
        if value is None or is_nothing(value):
            return Table()
        return self.table(value, f"{key}: expected a table with one entry per chip")

    def rows_of(self, key: str) -> Rows:
        value = self.document.get(key)
        return Rows() if value is None or is_nothing(value) else self.rows(value, f"{key}: expected a list")

    def chip(self, value: Value, what: str) -> int:
        number = self.number(value, what, MAX_UNIQUE_ID)
        if number not in self.known:
            raise self.wrong(value, f"{what}: there is no chip {number}; `arch` lists {_ranges(self.chips)}")
        return number

    def per_chip(self, key: str, limit: int) -> dict[int, int]:
        entries = self.chip_table(key)
        return {
            self.chip(chip, key): self.number(value, f"{key} of chip {chip}", limit)
            for chip, value in entries.entries()
        }

    # Chips

    def read_arch(self) -> tuple[Arch, tuple[int, ...]]:
        entries = self.chip_table("arch")
        if not entries:
            keys = ", ".join(list(self.document)[:8]) or "nothing"
            raise FileError(self.path, f"no `arch` table, so no chips; a cluster descriptor has one (found {keys})")
        if len(entries) > MAX_CHIPS:
            raise self.wrong(entries, f"arch: {len(entries)} chips; at most {MAX_CHIPS} are taken")
        names: dict[Arch, Value] = {}
        chips: list[int] = []
        for chip, name in entries.entries():
            chips.append(self.number(chip, "arch", MAX_CHIPS - 1))
            names.setdefault(self.one_arch(chip, name), name)
        if len(names) > 1:
            first, second = list(names.values())[:2]
            raise self.wrong(
                second,
                f"arch: {second} and {first} in one cluster; all chips of a host have one architecture",
            )
        if len(set(chips)) < len(chips):
            raise self.wrong(entries, "arch: one chip is there twice under two spellings of its number")
        return next(iter(names)), tuple(sorted(chips))

    def one_arch(self, chip: str, name: Value) -> Arch:
        known = _ARCHES.get(str(name).lower()) if isinstance(name, Text) else None
        if known is None:
            near = did_you_mean(str(name).lower(), _ARCHES) if isinstance(name, Text) else ""
            raise self.wrong(
                name,
                f"arch of chip {chip}: {shown(name)} is not modelled; wormhole_b0 and blackhole are.{near}",
            )
        return known

    def read_asics(self) -> dict[int, Asic]:
        host = self.path.name
        unique_ids = self.read_unique_ids()
        pcie = self.read_pcie()
        boards = self.read_boards()
        bus_ids = self.per_chip("chip_to_bus_id", 0xFFFF)
        locations = self.per_chip("asic_locations", 255)
        trays = self.per_chip("asic_trays", 255)
        asics = {}
        for chip in self.chips:
            board = boards.get(chip, "unknown")
            tray, location = position(self.arch, board, bus_ids.get(chip), locations.get(chip), chip not in pcie)
            asics[chip] = Asic(chip, unique_ids[chip], host, trays.get(chip, tray), location, board, pcie.get(chip))
        return asics

    def read_harvest_masks(self) -> Iterator[int]:
        for chip, facts in self.chip_table("harvesting").entries():
            what = f"harvesting of chip {chip}"
            self.chip(chip, "harvesting")
            masks = self.table(facts, f"{what}: expected masks by name")
            if "harvest_mask" in masks:
                yield self.number(masks["harvest_mask"], f"{what}: harvest_mask", 0xFFFFFFFF)

    def read_unique_ids(self) -> dict[int, int]:
        """Files of simple cards may leave them out: then the host's name makes them up."""
        given = self.per_chip("chip_unique_ids", MAX_UNIQUE_ID)
        made_up = zlib.crc32(self.path.name.encode()) << 32
        ids = {chip: given.get(chip, made_up | chip) for chip in self.chips}
        if len(set(ids.values())) < len(ids):
            raise self.wrong(self.chip_table("chip_unique_ids"), "chip_unique_ids: two chips have one unique id")
        return ids

    def read_pcie(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for row in self.rows_of("chips_with_mmio"):
            entries = row if isinstance(row, Table) else Table({row: row}) if isinstance(row, Text) else None
            if entries is None:
                raise self.wrong(row, f"chips_with_mmio: expected `chip: PCIe number`, found {shown(row)}")
            for chip, number in entries.entries():
                found[self.chip(chip, "chips_with_mmio")] = self.number(number, "chips_with_mmio", 0xFFFF)
        return found

    def read_boards(self) -> dict[int, str]:
        """From `chip_to_boardtype`; newer files say it in `boards` only."""
        found: dict[int, str] = {}
        for board in self.rows_of("boards"):
            facts = self.merged(board)
            if "board_type" in facts:
                name = self.board_name(facts["board_type"])
                chips = self.rows(facts.get("chips", Rows()), "boards: chips: expected a list")
                found.update((self.chip(chip, "boards: chips"), name) for chip in chips)
        for key, kind in self.chip_table("chip_to_boardtype").entries():
            found[self.chip(key, "chip_to_boardtype")] = self.board_name(kind)
        return found

    def merged(self, board: Value) -> Table:
        """A board is written as a list of tables with one key each; one table is as good."""
        merged = Table()
        for part in board if isinstance(board, Rows) else [board]:
            merged.update(self.table(part, "boards: expected board_id, board_type and chips"))
        return merged

    def board_name(self, name: Value) -> str:
        lower = self.text(name, "board type: expected a name").lower()
        return next((known for known in _BOARDS if lower.startswith(known)), lower[:40])

    # Links

    def read_links(self) -> Iterator[Link]:
        used: dict[Port, int] = {}
        for row in self.rows_of("ethernet_connections"):
            one, other = self.ends(row, "ethernet_connections")
            a, b = self.port(one, used), self.port(other, used)
            if a.chip == b.chip:
                raise self.wrong(row, f"ethernet_connections: the link joins chip {a.chip} to itself")
            yield Link.between(a, b)

    def read_outside(self) -> Iterator[OutsideLink]:
        """A channel may have a link inside as well: TT-Metal's own files of a Closetbox have such, and load."""
        key = "ethernet_connections_to_remote_devices"
        used: dict[Port, int] = {}
        for row in self.rows_of(key):
            near, far = self.ends(row, key)
            unique_id = self.number(self.field(far, "remote_chip_id"), f"{key}: remote_chip_id", MAX_UNIQUE_ID)
            yield OutsideLink(self.port(near, used), unique_id, self.channel(far))

    def ends(self, row: Value, key: str) -> tuple[Table, Table]:
        ends = self.rows(row, f"{key}: expected a list")
        if len(ends) != 2 or not all(isinstance(end, Table) for end in ends):
            raise self.wrong(row, f"{key}: a link is a list of two ends, each with a chip and a chan")
        return ends[0], ends[1]  # type: ignore[return-value]

    def port(self, end: Table, used: dict[Port, int]) -> Port:
        port = Port(self.chip(self.field(end, "chip"), "ethernet link"), self.channel(end))
        if port in used:
            raise self.wrong(end, f"{port} has a link already, at line {used[port]}; a channel holds one")
        used[port] = end.line
        return port

    def channel(self, end: Table) -> int:
        return self.number(self.field(end, "chan"), "ethernet link: chan", CHANNELS[self.arch] - 1)

    def field(self, end: Table, name: str) -> Value:
        if name not in end:
            raise self.wrong(end, f"ethernet link: an end without `{name}`")
        return end[name]


def _ranges(chips: tuple[int, ...]) -> str:
    dense = chips == tuple(range(chips[0], chips[-1] + 1))
    return f"{chips[0]}..{chips[-1]}" if dense else ", ".join(map(str, chips[:16]))
