"""Reads the files of data/: the boards, which board sits in which tray of a host, and which cables there are.

One file may describe several systems: the same boards with one or another group of the cables.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from softmesh.errors import did_you_mean
from softmesh.hardware import ClusterType
from softmesh.input_files.yaml_files import Table, Text, Value, YamlFields, read_table, shown
from softmesh.systems.chip import CHIPS, Chip

# The grammar of these files: tables with known keys, numbers such as `0,4-7`, ports such as `0/8,9 1/6,7`.
# Every error names file and line.


MOST_NUMBERS = 4096
_NUMBERS = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?){0,99}", re.ASCII)


class BoardPort(NamedTuple):
    """One Ethernet channel of the chip at one location of a board."""

    location: int
    channel: int

    def __str__(self) -> str:
        return f"{self.location}/{self.channel}"


class DataFile(YamlFields):
    def fields(self, value: Value, required: Collection[str], optional: Collection[str] = ()) -> Table:
        """`value` as a table that has all the required keys and none that is unknown."""
        found = self.table(value)
        known = [*required, *optional]
        for key, _ in found.entries():
            if key not in known:
                hint = did_you_mean(key, known) or f" Known are {', '.join(known)}."
                raise self.wrong(key, f"unknown key {shown(key)}.{hint}")
        for name in required:
            if name not in found:
                raise self.wrong(found, f"the key {name!r} is missing")
        return found

    def texts(self, value: Value | None) -> list[Text]:
        """A list of words; a key that is not there is an empty list."""
        return [] if value is None else [self.text(item) for item in self.rows(value)]

    def one_of(self, value: Value, known: Collection[str], what: str) -> str:
        word = self.text(value)
        if word not in known:
            hint = did_you_mean(word, known) or f" There are {', '.join(known)}."
            raise self.wrong(word, f"{shown(word)} is no {what}.{hint}")
        return str(word)

    def numbers(self, value: Value) -> list[int]:
        """
        >>> numbers("0,4-7")
        [0, 4, 5, 6, 7]
        """
        text = self.text(value)
        if not _NUMBERS.fullmatch(text):
            raise self.wrong(text, f"expected numbers such as 0,4-7, found {shown(text)}")
        ranges = [_counted(part) for part in text.split(",")]
        if not all(ranges):
            raise self.wrong(text, f"{shown(text)} counts down; a range goes upwards")
        found = [number for numbers in ranges for number in numbers]
        if len(found) > MOST_NUMBERS or len(set(found)) < len(found):
            raise self.wrong(text, f"{shown(text)} names a number twice, or more than {MOST_NUMBERS}")
        return found

    def board_ports(self, text: Text) -> list[BoardPort]:
        """
        >>> board_ports("0/14,15 1/6,7")
        [BoardPort(0, 14), BoardPort(0, 15), BoardPort(1, 6), BoardPort(1, 7)]
        """
        found: list[BoardPort] = []
        for part in text.split() or [""]:
            location, _, channels = part.partition("/")
            if not (location.isdecimal() and channels):
                raise self.wrong(text, f"expected ports such as 0/8,9, found {shown(text)}")
            (at,) = self.numbers(part_of(text, location))
            found += [BoardPort(at, channel) for channel in self.numbers(part_of(text, channels))]
        return found

    def ends(self, text: Text) -> tuple[Text, Text]:
        """The two sides of `a <-> b`."""
        sides = [side.strip() for side in text.split("<->")]
        if len(sides) != 2 or not all(sides):
            raise self.wrong(text, f"expected two ends such as a <-> b, found {shown(text)}")
        return part_of(text, sides[0]), part_of(text, sides[1])


def part_of(whole: Value, piece: str) -> Text:
    """A piece of a text, which remembers the line of the whole."""
    return Text.at(whole.line, piece)


def _counted(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


# The boards of data/boards.yaml: chips, the links between them, connectors for cables.


BOARDS_FILE = Path(__file__).parent / "data" / "boards.yaml"


@dataclass(frozen=True)
class Board:
    name: str
    chip: Chip
    locations: tuple[int, ...]
    pcie: tuple[int, ...]  # the locations on the host's bus
    links: tuple[tuple[BoardPort, BoardPort], ...]
    connectors: dict[str, tuple[BoardPort, ...]]


@lru_cache(maxsize=1)
def built_in_boards() -> dict[str, Board]:
    return read_boards(BOARDS_FILE)


def read_boards(path: Path) -> dict[str, Board]:
    tables = read_table(path)
    return {name: _Reader(path, name).board(table) for name, table in tables.items()}


class _Reader:
    """One board. Every channel leads to one place only: a link on the board, or one connector."""

    def __init__(self, path: Path, name: str) -> None:
        self.file = DataFile(path)
        self.name = name
        self.locations: tuple[int, ...] = ()
        self.ports = 0
        self.users: dict[BoardPort, str] = {}

    def board(self, value: Value) -> Board:
        fields = self.file.fields(value, ["chip", "locations", "pcie"], ["links", "connectors"])
        chip = CHIPS[self.file.one_of(fields["chip"], CHIPS, "chip")]
        self.locations, self.ports = tuple(self.file.numbers(fields["locations"])), chip.ethernet_ports
        pcie = tuple(self.file.numbers(fields["pcie"]))
        for location in pcie:
            self.check_location(location, fields["pcie"])
        links = [pair for text in self.file.texts(fields.get("links")) for pair in self.link(text)]
        connectors = self.file.table(fields.get("connectors", Table()))
        return Board(
            self.name,
            chip,
            self.locations,
            pcie,
            tuple(links),
            {name: self.connector(name, ports) for name, ports in connectors.items()},
        )

    def link(self, text: Text) -> list[tuple[BoardPort, BoardPort]]:
        one, other = (self.taken(end, f"the link {text}") for end in self.file.ends(text))
        if len(one) != len(other):
            raise self.file.wrong(text, f"{len(one)} channels cannot be joined with {len(other)}")
        return list(zip(one, other, strict=True))

    def connector(self, name: str, ports: Value) -> tuple[BoardPort, ...]:
        return tuple(self.taken(self.file.text(ports), f"connector {name}"))

    def taken(self, text: Text, user: str) -> list[BoardPort]:
        board_ports = self.file.board_ports(text)
        for board_port in board_ports:
            self.check_location(board_port.location, text)
            if board_port.channel >= self.ports:
                raise self.file.wrong(
                    text, f"{self.name} has no channel {board_port}: its chips have {self.ports}, from 0"
                )
            if board_port in self.users:
                raise self.file.wrong(
                    text,
                    f"channel {board_port} of {self.name} is used twice: {self.users[board_port]}, {user}",
                )
            self.users[board_port] = user
        return board_ports

    def check_location(self, location: int, where: Value) -> None:
        if location not in self.locations:
            known = ", ".join(map(str, self.locations))
            raise self.file.wrong(where, f"{self.name} has no location {location}, only {known}")


MOST_HOSTS = 1024


@dataclass(frozen=True)
class PlacedBoard:
    """A board in its tray: the id of the chip at each location, and the PCIe number of those on the bus."""

    board: Board
    ids: dict[int, int]
    pcie: dict[int, int]


@dataclass(frozen=True)
class Variant:
    """One system of a file: its names, and which groups of cables it has."""

    name: str
    aliases: tuple[str, ...]
    summary: str
    cabling: tuple[str, ...]


@dataclass(frozen=True)
class SystemFile:
    """What one file says. `like` names the system that each host is, where the file lists no boards itself."""

    path: Path
    cluster_type: ClusterType
    variants: dict[str, Variant]
    boards: dict[int, PlacedBoard]
    cabling: dict[str, tuple[Text, ...]]
    hosts: tuple[str, ...]
    like: str | None


def read_system_file(path: Path) -> SystemFile:
    file = DataFile(path)
    fields = file.fields(read_table(path), ["systems", "cluster_type"], ["boards", "like", "hosts", "cabling"])
    if ("boards" in fields) == ("like" in fields):
        raise file.wrong(fields["systems"], "give either the boards of a host, or the system it is like")
    groups = file.table(fields.get("cabling", Table()))
    cabling = {name: tuple(file.texts(cables)) for name, cables in groups.items()}
    cluster_type = file.one_of(fields["cluster_type"], ClusterType.__members__, "cluster type")
    return SystemFile(
        path,
        ClusterType[cluster_type],
        {name: _variant(file, name, value, cabling) for name, value in file.table(fields["systems"]).items()},
        _placed_boards(file, fields["boards"]) if "boards" in fields else {},
        cabling,
        _hosts(file, fields.get("hosts")),
        str(file.text(fields["like"])) if "like" in fields else None,
    )


def _variant(file: DataFile, name: str, value: Value, groups: dict[str, tuple[Text, ...]]) -> Variant:
    fields = file.fields(value, ["summary"], ["aliases", "cabling"])
    cabling = [file.one_of(group, groups, "group of cables") for group in file.texts(fields.get("cabling"))]
    aliases = map(str, file.texts(fields.get("aliases")))
    return Variant(str(name), tuple(aliases), str(file.text(fields["summary"])), tuple(cabling))


def _hosts(file: DataFile, value: Value | None) -> tuple[str, ...]:
    if value is None:
        return ("host-0",)
    names = tuple(str(name) for name in file.texts(value))
    if not names or len(names) > MOST_HOSTS or len(set(names)) < len(names):
        raise file.wrong(value, f"1 to {MOST_HOSTS} hosts are possible, each with a name of its own")
    return names


def _placed_boards(file: DataFile, value: Value) -> dict[int, PlacedBoard]:
    placed: dict[int, PlacedBoard] = {}
    for key, entry in file.table(value).entries():
        (tray, *more) = file.numbers(key)
        if more or tray in placed:
            raise file.wrong(entry, f"{key!r} is no tray number of its own")
        placed[tray] = _placed(file, entry)
    if not placed:
        raise file.wrong(value, "a host without boards is no system")
    ids = sorted(chip for board in placed.values() for chip in board.ids.values())
    if ids != list(range(len(ids))):
        raise file.wrong(value, f"the chip ids of a host must be 0 to {len(ids) - 1}, each once")
    pcie = [number for board in placed.values() for number in board.pcie.values()]
    if len(set(pcie)) < len(pcie):
        raise file.wrong(value, "two chips of a host have the same PCIe number")
    if len({board.board.chip for board in placed.values()}) > 1:
        raise file.wrong(value, "the boards of a machine must have chips of one kind")
    return placed


def _placed(file: DataFile, value: Value) -> PlacedBoard:
    fields = file.fields(value, ["board", "ids", "pcie"])
    boards = built_in_boards()
    board = boards[file.one_of(fields["board"], boards, "board")]

    def by_location(key: str, locations: tuple[int, ...]) -> dict[int, int]:
        numbers = file.numbers(fields[key])
        if len(numbers) != len(locations):
            raise file.wrong(fields[key], f"{board.name} needs {len(locations)} {key}, here are {len(numbers)}")
        return dict(zip(locations, numbers, strict=True))

    return PlacedBoard(board, by_location("ids", board.locations), by_location("pcie", board.pcie))
